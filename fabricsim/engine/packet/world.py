"""The compiled world of the packet engine: programs as in the flow engine, and a network of packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.engine.flow.world import Failed, World
from fabricsim.engine.packet.cutoff import CutOff, unfinished
from fabricsim.engine.packet.deadlock import explain
from fabricsim.engine.packet.flows import abandon, owners, truncate
from fabricsim.engine.packet.kernels.delivery import INBOX_BITS
from fabricsim.engine.packet.kernels.main_loop import LINK_DOWN, LINK_UP, ROOM, SMALLER, advance
from fabricsim.engine.packet.kernels.window import next_times
from fabricsim.engine.program.dispatch import COMPLETIONS, HORIZON, LANES, PAUSED
from fabricsim.engine.program.queue import next_time, post
from fabricsim.errors import SimulationError
from fabricsim.records.program import CLOCK_END, NEVER, NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.engine.packet.state import PacketState

_FIRST_SEARCH = 1_000_000
"""Events before the first search for a deadlock; each is that much and a quarter of all events later than the last."""
_BETWEEN_LOOKS = 10_000_000_000
"""ps (10 ms) between two looks for flows that are cut off: about what a retransmission timer takes."""


class PacketWorld(World):
    """One simulated fabric, packet by packet.

    Parameters
    ----------
    capacities
        Of the resources, units per second.
    network
        Its tables.
    smallest
        Wire bytes of the smallest packet, but for those that end a message.
    names
        Of its links, for messages.
    calendar
        Whether nodes are found by the tournament over their next times; chosen if it is None.
    check
        Called before the network runs on, with all flows so far made.
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
        self._next_search, self._next_look = _FIRST_SEARCH, _BETWEEN_LOOKS
        self._failed: Failed | None = None
        self.renew: Callable[[Sequence[int]], None] | None = None
        self._failures = 0
        self._cut_off = CutOff(network, names)
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

    def post_failure(self, link: int, begin: int, until: int | None) -> None:
        """Have a link fail for a time, ps; for good if `until` is None."""
        self._failures += 2
        self.reserve_events()
        post(self, begin, LINK_DOWN, np.int64(link), np.int64(0))
        if until is None:
            self._cut_off.expect(link, begin)
        else:
            post(self, until, LINK_UP, np.int64(link), np.int64(0))

    def cancel_message(self, now: int, message: int) -> None:  # noqa: ARG002  packets leave when they leave
        """Send nothing more of a message than what has been sent, and one packet at least."""
        row = self.messages[message]
        flow = int(self.routes["flow"][row["route"]])
        row["bytes"] = min(int(row["bytes"]), int(self.network.laws["payload"][0]))  # if it has not begun
        if flow != NONE:
            truncate(self.network, flow, -1 - message)

    def more_events(self) -> int:
        """Events beyond those of programs and messages that may be queued at once."""
        return self._failures + len(self.jobs)

    # ---- the kernel -----------------------------------------------------------------------------

    def advance(self, horizon: int, budget: int) -> int:
        """Run the kernel until it stops for something other than a lack of room; as `World.advance`.

        COMPLETIONS may also mean that `take_failed` has something. If flows may stand still for good, this stops
        now and then (PAUSED) to look for them.
        """
        self.reserve_outbox()
        if self._check is not None:
            self._check()
        limit = min(horizon, CLOCK_END)
        if self.network.wakes or self._cut_off.expected:
            limit = min(limit, max(self.next_time(), self._next_look))
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
            msg = "simulated time runs past 92 days, the end of the clock: a rate is too small or a time too long"
            raise SimulationError(self._cut_off.describe() or msg)
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
        flows = self._cut_off.find()
        reason = self._cut_off.describe(flows)
        if reason is None and self._is_time_to_search():
            reason = self.explain()
            flows = [] if reason is None else unfinished(self.network)
        if reason is not None:
            self._failed = self._give_up(flows, reason)
        return reason is not None

    def _give_up(self, flows: Sequence[int], reason: str) -> Failed:
        """Abandon flows, and have new ones for what is sent between the same ends later on."""
        owned = [owner for flow in flows for owner in owners(self.network, flow)]
        for flow in flows:
            abandon(self.network, flow)
        if self.renew is not None:
            self.renew(flows)
        lanes = [owner >> INBOX_BITS for owner in owned if owner >= 0]
        return Failed(
            reason, {-1 - owner for owner in owned if owner < 0}, {int(self.lanes["call"][at]) for at in lanes}
        )

    def take_failed(self) -> Failed | None:
        """Tell once of what will not be done any more."""
        failed, self._failed = self._failed, None
        return failed

    def explain(self) -> str | None:
        """Say why nothing moves any more; None if there is no deadlock."""
        return explain(self.network, self._names)

    def _is_time_to_search(self) -> bool:
        """Whether so much has happened that a search for a deadlock takes no time to speak of.

        Timeouts go on in a deadlocked network, and would do so for good.
        """
        events = int(self.world["events"][0])
        if not self.network.wakes or events < self._next_search:
            return False
        self._next_search = _FIRST_SEARCH + events + events // 4
        return True

    def next_time(self) -> int:
        """When something happens next, ps; NEVER if nothing does."""
        return min(int(next_time(self)), *(int(time) for time in next_times(self.network)))
