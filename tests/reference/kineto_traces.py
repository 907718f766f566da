"""Traces such as PyTorch's profiler writes with stacks and shapes, of any size.

Each operation of the made-up job is a call of a Python module with its stack, a tree of operators, the call that
launches, the kernel, and two arrows; every tenth is an all-reduce with its notes. Proportions of bytes are those of
captured traces with ``with_stack`` and ``record_shapes``: two thirds Python and operators, a third calls and kernels.

`write_calls` writes the calls of operators that a test names, with shapes and kernels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85899345920, "numSms": 108}
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 16, "pg_count": 1, "pg_config": [{"pg_name": "0", \
"pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 16, "ranks": []}], "nccl_version": "2.21.5"},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000,
  "traceEvents": [
"""
_TAIL = """  {
    "name": "process_name", "ph": "M", "ts": %d.000, "pid": 77, "tid": 0,
    "args": {
      "name": "python3.10"
    }
  }
  ],
  "traceName": "trace.json"
}
"""
_FRAMES = (
    "torch/nn/modules/module.py(1532): _call_impl",
    "nn.Module: Linear_%d",
    "torch/nn/modules/linear.py(116): forward",
    "<built-in function linear>",
    "transformers/models/llama/modeling_llama.py(740): forward",
    "torch/autograd/graph.py(825): _engine_run_backward",
)
_OPERATORS = ("aten::linear", "aten::t", "aten::transpose", "aten::as_strided", "aten::matmul", "aten::mm")
_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3>)"
)
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_NOTES = (
    '"Collective name": "allreduce", "In msg nelems": %d, "Out msg nelems": %d, "Group size": 16, "dtype": "BFloat16", '
    '"In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
    '"Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, '
    '13, 14, 15]"'
)
_HOST = (77, 78)
_PER_STEP = 1000
_GAP_NS = 40_000  # from one operation to the next


def event(category: str, name: str, place: tuple[int, int], span: tuple[int, int], arguments: str) -> str:
    """Write a complete event as Kineto does; its place is pid and tid, its span start and duration in ns."""
    (pid, tid), (start, duration) = place, span
    times = f'"ts": {start // 1000}.{start % 1000:03}, "dur": {duration // 1000}.{duration % 1000:03}'
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    {times},\n'
        f'    "args": {{\n      {arguments}\n    }}\n  }},\n'
    )


def arrow(phase: str, identity: int, pid: int, tid: int, start: int) -> str:
    """Write one end of the arrow from a launch to its kernel."""
    bound = ',\n    "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {identity}, "pid": {pid}, "tid": {tid}, "ts": '
        f'{start // 1000}.{start % 1000:03},\n    "cat": "ac2g", "name": "ac2g"{bound}\n  }},\n'
    )


def operation(number: int, origin: int) -> str:
    """Write all events of an operation."""
    start, reduces = origin + number * _GAP_NS, number % 10 == 0
    parts = []
    for depth, frame in enumerate(_FRAMES):
        name = frame % (number % 96) if "%" in frame else frame
        frame_id = number * len(_FRAMES) + depth
        identity = f'"Python parent id": {frame_id - 1}, "Python id": {frame_id}, "Ev Idx": {number}'
        parts.append(event("python_function", name, _HOST, (start + depth * 100, 30_000 - depth * 200), identity))
    for depth, name in enumerate(_OPERATORS):
        identity = (
            f'"External id": {number * 8 + depth},"Record function id": {number}, "Concrete Inputs": ["", "", ""], '
            '"Input type": ["c10::BFloat16", "c10::BFloat16", ""], "Input Strides": [[4096, 1], [4096, 1], []], '
            f'"Input Dims": [[2048, 4096], [4096, 4096], []], "Ev Idx": {number}'
        )
        parts.append(event("cpu_op", name, _HOST, (start + 700 + depth * 100, 28_000 - depth * 200), identity))
    external, notes = number * 8 + 5, _NOTES % (1000 + number % 7, 1000 + number % 7)
    if reduces:
        note = f'"External id": {external},"Seq": {number // 10}, {notes}'
        parts.append(event("cpu_op", "record_param_comms", _HOST, (start + 2_000, 20_000), note))
    stream, kernel = (20, _ALL_REDUCE) if reduces else (7, _KERNEL)
    device = (
        f'"External id": {external}, "queued": 0, "device": 0, "context": 1,\n      "stream": {stream}, "correlation": '
        f'{number + 1},\n      "registers per thread": 32, "shared memory": 0,\n      "blocks per SM": 18.962963, '
        '"warps per SM": 75.851852,\n      "grid": [2048, 1, 1],\n      "block": [128, 1, 1],\n'
        '      "est. achieved occupancy %": 100'
    )
    call = f'"External id": {external}, "cbid": 211, "correlation": {number + 1}'
    parts += [
        event("cuda_runtime", "cudaLaunchKernel", _HOST, (start + 3_000, 5_123), call),
        arrow("s", number + 1, 77, 78, start + 3_000),
        event("kernel", kernel, (0, stream), (start + 9_000, 20_007), device + (f", {notes}" if reduces else "")),
        arrow("f", number + 1, 0, stream, start + 9_000),
    ]
    if number % _PER_STEP == _PER_STEP - 1:
        first = origin + (number - _PER_STEP + 1) * _GAP_NS
        name = f"ProfilerStep#{number // _PER_STEP}"
        step = event("user_annotation", name, _HOST, (first, _PER_STEP * _GAP_NS), '"External id": 1')
        call = f'"External id": 0, "cbid": 165, "correlation": {10**9 + number}'
        wait = event("cuda_runtime", "cudaDeviceSynchronize", _HOST, (start + 36_000, 3_000), call)
        parts += [step, wait]
    return "".join(parts)


def write(path: Path, size: int, origin: int = 4_458_677_009_853_422) -> int:
    """Write a trace of at least `size` bytes whose steps are whole; returns how many operations it has."""
    number = 0
    with path.open("w") as file:
        written = file.write(_HEAD)
        while written < size or number % _PER_STEP:
            written += file.write(operation(number, origin))
            number += 1
        file.write(_TAIL % (origin // 1000))
    return number


class Call(NamedTuple):
    """A call of an operator: shapes and values of its arguments, and names and ns of the kernels that it launches.

    A kernel that is `beside` is of a stream of its own, and begins with the one before it. `record` is the number of
    the call where an execution trace is captured at the same time.
    """

    operator: str
    shapes: Sequence[Sequence[int]]
    kernels: Sequence[tuple[str, int]]
    type: str = "c10::BFloat16"
    values: Sequence[str] = ()
    beside: bool = False
    record: int = 0


_GPU = "NVIDIA A100-SXM4-40GB"
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
LAYER = (
    Call("aten::addmm", [[3072], [8192, 1024], [1024, 3072], [], []], [(GEMM, 260_000)]),
    Call("aten::mm", [[8192, 3072], [3072, 1024]], [(GEMM, 255_000)]),
    Call("aten::mm", [[3072, 8192], [8192, 1024]], [(GEMM, 240_000), ("splitKreduce_kernel", 6_000)]),
    Call("aten::addmm", [[1024], [8192, 1024], [1024, 1024], [], []], [(GEMM, 92_000)]),
    Call("aten::native_layer_norm", [[8, 1024, 1024], [], [1024], [1024], []], [("vectorized_layer_norm", 24_000)]),
    Call("aten::tanh", [[8, 1024, 4096]], [("void at::native::vectorized_elementwise_kernel", 90_000)]),
)
"""Some of what a layer of GPT-2 medium does with eight sequences."""


def write_calls(path: Path, calls: Sequence[Call], *, shapes: bool = True, device: str = _GPU) -> None:
    """Write a trace of calls that follow one another; without `shapes` as the profiler does without record_shapes."""
    events, now, number, began = [], 1_000_000, 0, 0
    for call in calls:
        said = {"Input Dims": call.shapes, "Input type": [call.type if shape else "Scalar" for shape in call.shapes]}
        said |= {"Concrete Inputs": list(call.values)}
        notes = json.dumps(said if shapes else {"Record function id": call.record})[1:-1]
        events.append(event("cpu_op", call.operator, _HOST, (now, 10_000 * (1 + len(call.kernels))), notes))
        host, now = now, now + 10_000
        for name, duration in call.kernels:
            number += 1
            host += 8_000
            launch = f'"cbid": 211, "correlation": {number}'
            events.append(event("cuda_runtime", "cudaLaunchKernel", _HOST, (host, 5_000), launch))
            stream, began = (20, began) if call.beside else (7, now)
            notes = f'"device": 0, "stream": {stream}, "correlation": {number}'
            events.append(event("kernel", name, (0, stream), (began, duration), notes))
            now += 10_000 + duration
        now += 10_000 * (1 + len(call.kernels))
    head = f'{{"deviceProperties": [{{"id": 0, "name": "{device}"}}], "traceEvents": [\n'
    path.write_text(head + "".join(events).rstrip().rstrip(",") + "]}")


def write_execution_trace(path: Path, calls: Sequence[Call], *, nested: bool) -> None:
    """Write what ExecutionTraceObserver says of calls, as its flat schema does or its nested one."""
    nodes = []
    for number, call in enumerate(calls, start=2):
        values = [[1, 2, 0, 4, 2, "cuda:0"] if shape else 1 for shape in call.shapes]
        types = [f"Tensor({call.type})" if shape else "Int" for shape in call.shapes]
        node = {"id": number, "name": call.operator}
        if nested:
            inputs = {"values": values, "shapes": call.shapes, "types": types}
            attributes = [{"name": "rf_id", "type": "uint64", "value": call.record}]
            nodes.append({**node, "ctrl_deps": 1, "inputs": inputs, "attrs": attributes})
        else:
            flat = {"inputs": values, "input_shapes": call.shapes, "input_types": types}
            nodes.append({**node, "parent": 1, "rf_id": call.record, **flat})
    schema = "1.1.0-chakra.0.0.4" if nested else "1.0.1"
    path.write_text(json.dumps({"schema": schema, "pid": 1, "nodes": nodes}))
