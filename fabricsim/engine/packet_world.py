"""The compiled world of the packet engine: programs as in the flow engine, and a network of packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.engine.cutoff import CutOff
from fabricsim.engine.deadlock import explain
from fabricsim.engine.world import World
from fabricsim.errors import SimulationError
from fabricsim.kernels.queue import next_time, post
from fabricsim.kernels.replay import HORIZON, LANES
from fabricsim.packet.replay import LINK_DOWN, LINK_UP, ROOM, SMALLER, advance
from fabricsim.packet.window import next_times
from fabricsim.tables import CLOCK_END, NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.engine.packet_state import PacketState

_FIRST_SEARCH = 1_000_000
"""Events before the first search for what stands still; each is that much and a quarter of all events later than the
last."""


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
        Whether nodes are found by the tournament over their next times; chosen where it is None.
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
        self._next_search = _FIRST_SEARCH
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
        """Have a link fail for a time, ps; for good where `until` is None."""
        self._failures += 2
        self.reserve_events()
        post(self, begin, LINK_DOWN, np.int64(link), np.int64(0))
        if until is None:
            self._cut_off.expect(link, begin)
        else:
            post(self, until, LINK_UP, np.int64(link), np.int64(0))

    def more_events(self) -> int:
        """Events beyond those of programs and messages that may be queued at once."""
        return self._failures + len(self.jobs)

    # ---- the kernel -----------------------------------------------------------------------------

    def advance(self, horizon: int, budget: int) -> int:
        """Run the kernel until it stops for something other than a lack of room; as `World.advance`."""
        self.reserve_outbox()
        if self._check is not None:
            self._check()
        while True:
            code = int(advance(min(horizon, CLOCK_END), budget, self, self.network))
            if code == LANES:
                self.grow_calls()
            elif code == ROOM:
                self.network.make_room()
            elif code == SMALLER:
                self._fix_window()
            elif self._is_time_to_search() and (reason := self.explain() or self._cut_off.explain()) is not None:
                raise SimulationError(reason)
            elif code == HORIZON and horizon > CLOCK_END:
                msg = "simulated time runs past 92 days, the end of the clock: a rate is too small or a time too long"
                raise SimulationError(self._cut_off.describe() or msg)
            else:
                return code

    def explain(self) -> str | None:
        """Say why nothing moves any more; None where there is no deadlock."""
        return explain(self.network, self._names)

    def _is_time_to_search(self) -> bool:
        """Whether so much has happened that a search for what stands still takes no time to speak of.

        Timeouts go on in a deadlocked network and before a failed link, and would do so for good.
        """
        events = int(self.world["events"][0])
        if not (self.network.wakes or self._cut_off.expected) or events < self._next_search:
            return False
        self._next_search = _FIRST_SEARCH + events + events // 4
        return True

    def next_time(self) -> int:
        """When something happens next, ps; NEVER where nothing does."""
        return min(int(next_time(self)), *(int(time) for time in next_times(self.network)))
