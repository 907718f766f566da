"""Volumes counted beside volumes by formula, as plain values."""

from typing import TypedDict

from fabricsim.workload.tally import Volume, Volumes


class Amounts(TypedDict):
    """Calls, bytes of all their buffers, and bytes that all ranks together send."""

    calls: int
    buffer_bytes: int
    wire_bytes: int


class SizeCount(TypedDict):
    """How many calls there are of one group size and one size."""

    ranks: int
    bytes: int
    calls: int


class VolumeRow(Amounts):
    """One collective in one dimension, counted in the program and by formula.

    ``histogram`` has the calls by the largest power of two that is no larger than their size;
    ``difference`` is what was counted less the formula, and ``agrees`` compares every size besides.
    """

    dimension: str
    collective: str
    sizes: list[SizeCount]
    smallest_bytes: int
    median_bytes: int
    largest_bytes: int
    histogram: dict[str, int]
    wire_bytes_per_gpu: float
    formula: Amounts
    difference: Amounts
    agrees: bool


class VolumeSummary(TypedDict):
    """All volumes of one iteration of a job; ``agree`` says whether every row does.

    ``expert_load`` is how many tokens the busiest rank's experts get in a run, over the even share counted here.
    """

    name: str
    ranks: int
    volumes: list[VolumeRow]
    total: Amounts
    wire_bytes_per_gpu: float
    agree: bool
    expert_load: float


def summarise_volumes(
    name: str, ranks: int, counted: Volumes, formula: Volumes, expert_load: float = 1.0
) -> VolumeSummary:
    """Compare what was counted with the formulas.

    `name`: of the scenario.
    `ranks`: of the job.
    `counted`, `formula`: by dimension and collective; one that only one of both has is compared with nothing.
    `expert_load`: tokens of the busiest rank's experts, over those counted.
    """
    keys = dict.fromkeys([*formula, *counted])
    rows = [_row(key, counted.get(key, Volume()), formula.get(key, Volume()), ranks) for key in keys]
    total = Amounts(
        calls=sum(row["calls"] for row in rows),
        buffer_bytes=sum(row["buffer_bytes"] for row in rows),
        wire_bytes=sum(row["wire_bytes"] for row in rows),
    )
    return VolumeSummary(
        name=name,
        ranks=ranks,
        volumes=rows,
        total=total,
        wire_bytes_per_gpu=total["wire_bytes"] / ranks,
        agree=all(row["agrees"] for row in rows),
        expert_load=expert_load,
    )


def _row(key: tuple[str, str], counted: Volume, formula: Volume, ranks: int) -> VolumeRow:
    smallest, median, largest = counted.extremes()
    return VolumeRow(
        dimension=key[0],
        collective=key[1],
        **_amounts(counted),
        sizes=[SizeCount(ranks=size[0], bytes=size[1], calls=calls) for size, calls in sorted(counted.sizes.items())],
        smallest_bytes=smallest,
        median_bytes=median,
        largest_bytes=largest,
        histogram={str(size): calls for size, calls in counted.histogram().items()},
        wire_bytes_per_gpu=counted.wire / ranks,
        formula=_amounts(formula),
        difference=Amounts(
            calls=counted.calls - formula.calls,
            buffer_bytes=counted.buffer - formula.buffer,
            wire_bytes=counted.wire - formula.wire,
        ),
        agrees=counted == formula,
    )


def _amounts(volume: Volume) -> Amounts:
    return Amounts(calls=volume.calls, buffer_bytes=volume.buffer, wire_bytes=volume.wire)
