"""What held each collective call of a run: the resource that it used most, and what it waited for besides."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.carried import carried
from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.records.program import NONE
from fabricsim.results.result import Limits, Rest
from fabricsim.results.slowed import RateLeft
from fabricsim.units import PS_PER_S, seconds
from fabricsim.workload.program import Program

Demands = dict[int, dict[int, float]]
Interval = tuple[int, int]  # ps

_PAUSED = 0.1
"""Share of the calls' time: if no wire of theirs was paused for more, PAUSE frames have not held them."""
_HELD = 0.5
"""Share of the time in which no resource limits a call: if failures explain less of it, they are not its cause."""


class _Calls(NamedTuple):
    """Calls of a run: communicator, bytes, start and end (ps) of each, shape ``(n_calls,)``."""

    communicator: NDArray[np.int64]
    bytes: NDArray[np.float64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def by_communicator(self, communicators: Iterable[int]) -> dict[int, NDArray[np.int64]]:
        """Give the calls of each of some communicators, in program order."""
        order = np.argsort(self.communicator, kind="stable")
        inside = self.communicator[order]
        return {
            each: order[np.searchsorted(inside, each) : np.searchsorted(inside, each, "right")]
            for each in communicators
        }

    def crossing(self, communicators: Iterable[int]) -> NDArray[np.int64]:
        """Give the calls of some communicators that took time, in program order."""
        some = np.isin(self.communicator, np.fromiter(communicators, np.int64))
        return np.flatnonzero(some & (self.end > self.start))


def limits(
    fabric: Fabric, program: Program, replay: Replay, sent: Mapping[int, list[Interval]] | None = None
) -> Limits:
    """Find what held each call of a replayed program.

    What a call puts on a resource is known (`Wiring.load`), and is taken to come evenly while the call runs. The
    resource that limits a communicator is the one that its calls, and all others that cross it then, use most. A wire
    that failures slowed down may limit some calls of a communicator, and others not.

    `sent`: when other traffic sent over each resource; what it carried of that is taken to have come evenly meanwhile.
    """
    kinds = program.calls.kinds
    communicators = fabric.communicators(kinds)
    of = program.calls.kind
    calls = _Calls(
        np.array(communicators, np.int64)[of],
        np.array([kind.size for kind in kinds], np.float64)[of],
        replay.calls["started"].astype(np.int64),
        replay.calls["ended"].astype(np.int64),
    )
    demands = {index: fabric.wiring.load(index) for index in dict.fromkeys(communicators)}
    limit, used = np.full(len(of), NONE, np.int64), np.zeros(len(of))
    rest = np.full(len(of), Rest.LATENCY, np.int64)
    beside = _loads_beside(fabric, calls, demands, sent) if sent else {}
    capacities, left = fabric.platform.resources.capacities, fabric.failures.rates_left(replay.end)
    narrowest = _narrowest(calls, demands, capacities, beside)
    others = np.zeros(len(of))
    own = calls.by_communicator(demands)
    for communicator in narrowest:
        rest[own[communicator]] = _rest(fabric, communicator, demands[communicator], calls)
    for resource in sorted({*narrowest.values(), *(left.keys() & set().union(*demands.values()))}):
        share = _shares(calls, demands, resource, capacities[resource], left.get(resource))
        other = beside[resource].share(calls, capacities[resource]) if resource in beside else None
        share = share if other is None else share + other
        for communicator, found in narrowest.items():
            if resource == found or (resource in left and demands[communicator].get(resource, 0) > 0):
                some = own[communicator]
                more = some[(limit[some] == NONE) | (share[some] > used[some])]
                limit[more], used[more] = resource, share[more]
                others[more] = 0.0 if other is None else other[more]
    used = np.minimum(used, 1)
    failed, held = _failed(fabric, calls, demands)
    failed[held < _HELD * (1 - used) * (calls.end - calls.start)] = NONE
    rest[failed != NONE] = Rest.FAILURE
    return Limits(_numbered(fabric, limit), used, rest, failed, np.minimum(others, used))


def _failed(fabric: Fabric, calls: _Calls, demands: Demands) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give for each call the wire that failed while it ran, the first one, and how long failures may have held it up.

    That is while the wire was down, as long again since timeouts double, and one timeout more. NONE and 0 if none did.
    """
    failed, held = np.full(len(calls.start), NONE, np.int64), np.zeros(len(calls.start))
    timeout = fabric.world.timer.first
    for outage in fabric.failures.outages[::-1]:
        hit = (calls.start < outage.end) & (calls.end > outage.begin)
        own = [index for index in demands if not outage.routes.isdisjoint(fabric.wiring.routes_of(index))]
        hit &= np.isin(calls.communicator, own)
        failed[hit] = outage.wire
        down = np.minimum(calls.end, outage.end) - np.maximum(calls.start, outage.begin)
        held[hit] += 2.0 * down[hit] + timeout
    return failed, held


class _Beside(NamedTuple):
    """Load of a resource that no call accounts for.

    `rate`: units/s while it came.
    `times`: when that begins and ends, by turns, ps; shape ``(2 n,)``.
    `came`: time up to each of them in which it came, ps.
    """

    rate: float
    times: NDArray[np.int64]
    came: NDArray[np.float64]

    def meanwhile(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.float64]:
        """Time in which it came from `begin` to `end`, ps."""
        return np.asarray(np.interp(end, self.times, self.came) - np.interp(begin, self.times, self.came), np.float64)

    def share(self, calls: _Calls, capacity: float) -> NDArray[np.float64]:
        """Mean use of the resource by it during each call."""
        took = np.maximum(calls.end - calls.start, 1)
        return np.asarray(self.rate / capacity * self.meanwhile(calls.start, calls.end) / took, np.float64)


def _beside(load: float, intervals: list[Interval]) -> _Beside:
    """Take a load to have come evenly over all of some intervals."""
    begin, end = _apart(np.array(intervals, np.int64))
    came = np.cumsum(end - begin, dtype=np.float64)
    times = np.stack([begin, end], axis=1).ravel()
    return _Beside(load / seconds(int(came[-1])), times, np.stack([came - (end - begin), came], axis=1).ravel())


def _loads_beside(
    fabric: Fabric, calls: _Calls, demands: Demands, sent: Mapping[int, list[Interval]]
) -> dict[int, _Beside]:
    """Give the load of each resource that no call accounts for."""
    load = carried(fabric.parts, int(fabric.world.world["now"][0]))[0]
    own = np.bincount(calls.communicator, calls.bytes, minlength=max(demands, default=0) + 1)
    for communicator, demand in demands.items():
        for resource, units in demand.items():
            load[resource] -= units * own[communicator]
    return {each: _beside(float(load[each]), sent[each]) for each in np.flatnonzero(load > 1).tolist() if each in sent}


def _narrowest(
    calls: _Calls, demands: Demands, capacities: Sequence[float], beside: Mapping[int, _Beside]
) -> dict[int, int]:
    """Give each communicator the resource whose load over what it can carry while calls cross it is largest."""
    crossing: dict[int, list[int]] = {}
    for communicator, demand in demands.items():
        for resource, units in demand.items():
            if units > 0:
                crossing.setdefault(resource, []).append(communicator)
    sent = np.bincount(calls.communicator, calls.bytes, minlength=max(demands, default=0) + 1)
    # resources are crossed by few different sets of communicators
    busy = {some: _running(calls, some) for some in {tuple(some) for some in crossing.values()}}
    use = {}
    for resource, some in crossing.items():
        load = sum(demands[index][resource] * sent[index] for index in some)
        begin, end = busy[tuple(some)]
        if resource in beside:
            load += beside[resource].rate / PS_PER_S * float(beside[resource].meanwhile(begin, end).sum())
        use[resource] = load / (capacities[resource] * max(int((end - begin).sum()), 1))
    return {
        index: min((-use[resource], resource) for resource in demand if resource in use)[1]
        for index, demand in demands.items()
        if any(resource in use for resource in demand)
    }


def _running(calls: _Calls, communicators: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give when some call of the communicators runs: beginnings and ends of intervals that do not overlap, ps."""
    own = calls.crossing(communicators)
    return _apart(np.stack([calls.start[own], calls.end[own]], axis=1))


def _apart(intervals: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut intervals, shape ``(n, 2)``, where earlier ones cover them; returns beginnings and ends in order."""
    start, end = intervals[np.argsort(intervals[:, 0], kind="stable")].T
    end = np.maximum.accumulate(end)
    start = np.maximum(start, np.concatenate([[0], end[:-1]])) if len(end) else start
    return start, np.maximum(start, end)


def _shares(
    calls: _Calls, demands: Demands, resource: int, capacity: float, left: RateLeft | None
) -> NDArray[np.float64]:
    """Mean use of a resource during each call, shape ``(n_calls,)``; above 1 by what comes at another time.

    `capacity`: as built; `left`: what failures left of it, None if all.
    """
    own = calls.crossing(index for index, demand in demands.items() if demand.get(resource, 0) > 0)
    units = np.array([demands[index].get(resource, 0.0) for index in calls.communicator[own].tolist()])
    rate = units * calls.bytes[own] / (calls.end - calls.start)[own]
    times, place = np.unique(np.concatenate([calls.start[own], calls.end[own]]), return_inverse=True)
    steps = np.bincount(place, np.concatenate([rate, -rate]), minlength=len(times))
    carried = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(times))])  # up to each time
    share = np.zeros(len(calls.start))
    begin, end = place[: len(own)], place[len(own) :]
    took = (calls.end - calls.start)[own] if left is None else left.worth(calls.start[own], calls.end[own])
    share[own] = np.maximum((carried[end] - carried[begin]) / (1e-12 * capacity * took), 0)
    return share


def _rest(fabric: Fabric, communicator: int, demand: dict[int, float], calls: _Calls) -> Rest:
    """Say what calls of a communicator wait for while they do not use their narrowest resource."""
    if fabric.recorder is None:
        return Rest.LATENCY
    network = fabric.recorder.network
    flows = network.flows[[flow for flow in fabric.wiring.flows_of(communicator) if flow != NONE]]
    wires = network.links[[resource for resource in demand if resource < len(network.links)]]
    if flows["timeouts"].any():
        return Rest.TIMEOUTS
    if flows["retransmissions"].any():
        return Rest.RETRANSMISSIONS
    begin, end = _running(calls, (communicator,))
    if wires["paused"].max(initial=0) > _PAUSED * (end - begin).sum():
        return Rest.PAUSES
    return Rest.MARKS if wires["marks"].any() else Rest.LATENCY


def _numbered(fabric: Fabric, resource: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn resources into places in the result's links, which leave out those that others stand for."""
    folding = fabric.wiring.folding
    if folding is None:
        return resource
    place = np.cumsum(folding.copies > 0) - 1
    return np.where(resource == NONE, NONE, place[folding.resource_of[resource]])
