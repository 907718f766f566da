"""Links: serialisation, marks, bit errors, propagation, and the plain FIFO before the wire."""

from __future__ import annotations

import math
from typing import Any, Protocol

from fabricsim.engine.reference.nodes import ARRIVAL, CONTROL, Node
from fabricsim.engine.reference.packets import Control, Entry, Packet, Reading
from fabricsim.engine.reference.shared import Shared
from fabricsim.records.packet import CONTROL_BYTES, DROPPED, HEADER_BYTES, LOST, SENT
from fabricsim.topology.shortest_paths import mix

BITS_PER_BYTE = 8
COUNTERS = (
    *("packets", "bytes", "marks", "drops", "errors", "trims", "pauses"),
    "payload",  # of a NIC: sent for the first time, bytes
    "deepest",  # longest drain time, ps
    "paused",  # time that some class was paused, ps
)


class Egress(Protocol):
    """What sends on a link whose departures are decided one by one."""

    @property
    def waiting(self) -> int:
        """Serialisation time of all that waits, ps."""

    def enqueue(self, packet: Packet) -> None:
        """Take a packet into its queue, or trim or drop it."""

    def serve(self) -> None:
        """Send what may go while the wire is free."""

    def measure(self) -> None:
        """Work out how long what waits takes to leave, after the rate has changed."""

    def control(self, traffic_class: int, amount: int) -> None:
        """Take a PAUSE, a RESUME or credits for one class."""


class Link:
    """One direction of a cable; what `port` is None is a FIFO whose departures are known in advance."""

    port: Egress | None = None
    source: Node
    target: Node
    reverse: Link

    def __init__(self, network: Shared, index: int) -> None:
        row = network.tables.links[index]
        self.network = network
        self.index = index
        self.delay = int(row["delay"])
        self.cut_through = bool(row["cut_through"])
        self.mark_most = float(row["mark_most"])
        self.free_at = 0
        self.draws = 0
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.set(row)

    def set(self, row: Any) -> None:  # noqa: ANN401  a record
        """Take over what may change: rate, bounds of the queue in time, errors, and whether it is down."""
        self.ps_per_byte = float(row["ps_per_byte"])
        self.mark_low = int(row["mark_low"])
        self.mark_high = int(row["mark_high"])
        self.limit = int(row["limit"])
        self.bit_error_rate = float(row["loss"])
        self.down = int(row["down"])
        if self.port is not None:
            self.port.measure()

    def serialisation(self, size: int) -> int:
        """Time of `size` bytes on the wire, ps."""
        return math.floor(size * self.ps_per_byte + 0.5)

    def until_forwarded(self, wire: int) -> int:
        """Time after its start at which enough of a packet has left for the far end to act, without the delay, ps."""
        return self.serialisation(min(wire, HEADER_BYTES) if self.cut_through else wire)

    def residual(self) -> int:
        """Return what is left of all that was given to it, ps."""
        return max(0, self.free_at - self.network.now)

    def drain_time(self) -> int:
        """Time until all that waits here in any class has left, ps."""
        return self.residual() + (self.port.waiting if self.port else 0)

    def draw(self) -> float:
        """Next random number of the link, in [0, 1)."""
        number = mix(mix(mix(self.network.seed) ^ self.index) ^ self.draws)
        self.draws += 1
        return float(number / 2**32)

    def transmit(self, packet: Packet, ready: int) -> None:
        """Give a packet to the plain FIFO; it may start from `ready` (ps) on."""
        drain = self.residual()
        if self.down:
            self.lose(packet)
        elif drain + self.serialisation(packet.wire) > self.limit:
            self.drop(packet)
        else:
            self.mark(packet, drain)
            self.note_depth(drain + self.serialisation(packet.wire))
            self.put_on_wire(packet, ready, drain)

    def note_depth(self, drain: int) -> None:
        """Note how long all that waits takes to leave, ps."""
        self.counters["deepest"] = max(self.counters["deepest"], drain)

    def mark(self, packet: Packet, drain: int) -> None:
        """Mark a packet that met a queue of `drain` ps, by RED."""
        if packet.carries_data and packet.may_be_marked and self._red(drain):
            packet.marked = True
            self.counters["marks"] += 1

    def _red(self, drain: int) -> bool:
        if self.mark_low == self.mark_high or drain <= self.mark_low:
            return drain > self.mark_low
        if drain >= self.mark_high:
            return True
        share = (drain - self.mark_low) / (self.mark_high - self.mark_low)
        return self.draw() < self.mark_most * share

    def put_on_wire(self, packet: Packet, ready: int, drain: int) -> bool:
        """Serialise a packet as soon as it is `ready` (ps) and the wire is free; `drain` is for telemetry.

        Returns whether it gets to the far end.
        """
        if packet.carries_data:
            sent = self.counters["bytes"] - math.floor(self.residual() / self.ps_per_byte)
            packet.readings.append(Reading(self.network.now, sent, drain, self.ps_per_byte))
        start = max(ready, self.free_at)
        self.free_at = start + self.serialisation(packet.wire)
        if self.down:
            self.counters["errors"] += 1
            self.note(packet, start, LOST)
            return False
        self.counters["packets"] += 1
        self.counters["bytes"] += packet.wire
        self.network.hops[packet.kind] += 1
        if self.bit_error_rate > 0 and self.draw() < 1 - (1 - self.bit_error_rate) ** (BITS_PER_BYTE * packet.wire):
            self.counters["errors"] += 1
            self.note(packet, start, LOST)
            return False
        self.note(packet, start, SENT)
        arrival = start + self.until_forwarded(packet.wire) + self.delay
        self.target.plan(arrival, ARRIVAL, self.index, lambda: self._arrive(packet))
        return True

    def _arrive(self, packet: Packet) -> None:
        packet.came_by = self
        self.target.arrive(packet)

    def waste(self, packet: Packet, ready: int) -> None:
        """Lose a packet that a NIC sends although the link is down, from `ready` (ps) on."""
        self.lose(packet)
        self.free_at = max(ready, self.free_at) + self.serialisation(packet.wire)

    def lose(self, packet: Packet) -> None:
        """Lose a packet, because the link is down."""
        self.counters["errors"] += 1
        self.note(packet, self.network.now, LOST)

    def drop(self, packet: Packet) -> None:
        """Drop a packet, because the queue is full."""
        self.counters["drops"] += 1
        self.note(packet, self.network.now, DROPPED)

    def note(self, packet: Packet, time: int, fate: int) -> None:
        """Log what became of a packet."""
        entry = Entry(
            time, self.index, packet.flow, packet.number, packet.echo, packet.wire, packet.kind, packet.state, fate
        )
        self.network.entries.append(entry)

    def send_control(self, traffic_class: int, amount: int) -> None:
        """Send a PAUSE, RESUME or credits to the port at the far end whose link is the reverse of this one."""
        now = self.network.now
        self.network.sent_controls.append(Control(now, self.index, traffic_class, amount))
        arrival = now + self.serialisation(CONTROL_BYTES) + self.delay
        port = self.reverse.port
        if port is not None:
            self.target.plan(arrival, CONTROL, self.index, lambda: port.control(traffic_class, amount))
