"""How much of a resource calls use while they run, and which resources have to be asked about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fabricsim.results.slowed import RateLeft
from fabricsim.units import seconds

Interval = tuple[int, int]  # ps
Crossing = dict[int, dict[int, float]]


@dataclass(frozen=True)
class RunCalls:
    """Calls of a run: communicator, bytes, start and end (ps) of each, shape ``(n_calls,)``."""

    communicator: NDArray[np.int64]
    bytes: NDArray[np.float64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @cached_property
    def took(self) -> NDArray[np.int64]:
        """Time of each, ps."""
        return self.end - self.start

    @cached_property
    def of(self) -> dict[int, NDArray[np.int64]]:
        """The calls of each communicator, in program order."""
        order = np.argsort(self.communicator, kind="stable")
        found, first = np.unique(self.communicator[order], return_index=True)
        return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True)) if len(order) else {}


class Use(NamedTuple):
    """Mean use of a resource during each of some calls, shape ``(n,)``; above 1 by what comes at another time.

    `others`: how much of that no call accounts for.
    """

    calls: NDArray[np.int64]
    share: NDArray[np.float64]
    others: NDArray[np.float64]


class OtherLoad(NamedTuple):
    """Load of a resource that no call accounts for.

    `rate`: units/s while it came.
    `times`: when the load begins and ends, by turns, ps; shape ``(2 n,)``.
    `came`: time up to each of them in which it came, ps.
    """

    rate: float
    times: NDArray[np.int64]
    came: NDArray[np.float64]

    @classmethod
    def of(cls, load: float, intervals: Sequence[Interval]) -> Self:
        """Take a load to have come evenly over all of some intervals."""
        begin, end = apart(np.array(intervals, np.int64))
        came = np.cumsum(end - begin, dtype=np.float64)
        times = np.stack([begin, end], axis=1).ravel()
        return cls(load / seconds(int(came[-1])), times, np.stack([came - (end - begin), came], axis=1).ravel())

    def share(self, calls: RunCalls, some: NDArray[np.int64], capacity: float) -> NDArray[np.float64]:
        """Mean use of the resource by it during each of some calls."""
        begin, end = (np.interp(times[some], self.times, self.came) for times in (calls.start, calls.end))
        return np.asarray(self.rate / capacity * (end - begin) / calls.took[some], np.float64)


def crossing(demands: Mapping[int, Mapping[int, float]]) -> Crossing:
    """Give the communicators that cross each resource, and the units that a byte of theirs takes of it."""
    found: Crossing = {}
    for communicator, demand in demands.items():
        for resource, units in demand.items():
            if units > 0:
                found.setdefault(resource, {})[communicator] = units
    return dict(sorted(found.items()))


def candidates(crossed: Crossing, capacities: Sequence[float], always: Iterable[int]) -> list[int]:
    """List the resources that some call may use as much as any other, in their order.

    Of each other there is one of these of which all bytes that cross both take more of what it carries, or one that is
    crossed by the same communicators, as much by each.

    `always`: those that carry what no call accounts for, or are slower for a time.
    """
    most: dict[int, tuple[float, int]] = {}
    for resource, some in crossed.items():
        for communicator, units in some.items():
            rank = units / capacities[resource], -resource
            most[communicator] = max(most.get(communicator, rank), rank)
    first: dict[tuple[tuple[int, float], ...], int] = {}  # of those on which all put as much
    for resource, some in crossed.items():
        shares = {communicator: units / capacities[resource] for communicator, units in some.items()}
        above = {-most[communicator][1] for communicator in some} - {resource}
        if not any(_covers(crossed[other], capacities[other], shares) for other in above):
            first.setdefault(tuple(sorted(shares.items())), resource)
    return sorted({*first.values(), *(crossed.keys() & always)})


def _covers(some: Mapping[int, float], capacity: float, shares: Mapping[int, float]) -> bool:
    """Whether each communicator puts more on a resource of some capacity."""
    return all(some.get(communicator, 0.0) / capacity > share for communicator, share in shares.items())


def use_of(
    calls: RunCalls, some: Mapping[int, float], capacity: float, left: RateLeft | None, beside: OtherLoad | None
) -> Use:
    """Work out the use of a resource by the calls that cross it, each of which puts its bytes on it evenly.

    `some`: the communicators that cross it, with the units of a byte.
    `capacity`: as built, units/s; `left`: what failures left of it, None if all.
    """
    numbers = np.concatenate([calls.of[communicator] for communicator in some])
    units = np.repeat([*some.values()], [len(calls.of[communicator]) for communicator in some])
    lasting = calls.took[numbers] > 0
    numbers, units = numbers[lasting], units[lasting]
    begin, end = calls.start[numbers], calls.end[numbers]
    rate = units * calls.bytes[numbers] / (end - begin)
    times, place = np.unique(np.concatenate([begin, end]), return_inverse=True)
    steps = np.bincount(place, np.concatenate([rate, -rate]), minlength=len(times))
    carried = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(times))])  # up to each time
    sent = carried[place[len(numbers) :]] - carried[place[: len(numbers)]]
    took = end - begin if left is None else left.worth(begin, end)
    share = np.maximum(sent / (1e-12 * capacity * took), 0)
    others = np.zeros(len(numbers)) if beside is None else beside.share(calls, numbers, capacity)
    return Use(numbers, share + others, others)


def apart(intervals: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut intervals, shape ``(n, 2)``, where earlier ones cover them; returns beginnings and ends in order."""
    start, end = intervals[np.argsort(intervals[:, 0], kind="stable")].T
    end = np.maximum.accumulate(end)
    start = np.maximum(start, np.concatenate([[0], end[:-1]])) if len(end) else start
    return start, np.maximum(start, end)
