"""Flows that stand still because their way is down, and when they go on."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.flow.kernels.flows import settle
from fabricsim.engine.flow.kernels.outages import begin_again, go_on, park, set_capacity
from fabricsim.engine.flow.state import State
from fabricsim.records.program import NEVER, NONE
from fabricsim.units import PS_PER_S

GIVEN_UP_AFTER = 3
"""Timeouts after which a message is given up that no way is left for."""
_BETWEEN_LOOKS = 10_000_000_000
"""ps (10 ms), at least, between two looks for what is cut off."""
_BITS = 8


class Failed(NamedTuple):
    """What will not be done any more.

    `reason`: and the way out.
    `messages`, `calls`, `ranks`: their numbers.
    """

    reason: str
    messages: frozenset[int] = frozenset()
    calls: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()


class KnownFailures(Protocol):
    """What a world knows of the failures of its fabric: `fabricsim.engine.failures.Failures`."""

    @property
    def intact(self) -> bool:
        """Whether nothing is down, and nothing will happen."""

    @property
    def since(self) -> Mapping[int, int]:
        """Wires that are down, and since when, ps."""

    @property
    def due(self) -> int:
        """When something happens next, ps."""

    def act(self, now: int) -> None:
        """Do what is due up to `now`, ps."""

    def lasting(self) -> Mapping[int, int]:
        """Wires that are down for good, as far as is known."""

    def ends_of(self, routes: Iterable[int]) -> list[tuple[int, int]]:
        """Source and target of some routes."""

    def routes_of(self, endpoints: Iterable[int]) -> list[int]:
        """Routes from or to some endpoints."""

    def describe(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Say between which endpoints no way is left, and which cut parts them."""


class Timer(NamedTuple):
    """A retransmission timer, ps: it doubles with each timeout, up to a bound."""

    first: int
    longest: int

    def after(self, begin: int, time: int) -> int:
        """When it goes off first that is not before `time`, if it began to run at `begin`."""
        timeout = self.first
        while begin + timeout < time:
            begin, timeout = begin + timeout, min(2 * timeout, self.longest)
            if timeout == self.longest:  # all further ones at once
                begin += max(-(-(time - begin) // timeout) - 1, 0) * timeout
        return begin + timeout

    def expired(self, begin: int, times: int, since: int = 0) -> int:
        """When it has gone off that many times after `since`, if it began to run at `begin`."""
        time = max(begin, since)
        for _ in range(times):
            time = self.after(begin, time + 1)
        return time


class Outages(State):
    """Tables of the flow engine, and what failures do to them.

    `timer`: by which a sender of the transport notices that packets were lost.
    `packet`, `window`: wire bytes of a full packet, and the most bytes that a sender sends without an acknowledgement.
    """

    failures: KnownFailures | None = None
    timer = Timer(NEVER, NEVER)
    packet, window = 0, 0.0

    def __init__(self, capacities: Sequence[float], taps: Sequence[int]) -> None:
        super().__init__(capacities, taps)
        self._built = np.array(capacities, np.float64)
        self._rates, self._arriving = self._built.copy(), np.ones(len(capacities))
        self._resumes: list[tuple[int, int, int]] = []  # time, flow, when it was started
        self._stood: dict[int, tuple[int, int]] = {}  # of flows: when they were started, and came to a stand
        self._failed: list[Failed] = []
        self._look = 0

    def due(self) -> int:
        """When something happens to the fabric next, ps; NEVER if nothing does."""
        if self.failures is None:
            return NEVER
        due = min(self.failures.due, self._resumes[0][0] if self._resumes else NEVER)
        return min(due, self._look) if self.failures.lasting() and self.world["active"][0] > 0 else due

    def act(self, now: int) -> None:
        """Do what is due up to `now`, ps."""
        if self.failures is None:
            return
        self.failures.act(now)
        self.world["now"] = max(int(self.world["now"][0]), now)
        while self._resumes and self._resumes[0][0] <= now:
            _, flow, started = heapq.heappop(self._resumes)
            row = self.flows[flow]
            if row.owner != NONE and row.started == started and row.legs == 0:
                go_on(self, flow)
        settle(self)
        if now >= self._look:
            self._look = now + max(min(self.timer.first, NEVER - now), _BETWEEN_LOOKS)
            self._give_up_cut(now)

    def intact(self) -> bool:
        """Whether nothing stands still or is down, and nothing will happen."""
        return (self.failures is None or self.failures.intact) and not self._resumes

    # ---- what changes ---------------------------------------------------------------------------------

    def take_down(self, wires: Iterable[int]) -> None:
        """Have wires carry nothing."""
        self._set_capacities(wires)

    def bring_up(self, wires: Sequence[int]) -> None:
        """Have wires carry what they carried before; what stood still on them goes on with its next timeout."""
        self._go_on_later(self._standing(self._crossing(wires)))
        self._set_capacities(wires)

    def set_rate(self, wires: Sequence[int], rate: float) -> None:
        """Change the rate of wires, bytes/s; NaN: that as built."""
        wires = list(wires)
        self._rates[wires] = self._built[wires] if np.isnan(rate) else rate
        self._set_capacities(wires)

    def set_loss(self, wires: Sequence[int], bit_error_rate: float) -> None:
        """Have wires lose packets to bit errors: they carry as much less. NaN: none."""
        loss = 0.0 if np.isnan(bit_error_rate) else bit_error_rate
        self._arriving[list(wires)] = (1 - loss) ** (_BITS * self.packet)
        self._set_capacities(wires)

    def _set_capacities(self, wires: Iterable[int]) -> None:
        down = self.failures.since if self.failures is not None else {}
        wires = list(wires)
        flows = self._crossing(wires)
        self._keep_timers(flows)
        for wire in wires:
            set_capacity(self, wire, 0.0 if wire in down else self._rates[wire] * self._arriving[wire])
        for flow in flows.tolist():
            begin_again(self, flow)
        settle(self)

    def reroute(self, routes: Iterable[int], *, at_once: bool = False) -> None:
        """Have flows in transfer take the new ways of their routes: those that stand still with their next timeout.

        `routes`: their indices.
        `at_once`: nothing waits for a timeout: other packets of the same flow arrive, and tell what is missing.
        """
        flows = self.flows
        some = np.flatnonzero((flows["owner"] != NONE) & (flows["legs"] > 0) & np.isin(flows["route"], list(routes)))
        later = np.zeros(0, np.int64) if at_once else self._standing(some)
        rest = np.setdiff1d(some, later)
        self._keep_timers(rest)
        self._go_on_later(later)
        for flow in rest.tolist():
            park(self, flow)
            go_on(self, flow)
        settle(self)

    def _go_on_later(self, flows: NDArray[np.int64]) -> None:
        """Have flows go on with the next timeout, or now if their senders have sent on: then packets tell of a gap."""
        now = int(self.world["now"][0])
        self._keep_timers(flows)
        for flow in flows.tolist():
            row, since = self.flows[flow], self._stands_since(flow)
            sent = (now - since) / PS_PER_S * self._rate_of_way(int(row.route))
            time = now if sent < min(row.remaining, self.window) else self.timer.after(since, now)
            park(self, flow)
            heapq.heappush(self._resumes, (time, flow, int(row.started)))

    def _rate_of_way(self, route: int) -> float:
        """Payload rate at which a route's sender sends alone at present, bytes/s, though what is down loses it all."""
        row = self.routes[route]
        hops = self.hops[row.first_hop : row.first_hop + row.hops]
        resources = hops["resource"]
        return float((self._rates[resources] * self._arriving[resources] / hops["cost"]).min())

    # ---- what stands still ------------------------------------------------------------------------------

    def _crossing(self, wires: Iterable[int]) -> NDArray[np.int64]:
        """List the flows in transfer over any of some wires."""
        legs = [int(self.resources["first"][wire]) for wire in wires]
        found = set()
        for leg in legs:
            at = leg
            while at >= 0:
                found.add(int(self.legs["flow"][at]))
                at = int(self.legs["next"][at])
        return np.array(sorted(found), np.int64)

    def _standing(self, flows: NDArray[np.int64]) -> NDArray[np.int64]:
        """List those of some flows that stand still."""
        standing: NDArray[np.int64] = flows[self.flows["rate"][flows] == 0]
        return standing

    def _stands_since(self, flow: int) -> int:
        """When a flow that stands still came to a stand, ps: its timer runs since then, whichever ways it tries."""
        row = self.flows[flow]
        started, since = self._stood.get(flow, (NONE, NONE))
        return since if started == row.started else int(row.updated)

    def _keep_timers(self, flows: NDArray[np.int64]) -> None:
        """Remember since when flows stand still, before they are brought up to now; those that move have no timer."""
        for flow in flows.tolist():
            if self.flows["rate"][flow] == 0:
                self._stood[flow] = int(self.flows["started"][flow]), self._stands_since(flow)
            else:
                self._stood.pop(flow, None)

    def _give_up_cut(self, now: int) -> None:
        """Give up what has stood still on wires that are down for good until its sender has timed out often enough."""
        failures = self.failures
        lasting = {} if failures is None else failures.lasting()
        since: dict[int, int] = {}
        for wire, begin in lasting.items():
            for flow in self._crossing([wire]).tolist():
                since.setdefault(flow, begin)
        cut = [
            flow
            for flow, begin in sorted(since.items())
            if self.timer.expired(self._stands_since(flow), GIVEN_UP_AFTER, begin) <= now
        ]
        if failures is None or not cut:
            return
        rows = self.flows[cut]
        ends = failures.ends_of(rows["route"].tolist())
        outside = rows["connection"] < 0
        lanes = rows["owner"][~outside]
        self.tell(
            Failed(
                failures.describe(ends),
                frozenset(rows["owner"][outside].tolist()),
                frozenset(self.lanes["call"][lanes].tolist()),
            )
        )
        self.abandon(cut)

    def abandon(self, flows: Iterable[int]) -> None:
        """Have flows in transfer stand still for good, off their way."""
        for flow in flows:
            if self.flows["legs"][flow] > 0:
                park(self, flow)
            self.world["active"] -= 1
            self.flows["started"][flow] = NONE  # nothing has it go on
        settle(self)

    def stop_calls(self, calls: Iterable[int]) -> None:
        """Send nothing more for some calls that have failed."""
        flows = self.flows
        of_call = np.flatnonzero((flows["owner"] != NONE) & (flows["connection"] >= 0) & (flows["started"] >= 0))
        lanes = self.lanes["call"][flows["owner"][of_call]]
        self.abandon(of_call[np.isin(lanes, list(calls))].tolist())

    def tell(self, failed: Failed) -> None:
        """Have `take_failed` tell of something."""
        self._failed.append(failed)

    def take_failed(self) -> list[Failed]:
        """Tell once of what will not be done any more."""
        failed, self._failed = self._failed, []
        return failed

    def end_endpoints(self, endpoints: Sequence[int], reason: str) -> None:
        """Have all fail that GPUs or hosts take part in which are gone."""
        routes = [] if self.failures is None else self.failures.routes_of(endpoints)
        messages = self.messages[: self.used["messages"]]
        unfinished = np.isin(messages["route"], routes) & ((messages["batch"] == NONE) | (messages["ended"] == 0))
        self.tell(Failed(reason, frozenset(np.flatnonzero(unfinished).tolist()), ranks=frozenset(endpoints)))
