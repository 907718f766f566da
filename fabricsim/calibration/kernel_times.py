"""Measured times of the kernels that the compute model prices, out of traces of PyTorch's profiler.

The time of a kernel is that from its start to its end on the GPU; of one that an operator launches in several parts,
such as a product whose inner dimension was cut, their sum. Calls that ran beside a kernel of another stream are slower,
and count only if there are no others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.calibration.operators import What, is_known, parts
from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.scenario.cluster import Gpu
from fabricsim.traces.kineto.launched import NO_SHAPES, LaunchedKernels, read_launched
from fabricsim.traces.pytorch_et.inputs import ToldInputs, read_inputs
from fabricsim.traces.readers import form_of
from fabricsim.units import human_percent
from fabricsim.workload.roofline import roofline_time

_SHAPES_ALONE = "pytorch_et"  # form of traces that say shapes and no times
_UNEVEN = 0.2  # distance of the quartiles, as a share of the median, above which a time is called uneven
_NAMED = 3  # kernels that match nothing of which an error names so many


@dataclass(frozen=True)
class KernelTime:
    """What was measured of one kernel.

    `what`: the kernel.
    `times`: ps of each call that counts, shape ``(n,)``.
    `left_out`: calls that do not count, since they ran beside another kernel.
    `beside`: whether those that count did so as well, for want of others.
    """

    what: What
    times: NDArray[np.int64]
    left_out: int
    beside: bool

    @property
    def median(self) -> int:
        """Median, ps."""
        return round(float(np.median(self.times)))

    @property
    def quartiles(self) -> tuple[int, int]:
        """First and third quartile, ps."""
        first, third = np.percentile(self.times, (25, 75)).tolist()
        return round(first), round(third)

    def ratio(self, gpu: Gpu) -> float | None:
        """Roofline's time over the measured one; None if there is no roofline for it."""
        precision = self.what.precision or "fp32"  # of memory-bound kernels bytes alone count
        unsaid = self.what.causal is None and self.what.operation.kernel.startswith("attention")
        if precision not in gpu.peak or unsaid or not self.median:
            return None
        return roofline_time(self.what.operation, precision, gpu) / self.median


class Unmatched(NamedTuple):
    """Kernels of one name that an operator launched and the model has no operation for."""

    operator: str
    kernel: str
    calls: int
    time: int  # ps of all


@dataclass(frozen=True)
class KernelTimes:
    """What traces say of kernels.

    `sources`: files, and members of archives.
    `device`: name of the GPU; empty if not captured.
    `kernels`: measured ones.
    `unmatched`: the rest, by time, the longest first.
    `total`, `matched`: ps of all kernels, those of NCCL left out, and of those that are of `kernels`.
    `unlaunched`: how many are known of no operator.
    """

    sources: tuple[str, ...]
    device: str
    kernels: tuple[KernelTime, ...]
    unmatched: tuple[Unmatched, ...]
    total: int
    matched: int
    unlaunched: int

    def warnings(self, gpu: Gpu) -> Iterator[str]:
        """Say what the traces leave open, a sentence each, without a full stop."""
        device = self.device.lower()
        family = gpu.name.split("-")[0]
        if device and family not in device:
            yield f"the traces are of {self.device}, and --gpu is {gpu.name}"
        if self.unlaunched:
            reason = "some libraries launch without one, and CUDA graphs hide it"
            yield f"of {self.unlaunched} kernels the trace does not say which operator launched them: {reason}"
        beside = sum(each.beside for each in self.kernels)
        if beside:
            slow = "ran beside others whenever they were measured, which slows them; they are marked U"
            yield f"{beside} of {len(self.kernels)} kernels {slow}"
        uneven = sum(
            third - first > _UNEVEN * each.median for each in self.kernels for first, third in [each.quartiles]
        )
        if uneven:
            least = human_percent(_UNEVEN, 0)
            yield f"the quartiles of {uneven} of {len(self.kernels)} kernels are more than {least} apart"
        unsaid = sum(each.what.causal is None and bool(each.what.kind.startswith("attention")) for each in self.kernels)
        if unsaid:
            later = "capture with PyTorch 2.1 or newer"
            yield f"of {unsaid} attentions the trace does not say whether a mask is causal; {later}"
        without = {each.what.precision for each in self.kernels} - {None, *gpu.peak}
        for precision in sorted(map(str, without)):
            yield f"{gpu.name} has no peak for {precision}, so no job in it runs there"


def is_kernel_trace(name: str) -> bool:
    """Whether a file, or the first of a folder or an archive, is a trace of kernels.

    So is an execution trace, which may lie beside one.
    """
    if not Path(name).exists():
        return False
    try:
        return form_of(next(sources([name]))) in {"kineto", _SHAPES_ALONE}
    except TraceError:  # whoever reads it as a log says better what is wrong
        return False


def read_kernels(paths: Sequence[Path | str], progress: Callable[[float], None] | None = None) -> KernelTimes:
    """Read what traces of one or more ranks say of kernels.

    Those without shapes get them from the execution trace of the same rank and run.

    `paths`: files, folders or archives.
    `progress`: called now and then with the share of all bytes that has been read.
    Raises TraceError if one cannot be read or has no shapes, no kernel is of an operation of the model, or GPUs differ.
    """
    reading = _Reading()
    for source in sources(paths, None, progress):
        if form_of(source) == _SHAPES_ALONE:
            reading.told.append(read_inputs(source, is_known))
            continue
        launched = read_launched(source, is_known)
        if launched.lacks_shapes:
            reading.shapeless.append(launched)
        else:
            reading.take(launched)
    return reading.finish()


@dataclass
class _Measured:
    what: What
    alone: list[int] = field(default_factory=list)  # times, ps
    beside: list[int] = field(default_factory=list)

    def time(self) -> KernelTime:
        counted = self.alone or self.beside
        left_out = len(self.beside) if self.alone else 0
        return KernelTime(self.what, np.array(counted, np.int64), left_out, beside=not self.alone)


@dataclass
class _Reading:
    sources: list[str] = field(default_factory=list)
    told: list[ToldInputs] = field(default_factory=list)
    shapeless: list[LaunchedKernels] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)  # the first file of each
    measured: dict[tuple[object, ...], _Measured] = field(default_factory=dict)
    rest: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # count and time
    total: int = 0
    matched: int = 0
    unlaunched: int = 0

    def take(self, launched: LaunchedKernels) -> None:
        """Add what one rank measured."""
        self._identify(launched)
        done: dict[tuple[int, int, int], list[What]] = {}
        calls: dict[tuple[int, tuple[object, ...]], tuple[What, int, bool]] = {}
        for name, call, operator, inputs, duration, beside in launched.kernels.tolist():
            alike = name, operator, inputs
            if alike not in done:
                done[alike] = _does(launched, *alike)
            for what in done[alike]:
                _, before, was_beside = calls.get((call, what.key), (what, 0, False))
                calls[call, what.key] = what, before + duration, was_beside or beside
            self._count(launched, alike, duration, matched=bool(done[alike]))
        for what, time, beside in calls.values():
            known = self.measured.setdefault(what.key, _Measured(what))
            (known.beside if beside else known.alone).append(time)

    def _told(self, launched: LaunchedKernels) -> LaunchedKernels:
        """Take shapes from the execution trace of the same rank, or the only one beside the only trace."""
        alone = len(self.told) == len(self.shapeless) == 1
        beside = next((each for each in self.told if alone or each.rank == launched.rank != NONE), None)
        if beside is None:
            raise TraceError(launched.source, f"{NO_SHAPES}, or give the execution trace of the same rank and run")
        known = beside.inputs
        rows = launched.kernels[launched.kernels["inputs"] != NONE]
        for operator, number in set(zip(rows["operator"].tolist(), rows["inputs"].tolist(), strict=True)):
            told = known.get(launched.inputs[number].record)
            if told is None or told[0] != launched.names[operator]:
                msg = f"does not say what {launched.names[operator]} of {launched.source} was called with"
                raise TraceError(beside.source, f"{msg}; capture both at the same time")
        inputs = [known[each.record][1] if each.record in known else each for each in launched.inputs]
        return replace(launched, inputs=inputs)

    def _identify(self, launched: LaunchedKernels) -> None:
        self.sources.append(launched.source)
        if launched.device:
            self.devices.setdefault(launched.device, launched.source)
        if len(self.devices) > 1:
            one, other = self.devices
            msg = f"is of a {other}, but {self.devices[one]} of a {one}; calibrate one type of GPU at a time"
            raise TraceError(launched.source, msg)

    def _count(self, launched: LaunchedKernels, alike: tuple[int, int, int], time: int, *, matched: bool) -> None:
        name, operator, _ = alike
        self.total += time
        self.unlaunched += operator == NONE
        if matched:
            self.matched += time
            return
        called = launched.names[operator] if operator != NONE else ""
        rest = self.rest.setdefault((called, launched.names[name]), [0, 0])
        rest[0] += 1
        rest[1] += time

    def finish(self) -> KernelTimes:
        """Put everything together."""
        for launched in self.shapeless:
            self.take(self._told(launched))
        if not self.sources:
            msg = (
                "is an execution trace, which has no times of kernels; give the profiler's (Kineto) trace of that rank"
            )
            raise TraceError(self.told[0].source, f"{msg}, captured with record_shapes=True")
        rest = (Unmatched(*names, *counted) for names, counted in self.rest.items())
        unmatched = tuple(sorted(rest, key=lambda each: -each.time))
        if not self.measured:
            largest = "; ".join(f"{each.operator or 'no operator'}: {each.kernel[:60]}" for each in unmatched[:_NAMED])
            kinds = (
                "matrix products and fused attention in fp16, bf16 or fp32, norms, softmax, dropout, GELU, embedding"
            )
            msg = f"no kernel is of a kind that the model prices ({kinds}); most time goes to {largest}"
            raise TraceError(", ".join(self.sources), msg)
        kernels = sorted((each.time() for each in self.measured.values()), key=_order)
        device = next(iter(self.devices), "")
        return KernelTimes(
            tuple(self.sources), device, tuple(kernels), unmatched, self.total, self.matched, self.unlaunched
        )


def _does(launched: LaunchedKernels, name: int, operator: int, inputs: int) -> list[What]:
    """List what a kernel of that name does for an operator of that name and inputs."""
    if inputs == NONE:
        return []
    found = parts(launched.names[operator], launched.inputs[inputs])
    return [part.what for part in found if part.kernels.match(launched.names[name])]


def _order(each: KernelTime) -> tuple[bool, str, tuple[int, ...], int, int]:
    """Put products and attentions first, then by kind and size."""
    one = each.what.operation
    causal = -1 if each.what.causal is None else int(each.what.causal)
    return one.shape is None, each.what.kind, one.shape or (), one.traffic, causal
