"""Prints simulated collectives in the table form of nccl-tests.

Columns, widths and number forms are those of nccl-tests 2.18 (``src/util.cu`` of
github.com/NVIDIA/nccl-tests), so that scripts which read its output read this too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabricsim.errors import SimulationError
from fabricsim.records.program import NONE
from fabricsim.results.summary import bus_factor
from fabricsim.traces.nccl_tests import BYTES_PER_GB, US_PER_S, Device

_TYPE, _ITEM_BYTES = "float", 4
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
_ROOTED = {"broadcast", "reduce"}
_PER_RANK_COUNT = {"all_gather", "reduce_scatter", "all_to_all"}
_PROGRAMS = {"send_recv": "sendrecv", "all_to_all": "alltoall"}
_TIME_WIDTH = 7
_BANDWIDTH_WIDTH = 6
_COLUMNS = (
    f"#{'out-of-place':>74}{'in-place':>31}{'':10}",
    f"#       size         count      type   redop    root{'     time   algbw   busbw  #wrong' * 2} ",
    f"#        (B)    (elements){'':26}{'     (us)  (GB/s)  (GB/s)        ' * 2} ",
)
WIDTH = max(map(len, _COLUMNS))
"""Columns of the widest line."""


@dataclass(frozen=True)
class BenchRow:
    """One simulated size.

    `size`: bytes as nccl-tests counts them: the whole buffer, the total output of an all_gather.
    `seconds`: from the call until the last rank is done.
    """

    size: int
    seconds: float


def render(rows: Sequence[BenchRow], *, collective: str, devices: Sequence[Device], machine: str, version: str) -> str:
    """Table of a simulated run.

    A simulated collective does the same in place and out of place, so both halves of a row show
    the same time; ``#wrong`` is ``N/A``, as no data are computed.

    `rows`: the sizes in the order of the table, at least one.
    `collective`: name of the collective, see `fabricsim.workload.program.CollectiveName`.
    `devices`: the simulated ranks in order, at least one.
    `machine`, `version`: what was simulated, and the version of fabricsim; the first lines say it.
    Returns: the table, its last line ended. `fabricsim.traces.nccl_tests.read` reads it back.
    Raises SimulationError if there are no rows or no devices, or a row that moves bytes takes no time.
    """
    if not rows or not devices:
        raise SimulationError("there is nothing to print: no size or no rank was simulated; name at least one of each")
    program = f"{_PROGRAMS.get(collective, collective)}_perf"
    bandwidths = [_bandwidths(row, bus_factor(collective, len(devices))) for row in rows]
    average = sum(bus for _, bus in bandwidths) / len(bandwidths)
    lines = [
        f"# simulated by fabricsim {version}; in-place = out-of-place",
        f"# {machine}",
        f"# Collective test starting: {program}",
        "#",
        "# Using devices",
        *(_device_line(device) for device in devices),
        "#",
        *_COLUMNS,
        *_row_lines(rows, bandwidths, collective, len(devices)),
        f"# {'Out of bounds values':<20} : N/A",
        f"# {'Avg bus bandwidth':<20} : {average:g} ",
        "#",
        f"# Collective test concluded: {program}",
        "#",
    ]
    return "\n".join(lines) + "\n"


def _bandwidths(row: BenchRow, factor: float) -> tuple[float, float]:
    """Algorithm and bus bandwidth, GB/s."""
    if row.size == 0:
        return 0.0, 0.0
    if row.seconds <= 0:
        raise SimulationError(f"{row.size} bytes took {row.seconds} s: the simulated transfer delivered nothing")
    algorithm = row.size / row.seconds / BYTES_PER_GB
    return algorithm, algorithm * factor


def _device_line(device: Device) -> str:
    return (
        f"#  Rank {device.rank:2d} Group  0 Pid {0:6d} on {device.host:>10} device {device.device:2d} "
        f"[simulated] {device.gpu}"
    )


def _row_lines(
    rows: Sequence[BenchRow], bandwidths: Sequence[tuple[float, float]], collective: str, ranks: int
) -> Iterable[str]:
    item = _ITEM_BYTES * (ranks if collective in _PER_RANK_COUNT else 1)
    redop = "sum" if collective in _REDUCING else "none"
    root = 0 if collective in _ROOTED else NONE
    for row, (algorithm, bus) in zip(rows, bandwidths, strict=True):
        time = _number(row.seconds * US_PER_S, _TIME_WIDTH)
        half = f"  {time}  {_number(algorithm, _BANDWIDTH_WIDTH)}  {_number(bus, _BANDWIDTH_WIDTH)}    N/A"
        yield f"{row.size:12d}  {row.size // item:12d}  {_TYPE:>8}  {redop:>6}  {root:6d}{half}{half}"


def _number(value: float, width: int) -> str:
    """Write a number as nccl-tests does: as many decimals as fit into `width`, at most two."""
    digits = len(str(int(value))) if value >= 1 else 0
    if digits < width - 2:
        return f"{value:{width}.2f}"
    if digits < width - 1:
        return f"{value:{width}.1f}"
    if digits < width + 1:
        return f"{value:{width}.0f}"
    return f"{value:{width}.{1 if width >= _TIME_WIDTH else 0}e}"
