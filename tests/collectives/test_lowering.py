"""Collectives written out as sends and receives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.collectives import template
from fabricsim.collectives.lowering import Lowering
from fabricsim.errors import InputError
from fabricsim.records.program import NONE
from fabricsim.scenario.collectives import ALGORITHMS
from fabricsim.traces.export import exported
from fabricsim.traces.trace import COMMUNICATION, Trace
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, Program

FLAT = [(one, name) for name, each in ALGORITHMS.own.items() for one in each.of if not each.by_host]
_POWERS_ONLY = {"halving_doubling", "rabenseifner", "recursive_doubling", "recursive_halving"}


def _program(collective: str, members: int, size: int, calls: int = 1) -> Program:
    """Ranks count backwards, so that places in the group and ranks differ."""
    builder = ProgramBuilder(["work", "collective"])
    ranks = tuple(range(members))[::-1]
    numbers = [builder.call(Call(collective, ranks, size, "data")) for _ in range(calls)]
    for rank in range(members):
        builder.compute(rank, 1000 * rank, "work")
        for number in numbers:
            builder.join(number, rank, "collective")
        builder.compute(rank, 5, "work")
    return builder.build()


def _run(trace: Trace) -> list[tuple[int, int, int]]:
    """Carry a trace out, and give source, target and bytes of each message; stops if it cannot go on."""
    sent, done = {}, [set() for _ in trace.recordings]
    messages = []
    waiting = [(recording, node) for recording in trace.recordings for node in range(len(recording.nodes))]
    before = {recording.rank: {node: set() for node in range(len(recording.nodes))} for recording in trace.recordings}
    for recording in trace.recordings:
        for edge in recording.edges:
            before[recording.rank][int(edge["after"])].add(int(edge["before"]))
    while waiting:
        left = []
        for recording, node in waiting:
            rank, row = recording.rank, recording.nodes[node]
            ready = before[rank][node] <= done[rank]
            if ready and row["kind"] == COMMUNICATION:
                what = recording.communications[row["communication"]]
                if what.operation == "send":
                    key = (rank, what.peer, what.tag)
                    assert key not in sent, "one tag, one message"
                    sent[key] = what.size
                    messages.append((rank, what.peer, what.size))
                else:
                    ready = (what.peer, rank, what.tag) in sent
                    assert not ready or sent[what.peer, rank, what.tag] == what.size
            if ready:
                done[rank].add(node)
            else:
                left.append((recording, node))
        assert len(left) < len(waiting), "nothing goes on"
        waiting = left
    received = sum(what.operation == "recv" for r in trace.recordings for what in r.communications)
    assert received == sum(what.operation == "send" for r in trace.recordings for what in r.communications)
    return messages


@pytest.mark.slow
@settings(max_examples=60)
@given(
    which=st.sampled_from(sorted(FLAT)),
    members=st.integers(2, 8),
    size=st.integers(1, 5000),
    calls=st.integers(1, 2),
)
def test_every_message_arrives_and_the_bytes_are_those_of_the_algorithm(
    which: tuple[str, str], members: int, size: int, calls: int
) -> None:
    collective, algorithm = which
    if collective == "send_recv":
        members = 2
    if algorithm in _POWERS_ONLY:
        members = 1 << members.bit_length() - 1
    program = _program(collective, members, size, calls)
    messages = _run(exported(program, "x", Lowering(program, {collective: algorithm})))
    shares = template(collective, members, algorithm).shares()
    assert sum(bytes_ for *_, bytes_ in messages) == pytest.approx(calls * size * shares.sum(), abs=shares.size * calls)


def test_a_ring_passes_on_what_it_has_received() -> None:
    program = _program("all_gather", 3, 300)
    recording = exported(program, "x", Lowering(program, {})).recordings[1]
    what = [recording.communications[number] for number in recording.nodes["communication"] if number != NONE]
    assert [(one.operation, one.peer, one.size) for one in what] == [
        ("send", 0, 100),
        ("recv", 2, 100),
        ("send", 0, 100),
        ("recv", 2, 100),
    ]
    work, first, arrived, second, last, end = range(6)
    assert {tuple(edge)[:2] for edge in recording.edges.tolist()} == {
        (work, first),
        (work, arrived),
        (first, second),
        (arrived, second),
        (arrived, last),
        (second, end),
        (last, end),
    }


def test_alone_nothing_is_sent() -> None:
    program = _program("all_reduce", 1, 300)
    trace = exported(program, "x", Lowering(program, {}))
    assert len(trace.recordings[0].nodes) == 3
    assert _run(trace) == []


def test_tags_tell_calls_apart() -> None:
    program = _program("ring_exchange", 3, 10, calls=4)
    counts = Counter(_run(exported(program, "x")))
    assert set(counts.values()) == {4}


@pytest.mark.parametrize(("algorithm", "problem"), [("star", "no algorithm 'star'"), ("collnet_direct", "in switches")])
def test_algorithms_that_cannot_be_written_out(algorithm: str, problem: str) -> None:
    program = _program("all_reduce", 4, 300)
    with pytest.raises(InputError, match=problem):
        Lowering(program, {"all_reduce": algorithm})


def test_a_job_is_written_out_up_to_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabricsim.collectives.lowering.MOST_MESSAGES", 24)
    Lowering(_program("all_reduce", 4, 64), {})
    for members, calls in ((5, 1), (4, 2)):
        with pytest.raises(InputError, match=f"all_reduce of {members} ranks has more than 24 messages"):
            Lowering(_program("all_reduce", members, 64, calls), {})
