"""Chakra written by fabricsim: read back equal, and as the protobuf package and ASTRA-sim's feeder have it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.errors import InputError
from fabricsim.records.program import NONE
from fabricsim.traces import trace as types
from fabricsim.traces.chakra import schema
from fabricsim.traces.chakra.nodes import COLLECTIVES
from fabricsim.traces.chakra.writer import write
from fabricsim.traces.groups import ALL_RANKS
from fabricsim.traces.readers import read
from fabricsim.traces.trace import Communication, Recording, RecordingBuilder, Trace
from tests.reference import chakra_messages

_RANKS = 3
_NUMBERS = st.integers(0, 2**40)
_KNOWN = st.just(NONE) | _NUMBERS
_WORDS = st.text(st.characters(codec="utf-8"), max_size=6)
_LANES = st.sampled_from(
    [("any", ""), ("stream", "stream 7"), ("thread", "thread 3"), ("stream", "compute 0"), ("cpu", "cpu 1")]
)
_GROUPS = ((), ("1", "", (0, 1, 2)), ("tensor", "tp", (0, 2)), ("0", ALL_RANKS, ()), ("7", "", (1, 2)))


@st.composite
def _communications(draw: st.DrawFn, group: int, rank: int) -> Communication:
    operation = draw(st.sampled_from([*COLLECTIVES, "send", "recv"]))
    size = draw(_NUMBERS)
    if operation in {"send", "recv"}:
        tag, datatype = draw(st.integers(0, 2**33)), draw(st.sampled_from(["", "float16"]))
        return Communication(
            operation, group, size, datatype, peer=(rank + 1) % _RANKS, tag=tag, nic=draw(st.integers(-1, 1))
        )
    rooted = operation in {"broadcast", "reduce", "gather", "scatter"}
    parts = tuple(draw(st.lists(_NUMBERS, max_size=3))) if operation == "all_to_all" else ()
    return Communication(
        operation, group, size, peer=draw(st.integers(0, 2)) if rooted else NONE, sent=parts, received=parts
    )


@st.composite
def _recordings(draw: st.DrawFn, rank: int) -> Recording:
    builder = RecordingBuilder(f"rank {rank}")
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.integers(0, len(types.KINDS) - 1))
        communication = None
        if kind == types.COMMUNICATION:
            made = draw(st.sampled_from(_GROUPS))
            group = NONE
            if made:
                everyone = made[1] == ALL_RANKS  # as a reader has it that knows how many ranks there are
                ranks = tuple(range(_RANKS)) if everyone else made[2]
                group = builder.group(made[0], made[1], ranks, len(ranks))
            communication = draw(_communications(group, rank))
        flops = draw(_KNOWN)
        unknown = st.just(NONE) if kind == types.COMMUNICATION or flops > 0 else st.nothing()
        builder.node(
            kind,
            builder.lane(*draw(_LANES)),
            draw(_WORDS | st.just("Memcpy HtoD")),
            communication=communication,
            sequence=draw(_KNOWN),
            start=draw(_KNOWN),
            duration=draw(unknown | _NUMBERS),
            work=(flops, draw(_KNOWN)),
        )
        for before in draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else ():
            builder.edge(before, number)
    return builder.build(rank, _RANKS, origin=draw(_NUMBERS), host=draw(_WORDS), device=draw(_WORDS))


_TRACES = st.tuples(*(_recordings(rank) for rank in range(_RANKS))).map(lambda made: Trace("test", made, _RANKS))


def _plain(recording: Recording) -> dict[str, Any]:
    """What a recording says, without the numbers under which it keeps it."""
    groups = [group._asdict() for group in recording.groups]
    communications = [
        {**what._asdict(), "group": None if what.group == NONE else groups[what.group]}
        for what in recording.communications
    ]
    nodes = [
        {
            **dict(zip(types.NODE.names, node, strict=True)),
            "lane": recording.lanes[node[1]],
            "name": recording.names[node[2]],
            "communication": None if node[3] == NONE else communications[node[3]],
        }
        for node in recording.nodes.tolist()
    ]
    origin = recording.origin if (recording.nodes["start"] != NONE).any() else 0
    kept = {key: getattr(recording, key) for key in ("rank", "world", "host", "device")}
    return {**kept, "nodes": nodes, "edges": sorted(recording.edges.tolist()), "origin": origin}


@pytest.mark.slow
@settings(max_examples=60)
@given(trace=_TRACES)
def test_read_back_equal_and_as_the_package_has_it(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert write(trace, Path(folder) / "job") == ()
        again = read([folder])
        for file in Path(folder).glob("*.et"):
            with file.open("rb") as stream:
                for number, message in enumerate(schema.messages(stream)):
                    mine = schema.decode_node(message) if number else schema.decode_metadata(message)
                    assert mine == chakra_messages.decoded(message, first=not number)
    assert again.world == trace.world
    assert [_plain(recording) for recording in again.recordings] == [_plain(one) for one in trace.recordings]


def test_what_the_feeder_reads(tmp_path: Path) -> None:
    builder = RecordingBuilder("a job")
    lane = builder.lane("any", "")
    tensor = builder.group("tensor", "", (0, 2), 2)
    forward = builder.node(types.COMPUTE, lane, "forward", duration=1_400_000, work=(50, 60))
    gather = builder.node(types.COMMUNICATION, lane, "gather", communication=Communication("all_gather", tensor, 4096))
    builder.edge(forward, gather)
    send = Communication("send", NONE, 100, peer=2, tag=7)
    builder.edge(gather, builder.node(types.COMMUNICATION, lane, "send", communication=send))
    builder.node(types.HOST, lane, "python", duration=1_400_000)
    write(Trace("test", (builder.build(0, 3),), 3), tmp_path / "job")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.0.et", "job.groups.json"]
    assert json.loads((tmp_path / "job.groups.json").read_text()) == {"1": [0, 2]}
    with (tmp_path / "job.0.et").open("rb") as stream:
        nodes = [schema.decode_node(message) for message in list(schema.messages(stream))[1:]]
    attributes = [
        {one.name: (one.kind, one.value) for one in node.attributes if "fabricsim" not in one.name} for node in nodes
    ]
    assert [node.type for node in nodes] == [schema.COMP, schema.COMM_COLL, schema.COMM_SEND, schema.COMP]
    assert [node.data for node in nodes] == [(), (0,), (1,), ()]
    assert [node.duration for node in nodes] == [1, 0, 0, 2]  # 1.4 µs each: rounded so that the sum is right
    on_device, by_host = {"is_cpu_op": ("bool", False)}, {"is_cpu_op": ("bool", True)}
    assert attributes == [
        {**on_device, "num_ops": ("int64", 50), "tensor_size": ("uint64", 60)},
        {**on_device, "comm_type": ("int64", 2), "comm_size": ("int64", 2048), "pg_name": ("string", "1")},
        {**on_device, "comm_dst": ("int32", 2), "comm_tag": ("int32", 7), "comm_size": ("int64", 100)},
        by_host,
    ]


def _alone(communication: Communication, rank: int = 0) -> Trace:
    builder = RecordingBuilder("a job")
    builder.group("g", "", (), NONE)
    builder.node(types.COMMUNICATION, builder.lane("any", ""), "x", communication=communication)
    return Trace("test", (builder.build(rank),), NONE)


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        (_alone(Communication("send_recv", 0, 5)), "'send_recv', for which Chakra has no name"),
        (_alone(Communication("unknown", 0, 5)), "'unknown', for which Chakra has no name"),
        (_alone(Communication("all_reduce", 0)), r"\(all_reduce\) whose bytes are not known"),
        (_alone(Communication("recv", 0, 5)), "a recv whose other end is not known"),
        (_alone(Communication("recv", 0, 5, peer=1, tag=NONE)), "a recv with any tag"),
        (_alone(Communication("all_gather", 0, 5)), "over a group of unknown size"),
        (_alone(Communication("all_reduce", 0, 5), NONE), "does not say its rank"),
        (Trace("test", (RecordingBuilder("a job").build(0),), 1), "rank 0 does nothing"),
    ],
)
def test_what_cannot_be_written(trace: Trace, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^a job: .*{problem}"):
        write(trace, tmp_path / "job")
    assert not list(tmp_path.iterdir())


def test_what_is_lost_is_said(tmp_path: Path) -> None:
    builder = RecordingBuilder("a job")
    lane = builder.lane("any", "")
    for _ in range(2):
        builder.node(types.HOST, lane, "step")
    builder.edge(0, 1, on_start=True)
    builder.steps.append((1, 0, 5))
    group = builder.group("g", "", (), 2)
    builder.node(types.COMMUNICATION, lane, "x", communication=Communication("all_reduce", group, 5))
    lost = " | ".join(write(Trace("test", (builder.build(0),), NONE), tmp_path / "job"))
    for part in ("who is in group 'g'", "marks of iterations", "on the start of an operation", "times of some"):
        assert part in lost


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file"):
        write(_alone(Communication("all_reduce", 0, 5)), tmp_path / "absent" / "job")
