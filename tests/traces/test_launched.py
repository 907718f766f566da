from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.traces.kineto.launched import LaunchedKernels, read_launched
from fabricsim.traces.pytorch_et.inputs import read_inputs
from tests.reference import kineto_traces, mutations

FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
MM = {"Input Dims": [[8, 3], [3, 5]], "Input type": ["float", "float"]}


def event(category: str, name: str, ts: float, dur: float, tid: int = 78, **arguments: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 77, "tid": tid, "ts": ts, "dur": dur, "args": arguments}


def launch(ts: float, correlation: int, tid: int = 78) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid, correlation=correlation)


def kernel(ts: float, dur: float, correlation: int, stream: int = 7, **more: object) -> dict[str, Any]:
    return event("kernel", "gemm", ts, dur, stream, device=0, stream=stream, correlation=correlation, **more)


def launched(folder: Path, *events: dict[str, Any]) -> LaunchedKernels:
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    (only,) = (read_launched(source, lambda name: name == "aten::mm") for source in sources([folder / "rank0.json"]))
    return only


def operators(read: LaunchedKernels) -> list[str]:
    return [read.names[number] if number != NONE else "" for number in read.kernels["operator"].tolist()]


def test_a_kernel_is_of_the_innermost_operator_of_its_thread(tmp_path: Path) -> None:
    read = launched(
        tmp_path,
        event("cpu_op", "aten::linear", 10, 50),
        event("cpu_op", "aten::mm", 20, 20, **MM),
        event("cpu_op", "aten::empty", 21, 2),
        event("cpu_op", "aten::mm", 25, 20, 79, **MM),
        launch(30, 1),
        launch(50, 2),
        launch(5, 3),
        kernel(100, 5, 1),
        kernel(110, 5, 2),
        kernel(120, 5, 3),
    )

    assert operators(read) == ["aten::mm", "aten::linear", ""]
    assert read.inputs[read.kernels["inputs"][0]].shapes == ((8, 3), (3, 5))
    assert read.kernels["inputs"].tolist() == [0, NONE, NONE]
    assert read.kernels["duration"].tolist() == [5_000_000] * 3


def test_without_its_launch_a_kernel_is_of_the_operator_with_its_id(tmp_path: Path) -> None:
    mine = event("cpu_op", "aten::mm", 20, 20, **MM, **{"External id": 9})
    read = launched(tmp_path, mine, kernel(100, 5, 1, **{"External id": 9}), kernel(110, 5, 9, **{"External id": 9}))

    assert operators(read) == ["aten::mm", ""]  # of the second the id is its correlation, as before PyTorch 2.1


def test_kernels_of_nccl_slow_others_and_are_left_out(tmp_path: Path) -> None:
    reduce = {**kernel(104, 100, 3, 20), "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"}
    mine = event("cpu_op", "aten::mm", 20, 20, **MM)
    read = launched(tmp_path, mine, launch(30, 1), kernel(100, 4, 1), kernel(105, 5, 1), kernel(203, 5, 1), reduce)

    assert read.kernels["beside"].tolist() == [False, True, True]


@pytest.mark.slow
@FIXTURES
@given(
    spans=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=12),
)
def test_kernels_beside_others_are_those_that_overlap(spans: list[tuple[int, int, int]], tmp_path: Path) -> None:
    ordered: list[tuple[int, int, int]] = []
    free = dict.fromkeys(range(4), 0)
    for stream, gap, size in spans:  # those of one stream follow one another
        begin = free[stream] + gap
        ordered.append((stream, begin, begin + size))
        free[stream] = begin + size
    events = [kernel(begin, end - begin, 1, stream) for stream, begin, end in ordered]
    read = launched(tmp_path, event("cpu_op", "aten::mm", 0, 1, **MM), *events)

    assert read.kernels["beside"].tolist() == [
        any(other != stream and start < end and begin < stop for other, start, stop in ordered)
        for stream, begin, end in ordered
    ]


@FIXTURES
@given(drawn=st.data())
@pytest.mark.slow
def test_the_innermost_of_nested_operators(drawn: st.DataObject, tmp_path: Path) -> None:
    spans: list[tuple[int, int]] = []

    def nest(begin: int, end: int, depth: int) -> None:
        while begin + 4 < end and depth:
            first = drawn.draw(st.integers(begin + 1, end - 2))
            last = drawn.draw(st.integers(first + 1, end - 1))
            spans.append((first, last))
            nest(first, last, depth - 1)
            begin = last + 1 if drawn.draw(st.booleans()) else end

    nest(0, 60, 3)
    events = [event("cpu_op", f"op {begin}", begin, end - begin) for begin, end in spans]
    times = np.arange(60) + 0.5
    calls = [launch(float(time), number + 1) for number, time in enumerate(times)]
    kernels = [kernel(100 + number, 0.5, number + 1) for number in range(len(times))]
    read = launched(tmp_path, event("cpu_op", "aten::mm", 1000, 1, **MM), *events, *calls, *kernels)

    for time, name in zip(times, operators(read), strict=True):
        around = [(end - begin, f"op {begin}") for begin, end in spans if begin <= time <= end]
        assert name == (min(around)[1] if around else "")


@pytest.mark.slow
@FIXTURES
@given(drawn=st.data())
def test_damage_ends_in_kernels_or_one_error(drawn: st.DataObject, tmp_path: Path) -> None:
    file = tmp_path / "rank0.json"
    kineto_traces.write_calls(file, kineto_traces.LAYER)
    file.write_bytes(drawn.draw(mutations.damaged([file.read_bytes()])))
    try:
        for source in sources([file]):
            read = read_launched(source, lambda name: name.startswith("aten::"))
            assert (read.kernels["inputs"] < len(read.inputs)).all()
    except TraceError as error:
        assert str(error).isprintable()  # noqa: PT017  an error is one of two good ends


@pytest.mark.slow
@FIXTURES
@given(drawn=st.data())
def test_damaged_execution_traces_end_in_inputs_or_one_error(drawn: st.DataObject, tmp_path: Path) -> None:
    samples = []
    for nested in (False, True):
        kineto_traces.write_execution_trace(tmp_path / "et.json", kineto_traces.LAYER, nested=nested)
        samples.append((tmp_path / "et.json").read_bytes())
    (tmp_path / "et.json").write_bytes(drawn.draw(mutations.damaged(samples)))
    try:
        for source in sources([tmp_path / "et.json"]):
            read_inputs(source, lambda name: name.startswith("aten::"))
    except TraceError as error:
        assert str(error).isprintable()  # noqa: PT017  as above


@pytest.mark.parametrize("operator", ["aten::mm", "aten::relu"])
def test_arguments_that_cannot_be_read_matter_only_of_operators_that_do(operator: str, tmp_path: Path) -> None:
    good = json.dumps([event("cpu_op", "aten::mm", 1, 1, **MM), kernel(100, 5, 1)])
    bad = json.dumps(event("cpu_op", operator, 5, 1, x="here")).replace('"here"', "9" * 5000)
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{bad}, {good[1:]}}}')
    for source in sources([tmp_path / "rank0.json"]):
        if operator == "aten::relu":
            assert len(read_launched(source, lambda name: name == "aten::mm").kernels) == 1
        else:
            with pytest.raises(TraceError, match="the args of the event 'aten::mm' cannot be read"):
                read_launched(source, lambda name: name == "aten::mm")
