"""The kernels of a Kineto file with the operators that launched them.

A kernel belongs to the innermost operator around the call that launched it, on that call's thread. If no call is
captured, it is the operator with the kernel's ``External id``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.events import Events, read_events
from fabricsim.traces.kineto.inputs import Inputs
from fabricsim.traces.kineto.job import CapturedJob
from fabricsim.traces.kineto.joins import around, calls_by_correlation, matched
from fabricsim.traces.kineto.messages import operation_of_kernel

KERNEL = np.dtype(
    [
        ("name", np.int32),  # index into LaunchedKernels.names
        ("call", np.int64),  # one number for all kernels of one call of an operator; NONE if not known
        ("operator", np.int32),  # its name, index into LaunchedKernels.names; NONE if not known
        ("inputs", np.int32),  # index into LaunchedKernels.inputs; NONE if not known
        ("duration", np.int64),  # ps
        ("beside", np.bool_),  # whether a kernel of another stream ran at the same time
    ],
    align=True,
)
"""A kernel that computes."""


NO_SHAPES = "holds no shapes of operators; capture with torch.profiler.profile(..., record_shapes=True)"
"""What is wrong with a trace of which kernels cannot be told apart."""


@dataclass(frozen=True)
class LaunchedKernels:
    """Kernels of one rank, those of NCCL left out.

    `rank`: global rank; NONE if not captured.
    `device`: name of the GPU; empty if not captured.
    `kernels`: ``KERNEL`` records, shape ``(n,)``.
    """

    source: str
    rank: int
    device: str
    kernels: NDArray[np.void]
    names: list[str]
    inputs: list[Inputs]

    @property
    def lacks_shapes(self) -> bool:
        """Whether all shapes are in an execution trace that was captured beside it."""
        return bool(self.inputs) and all(each.record != NONE for each in self.inputs)


def read_launched(source: Source, operators: Callable[[str], bool]) -> LaunchedKernels:
    """Read a file.

    `operators`: whether the inputs of operators of a name matter.
    Raises TraceError if it is no such file, is cut or damaged, or holds no kernels, operators or shapes.
    """
    events = read_events(source, operators)
    rows = events.rows
    if not (rows["category"] == scanner.KERNEL).any():
        msg = "holds no kernels of a device; capture with ProfilerActivity.CUDA or .XPU, and while the job computes"
        raise TraceError(source.label, msg)
    if not (rows["category"] == scanner.OPERATOR).any():
        msg = "holds no operators, so that kernels have no shapes; capture with ProfilerActivity.CPU as well"
        raise TraceError(source.label, msg)
    wanted = np.array([operators(name) for name in events.names], bool)[rows["name"]]
    if not events.inputs and (wanted & (rows["category"] == scanner.OPERATOR)).any():
        raise TraceError(source.label, NO_SHAPES)
    job, kernels = CapturedJob(source, events.head), _kernels(events)
    device = job.device(events.device_of(rows["category"] == scanner.KERNEL))
    return LaunchedKernels(source.label, job.rank, device, kernels, events.names, events.inputs)


def _kernels(events: Events) -> NDArray[np.void]:
    rows = events.rows
    on_device = np.flatnonzero(rows["category"] == scanner.KERNEL)
    is_message = np.array([operation_of_kernel(name) is not None for name in events.names])[rows["name"]]
    beside = _beside(rows, on_device)
    computing = ~is_message[on_device]
    on_device, beside = on_device[computing], beside[computing]
    calls = _operators(events, on_device)
    kernels = np.empty(len(on_device), KERNEL)
    kernels["name"], kernels["duration"] = rows["name"][on_device], rows["duration"][on_device]
    kernels["call"], kernels["beside"] = calls, beside
    known = calls != NONE
    kernels["operator"] = np.where(known, rows["name"][calls], NONE)
    kernels["inputs"] = np.where(known & (rows["mark"][calls] == scanner.PLAIN), rows["note"][calls], NONE)
    return kernels


def _beside(rows: NDArray[np.void], kernels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each kernel whether one of another stream ran at the same time."""
    starts, places = rows["start"][kernels], rows["place"][kernels]
    ends = starts + rows["duration"][kernels]
    found = np.zeros(len(kernels), bool)
    for place in np.unique(places):
        here = places == place
        order = np.argsort(starts[here], kind="stable")
        begin, end = starts[here][order], np.maximum.accumulate(ends[here][order])
        others = np.flatnonzero(~here)
        first = np.searchsorted(end, starts[others], "right")  # of this stream, the first that ends later
        later = first < len(begin)
        found[others[later]] |= begin[first[later]] < ends[others[later]]
    return found


def _operators(events: Events, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the row of the innermost operator that launched each kernel; NONE if it is not known."""
    rows = events.rows
    launches = calls_by_correlation(rows, rows["correlation"][kernels])
    operators = np.flatnonzero(rows["category"] == scanner.OPERATOR)
    # before PyTorch 2.1 a kernel's External id is its correlation, which counts something else
    own = (rows["external"][kernels] != rows["correlation"][kernels]) & (launches == NONE)
    by_id = matched(rows["external"][operators], operators, rows["external"][kernels])
    return np.where(own, by_id, around(rows, operators, launches))
