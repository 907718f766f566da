"""What packets pass between memory and wire: servers, each of which serves one after the other."""

import math
from collections import deque
from dataclasses import dataclass, field

from fabricsim.engine.reference.packets import Packet


@dataclass
class Server:
    """A resource of a host that serves packets one after the other."""

    free_at: int = 0
    busy: int = 0  # ps
    bytes: int = 0  # payload


@dataclass
class HostStage:
    """A server on a flow's way through a host."""

    server: Server
    ps_per_byte: float

    def time_alone(self, payload: int) -> int:
        """Time to serve `payload` bytes if nothing else is there, ps."""
        return math.floor(payload * self.ps_per_byte + 0.5)

    def pass_through(self, payload: int, time: int, now: int) -> int:
        """Serve `payload` bytes, given now, that are here at `time`; returns when that is done, ps."""
        duration = self.time_alone(payload)
        self.server.free_at = max(now, self.server.free_at) + duration
        self.server.busy += duration
        self.server.bytes += payload
        return max(time + duration, self.server.free_at)


def pass_all(stages: list[HostStage], payload: int, time: int) -> int:
    """Serve `payload` bytes at each stage in turn, from `time` on; returns when the last is done, ps."""
    now = time
    for stage in stages:
        time = stage.pass_through(payload, time, now)
    return time


def times_alone(stages: list[HostStage], payload: int) -> list[int]:
    """Time of each stage to serve `payload` bytes if nothing else is there, ps."""
    return [stage.time_alone(payload) for stage in stages]


@dataclass
class Endpoint:
    """A GPU or a host's memory: packets on their way to it through its host."""

    packets: deque[Packet] = field(default_factory=deque)
    waiting: deque[Packet] = field(default_factory=deque)  # for the servers
    received_at: int = 0  # the last of `packets`, ps
