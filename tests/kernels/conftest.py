from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fabricsim.engine.flow.state import table
from fabricsim.engine.flow.world import World
from fabricsim.engine.program.queue import close_bucket, has_event_at, next_time, post, rehash, take
from fabricsim.records.program import BUCKET, EVENT


class Queue:
    """The compiled event queue on tables of its own, which grow when it is asked to."""

    def __init__(self, capacity: int) -> None:
        self._world = World([1.0], ())
        self._world.world["free_event"] = self._world.world["free_bucket"] = -1
        self._world.events, self._world.buckets = table(0, EVENT), table(0, BUCKET)
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        world = self._world
        before = len(world.events)
        events, buckets = table(capacity, EVENT), table(capacity, BUCKET)
        events[:before], buckets[:before] = world.events, world.buckets
        events["next"][before:] = np.arange(before + 1, capacity + 1)
        events["next"][-1] = world.world[0].free_event
        world.world[0].free_event = before
        world.events, world.buckets = events, buckets
        rehash(world)

    def post(self, time: int, kind: int, target: int = 0, extra: int = 0) -> None:
        post(self._world, time, kind, target, extra)

    def take(self) -> tuple[int, int, int]:
        kind, target, extra = take(self._world)
        return int(kind), int(target), int(extra)

    def next_time(self) -> int:
        return int(next_time(self._world))

    def has_event_at(self, time: int) -> bool:
        return bool(has_event_at(self._world, time))

    def close(self, time: int) -> None:
        close_bucket(self._world, time)

    def free_events(self) -> int:
        count, event = 0, int(self._world.world[0].free_event)
        while 0 <= event < len(self._world.events):
            count, event = count + 1, int(self._world.events[event].next)
        return count

    def free_buckets(self) -> int:
        count, bucket = 0, int(self._world.world[0].free_bucket)
        while 0 <= bucket < len(self._world.buckets):
            count, bucket = count + 1, int(self._world.buckets[bucket].chain)
        return count


@pytest.fixture(scope="session")
def queue() -> Callable[[int], Queue]:
    return Queue
