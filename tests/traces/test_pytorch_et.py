from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.traces import readers
from fabricsim.traces.pytorch_et import reader as pytorch_et
from fabricsim.traces.pytorch_et.nodes import OperatorNode
from fabricsim.traces.pytorch_et.operators import work_of
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    KINDS,
    LAUNCH,
    WAIT,
    Communication,
    ProcessGroup,
    Recording,
)
from tests.reference import mutations

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
VIEW = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
COPY_ = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
ALL_REDUCE = "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group) -> Tensor[]"


def tensor(number: int, elements: int, item: int = 4, device: str = "cuda:1") -> list[Any]:
    # the memory of tensor n is n + 1000
    return [number, number + 1000, 0, elements, item, device]


def node(number: int, name: str, above: int, inputs: list[Any] | None = None, **more: object) -> dict[str, Any]:
    return {"id": number, "name": name, "above": above, "inputs": inputs or [], **more}


def record(number: int, above: int, inputs: list[Any], outputs: list[Any], **more: object) -> dict[str, Any]:
    return node(number, "record_param_comms", above, inputs, outputs=outputs, types=["Tensor(float)"], **more)


def flat(nodes: list[dict[str, Any]]) -> bytes:
    written = [
        {
            "name": one["name"],
            "id": one["id"],
            "rf_id": one["id"],
            "parent": one["above"],
            "tid": one.get("tid", 1),
            "op_schema": one.get("schema", ""),
            "inputs": one["inputs"],
            "input_shapes": one.get("shapes", []),
            "input_types": one.get("types", []),
            "outputs": one.get("outputs", []),
            "output_shapes": one.get("result_shapes", []),
            "output_types": [],
        }
        for one in nodes
    ]
    return json.dumps({"schema": "1.0.1", "pid": 1, "time": "now", "start_ts": 5, "nodes": written}).encode()


def nested(nodes: list[dict[str, Any]], schema: str = "1.1.0-chakra.0.0.4") -> bytes:
    written = [
        {
            "id": one["id"],
            "name": one["name"],
            "ctrl_deps": one["above"],
            "inputs": {"values": one["inputs"], "shapes": one.get("shapes", []), "types": one.get("types", [])},
            "outputs": {"values": one.get("outputs", []), "shapes": one.get("result_shapes", []), "types": []},
            "attrs": [
                {"name": "tid", "type": "uint64", "value": one.get("tid", 1)},
                {"name": "op_schema", "type": "string", "value": one.get("schema", "")},
                *({"name": key, "type": "", "value": value} for key, value in one.get("attrs", {}).items()),
            ],
            **one.get("plus", {}),
        }
        for one in nodes
    ]
    return json.dumps({"schema": schema, "pid": 1, "nodes": written, "finish_ts": 9}).encode()


def read_bytes(text: bytes, folder: Path, name: str = "trace.json") -> list[Recording]:
    (folder / name).write_bytes(text)
    return [one for source in sources([folder / name]) for one in pytorch_et.read(source)]


def communications(recording: Recording) -> list[Communication]:
    return [recording.communications[number] for number in recording.nodes["communication"] if number != NONE]


def named_edges(recording: Recording) -> set[tuple[str, str]]:
    names = [recording.names[number] for number in recording.nodes["name"]]
    return {(names[edge["before"]], names[edge["after"]]) for edge in recording.edges}


# One step of data parallelism: a product, its all-reduce under an operator, a wait, an update of the weights.
STEP = [
    node(2, "[pytorch|profiler|execution_trace|thread]", 1),
    node(
        3, "aten::matmul", 2, [tensor(90, 6), tensor(91, 8)], schema="aten::matmul(Tensor self, Tensor other) -> Tensor"
    ),
    node(
        4,
        "aten::mm",
        3,
        [tensor(90, 6), tensor(91, 8)],
        schema=MM,
        shapes=[[3, 2], [2, 4]],
        outputs=[tensor(92, 12)],
        result_shapes=[[3, 4]],
    ),
    node(
        5, "c10d::allreduce_", 2, [[tensor(92, 12)], "<Object>"], schema=ALL_REDUCE, outputs=[[tensor(92, 12)]], tid=2
    ),
    record(6, 5, [[tensor(92, 12)], 7, 94594108284448, 1, "allreduce", [], []], [[tensor(92, 12)]], tid=2),
    node(7, "nccl:all_reduce", 6, [tensor(92, 12)], tid=2),
    node(8, "aten::view", 2, [tensor(92, 12), [12]], schema=VIEW, outputs=[[93, 1092, 0, 12, 4, "cuda:1"]]),
    node(9, "aten::copy_", 2, [tensor(95, 1), tensor(96, 1), False], schema=COPY_, outputs=[tensor(95, 1)]),
    node(10, "record_param_comms", 2, [7, 0, 1, "wait", [], []]),
    node(11, "aten::add_", 2, [tensor(94, 12), tensor(97, 12), 1], schema=ADD, outputs=[tensor(94, 12)]),
    node(1, "[pytorch|profiler|execution_trace|process]", 1),
]
LISTED = [
    {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 4},
    {"pg_name": "7", "pg_desc": "tp", "backend_config": "cuda:nccl", "ranks": [1, 3], "group_size": 2},
]
INIT = node(3, "## process_group:init ##", 2, [json.dumps(LISTED)], types=["String"])
TP, ALL = ["7", "tp"], ["0", "default_pg"]


def data(
    number: int, name: str, elements: tuple[int, int], rank: int, group: list[str], **more: object
) -> dict[str, Any]:
    splits = more.pop("splits", ([], []))
    layout = [1, 2, 2] if group is TP else [0, 1, 4]
    inputs = [[tensor(number * 10, elements[0], 2)], [number, False], group, rank, name, *splits, *layout]
    one = record(number, 2, inputs, [tensor(number * 10 + 1, elements[1], 2)], **more)
    one["types"] = ["GenericList[Tensor(c10::BFloat16)]"]
    return one


GROUPED = [
    INIT,
    data(4, "_allgather_base", (6, 12), 1, TP),
    data(5, "_reduce_scatter_base", (12, 6), 1, TP),
    data(6, "broadcast", (5, 5), 0, TP),
    data(7, "send", (8, 8), 2, ALL),
    data(8, "recv", (9, 9), 0, TP),
    data(9, "all_to_allv", (12, 20), 3, ALL, splits=([1, 2, 0, 1], [1, 1, 2, 1])),
    data(20, "allreduce", (10, 10), 3, ALL, attrs={"in_msg_nelems": 30, "out_msg_nelems": 30, "dtype": "Half"}),
    record(21, 2, [[21, False], ALL, 3, "barrier", [], [], 0, 1, 4], []),
    data(22, "allreduce", (1, 1), 3, ALL) | {"above": 21},
    node(23, "record_param_comms", 2, [[0, False], ["", ""], 3, "init", [], [], -1, -1, 1]),
]


class TestOperators:
    def test_keeps_what_runs_a_kernel(self, tmp_path: Path) -> None:
        [recording] = read_bytes(flat(STEP), tmp_path)
        kinds = [KINDS[kind] for kind in recording.nodes["kind"]]
        assert kinds == ["compute", "communication", "copy", "compute"]
        assert [recording.names[number] for number in recording.nodes["name"]] == [
            "aten::mm",
            "allreduce",
            "aten::copy_",
            "aten::add_",
        ]
        assert set(recording.nodes["start"]) == set(recording.nodes["duration"]) == {NONE}

    def test_counts_work_by_shapes(self, tmp_path: Path) -> None:
        [recording] = read_bytes(flat(STEP), tmp_path)
        mm, _, copy, add = recording.nodes
        assert mm["flops"] == 2 * 3 * 2 * 4
        assert mm["bytes"] == 4 * (6 + 8 + 12)
        assert copy["bytes"] == 4 * 2  # what is overwritten is not read
        assert add["bytes"] == 4 * 3 * 12

    def test_both_schemas_say_the_same(self, tmp_path: Path) -> None:
        [old], [new] = read_bytes(flat(STEP), tmp_path), read_bytes(nested(STEP), tmp_path)
        assert (old.nodes == new.nodes).all()
        assert (old.edges == new.edges).all()
        assert (old.lanes, old.names, old.groups, old.communications) == (
            new.lanes,
            new.names,
            new.groups,
            new.communications,
        )

    def test_dependencies_are_of_data_launch_and_wait(self, tmp_path: Path) -> None:
        [recording] = read_bytes(flat(STEP), tmp_path)
        # add_ reads nothing that was reduced, but its thread has waited; copy_ was launched before
        assert named_edges(recording) == {("aten::mm", "allreduce"), ("allreduce", "aten::add_")}
        reads = node(9, "aten::add_", 2, [tensor(94, 12), [93, 1092, 0, 12, 4, "cuda:1"], 1], schema=ADD)
        [recording] = read_bytes(flat([*STEP[:7], reads]), tmp_path)
        assert named_edges(recording) == {("aten::mm", "allreduce"), ("allreduce", "aten::add_")}

    def test_memory_that_is_made_anew_depends_on_nothing(self, tmp_path: Path) -> None:
        made = node(8, "aten::mm", 2, [tensor(90, 6), tensor(91, 8)], schema=MM, outputs=[tensor(92, 12)])
        reads = node(9, "aten::add_", 2, [tensor(94, 12), tensor(92, 12), 1], schema=ADD)
        [recording] = read_bytes(flat([*STEP[:6], made, reads]), tmp_path)
        assert named_edges(recording) == {("aten::mm", "allreduce")}

    def test_tensors_of_the_host_are_work_of_the_host_where_there_is_a_device(self, tmp_path: Path) -> None:
        [host] = [node(12, "aten::mm", 2, [tensor(50, 4, 4, "cpu")] * 2, schema=MM, outputs=[tensor(51, 4, 4, "cpu")])]
        [recording] = read_bytes(flat([*STEP, host]), tmp_path)
        assert recording.nodes["kind"][-1] == HOST
        [recording] = read_bytes(flat([host]), tmp_path)
        assert recording.nodes["kind"].tolist() == [COMPUTE]

    @pytest.mark.parametrize(
        ("schema", "has"),
        [
            (VIEW, False),
            ("aten::empty.memory_format(SymInt[] size) -> Tensor", False),
            ("aten::to.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)", False),
            ("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size) -> Tensor(a)[]", False),
            ("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()", True),
            ("c10d::allreduce_(Tensor[] tensors) -> Tensor[]", False),
            ("fbgemm::bounds_check_indices(Tensor a) -> ()", True),
            ("", False),
            ("no schema", False),
        ],
    )
    def test_views_and_allocations_run_no_kernel(self, schema: str, *, has: bool) -> None:
        call = OperatorNode(id=2, name="", parent=1, inputs=[tensor(5, 3)], outputs=[tensor(5, 3)])
        assert (work_of(call, schema, "") is not None) == has

    def test_operators_of_extensions_run_kernels_beside_those_that_they_call(self, tmp_path: Path) -> None:
        outer = node(4, "fbgemm::lookup", 2, [tensor(90, 6)], schema="fbgemm::lookup(Tensor a) -> Tensor")
        inner = node(5, "fbgemm::part", 4, [tensor(90, 6)], schema="fbgemm::part(Tensor a) -> Tensor")
        zero = node(6, "aten::zero_", 5, [tensor(91, 6)], schema="aten::zero_(Tensor(a!) self) -> Tensor(a!)")
        [recording] = read_bytes(flat([outer, inner, zero]), tmp_path)
        assert [recording.names[number] for number in recording.nodes["name"]] == ["fbgemm::part", "aten::zero_"]

    def test_kernels_that_were_compiled_count(self) -> None:
        call = OperatorNode(id=2, name="triton_poi_fused_0", parent=1, inputs=[tensor(5, 3)])
        assert work_of(call, "", "triton") is not None

    @pytest.mark.parametrize(
        ("name", "shapes", "arguments", "flops"),
        [
            ("bmm", [[5, 3, 2], [5, 2, 4]], [], 2 * 5 * 3 * 2 * 4),
            ("addmm", [[4], [3, 2], [2, 4]], [], 2 * 3 * 2 * 4),
            ("cudnn_convolution", [[1, 3, 8, 8], [16, 3, 5, 5]], [], 2 * 16 * 4 * 4 * 3 * 25),
            ("mm", [[3, 2], [3, 4]], [], NONE),
            ("sum", [[3, 2]], [], NONE),
        ],
    )
    def test_flops(self, name: str, shapes: list[Any], arguments: list[Any], flops: int) -> None:
        call = OperatorNode(
            2, name, 1, inputs=[tensor(5, 3), *arguments], input_shapes=shapes, output_shapes=[[1, 16, 4, 4]]
        )
        work = work_of(call, f"aten::{name}(Tensor self, Tensor other) -> Tensor", "")
        assert work is not None
        assert work.flops == flops

    def test_backward_of_a_convolution_is_one_more_for_each_gradient(self) -> None:
        shapes = [[1, 16, 4, 4], [1, 3, 8, 8], [16, 3, 5, 5]]
        schema = "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, bool[3] m) -> Tensor"
        for mask, times in (([True, True, False], 2), ([False, True, True], 1)):
            call = OperatorNode(2, "", 1, inputs=[tensor(5, 3), tensor(6, 3), tensor(7, 3), mask], input_shapes=shapes)
            work = work_of(call, schema, "")
            assert work is not None
            assert work.flops == times * 2 * 16 * 4 * 4 * 3 * 25


class TestCommunications:
    def test_sizes_as_nccl_tests_count_them(self, tmp_path: Path) -> None:
        [recording] = read_bytes(nested(GROUPED), tmp_path)
        found = communications(recording)
        assert [(one.operation, one.size) for one in found] == [
            ("all_gather", 2 * 12),
            ("reduce_scatter", 2 * 12),
            ("broadcast", 2 * 5),
            ("send", 2 * 8),
            ("recv", 2 * 9),
            ("all_to_all", 2 * 12),
            ("all_reduce", 2 * 30),
            ("barrier", NONE),
        ]
        assert [one.datatype for one in found[:-1]] == ["bfloat16"] * 6 + ["float16"]

    def test_ranks_are_global(self, tmp_path: Path) -> None:
        [recording] = read_bytes(nested(GROUPED), tmp_path)
        assert (recording.rank, recording.world) == (3, 4)
        assert recording.groups == (
            ProcessGroup("7", "tp", (1, 3), 2),
            ProcessGroup("0", "default_pg", (0, 1, 2, 3), 4),
        )
        found = communications(recording)
        assert [(one.operation, one.peer) for one in found if one.peer != NONE] == [
            ("broadcast", 1),
            ("send", 2),
            ("recv", 1),
        ]

    def test_splits_are_bytes_of_whole_rows(self, tmp_path: Path) -> None:
        [recording] = read_bytes(nested(GROUPED), tmp_path)
        [exchange] = [one for one in communications(recording) if one.operation == "all_to_all"]
        assert exchange.sent == (6, 12, 0, 6)  # 12 elements of 2 bytes in 4 rows
        assert exchange.received == (8, 8, 16, 8)

    def test_splits_of_nothing_and_of_more_ranks_than_attributes_list(self, tmp_path: Path) -> None:
        many = ([1] * 40, [2] * 40)
        nothing = data(4, "all_to_allv", (0, 4), 3, ALL, splits=([0] * 4, [1] * 4))
        large = data(5, "all_to_allv", (40, 80), 3, ALL, splits=many, attrs={"in_split_size": "[1, 1, ...]"})
        [recording] = read_bytes(nested([INIT, nothing, large]), tmp_path)
        first, second = communications(recording)
        assert (first.size, first.sent, first.received) == (0, (0,) * 4, (2,) * 4)
        assert (second.sent, second.received) == ((2,) * 40, (4,) * 40)

    def test_sequences(self, tmp_path: Path) -> None:
        [recording] = read_bytes(nested(GROUPED), tmp_path)
        assert recording.nodes["sequence"].tolist() == [4, 5, 6, 7, 8, 9, 20, 21]

    def test_groups_without_names(self, tmp_path: Path) -> None:
        [recording] = read_bytes(flat(STEP), tmp_path)
        assert recording.groups == (ProcessGroup("0", "", (), NONE),)
        assert recording.rank == 1
        other = record(12, 2, [[tensor(92, 12)], 3, 555, 0, "all_to_allv", [6, 6], [6, 6]], [tensor(92, 12)])
        [recording] = read_bytes(flat([*STEP, other]), tmp_path, "et_rank_1.json")
        assert recording.groups == (
            ProcessGroup("group 0 of rank 1", "", (), NONE),
            ProcessGroup("group 1 of rank 1", "", (), 2),
        )
        assert any("addresses" in sentence for sentence in recording.missing)

    def test_groups_by_address_and_as_python_wrote_them(self, tmp_path: Path) -> None:
        text = "[{'pg_id': 555, 'backend_config': 'cuda:nccl', 'pg_name': '3', 'ranks': {4: 0, 2: 1}}]"
        init = node(3, "## process_group:init ##", 2, [text])
        send = record(4, 2, [tensor(90, 6), 1, 555, 0, "send", [], []], [])
        [recording] = read_bytes(flat([init, send]), tmp_path, "worker2.json")
        assert recording.groups == (ProcessGroup("3", "", (4, 2), 2),)
        assert communications(recording)[0].peer == 4
        assert recording.rank == 2

    def test_a_list_of_groups_that_pytorch_has_cut_is_used_as_far_as_it_goes(self, tmp_path: Path) -> None:
        init = INIT | {"inputs": [json.dumps(LISTED)[:-30]]}
        [recording] = read_bytes(nested([init, *GROUPED[1:]]), tmp_path)
        assert ProcessGroup("0", "default_pg", (0, 1, 2, 3), 4) in recording.groups
        assert any("cuts their list" in sentence for sentence in recording.missing)

    def test_a_wait_that_may_be_of_two_groups_is_left_to_the_data(self, tmp_path: Path) -> None:
        first, second = data(4, "allreduce", (6, 6), 3, ALL), data(5, "allreduce", (6, 6), 1, TP)
        second["inputs"][1] = [4, False]
        wait = node(6, "record_param_comms", 2, [[4, False], ["", ""], 3, "wait", [], [], -1, -1, 1])
        last = node(7, "aten::mm", 2, [tensor(1, 6), tensor(2, 8)], schema=MM, outputs=[tensor(3, 12)])
        [recording] = read_bytes(nested([INIT, first, second, wait, last]), tmp_path)
        assert len(recording.edges) == 0
        assert any("two have a communication of that number" in sentence for sentence in recording.missing)


def timed(number: int, name: str, above: int, start: float, duration: float, **plus: object) -> dict[str, Any]:
    return node(number, name, above, plus={"ts": start, "inclusive_dur": duration, "exclusive_dur": 1.0, **plus})


PLUS = [
    INIT,
    timed(4, "aten::mm", 2, 1000.5, 20.0, cat=None),
    timed(30, "gemm", 4, 1010, 50.25, cat="kernel", stream=7),
    data(5, "allreduce", (12, 12), 3, ALL, plus={"ts": 1030, "inclusive_dur": 5}),
    timed(6, "nccl:all_reduce", 5, 1031, 2),
    timed(31, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 6, 1065, 30, cat="kernel", stream=20),
    timed(7, "aten::item", 2, 1040, 60, sync_dep=[6], inter_thread_dep=4),
    timed(32, "Memcpy DtoH", 7, 1096, 2, cat="gpu_memcpy", stream=7),
    timed(8, "aten::nothing", 2, 1300, 1),
    timed(9, "ProfilerStep#12", 2, 1001, 350),
]


class TestTimes:
    def test_kernels_and_what_launched_them(self, tmp_path: Path) -> None:
        [recording] = read_bytes(nested(PLUS), tmp_path)
        assert recording.origin == 1_000_500
        assert recording.steps.tolist() == [(12, 500_000, 350_500_000)]
        rows = [
            (recording.names[one["name"]], int(one["kind"]), int(one["start"]), int(one["duration"]))
            for one in recording.nodes
        ]
        us = 1_000_000
        assert rows == [
            ("gemm", COMPUTE, 9_500_000, 50_250_000),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", COMMUNICATION, 64_500_000, 30 * us),
            ("Memcpy DtoH", COPY, 95_500_000, 2 * us),
            ("aten::mm", LAUNCH, 0, 20 * us),
            ("nccl:all_reduce", LAUNCH, 30_500_000, 2 * us),
            ("aten::item", LAUNCH, 39_500_000, 60 * us),
        ]
        assert communications(recording)[0].size == 24
        assert recording.nodes["sequence"][1] == 5

    def test_what_was_waited_for(self, tmp_path: Path) -> None:
        [recording] = read_bytes(nested(PLUS), tmp_path)
        assert {(*map(int, (edge["before"], edge["after"])), bool(edge["on_start"])) for edge in recording.edges} == {
            (3, 0, True),
            (4, 1, True),
            (5, 2, True),
            (1, 5, False),
            (3, 5, False),
        }
        [recording] = read_bytes(nested([one for one in PLUS if one["id"] != 32]), tmp_path)
        assert WAIT in recording.nodes["kind"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (flat(STEP)[:-300], "cut after item"),
            (flat(STEP).replace(b'"id": 4,', b'"id": "x",'), "node 2 cannot be read"),
            (flat(STEP).replace(b'"id": 4,', b'"id": 3,'), "two of its nodes"),
            (flat(STEP).replace(b'"parent": 3,', b""), "names no parent"),
            (flat(STEP).replace(b'"allreduce"', b'["allreduce"]'), "arguments of an unknown form"),
            (flat(STEP).replace(b"1.0.1", b"2.0.0"), "schema '2.0.0'"),
            (flat(STEP).replace(b'"nodes": [', b'"nodes": [1, '), "item 0 of its list is no object"),
            (flat(STEP).replace(b'"inputs": []', b'"inputs": ' + b"[" * 9000 + b"]" * 9000), "nested too deep"),
            (
                nested([INIT, data(4, "allreduce", (6, 6), 1, TP), data(5, "allreduce", (6, 6), 0, TP)]),
                "one file per rank",
            ),
            (nested([INIT, data(4, "allreduce", (6, 6), 1, TP)]).replace(b"[1, 3]", b"[1, 1]"), "are none"),
            (
                nested([INIT, data(4, "allreduce", (6, 6), 1, TP)]).replace(b"[], [], 1, 2, 2", b"[], [], 1, 2, 5"),
                "says 5",
            ),
        ],
    )
    def test_one_error_that_says_what(self, text: bytes, says: str, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=says):
            read_bytes(text, tmp_path)

    @pytest.mark.parametrize("depth", [10, 300, 800, 950])
    def test_deep_nesting_is_read_or_refused(self, depth: int, tmp_path: Path) -> None:
        deep = b"[" * depth + b"]" * depth
        text = flat(STEP).replace(b'"inputs": [', b'"inputs": [' + deep + b", ", 3).replace(b", ]", b"]")
        try:
            [recording] = read_bytes(text, tmp_path)
        except TraceError as error:
            assert "nested too deep" in str(error)  # noqa: PT017  either will do
        else:
            assert len(recording.nodes) == 4

    def test_damage_of_the_packing_after_the_last_node_shows(self, tmp_path: Path) -> None:
        packed = bytearray(gzip.compress(flat(STEP)))
        packed[-6] ^= 1
        with pytest.raises(TraceError, match="damaged or cut"):
            read_bytes(bytes(packed), tmp_path)

    def test_other_json_is_none_of_these(self) -> None:
        assert pytorch_et.recognises("a.json", flat(STEP)[:65536])
        assert pytorch_et.recognises("a.json", nested(STEP)[:65536])
        assert not pytorch_et.recognises("a.json", b'{"schemaVersion": 1, "traceEvents": [')
        assert not pytorch_et.recognises("a.json", b'{"workload_graph": [')

    @pytest.mark.slow
    @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(drawn=st.data())
    def test_damage_ends_in_recordings_or_one_error(self, drawn: st.DataObject, tmp_path: Path) -> None:
        samples = [flat(STEP), nested(GROUPED), nested(PLUS)]
        text = drawn.draw(mutations.damaged(samples))
        try:
            recordings = read_bytes(text, tmp_path)
        except TraceError:
            return
        for recording in recordings:
            assert (recording.edges["before"] < len(recording.nodes)).all()
            assert (recording.edges["after"] < len(recording.nodes)).all()


class TestCaptured:
    """Real files; the numbers are those that the files hold, read off by other means."""

    @pytest.mark.slow
    def test_dlrm_on_eight_ranks(self, traces: Path) -> None:
        trace = readers.read([traces / "pytorch_et" / "dlrm_pytorch_et.tar.gz"])
        assert trace.form == "pytorch_et"
        assert [recording.rank for recording in trace.recordings] == list(range(8))
        operations = ["all_to_all"] * 4 + ["all_reduce", "all_to_all", "all_reduce", "all_reduce"]
        exchanged = []
        for recording in trace.recordings:
            found = communications(recording)
            assert [one.operation for one in found] == operations
            assert [one.size for one in found if one.operation == "all_reduce"] == [4 * 394241, 448, 4 * 226960]
            exchanged.append(found[3])
            sequences = recording.nodes["sequence"][recording.nodes["kind"] == COMMUNICATION]
            assert sequences.tolist() == list(range(147, 155))
        # what a rank says it sends to another, that one says it receives
        for i, sender in enumerate(exchanged):
            assert [receiver.received[i] for receiver in exchanged] == list(sender.sent)

    @pytest.mark.slow
    def test_resnet_on_rank_1_of_2(self, traces: Path) -> None:
        [recording] = readers.read([traces / "pytorch_et" / "resnet_2gpu_et.json.gz"]).recordings
        assert (recording.rank, recording.world) == (1, 2)
        found = communications(recording)
        assert [one.operation for one in found].count("all_reduce") == 15
        assert [(one.operation, one.peer) for one in found].count(("broadcast", 0)) == 6
        assert sum(one.size for one in found[2:7]) == 4 * 25557032  # the parameters of ResNet-50
        convolutions = [number for number, name in enumerate(recording.names) if name == "aten::cudnn_convolution"]
        rows = recording.nodes[recording.nodes["name"] == convolutions[0]]
        assert len(rows) == 3 * 53  # three iterations
        assert (rows["flops"] > 0).all()
