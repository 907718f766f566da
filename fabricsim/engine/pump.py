"""Keeps a compiled world in step with a SimPy environment.

SimPy owns the clock. The world is advanced to the next completion that somebody waits for, and never
past the next SimPy event, so that whatever a process does finds the world at its time. In between
SimPy holds one event, at the instant at which the world has something to do next; several worlds, and
processes of any number, may so share an environment.
"""

import math
from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

from fabricsim.engine.flow.world import World
from fabricsim.engine.program.dispatch import COMPLETIONS, HORIZON, PAUSED
from fabricsim.errors import SimulationError
from fabricsim.records.program import CLOCK_END, NEVER

_LOW = EventPriority(NORMAL + 1)  # the world moves on after all that processes do at an instant
_BUDGET = 2_000_000  # events of kernels, changes of rates included, between two reports of progress: about a second


class Pump:
    """Moves a world along with the clock of an environment.

    `unit`: picoseconds per unit of ``env.now``.
    `deliver`: called at the time of a completion, when the outbox has something.
    `idle`: called when nothing can happen any more.
    `progress`: called now and then with the number of DAG nodes done so far.
    """

    def __init__(  # noqa: PLR0913  two parties and three callbacks, these by name
        self,
        env: simpy.Environment,
        world: World,
        *,
        unit: int,
        deliver: Callable[[], None],
        idle: Callable[[], None],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._env, self._world, self._unit = env, world, unit
        self._deliver, self._idle, self._progress = deliver, idle, progress
        self._due: int | None = None
        self._turn = 0  # of the scheduled step that counts; those before it are void
        self._delivering = False

    def now(self) -> int:
        """Present time, ps. Raises SimulationError if the environment's clock is outside that of the world."""
        if self._env.now < 0:
            msg = f"the environment's time {self._env.now} is before 0, where the clock begins: start it at 0"
            raise SimulationError(msg)
        if self._env.now * self._unit > CLOCK_END:
            msg = f"the environment's time {self._env.now} is beyond 92 days, the end of the clock: start it at 0"
            raise SimulationError(msg)
        return max(round(self._env.now * self._unit), int(self._world.world["now"][0]))

    def wake(self) -> None:
        """Take notice of what has been posted to the world at this instant."""
        now = self.now()
        if not self._delivering and (self._due is None or now < self._due):
            self._schedule(now, self._step, _LOW)

    def _schedule(self, time: int, action: Callable[[Any], None], priority: EventPriority) -> None:
        self._due = time
        self._turn += 1
        event = simpy.Event(self._env)
        event._ok = True  # noqa: SLF001  what simpy.Timeout does; it has no priority to set
        event._value = self._turn  # noqa: SLF001  as above
        event.callbacks.append(action)
        self._env.schedule(event, priority, max(time / self._unit - self._env.now, 0))

    def _horizon(self, due: int) -> int:
        """Time up to which the world may go: no process can act before it.

        At least the time for which the step was scheduled, which SimPy's float clock may round down.
        """
        upcoming = self._env.peek() * self._unit
        return NEVER - 1 if math.isinf(upcoming) else max(min(round(upcoming), NEVER - 1), due)

    def _step(self, event: simpy.Event) -> None:
        if event.value != self._turn:
            return
        due, self._due = self._due, None
        horizon = self._horizon(due or 0)
        code = PAUSED
        while code == PAUSED:
            code = self._world.advance(horizon, _BUDGET)
            if code == PAUSED and self._progress is not None:
                self._progress(int(self._world.world["dag_nodes"][0]))
        if code == COMPLETIONS:
            self._delivering = True
            self._schedule(int(self._world.world["now"][0]), self._hand_over, NORMAL)
        elif code == HORIZON:
            self._schedule(self._world.next_time(), self._step, _LOW)
        else:
            self._idle()

    def _hand_over(self, _event: simpy.Event) -> None:
        self._delivering = False
        self._deliver()
        self._schedule(self.now(), self._step, _LOW)
