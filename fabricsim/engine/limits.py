"""What held each collective call of a run: the resource that it used most, and what it waited for besides."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.carried import carried
from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.uses import Interval, OtherLoad, RunCalls, Use, apart, candidates, crossing, use_of
from fabricsim.records.program import NONE
from fabricsim.results.result import Limits, Rest
from fabricsim.workload.program import Program

Demands = dict[int, dict[int, float]]

_PAUSED = 0.1
"""Share of the calls' time: if no wire of theirs was paused for more, PAUSE frames have not held them."""
_MORE = 0.1
"""Share of a call's time by which it has to use a resource more than that of its communicator, to be limited by it."""
_EQUAL = 1e-9
"""Relative; uses that differ by less are equal but for rounding."""
_HELD = 0.5
"""Share of the time in which no resource limits a call: if failures explain less of it, they are not its cause."""


def limits(
    fabric: Fabric, program: Program, replay: Replay, sent: Mapping[int, list[Interval]] | None = None
) -> Limits:
    """Find what held each call of a replayed program.

    What a call puts on a resource is known (`Wiring.load`), and is taken to come evenly while the call runs. The
    resource that limits a communicator is the one that is used most while its calls run, by these and all others. A
    single call is limited by another that is used more by a tenth meanwhile, or more at all if failures slow it down.

    `sent`: when other traffic sent over each resource; what it carried of that is taken to have come evenly meanwhile.
    """
    kinds = program.calls.kinds
    communicators = fabric.communicators(kinds)
    of = program.calls.kind
    calls = RunCalls(
        np.array(communicators, np.int64)[of],
        np.array([kind.size for kind in kinds], np.float64)[of],
        replay.calls["started"].astype(np.int64),
        replay.calls["ended"].astype(np.int64),
    )
    demands = {index: fabric.wiring.load(index) for index in dict.fromkeys(communicators)}
    beside = _loads_beside(fabric, calls, demands, sent) if sent else {}
    capacities, left = fabric.platform.resources.capacities, fabric.failures.rates_left(replay.end)
    crossed, found = crossing(demands), _Found(calls)
    for resource in candidates(crossed, capacities, {*beside, *left}):
        some = crossed[resource]
        use = use_of(calls, some, capacities[resource], left.get(resource), beside.get(resource))
        found.weigh(resource, some, use, _MORE if resource in left else 0.0)
    limit, used, others = found.limits()
    used = np.minimum(used, 1)
    rest = np.full(len(of), Rest.LATENCY, np.int64)
    for communicator, own in calls.of.items():
        rest[own] = _rest(fabric, communicator, demands[communicator], calls)
    failed, held = _failed(fabric, calls, demands)
    failed[held < _HELD * (1 - used) * calls.took] = NONE
    rest[failed != NONE] = Rest.FAILURE
    return Limits(_numbered(fabric, limit), used, rest, failed, np.minimum(others, used))


class _Found:
    """Of each call, the resource that its communicator uses most, and the one that it uses most itself."""

    def __init__(self, calls: RunCalls) -> None:
        self._calls = calls
        self._took = took = calls.took
        self._mean: dict[int, float] = {}  # use by each communicator of what it uses most
        self._limit = np.full((2, len(took)), NONE, np.int64)
        self._used, self._others = np.zeros((2, len(took))), np.zeros((2, len(took)))
        self._weight = np.zeros(len(took))
        self._during = np.zeros((2, len(took)))  # use of a resource, and of that by others

    def weigh(self, resource: int, communicators: Iterable[int], use: Use, ahead: float) -> None:
        """Take a resource for what it is used most by; of equal ones the first stays.

        `ahead`: added to its use if that of single calls is compared.
        """
        self._during[:, use.calls] = use.share, use.others
        for communicator in communicators:
            own = self._calls.of[communicator]
            time = float(self._took[own].sum())
            mean = float(self._during[0, own] @ self._took[own]) / time if time else 0.0
            if communicator not in self._mean or mean > self._mean[communicator] * (1 + _EQUAL):
                self._mean[communicator] = mean
                self._put(0, own, resource)
            weight = np.minimum(self._during[0, own], 1 + ahead) + ahead
            better = weight > self._weight[own]
            more = own[better]
            self._weight[more] = weight[better]
            self._put(1, more, resource)

    def _put(self, row: int, calls: NDArray[np.int64], resource: int) -> None:
        self._limit[row, calls] = resource
        self._used[row, calls], self._others[row, calls] = self._during[:, calls]

    def limits(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Give the resource that limits each call, its use, and of that by others."""
        single = (self._weight > np.minimum(self._used[0], 1) + _MORE).astype(np.int64)
        place = np.arange(len(single))
        return self._limit[single, place], self._used[single, place], self._others[single, place]


def _failed(fabric: Fabric, calls: RunCalls, demands: Demands) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
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


def _loads_beside(
    fabric: Fabric, calls: RunCalls, demands: Demands, sent: Mapping[int, list[Interval]]
) -> dict[int, OtherLoad]:
    """Give the load of each resource that no call accounts for."""
    load = carried(fabric.parts, int(fabric.world.world["now"][0]))[0]
    own = np.bincount(calls.communicator, calls.bytes, minlength=max(demands, default=0) + 1)
    for communicator, demand in demands.items():
        for resource, units in demand.items():
            load[resource] -= units * own[communicator]
    return {
        each: OtherLoad.of(float(load[each]), sent[each]) for each in np.flatnonzero(load > 1).tolist() if each in sent
    }


def _rest(fabric: Fabric, communicator: int, demand: Mapping[int, float], calls: RunCalls) -> Rest:
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
    begin, end = apart(np.stack([calls.start, calls.end], axis=1)[calls.of[communicator]])
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
