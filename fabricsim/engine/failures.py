"""What fails while a fabric runs, when routing knows of it, and what is cut off for good."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.flow.outages import Timer
from fabricsim.engine.flow.world import World
from fabricsim.engine.in_force import BY_HAND, Degradation, InForce
from fabricsim.engine.wiring import Wiring
from fabricsim.errors import SimulationError
from fabricsim.records.program import CLOCK_END, NEVER
from fabricsim.results.columns import FAILURES
from fabricsim.results.slowed import RateLeft, rates_left
from fabricsim.scenario.network import REDUCER
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.suggest import some_of
from fabricsim.topology.platform import Platform
from fabricsim.topology.targets import FabricPart, find, in_both_directions
from fabricsim.transports.parameters import law_row
from fabricsim.units import PS_PER_S, human_seconds

What = Literal["down", "up", "rate", "loss", "repair", "routes"]
"""What happens: a part fails or comes back, is slower or loses packets; its switch, or all of routing, knows of it."""

ROUTING = 900_000_000_000
"""ps (0.9 s): three BFD packets 300 ms apart are missed (RFC 5880; the defaults of FRR); then BGP withdraws the route,
which takes far less (RFC 7938, section 7). Certainty: the timers E, that nothing else takes long U."""
SUBNET_MANAGER = 5 * PS_PER_S
"""ps: InfiniBand's subnet manager sweeps and routes anew, 10 to 20 s in very large fabrics by Mellanox (2017). U."""
_LEAST_ARRIVING = 0.5
"""Share of full packets that bit errors have to leave on each link: over six links one in 64 arrives then."""
_BITS = 8
_MOST_NAMED = 3
_OF_JOBS = ", which ends a job (fabricsim goodput tells what that costs)"
_OF_BIT_ERRORS = (
    "bit errors (fabric.failures) take the share of packets that they lose from the rate of a link, and no time to "
    'recover: engine = "packet" has both'
)
MOST_AGAIN = 100_000
"""How often failures come again in a run, all together: each takes some 0.2 ms and 2 kB."""


@dataclass(frozen=True)
class FabricEvent:
    """Something that happens to a part of a fabric.

    `time`: ps.
    `value`: the new rate, bytes/s, or bit error rate; NaN: that of the scenario.
    `failure`: number of that which begins or ends.
    `end`: when it is known to end, ps; NEVER: it is not.
    """

    time: int
    target: FabricPart
    what: What
    value: float = np.nan
    failure: int = BY_HAND
    end: int = NEVER


class Outage(NamedTuple):
    """A wire that was down: from when until it was up or routed around (NEVER: not yet), ps, and routes over it.

    `stuck`: whether routing knows of it, and knows no other way for these routes.
    """

    wire: int
    begin: int
    end: int
    routes: frozenset[int]
    stuck: bool = False


class _Drawn(NamedTuple):
    """A failure: which of the scenario, its wires, beginning and end (NEVER: none), ps, and rate, B/s; 0 if down."""

    failure: int
    wires: tuple[int, ...]
    begin: int
    end: int
    rate: float


class Failures:
    """The events of a fabric in order of time, and which of its parts are down.

    `scenario`: its failures and seed.
    `since`: wires that are down, and since when, ps.
    `withdrawn`: wires that routing avoids.
    `gone`: endpoints that are down, and with what.
    `intact`: whether nothing is down, and nothing will happen.
    `outages`: all so far.
    """

    def __init__(self, world: World, wiring: Wiring, platform: Platform, scenario: Scenario) -> None:
        self._world, self._wiring, self.platform = world, wiring, platform
        self._heap: list[tuple[int, int, FabricEvent]] = []
        self._order = count()
        self._numbers = count()  # of the scenario's failures, each time that one comes
        self._down: InForce[int] = InForce()  # when each failure of a wire is known to end, ps
        self._sources: dict[int, tuple[int, Iterator[list[FabricEvent]]]] = {}
        self._again = 0
        self._lossy = scenario.engine == "flow" and any(each.bit_error_rate for each in scenario.fabric.failures)
        self.since: dict[int, int] = {}
        self.withdrawn: frozenset[int] = frozenset()
        self.gone: InForce[str] = InForce()
        self._degraded: dict[What, Degradation] = {
            "rate": Degradation(platform.resources.capacities, min, world.set_rate),
            "loss": Degradation(platform.wires.loss, max, world.set_loss),
        }
        self.intact = True
        self._drawn: list[_Drawn] = []
        self._recorded: tuple[int, NDArray[np.void], dict[int, RateLeft]] | None = None  # up to when, and what
        self.outages: list[Outage] = []
        self._begins: dict[int, int] = {}  # when the first of each of the scenario's failures begins
        self._open: dict[int, list[int]] = {}  # outages of each wire that have not ended, by their place
        world.failures = self
        fabric = scenario.fabric
        # those that make no wire slower than as built
        self._as_built = {
            index for index, each in enumerate(fabric.failures) if each.rate is not None and each.bit_error_rate is None
        }
        slow = SUBNET_MANAGER if scenario.switch.credits is not None else ROUTING
        self.reconvergence = slow if fabric.reconvergence is None else fabric.reconvergence
        self.local_repair = min(fabric.local_repair, self.reconvergence)
        law = law_row(scenario.transport)[0]
        self._full = world.packet = int(law["payload"] + law["overhead"])
        world.timer = Timer(int(law["minimum_timeout"]), int(law["maximum_timeout"]))
        world.window = float(law["maximum_window"] * law["payload"])
        for index, failure in enumerate(fabric.failures):
            for number, target in enumerate(_targets(platform, index, *failure.target)):
                draws = np.random.default_rng([scenario.seed % 2**63, index, number])
                intervals = failure.intervals(draws.exponential)
                changes: dict[What, float | None] = {"rate": failure.rate, "loss": failure.bit_error_rate}
                values = {what: value for what, value in changes.items() if value is not None}
                whole = target if values else in_both_directions(platform, target)
                if failure.rate is not None and np.any(platform.wires.rate[list(target.wires)] > failure.rate):
                    self._as_built.discard(index)
                for begin, end in islice(intervals, 1):
                    self._begins[index] = min(self._begins.get(index, NEVER), begin)
                    self._draw_from(index, _events(whole, chain([(begin, end)], intervals), values, self._numbers))
        self._act_until(0)

    # ---- when ---------------------------------------------------------------------------------------

    @property
    def due(self) -> int:
        """When something happens next, ps; NEVER if nothing does within the clock."""
        time = self._heap[0][0] if self._heap else NEVER
        return time if time <= CLOCK_END else NEVER

    def post(self, event: FabricEvent) -> None:
        """Have an event happen at its time.

        Raises SimulationError if a rate or bit errors are of something without cables, or hardly any packet would
            arrive.
        """
        if event.what in self._degraded and not event.target.wires:
            raise SimulationError(f"{event.target.name} has no cables that are slow or lossy: name its NIC")
        if event.what == "loss" and not np.isnan(event.value):
            require_arrivals(self._full, event.value, f"the bit error rate of {event.target.name}")
        self.intact = False
        heapq.heappush(self._heap, (event.time, next(self._order), event))

    def _draw_from(self, index: int, source: Iterator[list[FabricEvent]]) -> bool:
        """Post the events of a source's next failure; what follows that is asked for when the last of them is over.

        `index`: of the scenario's failure that it is the source of.
        Returns: whether there is one.
        """
        events = next(source, None)
        if events is None:
            return False
        for event in events:
            self.post(event)
        self._sources[id(events[-1])] = index, source
        first = events[0]
        if first.what in {"down", "rate"}:
            rate = 0.0 if first.what == "down" else first.value
            self._drawn.append(_Drawn(index, first.target.wires, first.time, first.end, rate))
        return True

    def act(self, now: int) -> None:
        """Do what is due up to `now`, ps."""
        if self.due <= now:
            self._act_until(now)

    def _act_until(self, now: int) -> None:
        while self._heap and self._heap[0][0] <= now:
            _, _, event = heapq.heappop(self._heap)
            self._world.world["now"] = max(int(self._world.world["now"][0]), event.time)
            self._do(event)
            source = self._sources.pop(id(event), None)
            if source is not None and self._draw_from(*source):
                self._count_again(event)
        self.intact = not (self._heap or self.since or self.gone)

    def _count_again(self, over: FabricEvent) -> None:
        """Refuse failures that would come again and again for as long as anybody waits."""
        self._again += 1
        if self._again > MOST_AGAIN:
            msg = (
                f"failures came again {MOST_AGAIN:,} times within {_time(over.time)}, that of {over.target.name} last: "
                "no more are simulated; write a longer every, mtbf or mttr, or times (fabric.failures), and none of "
                "which retransmission timeouts are multiples (transport.packet.minimum_timeout): each would meet it"
            )
            raise SimulationError(msg)

    # ---- what ---------------------------------------------------------------------------------------

    def _do(self, event: FabricEvent) -> None:
        now, target, wires = event.time, event.target, event.target.wires
        if event.what == "down":
            self._take_down(event)
        elif event.what == "up":
            self.gone.end(event.failure, target.endpoints)
            self._bring_up(now, self._down.end(event.failure, wires))
        elif event.what in self._degraded:
            self._degraded[event.what].change(event.failure, wires, event.value)
        elif event.what == "repair":
            self._world.reroute(self._wiring.repair(self.since), at_once=True)
        else:
            self._converge(now, wires)

    def _take_down(self, event: FabricEvent) -> None:
        now, target = event.time, event.target
        new = self._down.begin(event.failure, target.wires, event.end)
        self.gone.begin(event.failure, target.endpoints, target.name)
        self.since |= dict.fromkeys(new, now)
        crossed = self._wiring.routes_over(new)
        for wire in new:
            self._open.setdefault(wire, []).append(len(self.outages))
            self.outages.append(Outage(wire, now, NEVER, frozenset(crossed[wire])))
        self._world.take_down(new)
        self._tell_routing(now, new)
        if target.endpoints:
            self._world.end_endpoints(target.endpoints, f"{target.name} is down since {_time(now)}{_OF_JOBS}")

    def _bring_up(self, now: int, wires: Sequence[int]) -> None:
        """Have wires come back that no failure keeps down any more."""
        for wire in wires:
            del self.since[wire]
        self._close(wires, now)
        self._world.bring_up(wires)
        self._tell_routing(now, wires)

    def restore(self, now: int, target: FabricPart) -> None:
        """End all failures of a target that are in force; it is as fast and as faultless as built."""
        self._world.world["now"] = now
        self.gone.clear(target.endpoints)
        self._bring_up(now, self._down.clear(in_both_directions(self.platform, target).wires))
        for degraded in self._degraded.values():
            degraded.clear(target.wires)
        self.intact = not (self._heap or self.since or self.gone)

    def _tell_routing(self, now: int, wires: Sequence[int]) -> None:
        """Have routing learn of wires; what is down from the beginning it knows."""
        if not wires:
            return
        target = FabricPart("", tuple(wires))
        self.post(FabricEvent(now + (self.local_repair if now else 0), target, "repair"))
        self.post(FabricEvent(now + (self.reconvergence if now else 0), target, "routes"))

    def _converge(self, now: int, wires: Iterable[int]) -> None:
        """Have routing avoid those of some wires that are down, both directions of their cables, and use the others."""
        reverse = self.platform.wires.reverse
        cables = {*wires, *reverse[list(wires)].tolist()}
        down = {wire for wire in cables if wire in self.since or int(reverse[wire]) in self.since}
        withdrawn = (self.withdrawn - cables) | down
        if withdrawn == self.withdrawn:
            return
        self.withdrawn = withdrawn
        self.platform.withdraw(withdrawn)
        self._world.reroute(self._wiring.reroute(withdrawn))
        self._pass_over(withdrawn & self._open.keys(), now)

    def _pass_over(self, wires: Iterable[int], now: int) -> None:
        """End the outages of wires that routing avoids, but for routes that have no other way."""
        for wire, crossed in self._wiring.routes_over(wires).items():
            for number, place in enumerate(self._open[wire]):
                outage = self.outages[place]
                left = outage._replace(routes=outage.routes & crossed, stuck=True)
                if outage.routes == left.routes:
                    self.outages[place] = left
                    continue
                self.outages[place] = outage._replace(end=now)
                self._open[wire][number] = len(self.outages)
                self.outages.append(left._replace(begin=now))

    def _close(self, wires: Iterable[int], now: int) -> None:
        """End the outages of wires that are up again; routes that were made meanwhile waited for them, too."""
        for wire, crossed in self._wiring.routes_over(wires).items():
            for place in self._open.pop(wire, ()):
                outage = self.outages[place]
                self.outages[place] = outage._replace(end=now, routes=outage.routes | crossed)

    def notes(self, end: int) -> list[str]:
        """Say what a run until `end`, ps, waited for after failures, what it leaves out, and which begin later."""
        over = f"when the run has ended ({_time(end)}): it changes nothing"
        later = [
            f"fabric.failures[{index}] begins at {_time(begin)}, {over}"
            for index, begin in self._begins.items()
            if begin >= end
        ]
        as_built = [
            f"fabric.failures[{index}] has a rate that its links do not exceed as built: it makes none slower"
            for index in sorted(self._as_built)
        ]
        return [said for said in (self._waits(end), _OF_BIT_ERRORS if self._lossy else "", *later, *as_built) if said]

    def _waits(self, end: int) -> str:
        until_end = [each._replace(end=min(each.end, end)) for each in self.outages]
        hit = [each for each in until_end if each.routes and each.end > each.begin]
        if not hit:
            return ""
        stuck = [each for each in hit if each.stuck]
        names = list(dict.fromkeys(self.platform.wires.names[each.wire] for each in stuck or hit))
        timer = self._world.timer
        again = f"{_time(timer.first)} (transport.packet.minimum_timeout"
        again += (
            "; of an RDMA queue pair 4.096 us * 2^NCCL_IB_TIMEOUT)" if timer.first == timer.longest else ", doubling)"
        )
        said = f"{some_of(names, _MOST_NAMED)} failed: "
        lost = f"what was lost at the end of a message is sent again after a retransmission timeout, {again}"
        if stuck:
            return f"{said}there is no other way, so that messages wait for the repair; {lost}"
        known = f"after {_time(self.reconvergence)} (fabric.reconvergence)"
        if max(each.end - each.begin for each in hit) < self.reconvergence:
            return f"{said}{lost}; routing would have known {known}, when all was over"
        ruled = "the timeout" if timer.first > self.reconvergence else "routing"
        return f"{said}routing knows {known}, and {lost}; {ruled} is the longer wait"

    def records(self, end: int) -> NDArray[np.void]:
        """List what the scenario's failures did to wires until `end` (ps), as `FAILURES` records.

        A wire that is to be no slower than as built is left out.
        """
        return self._up_to(end)[1]

    def rates_left(self, end: int) -> dict[int, RateLeft]:
        """Give what is left of the rate of each wire that failures slow down until `end` (ps), by its index."""
        return self._up_to(end)[2]

    def _up_to(self, end: int) -> tuple[int, NDArray[np.void], dict[int, RateLeft]]:
        if self._recorded is None or self._recorded[0] != end:
            records = self._records(end)
            self._recorded = end, records, rates_left(records)
        return self._recorded

    def _records(self, end: int) -> NDArray[np.void]:
        drawn = [each for each in self._drawn if each.begin < end]
        times = [len(each.wires) for each in drawn]
        table = np.zeros(sum(times), FAILURES.record)
        table["link"] = np.fromiter(chain.from_iterable(each.wires for each in drawn), np.int64, sum(times))
        told = [(each.failure, each.begin, min(each.end, end), each.rate) for each in drawn]
        for name, values in zip(("failure", "start", "end", "share"), zip(*told, strict=True), strict=False):
            table[name] = np.repeat(values, times)
        table["share"] /= self.platform.wires.rate[table["link"]]
        return table[table["share"] < 1]

    def ends_of(self, routes: Iterable[int]) -> list[tuple[int, int]]:
        """Source and target of some routes."""
        return [self._wiring.ends[route] for route in routes]

    def routes_of(self, endpoints: Iterable[int]) -> list[int]:
        """Routes from or to some endpoints."""
        some = set(endpoints)
        return [route for route, ends in enumerate(self._wiring.ends) if not some.isdisjoint(ends)]

    # ---- what is cut off ------------------------------------------------------------------------------

    def lasting(self) -> dict[int, int]:
        """Wires of which routing knows that they are down, and nobody when they come back, with the time since when."""
        return {
            wire: begin
            for wire, begin in self.since.items()
            if wire in self.withdrawn and NEVER in self._down.of(wire).values()
        }

    def require_up(self, endpoints: Iterable[int]) -> None:
        """Refuse endpoints that are down, by a `SimulationError`."""
        for endpoint in endpoints:
            what = next(iter(self.gone.of(endpoint).values()), None)
            if what is not None:
                msg = f"{self.platform.called(endpoint)} cannot take part: {what} is down; let it fail "
                raise SimulationError(
                    msg + "later (from, of that failure in fabric.failures), or leave that failure out"
                )

    def describe(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Say between which endpoints no way is left, and which cut parts them."""
        called, names = self._wiring.switches.called, self.platform.wires.names
        named = [f"{called(source)} to {called(target)}" for source, target in dict.fromkeys(pairs)]
        of_tree = any(map(self._wiring.switches.is_switch, pairs[0]))
        cut = (self._cut_of_tree(pairs[0]) if of_tree else self._cut(*pairs[0])) or sorted(self.lasting())
        down = [f"{names[wire]} is down for good since {_time(self.since[wire])}" for wire in cut]
        instead = "choose an algorithm by which no switch reduces (collectives.algorithm)"
        return (
            f"nothing is received any more from {some_of(named, _MOST_NAMED)}: no way is left, as "
            f"{some_of(down, _MOST_NAMED)}; write until for that failure (fabric.failures), restore it in time, or "
            f"{instead if of_tree else 'go on without these ranks'}"
        )

    def _cut_of_tree(self, ends: tuple[int, int]) -> list[int]:
        """Find the cables that are down on the way of a tree of switches that reduce, which takes no other."""
        names = self.platform.wires.names
        over = self._wiring.routes_over([wire for wire in self.lasting() if REDUCER not in names[wire]])
        return [wire for wire, routes in sorted(over.items()) if ends in self.ends_of(routes)]

    def _cut(self, source: int, target: int) -> list[int]:
        """Find the wires that are down between what can be reached from an endpoint's NIC and the rest."""
        wires, nics = self.platform.wires, self.platform.nics_of(source, target)
        for start, end in (nics, nics[::-1]):
            seen, waiting = {start}, [start]
            while waiting:
                node = waiting.pop()
                for wire in range(int(wires.first[node]), int(wires.first[node + 1])):
                    other = int(wires.target[wire])
                    if wire not in self.since and other not in seen:
                        seen.add(other)
                        waiting.append(other)
            if end not in seen:
                return [w for w in sorted(self.since) if wires.source[w] in seen and wires.target[w] not in seen]
        return []


def failing(platform: Platform, scenario: Scenario) -> list[int]:
    """List the wires of all that the failures of a scenario name, in both directions."""
    failures = enumerate(scenario.fabric.failures)
    parts = chain.from_iterable(_targets(platform, index, *failure.target) for index, failure in failures)
    return sorted({wire for part in parts for wire in in_both_directions(platform, part).wires})


def _targets(platform: Platform, index: int, kind: str, name: str) -> list[FabricPart]:
    """Find what a failure of a scenario names."""
    try:
        return find(platform, name, kind)
    except SimulationError as error:
        raise SimulationError(f"fabric.failures[{index}].{kind}: {error}") from error


def require_arrivals(packet: int, bit_error_rate: float, key: str) -> None:
    """Refuse bit errors among which hardly any packet of `packet` bytes arrives: senders would try for ever."""
    if not (1 - bit_error_rate) ** (_BITS * packet) >= _LEAST_ARRIVING:
        most = 1 - _LEAST_ARRIVING ** (1 / (_BITS * packet))
        msg = (
            f"{key}: {bit_error_rate:g} loses over half of all packets of {packet} B on each link, "
            f"so that hardly any arrives: write {most:.1e} or less, or send smaller packets (transport.mtu)"
        )
        raise SimulationError(msg)


def _events(
    target: FabricPart, intervals: Iterator[tuple[int, int | None]], values: dict[What, float], numbers: Iterator[int]
) -> Iterator[list[FabricEvent]]:
    """Yield the events of each failure of a target, the last of which ends it, if it ends; `numbers`: one for each."""
    for begin, end in intervals:
        own = {"failure": next(numbers), "end": NEVER if end is None else end}
        events = [FabricEvent(begin, target, what, value, **own) for what, value in values.items()] or [
            FabricEvent(begin, target, "down", **own)
        ]
        back: list[What] = list(values) or ["up"]
        yield events if end is None else [*events, *[FabricEvent(end, target, what, **own) for what in back]]


def _time(ps: int) -> str:
    return human_seconds(ps / PS_PER_S)
