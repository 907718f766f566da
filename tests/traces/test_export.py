"""Programs as traces."""

from __future__ import annotations

import pytest

from fabricsim.errors import InputError
from fabricsim.records.program import NONE
from fabricsim.traces.export import exported
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, Communication, ProcessGroup
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call


def test_calls_become_communications() -> None:
    builder = ProgramBuilder(["work", "talk"])
    for collective, ranks in (
        ("broadcast", (2, 0, 1)),
        ("send_recv", (0, 2)),
        ("ring_exchange", (2, 0, 1)),
        ("all_gather", (2, 0, 1)),
    ):
        call = builder.call(Call(collective, ranks, 60, "data"))
        for rank in ranks:
            builder.compute(rank, 7, "work")
            builder.join(call, rank, "talk")
    trace = exported(builder.build(), "a job")
    assert trace.world == 3
    first = trace.recordings[0]
    assert first.groups == (ProcessGroup("1", "data", (2, 0, 1), 3),)
    assert [first.names[name] for name in first.nodes["name"]] == ["work", "talk"] * 3 + ["talk", "work", "talk"]
    kinds = [COMPUTE, COMMUNICATION] * 3 + [COMMUNICATION, COMPUTE, COMMUNICATION]
    assert first.nodes["kind"].tolist() == kinds
    assert [first.communications[what] for what in first.nodes["communication"] if what != NONE] == [
        Communication("broadcast", 0, 60, peer=2),
        Communication("send", NONE, 60, peer=2, tag=0),
        Communication("send", NONE, 60, peer=1, tag=1),
        Communication("recv", NONE, 60, peer=2, tag=1),
        Communication("all_gather", 0, 60),
    ]
    assert Communication("recv", NONE, 60, peer=0, tag=0) in trace.recordings[2].communications
    edges = [tuple(edge)[:2] for edge in first.edges.tolist()]
    assert edges == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7), (7, 8)]


def test_ranks_that_wait_for_one_another_are_refused() -> None:
    builder = ProgramBuilder(["work"])
    first = builder.compute(0, 5, "work")
    builder.compute(1, 5, "work", after=[first])
    with pytest.raises(InputError, match="a job: an operation of rank 0 is waited for by another rank"):
        exported(builder.build(), "a job")
