"""The other half of the command calibrate: measured kernels of a GPU, out of traces."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from fabricsim.cli.common import note, progress, say_json, show
from fabricsim.errors import InputError
from fabricsim.units import PS_PER_US, human_percent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Group
    from rich.table import Table

    from fabricsim.calibration.kernel_times import KernelTime, KernelTimes
    from fabricsim.scenario.cluster import Gpu

_LISTED = 10  # operators that match nothing of which so many are shown


def are_kernel_traces(logs: Sequence[str]) -> bool:
    """Whether what is to be calibrated on is traces of kernels. Raises InputError if some are and others are not."""
    from fabricsim.calibration.kernel_times import is_kernel_trace  # noqa: PLC0415  --help must not pay for it

    traces = [log for log in logs if is_kernel_trace(log)]
    if traces and len(traces) < len(logs):
        other = next(log for log in logs if log not in traces)
        raise InputError(f"{traces[0]} is a trace of kernels, and {other} is none; calibrate on either alone")
    return bool(traces)


def calibrate_gpu(
    traces: Sequence[str], gpu: str | None, output: Path | None, *, unused: Sequence[str], as_json: bool
) -> None:
    """Find measured kernels in traces, print how far the roofline is from them, and write them as a preset.

    `traces`: files, folders or archives.
    `gpu`: what ``--gpu`` gave.
    `output`: what ``-o`` gave, checked.
    `unused`: options that were given and say nothing about kernels.
    `as_json`: whether to print JSON.
    """
    from fabricsim.calibration import gpu_preset  # noqa: PLC0415  as above
    from fabricsim.calibration.kernel_times import read_kernels  # noqa: PLC0415  as above

    if unused:
        msg = f"{', '.join(unused)}: of no use with a trace of kernels, whose times are taken as they are; leave it out"
        raise InputError(msg)
    if gpu is None:
        msg = "a trace of kernels needs --gpu, the GPU that its times are laid over: see `fabricsim list gpus`"
        raise InputError(msg)
    base = gpu_preset.gpu_of(gpu)
    with progress("read") as report:
        found = read_kernels(traces, report)
    if as_json:
        say_json(_as_json(found, base))
    else:
        show(_kinds(found, base), *([_rest(found)] if found.unmatched else []))
        for warning in found.warnings(base):
            note(f"warning: {warning}")
    if output is not None:
        gpu_preset.write(output, gpu, found)
        note(f"wrote {output}")


def _of_kind(found: KernelTimes) -> dict[str, list[KernelTime]]:
    kinds: dict[str, list[KernelTime]] = {}
    for each in found.kernels:
        kinds.setdefault(each.what.kind, []).append(each)
    return kinds


def _ratios(kernels: Sequence[KernelTime], gpu: Gpu) -> tuple[float, float, float] | None:
    """Median, least and greatest ratio of the roofline's time to the measured one."""
    ratios = [ratio for each in kernels if (ratio := each.ratio(gpu)) is not None]
    return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def _kinds(found: KernelTimes, gpu: Gpu) -> Group:
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  imports rich

    figures = ["Shapes", "Calls", "Time", "Roofline /\nmeasured", "Least", "Greatest"]
    table = FittedTable("Kind", figures, least=["Calls", "Shapes", "Greatest", "Least"])
    for kind, kernels in _of_kind(found).items():
        time = sum(int(each.times.sum()) for each in kernels)
        ratios = _ratios(kernels, gpu)
        cells = [f"{ratio:.2f}" for ratio in ratios] if ratios else ["-"] * 3
        calls = sum(len(each.times) for each in kernels)
        table.add(kind, str(len(kernels)), str(calls), _milliseconds(time), *cells)
    head = f"measured kernels, and the roofline of {gpu.name}"
    return _titled(
        head, table, f"these are {human_percent(found.matched / found.total)} of the time of all kernels but NCCL's"
    )


def _titled(head: str, table: Table, below: str) -> Group:
    from rich.console import Group  # noqa: PLC0415  slow to import
    from rich.text import Text  # noqa: PLC0415  as above

    return Group(Text(head, style="bold"), table, Text(f"{below}\n"))


def _rest(found: KernelTimes) -> Group:
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  imports rich

    operators: dict[str, tuple[int, int]] = {}
    for each in found.unmatched:
        calls, time = operators.get(each.operator, (0, 0))
        operators[each.operator] = calls + each.calls, time + each.time
    ordered = sorted(operators.items(), key=lambda item: -item[1][1])
    table = FittedTable("Operator", ["Kernels", "Time", "Share"], least=["Kernels", "Time"])
    for name, (calls, time) in ordered[:_LISTED]:
        table.add(name[:_SHOWN] or "none known", str(calls), _milliseconds(time), human_percent(time / found.total))
    below = f"and {len(ordered) - _LISTED} more operators" if len(ordered) > _LISTED else ""
    return _titled("kernels that match nothing, by operator", table, below)


_SHOWN = 80  # characters of a name


def _milliseconds(ps: int) -> str:
    return f"{ps / 1e9:.3f} ms"


def _as_json(found: KernelTimes, gpu: Gpu) -> dict[str, Any]:
    return {
        "gpu": gpu.name,
        "device": found.device,
        "traces": list(found.sources),
        "covered": found.matched / found.total,
        "kinds": [_kind(kind, kernels, gpu) for kind, kernels in _of_kind(found).items()],
        "kernels": [_kernel(each, gpu) for each in found.kernels],
        "unmatched": [{**each._asdict(), "time": each.time / PS_PER_US} for each in found.unmatched],
        "warnings": list(found.warnings(gpu)),
    }


def _kind(kind: str, kernels: Sequence[KernelTime], gpu: Gpu) -> dict[str, Any]:
    ratios = _ratios(kernels, gpu)
    told = dict(zip(("median", "least", "greatest"), ratios, strict=True)) if ratios else None
    return {"kind": kind, "shapes": len(kernels), "roofline_over_measured": told}


def _kernel(each: KernelTime, gpu: Gpu) -> dict[str, Any]:
    one = each.what.operation
    return {
        "kind": each.what.kind,
        "shape": list(one.shape) if one.shape else None,
        "bytes": one.traffic,
        "causal": each.what.causal,
        "calls": len(each.times),
        "median_us": each.median / PS_PER_US,
        "quartiles_us": [time / PS_PER_US for time in each.quartiles],
        "beside_others": each.beside,
        "roofline_over_measured": each.ratio(gpu),
    }
