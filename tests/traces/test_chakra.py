"""The reader of Chakra execution traces."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.chakra import reader as chakra
from fabricsim.traces.chakra.schema import (
    CHECKPOINT,
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    MEM_LOAD,
    METADATA,
    Attribute,
    ChakraNode,
    Metadata,
    Tensors,
    encode_file_message,
    encode_metadata,
    encode_node,
)
from fabricsim.traces.readers import read
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, HOST, Communication, Lane, ProcessGroup, Recording


def _file(*nodes: ChakraNode) -> bytes:
    messages = [encode_metadata(Metadata("0.0.4")), *map(encode_node, nodes)]
    return b"".join(map(encode_file_message, messages))


def _one(folder: Path, *nodes: ChakraNode) -> Recording:
    (folder / "job.0.et").write_bytes(_file(*nodes))
    return read([folder / "job.0.et"]).recordings[0]


def _with(*attributes: tuple[str, object], **fields: object) -> ChakraNode:
    kinds = {bool: "bool", int: "int64", str: "string"}
    made = tuple(Attribute(name, kinds[type(value)], value) for name, value in attributes)
    return ChakraNode(**{"type": COMP, "attributes": made, **fields})


def _collective(number: int, *attributes: tuple[str, object], id_: int = 0) -> ChakraNode:
    return _with(("comm_type", number), ("comm_size", 1000), *attributes, id=id_, type=COMM_COLL)


def test_kinds_times_and_dependencies(tmp_path: Path) -> None:
    recording = _one(
        tmp_path,
        _with(("num_ops", 7), ("tensor_size", 8), id=5, name="gemm", data=(9, 9), duration=3),
        _with(("is_cpu_op", True), ("tid", 2), id=9, name="python", start=1_700_000_000_000_001),
        _with(("stream", 7), id=1, control=(5,), start=1_700_000_000_000_003),
        _with(("tensor_size", 6), id=2, type=MEM_LOAD),
        _with(("stream", 7), id=3, name="Memcpy DtoH (Device -> Pinned)"),
    )
    nodes = recording.nodes
    assert nodes["kind"].tolist() == [COMPUTE, HOST, COMPUTE, COPY, COPY]
    assert nodes["duration"].tolist() == [3_000_000, 0, 0, NONE, 0]
    assert nodes["start"].tolist() == [NONE, 0, 2_000_000, NONE, NONE]
    assert recording.origin == 1_700_000_000_000_001_000
    assert (nodes["flops"][0], nodes["bytes"][0]) == (7, 8)
    assert recording.edges.tolist() == [(1, 0, False), (0, 2, False)]
    lanes = [recording.lanes[lane] for lane in nodes["lane"]]
    stream, free = Lane("stream", "stream 7"), Lane("any", "")
    assert lanes == [free, Lane("thread", "thread 2"), stream, free, stream]


def test_sizes_follow_nccl_tests(tmp_path: Path) -> None:
    numbers = {0: 1000, 1: 1000, 2: 4000, 3: 4000, 4: 1000, 5: 1000, 6: 1000, 7: 1000, 8: 1000}
    for rank in range(4):
        (tmp_path / f"job.{rank}.et").write_bytes(_file(*(_collective(number, id_=number) for number in numbers)))
    trace = read([tmp_path])
    assert trace.world == 4
    recording = trace.recordings[3]
    made = [recording.communications[what] for what in recording.nodes["communication"]]
    assert [what.size for what in made] == list(numbers.values())
    assert [what.operation for what in made][:5] == ["all_reduce", "reduce", "all_gather", "gather", "scatter"]
    assert [what.operation for what in made][5:] == ["broadcast", "all_to_all", "reduce_scatter", "reduce_scatter"]
    alone = read([tmp_path / "job.3.et"])
    assert alone.world == NONE
    assert Communication("all_gather", share=1000) in alone.recordings[0].communications


def test_any_kind_of_integer(tmp_path: Path) -> None:
    kinds = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
    nodes = [
        ChakraNode(
            number,
            type=COMM_SEND,
            attributes=(
                Attribute("comm_dst", kind, 3),
                Attribute("comm_size", kind, 70),
                Attribute("comm_tag", kind, 2),
            ),
        )
        for number, kind in enumerate(kinds)
    ]
    assert _one(tmp_path, *nodes).communications == (Communication("send", NONE, 70, peer=3, tag=2),)


def test_groups_from_a_file_beside(tmp_path: Path) -> None:
    for rank in (0, 2):
        (tmp_path / f"job.{rank}.et").write_bytes(_file(_collective(2, ("pg_name", "tensor"))))
    (tmp_path / "groups.json").write_text('{"tensor": [2, 0], "other": [1, 3]}')
    trace = read([tmp_path])
    assert trace.world == NONE  # ranks 1 and 3 are named, but not here
    for recording in trace.recordings:
        assert recording.groups == (ProcessGroup("tensor", "", (2, 0), 2),)
        assert recording.communications == (Communication("all_gather", 0, 2000),)


def test_groups_from_a_node_of_pytorch(tmp_path: Path) -> None:
    listed = '[{"pg_name": "0", "ranks": [], "group_size": 2}, {"pg_name": "5", "ranks": [0, 3]}]'
    init = ChakraNode(1, "## process_group:init ##", METADATA, inputs=Tensors(f"['{listed}']"))
    recording = _one(tmp_path, init, _collective(2, ("pg_name", "5"), id_=2), _collective(0, ("pg_name", "0"), id_=3))
    assert recording.groups == (ProcessGroup("0", "all ranks", (), NONE), ProcessGroup("5", "", (0, 3), 2))
    assert [what.size for what in recording.communications] == [2000, 1000]
    broken = _one(tmp_path, ChakraNode(1, "## process_group:init ##", METADATA, inputs=Tensors("['[{]']")))
    assert "the ranks of process groups, whose list cannot be read" in broken.missing


def test_control_dependencies_that_contradict_are_left_out(tmp_path: Path) -> None:
    recording = _one(
        tmp_path, ChakraNode(1, "f", COMP, control=(1,)), ChakraNode(2, "g", COMP, control=(1,), data=(1,))
    )
    assert recording.edges.tolist() == [(0, 1, False)]
    assert any("control dependencies" in missing for missing in recording.missing)


def test_lanes_that_contradict_have_no_order(tmp_path: Path) -> None:
    recording = _one(tmp_path, _with(("stream", 7), id=1, data=(2,)), _with(("stream", 7), id=2))
    assert recording.lanes == (Lane("any", "stream 7"),)
    assert any("order of streams" in missing for missing in recording.missing)


def test_what_a_capture_leaves_out_is_said(tmp_path: Path) -> None:
    kernel = "ncclKernel_Reduce_Scatter_RING_LL_Sum_float(ncclDevComm*)"
    recording = _one(
        tmp_path,
        _with(("is_cpu_op", True), ("tid", 1), id=1, name="c10d::reduce_scatter", type=COMM_COLL),
        _with(("is_cpu_op", False), ("tid", 14), id=2, name=kernel, type=COMM_COLL, data=(1, 77)),
        _with(("is_cpu_op", False), ("tid", 14), id=3, name="nccl", type=COMM_COLL),
        _with(("is_cpu_op", False), ("tid", 14), id=4, type=COMM_RECV),
    )
    assert recording.nodes["kind"].tolist() == [HOST, COMMUNICATION, COMMUNICATION, COMMUNICATION]
    assert [what.operation for what in recording.communications] == ["reduce_scatter", "unknown", "recv"]
    assert set(recording.missing) == {
        "what collectives do, but for the names of their kernels",
        "the bytes of communications",
        "the groups of communications, which are taken to be all ranks",
        "the other ends of sends and receives",
        "nodes on which others depend",
        "what waits for 3 of 3 communications",
    }


def test_what_is_recognised() -> None:
    trace = _file(ChakraNode(1, "x", COMP))
    assert chakra.recognises("anything", trace)
    assert chakra.recognises("job.3.et.gz", b"\0\0")
    assert chakra.recognises("job.json", b'{"workload_graph": [')
    assert chakra.recognises("groups.json", b' {"1": [0, 1]}')
    # a length of 123 is a brace
    begun = _file(ChakraNode(1, "x", COMP)).partition(b"\x07")[2]
    brace = encode_file_message(encode_metadata(Metadata("v" * 121)))
    assert brace[:1] == b"{"
    assert chakra.recognises("anything", brace + begun)
    for head in (b'{"schema": "1.0.2-chakra.0.0.4", "nodes": [', b'{"traceEvents": []}', b"plain text\n", b"", b"{}x"):
        assert not chakra.recognises("file.json", head)


def test_packed_and_in_json(tmp_path: Path) -> None:
    nodes = [{"Id": 4, "Name": "f", "NodeType": 4, "runtime": 5, "data_deps": [], "is_cpu_op": True}]
    nodes += [{"Id": 6, "NodeType": 7, "data_deps": [4, 4], "comm_type": 0, "comm_size": 12, "is_cpu_op": False}]
    packed = tmp_path / "job.1.json.gz"
    packed.write_bytes(gzip.compress(json.dumps({"workload_graph": nodes, "ngpus": 4}).encode()))
    trace = read([packed])
    recording = trace.recordings[0]
    assert (trace.form, trace.world, recording.rank) == ("chakra", 4, 1)
    assert recording.nodes["kind"].tolist() == [HOST, COMMUNICATION]
    assert recording.nodes["duration"].tolist() == [5_000_000, NONE]
    assert recording.edges.tolist() == [(0, 1, False)]
    assert recording.communications == (Communication("all_reduce", size=12),)


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([], "holds no nodes"),
        ([ChakraNode(3), ChakraNode(3)], "message 3 has the id 3 of the one before; ids must differ"),
        ([ChakraNode(3), ChakraNode(4), ChakraNode(3)], "two nodes have the id 3"),
        ([ChakraNode(3, data=(4,)), ChakraNode(4, data=(3,))], "node 3 waits for itself"),
        ([ChakraNode(3, "f", CHECKPOINT + 1)], r"node 3 \('f'\) has the type 11"),
        ([ChakraNode(3, type=-1)], "has the type -1"),
        ([ChakraNode(3, type=COMP, duration=2**60)], "no operation takes 92 days"),
        ([_with(("comm_type", 10), type=COMM_COLL)], "has comm_type 10; the collectives are 0 to 9"),
        ([_with(("comm_size", "much"), type=COMM_COLL)], "has comm_size 'much'; write a number"),
        ([_with(("comm_dst", -4), type=COMM_SEND)], "has comm_dst -4"),
        ([_with(("comm_size", 2**60), type=COMM_SEND)], "has comm_size 1152921504606846976"),
        ([ChakraNode(1, start=1), ChakraNode(2, start=2**63)], "start more than 92 days apart"),
        ([_with(("fabricsim_kind", "communication"))], "is of the kind 'communication'"),
        ([_with(("fabricsim_lane", "rope 1"))], "runs on 'rope 1'"),
        ([_with(("fabricsim_sent", 4), type=COMM_COLL)], "has fabricsim_sent 4; write a list"),
    ],
)
def test_mistakes(tmp_path: Path, nodes: Sequence[ChakraNode], problem: str) -> None:
    with pytest.raises(TraceError, match=rf"job.0.et: .*{problem}"):
        _one(tmp_path, *nodes)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", '{"workload_graph": [{"Id": -1}]}', r"Expected `int` >= 0"),
        ("a.json", '{"workload_graph": [{"Id": 1e999}]}', "no JSON of Chakra"),
        ("a.json", '{"workload_graph": [{"Name": "f"}]}', "missing required field `Id`"),
        ("a.json", '{"workload_graph": [' + "[" * 100_000, "no JSON of Chakra"),
        ("a.json", '{"1": [0, 0]}', "group '1' has a rank twice"),
        ("a.json", '{"1": [0], "2": []}', "group '2' has no ranks"),
        ("a.json", '{"1": [0], "2": "all"}', "Expected `array`"),
        ("a.json", '{"1": [0, 123456789012]}', "Expected `int` <= 9999999"),
        ("a.et", "\x05", "it says that it has 5 bytes, and 0 follow"),
        ("a.et", "\x02\x0a\x00\x02\x0a\x05", r"message 2 is no part .*end too early"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TraceError, match=rf"{name}: .*{problem}"):
        read([tmp_path / name])


def test_lists_of_groups_that_contradict(tmp_path: Path) -> None:
    (tmp_path / "a.0.et").write_bytes(_file(_collective(0, ("pg_name", "1"))))
    (tmp_path / "b.json").write_text('{"1": [0, 1]}')
    (tmp_path / "c.json").write_text('{"1": [0, 2]}')
    with pytest.raises(TraceError, match=r"c.json: group '1' is of other ranks than in another list"):
        read([tmp_path])


_SAMPLES = (
    _file(
        _with(("is_cpu_op", True), ("tid", 1), id=1, name="step", duration=4),
        _collective(2, ("pg_name", "3"), id_=2),
        ChakraNode(3, "init process_group:init", METADATA, data=(1, 2), inputs=Tensors('[\'[{"pg_name": "3"}]\']')),
    ),
    b'{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": 2, "comm_size": 5, "data_deps": []}], "ngpus": 2}',
    b'{"3": [0, 1]}',
)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(_SAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "flip", "splice", "repeat"]))
        if how == "cut":
            del data[place:]
        elif how == "flip" and place < len(data):
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "splice":
            other = draw(st.sampled_from(_SAMPLES))
            data[place:place] = other[draw(st.integers(0, len(other))) :][: draw(st.integers(0, 40))]
        else:
            data[place:place] = draw(st.binary(min_size=1, max_size=3)) * draw(st.integers(1, 200))
    return bytes(data)


@pytest.mark.slow
@settings(max_examples=150)
@given(data=_mutated())
def test_damages_end_in_a_trace_or_one_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.0.et"
    path.write_bytes(data)
    with suppress(TraceError):
        assert len(read([path], "chakra").recordings[0].nodes) > 0


@pytest.mark.slow
def test_the_linked_capture(traces: Path) -> None:
    recording = read([traces / "chakra/feeder_tests_trace.tar.gz"]).recordings[0]
    assert len(recording.nodes) == 3664
    assert Counter(recording.nodes["kind"].tolist()) == {HOST: 2448, COMPUTE: 889, COPY: 320, COMMUNICATION: 7}
    made = [recording.communications[what] for what in recording.nodes["communication"] if what != NONE]
    assert Counter(what.operation for what in made) == {"broadcast": 2, "all_reduce": 5}
    assert {lane.name for lane in recording.lanes} == {"thread 1", "thread 2", "stream 7", "stream 14"}
    assert "what waits for 7 of 7 communications" in recording.missing


@pytest.mark.slow
def test_the_same_capture_in_json(traces: Path) -> None:
    names = ["chakra/feeder_tests_trace.tar.gz", "chakra/json_trace.tar.gz"]
    et, in_json = (read([traces / name], only="*/chakra.0.*").recordings[0] for name in names)
    assert np.array_equal(et.edges, in_json.edges)
    for column in ("kind", "duration"):
        alike = et.nodes["kind"] != COMMUNICATION
        assert np.array_equal(et.nodes[column][alike], in_json.nodes[column][alike])


def test_the_execution_trace_of_pytorch_is_another_form(traces: Path) -> None:
    with pytest.raises(TraceError, match=r"1\.0\.2-chakra\.0\.0\.4\.json: "):
        read([traces / "chakra/1.0.2-chakra.0.0.4.tgz"], "chakra")


@pytest.mark.slow
def test_a_generated_workload_and_its_groups(traces: Path) -> None:
    trace = read([traces / "chakra_llama/stage_llama_dp2tp2pp2.tar.xz"])
    assert trace.world == 8
    assert sum(len(recording.nodes) for recording in trace.recordings) == 10_720
    first = trace.recordings[0]
    assert first.groups == (ProcessGroup("5", "", (0, 2), 2), ProcessGroup("1", "", (0, 1), 2))
    gather = first.communications[0]
    assert (gather.operation, gather.size) == ("all_gather", 2 * 4_194_304)
    sent = Counter((one.rank, what.peer) for one in trace.recordings for what in one.communications if what.tag)
    assert all(count == sent[peer, rank] for (rank, peer), count in sent.items())


@pytest.mark.parametrize(("collective", "size"), [("all_gather", 4), ("reduce_scatter", 1), ("all_to_all", 1)])
def test_microbenchmarks_of_astrasim(traces: Path, collective: str, size: int) -> None:
    trace = read([traces / "astrasim/examples.tar.xz"], only=f"*/{collective}/4npus_1MB/*.et")
    assert trace.world == 4
    for recording in trace.recordings:
        assert recording.communications == (Communication(collective, NONE, size * 2**20),)
