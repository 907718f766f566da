from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fabricsim.engine.world import World
from fabricsim.kernels.queue import close_bucket, has_event_at, next_time, post, rehash, take
from fabricsim.tables import BUCKET, EVENT

if TYPE_CHECKING:
    from collections.abc import Callable


class Queue:
    """The compiled event queue on tables of its own, which grow when it is asked to."""

    def __init__(self, capacity: int) -> None:
        self._world = World([1.0], ()).world
        self._world[0].free_event = self._world[0].free_bucket = -1
        self._events = np.zeros(0, EVENT).view(np.recarray)
        self._buckets = np.zeros(0, BUCKET).view(np.recarray)
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        before = len(self._events)
        events, buckets = np.zeros(capacity, EVENT).view(np.recarray), np.zeros(capacity, BUCKET).view(np.recarray)
        events[:before], buckets[:before] = self._events, self._buckets
        events["next"][before:] = np.arange(before + 1, capacity + 1)
        events["next"][-1] = self._world[0].free_event
        self._world[0].free_event = before
        self._events, self._buckets = events, buckets
        rehash(self._world, buckets)

    def post(self, time: int, kind: int, target: int = 0, extra: int = 0) -> None:
        post(self._world, self._events, self._buckets, time, kind, target, extra)

    def take(self) -> tuple[int, int, int]:
        kind, target, extra = take(self._world, self._events, self._buckets)
        return int(kind), int(target), int(extra)

    def next_time(self) -> int:
        return int(next_time(self._world, self._buckets))

    def has_event_at(self, time: int) -> bool:
        return bool(has_event_at(self._world, self._buckets, time))

    def close(self, time: int) -> None:
        close_bucket(self._world, self._buckets, time)

    def free_events(self) -> int:
        count, event = 0, int(self._world[0].free_event)
        while 0 <= event < len(self._events):
            count, event = count + 1, int(self._events[event].next)
        return count

    def free_buckets(self) -> int:
        count, bucket = 0, int(self._world[0].free_bucket)
        while 0 <= bucket < len(self._buckets):
            count, bucket = count + 1, int(self._buckets[bucket].chain)
        return count


@pytest.fixture(scope="session")
def queue() -> Callable[[int], Queue]:
    return Queue
