"""NVLinks that join the GPUs of a host directly, without a switch."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import PlainValidator

from fabricsim.scenario.suggest import show

_MOST = 64
"""Links of a GPU: three times as many as any has."""


class NvlinkMesh(NamedTuple):
    """How many links join each two GPUs of a host; GPUs are given by their number in it.

    `rows`: one for each GPU, with 0 for itself.
    """

    rows: tuple[tuple[int, ...], ...]

    def fewest(self, gpus: Sequence[int]) -> int:
        """Count the links to others of a group, of the GPU that has fewest."""
        return min(sum(self.rows[gpu][other] for other in gpus) for gpu in gpus)

    def is_whole(self, gpus: Iterable[int]) -> bool:
        """Whether links lead from each GPU of a group to each other, if need be by way of others of it."""
        first, *rest = gpus
        away, reached = set(rest), [first]
        for gpu in reached:
            beyond = {other for other in away if self.rows[gpu][other]}
            reached += beyond
            away -= beyond
        return not away

    def partners(self, gpu: int, gpus: Iterable[int]) -> tuple[int, ...]:
        """List the GPUs of a group to which links lead from one, each as often as it has links in proportion."""
        links = {other: count for other in gpus if (count := self.rows[gpu][other])}
        common = math.gcd(*links.values())
        return tuple(other for other, count in links.items() for _ in range(count // common))

    def between(self, here: int, there: int) -> int | None:
        """Find the GPU by way of which most links lead from one to another; None if there is none."""
        ways = [min(self.rows[here][gpu], self.rows[gpu][there]) for gpu in range(len(self.rows))]
        return ways.index(max(ways)) if any(ways) else None


def _read(value: object) -> int | NvlinkMesh | Literal["switch"]:
    if value == "switch":
        return "switch"
    if isinstance(value, NvlinkMesh) or (isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST):
        return value
    if not isinstance(value, list | tuple):
        msg = f"is {show(value)}; write how many links join each two GPUs, 1 to {_MOST}, a row for each GPU, or switch"
        raise ValueError(msg)  # noqa: TRY004  pydantic makes a mistake of a ValueError only
    rows = [list(row) if isinstance(row, list | tuple) else [] for row in value]
    for number, row in enumerate(rows):
        _check_row(rows, number, row)
    return NvlinkMesh(tuple(map(tuple, rows)))


def _check_row(rows: list[list[object]], number: int, row: list[object]) -> None:
    """Refuse the row of a GPU that is no such, or says other than one before it."""
    if len(row) != len(rows):
        msg = f"has {len(row)} numbers in row {number} and {len(rows)} rows; write a number for each two GPUs"
        raise ValueError(msg)
    for other, links in enumerate(row):
        if not isinstance(links, int) or isinstance(links, bool) or not 0 <= links <= _MOST:
            msg = f"has {show(links)} from GPU {number} to {other}; write how many links there are, 0 to {_MOST}"
            raise ValueError(msg)
    if row[number]:
        raise ValueError(f"has {row[number]} from GPU {number} to itself; write 0 there")
    for other, back in enumerate(rows[:number]):
        if row[other] != back[number]:
            msg = f"has {row[other]} from GPU {number} to {other} and {back[number]} back; write the same both ways"
            raise ValueError(msg)


NvlinksBetween = Annotated[int | NvlinkMesh | Literal["switch"], PlainValidator(_read)]
"""Links that join each two GPUs of a host: as many between all, or a row for each GPU; or that a switch does."""
