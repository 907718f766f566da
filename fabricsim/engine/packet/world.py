"""The compiled world of the packet engine: programs as in the flow engine, and a network of packets."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fabricsim.engine.flow.outages import Failed
from fabricsim.engine.flow.world import World, past_the_clock
from fabricsim.engine.packet.cutoff import CutOff, unfinished
from fabricsim.engine.packet.deadlock import explain
from fabricsim.engine.packet.flows import abandon, owners, truncate
from fabricsim.engine.packet.kernels.delivery import INBOX_BITS
from fabricsim.engine.packet.kernels.main_loop import ROOM, SMALLER, advance
from fabricsim.engine.packet.kernels.window import next_times
from fabricsim.engine.packet.state import PacketState
from fabricsim.engine.program.dispatch import COMPLETIONS, HORIZON, LANES, PAUSED
from fabricsim.engine.program.queue import next_time
from fabricsim.records.program import CLOCK_END, NEVER, NONE

_FIRST_SEARCH = 1_000_000
"""Events before the first search for a deadlock; each is that much and a quarter of all events later than the last."""
_EVENTS_PER_LOOK = 100
"""Events in whose time Python looks once, about: where timers alone go on, there are few events between two looks."""
_BETWEEN_LOOKS = 10_000_000_000
"""ps (10 ms) between two looks for flows that are cut off: about what a retransmission timer takes."""


class PacketWorld(World):
    """One simulated fabric, packet by packet.

    `capacities`: of the resources, units per second.
    `smallest`: wire bytes of the smallest packet, but for those that end a message.
    `names`: of its links, for messages.
    `calendar`: whether nodes are found by the tournament over their next times; chosen if it is None.
    `check`: called before the network runs on, with all flows so far made.
    """

    def __init__(  # noqa: PLR0913  the last two are rarely given, and by name only
        self,
        capacities: Sequence[float],
        network: PacketState,
        smallest: int,
        *,
        names: Sequence[str],
        calendar: bool | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.network = network
        self._names = names
        self._check = check
        self._next_search, self._next_look, self._looks = _FIRST_SEARCH, _BETWEEN_LOOKS, 0
        self.renew: Callable[[Sequence[int]], None] | None = None
        self._cut_off = CutOff(network)
        self.as_built = network.links.copy()
        super().__init__(capacities, ())
        self._calendar = calendar
        network.world["smallest"] = smallest
        self._shortest_reaction = NEVER
        self._fix_window()

    # ---- windows --------------------------------------------------------------------------------

    def react_within(self, latency: int) -> None:
        """Let somebody react no sooner than `latency` (ps) after a message was received."""
        if latency < self._shortest_reaction:
            self._shortest_reaction = latency
            self._fix_window()

    def _fix_window(self) -> None:
        longest = max(self._shortest_reaction, 1)
        self.network.set_window(longest, int(self.network.world["smallest"][0]), calendar=self._calendar)

    # ---- what is posted -------------------------------------------------------------------------

    def reserve_flows(self) -> None:
        """Flows of the fluid engine are not needed; the network grows as it goes."""

    def cancel_message(self, now: int, message: int) -> None:  # noqa: ARG002  packets leave when they leave
        """Send nothing more of a message than what has been sent, and one packet at least."""
        row = self.messages[message]
        flow = int(self.routes["flow"][row["route"]])
        row["bytes"] = min(int(row["bytes"]), int(self.network.laws["payload"][0]))  # if it has not begun
        if flow != NONE:
            truncate(self.network, flow, -1 - message)

    def more_events(self) -> int:
        """Events beyond those of programs and messages that may be queued at once."""
        return len(self.jobs)

    # ---- the kernel -----------------------------------------------------------------------------

    def run(self, horizon: int, budget: int) -> int:
        """Run the kernel until it stops for something other than a lack of room; as `World.run`.

        If flows may stand still for good, this stops now and then (PAUSED) to look for them.
        """
        if self._check is not None:
            self._check()
        limit = min(horizon, CLOCK_END)
        if self.network.wakes or (not self.intact() and self._lasting()):
            limit = min(limit, max(self.moves_at(), self._next_look))
        while True:
            code = int(advance(limit, budget, self, self.network))
            if code == LANES:
                self.grow_calls()
            elif code == ROOM:
                self.network.make_room()
            elif code == SMALLER:
                self._fix_window()
            elif code == HORIZON:
                return self._at_horizon(limit, horizon)
            else:
                return code

    def _at_horizon(self, limit: int, horizon: int) -> int:
        """Look for what stands still, now that all nodes have been run up to `limit` (ps)."""
        if horizon > CLOCK_END == limit:
            raise past_the_clock()
        if self._finds_failed(limit):
            self.world["now"] = limit
            return COMPLETIONS
        return HORIZON if limit == horizon else PAUSED

    # ---- what stands still ------------------------------------------------------------------------

    def _finds_failed(self, now: int) -> bool:
        """Give up flows that are cut off or deadlocked; returns whether there are any."""
        if now < self._next_look:
            return False
        self._next_look = now + _BETWEEN_LOOKS
        flows = self._cut_off.find(self._lasting())
        reason = self._why_cut(flows)
        if reason is None and self._is_time_to_search():
            reason = self.explain()
            flows = [] if reason is None else unfinished(self.network)
        if reason is not None:
            self._give_up(flows, reason)
        return reason is not None

    def _lasting(self) -> set[int]:
        return set() if self.failures is None else set(self.failures.lasting())

    def _why_cut(self, flows: Sequence[int]) -> str | None:
        if not flows or self.failures is None:
            return None
        return self.failures.describe(self.failures.ends_of(self.network.flows["route"][list(flows)].tolist()))

    def _give_up(self, flows: Sequence[int], reason: str) -> None:
        """Abandon flows, and tell of those who wait for what they have not delivered."""
        owned = [owner for flow in flows for owner in self.owners(flow)]
        messages = frozenset(-1 - owner for owner in owned if owner < 0)
        self.tell(Failed(reason, messages, frozenset(self._calls_of(owned))))
        self.abandon(flows)

    def _calls_of(self, owned: Sequence[int]) -> list[int]:
        """Give the calls of those owners of messages that are lanes."""
        calls: list[int] = self.lanes["call"][[owner >> INBOX_BITS for owner in owned if owner >= 0]].tolist()
        return calls

    def owners(self, flow: int) -> list[int]:
        """List whose messages a flow still has to deliver."""
        return owners(self.network, flow)

    def end_flow(self, flow: int) -> None:
        """Have a flow send nothing any more."""
        abandon(self.network, flow)

    def abandon(self, flows: Iterable[int]) -> None:
        """Have flows send nothing any more, and new ones carry what is sent between the same ends later on."""
        flows = list(flows)
        for flow in flows:
            self.end_flow(flow)
        if self.renew is not None and flows:
            self.renew(flows)

    def stop_calls(self, calls: Iterable[int]) -> None:
        """Send nothing more for some calls that have failed."""
        some = set(calls)
        waiting = unfinished(self.network)
        self.abandon([flow for flow in waiting if not some.isdisjoint(self._calls_of(self.owners(flow)))])

    def explain(self) -> str | None:
        """Say why nothing moves any more; None if there is no deadlock."""
        return explain(self.network, self._names)

    def _is_time_to_search(self) -> bool:
        """Whether so much has happened that a search for a deadlock takes no time to speak of.

        Timeouts go on in a deadlocked network, and would do so for good.
        """
        self._looks += 1
        done = int(self.world["events"][0]) + _EVENTS_PER_LOOK * self._looks
        if not self.network.wakes or done < self._next_search:
            return False
        self._next_search = _FIRST_SEARCH + done + done // 4
        return True

    def moves_at(self) -> int:
        """When something moves next, ps; NEVER if nothing does."""
        return min(int(next_time(self)), *(int(time) for time in next_times(self.network)))

    # ---- what changes -----------------------------------------------------------------------------

    def due(self) -> int:
        """When something happens to the fabric next, ps; NEVER if nothing does."""
        return NEVER if self.failures is None else self.failures.due

    def act(self, now: int) -> None:
        """Do what is due up to `now`, ps."""
        if self.failures is not None:
            self.failures.act(now)

    def take_down(self, wires: Iterable[int]) -> None:
        """Have links lose what is given to them."""
        wires = list(wires)
        if not self._lasting():
            self._cut_off.count()
        self.network.links["down"][wires] = 1
        self.network.watch(wires)

    def bring_up(self, wires: Sequence[int]) -> None:
        """Have links carry packets again."""
        self.network.links["down"][list(wires)] = 0

    def set_rate(self, wires: Sequence[int], rate: float) -> None:
        """Change the rate of links, bytes/s, and with it what bounds their queues in time; NaN: that as built."""
        links, wires = self.network.links, list(wires)
        capacities = np.array(self.resources["capacity"][wires])
        slower = np.ones(len(wires)) if np.isnan(rate) else capacities / rate
        built = self.as_built[wires]
        links["ps_per_byte"][wires] = built["ps_per_byte"] * slower
        for name in ("limit", "mark_low", "mark_high"):
            bounded = np.floor(np.where(built[name] == NEVER, 0, built[name]) * slower + 0.5).astype(np.int64)
            links[name][wires] = np.where(built[name] == NEVER, NEVER, bounded)
        self.network.measure_queues(wires)
        self._fix_window()

    def set_loss(self, wires: Sequence[int], bit_error_rate: float) -> None:
        """Change the bit error rate of links; NaN: that as built."""
        wires = list(wires)
        built = self.as_built["loss"][wires]
        self.network.links["loss"][wires] = built if np.isnan(bit_error_rate) else bit_error_rate
        self.network.watch(wires)

    def reroute(self, routes: Iterable[int], *, at_once: bool = False) -> None:
        """Do nothing more: packets take the present way of their flow when they are sent."""
