"""The sending half of a flow: what may be sent, loss recovery, timeout."""

import math
from collections import deque
from typing import Any

from fabricsim.engine.reference.flows import Flow, NetworkParts, first_choice
from fabricsim.engine.reference.hosts import Host
from fabricsim.engine.reference.nodes import AGENDA
from fabricsim.engine.reference.packets import Packet, Reading
from fabricsim.engine.reference.rows import Rows
from fabricsim.records.packet import ACK, ALARM, CNP, DATA, PULL
from fabricsim.records.program import NEVER, NONE
from fabricsim.records.transport import SELECTIVE
from fabricsim.topology.shortest_paths import mix
from fabricsim.transports.dispatch import tell
from fabricsim.transports.laws import round_trip
from fabricsim.units import PS_PER_S

IN_FLIGHT = 0
MISSING = 1  # taken to be lost, not sent again yet
ARRIVED = 2


class Sender(Flow):
    """A flow at its source; `row` is the FLOW record that the laws of congestion control work on."""

    source: Host
    target: Host

    def __init__(self, network: NetworkParts, index: int, rows: Rows, hosts: dict[int, Host]) -> None:
        super().__init__(network, index, rows)
        self.network = network
        self.congestion_control = network.tables.dispatch.laws[self.law.law]
        self.balancing = network.tables.dispatch.rules[self.law.balance]
        self.source, self.target = hosts[int(self.row["source"])], hosts[int(self.row["target"])]
        self._rows = rows
        self.selective = self.law.recovery == SELECTIVE
        self.payloads: list[int] = []  # by packet number
        self.taken = 0  # all below this were sent at least once
        self._status: dict[int, int] = {}  # selective: of packets from `acknowledged` to `taken`
        self._highest = 0  # above all packets known to have arrived
        self._found_lost: set[int] = set()  # since the last timeout
        self._resent: set[int] = set()  # sent again because they were lost
        self._renewed = NEVER  # the last of them went before this number first did; NEVER: that was looked at
        self._scanned = 0  # all below this have been looked at for loss, or were lost by a timeout
        self._next_send = 0
        self._timeout_at = NEVER
        self._entropy = 0
        self._draws = 0
        self._readings: deque[list[Reading]] = deque(maxlen=self.law.span)  # of the last packets sent

    def take_way(self, row: Any) -> None:  # noqa: ANN401  a record
        """Send by the paths of a row from now on, answers included; telemetry of the way before says nothing."""
        self.cursor, self.reverse_cursor = first_choice(int(row["path"])), first_choice(int(row["reverse_path"]))
        self.row.hops, self.row.first_telemetry = row["hops"], row["first_telemetry"]
        self._readings.clear()

    # What may be sent.

    def post(self, size: int) -> None:
        """Take a message of `size` bytes."""
        if not self.payloads:
            self.row.last_send = NEVER
            self.row.threshold, self.row.window = self.law.initial_threshold, self.law.initial_window
            self._tell("start")
            round_trip.start(self.row, self.record)
            self._next_send = self.network.now + int(self.row["connect"])
            self._plan_alarm(self._next_send)
        elif self._is_idle():
            self._tell("restart")
        full = self.law.payload
        packets = max(1, -(-size // full))
        self.payloads += [full] * (packets - 1) + [size - (packets - 1) * full]
        self.row.posted = len(self.payloads)
        self.source.reconsider(self)

    def abandon(self) -> None:
        """Send nothing any more: what was taken counts as acknowledged."""
        row = self.row
        row.acknowledged = row.next_number = row.posted
        row.lost = row.in_flight = 0
        self._status.clear()
        self._timeout_at = NEVER
        self.source.reconsider(self)

    def _is_idle(self) -> bool:
        all_arrived = self.row.acknowledged == len(self.payloads)
        return bool(all_arrived and self.network.now - self.row.last_send >= self.law.idle_restart)

    def may_send(self) -> bool:
        """Whether there is something to send, and window and pace allow a packet now."""
        row = self.row
        fresh = row.next_number < row.posted and row.next_number - row.acknowledged < self.law.span
        allowed = row.in_flight == 0 or row.in_flight + 1 <= row.window
        if self.law.pulled:
            allowed = row.window >= 1.0
        return bool((row.lost > 0 or fresh) and allowed and self.network.now >= self._next_send)

    def take(self) -> Packet:
        """Take the next packet: the lowest one that is lost, or a new one."""
        now = self.network.now
        self._tell("advance", now)
        number = self._next_number()
        again = number < self.taken
        self.taken = max(self.taken, number + 1)
        packet = self._packet(number, again=again)
        self.row.in_flight += 1
        self.row.retransmissions += again
        self.row.last_send = now
        self.source.link.counters["payload"] += 0 if again else packet.payload
        if self.row.rate < math.inf:
            self._next_send = now + math.floor(packet.wire * PS_PER_S / float(self.row.rate) + 0.5)
            self._plan_alarm(self._next_send)
        self._tell("sent", packet.wire)
        if self._timeout_at == NEVER or (again and number == self.row.acknowledged):
            self._start_timer()
        return packet

    def _next_number(self) -> int:
        if self.row.lost > 0:
            number = min(number for number, status in self._status.items() if status == MISSING)
            self.row.lost -= 1
            self._resent.add(number)
            self._renewed = int(self.row.next_number)
        else:
            number = int(self.row.next_number)
            self.row.next_number += 1
        if self.selective:
            self._status[number] = IN_FLIGHT
        return number

    def _packet(self, number: int, *, again: bool) -> Packet:
        payload = self.payloads[number]
        self._readings.append([])
        return Packet(
            flow=self.index,
            kind=DATA,
            number=number,
            echo=0,
            stamp=self.network.now,
            entropy=self._draw_entropy(),
            wire=payload + self.law.overhead,
            payload=payload,
            traffic_class=self.data_class,
            cursor=self.cursor,
            may_be_marked=bool(self.law.ecn),
            again=again,
            readings=self._readings[-1],
        )

    def _draw_entropy(self) -> int:
        if tell(self.balancing, "renew", self.row, self.record, self.network.now):
            number = mix(mix(mix(self.network.seed) ^ self.key) ^ self._draws)
            self._draws += 1
            self._entropy = int(number) % self.law.entropies
        return self._entropy

    # What comes back.

    def receive(self, answer: Packet) -> None:
        """Take an ACK, NACK, CNP or PULL."""
        if answer.pulls:
            self._tell("ride")
        if answer.kind == CNP:
            self._tell("notify", self.network.now)
        elif answer.kind == PULL:
            self._tell("pull", answer.number)
        elif answer.kind == ACK:
            self._receive_ack(answer)
        else:
            self._receive_nack(answer)
        self.source.reconsider(self)

    def _receive_ack(self, ack: Packet) -> None:
        now = self.network.now
        rtt = now - ack.stamp
        round_trip.measure(self.row, self.record, rtt)
        later = self._was_sent_after_recovery_began(ack.echo)
        oldest = int(self.row.acknowledged)
        packets = self._take_out(ack.number, ack.echo)
        if self.selective:
            self._find_lost()
        if later and self.row.recovering:
            self._find_lost_before()
        if self.row.acknowledged > oldest:
            self._restart_timer()
        if not self.congestion_control.telemetry:
            self._tell("acknowledge", now, packets, int(ack.marked), rtt)
        elif any(readings is ack.readings for readings in self._readings):
            self._store_telemetry(ack)
            slot = ack.echo % self.law.span
            self._tell("acknowledge", now, packets, self._rows.telemetry, ack.echo, slot)

    def _tell(self, what: str, *told: Any) -> None:  # noqa: ANN401  as kernels of laws take it
        tell(self.congestion_control, what, self.row, self.record, *told)

    def _receive_nack(self, nack: Packet) -> None:
        oldest = int(self.row.acknowledged)
        self._take_out(nack.number, NONE)
        if self.selective:
            if self._status.get(nack.echo) == IN_FLIGHT:
                self._lose(nack.echo)
        elif nack.number == self.row.acknowledged < self.row.next_number:
            self._begin_recovery()
            self.row.next_number = nack.number
            self.row.in_flight = 0
        if self.row.acknowledged > oldest:
            self._restart_timer()

    def _take_out(self, number: int, echo: int) -> int:
        """Take what is acknowledged out of flight; returns how many packets that is."""
        if self.selective:
            packets = self._take_out_selectively(number, echo)
        else:
            packets = max(0, number - int(self.row.acknowledged))
            self.row.acknowledged += packets
            self.row.next_number = max(self.row.next_number, self.row.acknowledged)
            self.row.in_flight = self.row.next_number - self.row.acknowledged
        if self.row.acknowledged >= self.row.recover:
            self.row.recovering = 0
        return packets

    def _take_out_selectively(self, number: int, echo: int) -> int:
        packets, first = 0, int(self.row.acknowledged)
        for arrived in [*range(first, number), echo]:
            status = self._status.get(arrived, ARRIVED)
            if status == ARRIVED:
                continue
            packets += 1
            self._status[arrived] = ARRIVED
            if status == MISSING:
                self.row.lost -= 1
            else:
                self.row.in_flight -= 1
        self.row.acknowledged = max(first, number)
        for below in range(first, number):
            self._status.pop(below, None)
        self._highest = max(self._highest, number, echo + 1)
        return packets

    def _find_lost(self) -> None:
        self._scanned = max(self._scanned, int(self.row.acknowledged))
        while self._scanned + self.law.reordering < self._highest:
            if self._status.get(self._scanned) == IN_FLIGHT and self._scanned not in self._found_lost:
                self._lose(self._scanned)
            self._scanned += 1
        if self._highest - self.law.reordering > self._renewed:
            self._find_lost_again()

    def _find_lost_again(self) -> None:
        self._renewed = NEVER
        for number in range(int(self.row.acknowledged), self._scanned):
            if self._status.get(number) == IN_FLIGHT and number in self._resent:
                self._lose(number)

    def _was_sent_after_recovery_began(self, number: int) -> bool:
        again = self._status.get(number) == IN_FLIGHT and number in self._resent
        return bool(self.row.recovering and self.law.one_path and again)

    def _find_lost_before(self) -> None:
        """Lose what was sent before this recovery began, and not since: what came later on the same way has arrived."""
        for number in range(int(self.row.acknowledged), int(self.row.recover)):
            if self._status.get(number) == IN_FLIGHT and number not in self._resent:
                self._lose(number)
        self._scanned = max(self._scanned, int(self.row.recover))

    def _lose(self, number: int) -> None:
        self._begin_recovery()
        self._found_lost.add(number)
        self._status[number] = MISSING
        self.row.in_flight -= 1
        self.row.lost += 1

    def _begin_recovery(self) -> None:
        if not self.row.recovering or self.law.each_loss:
            self._tell("lose", self.network.now)
        if not self.row.recovering:
            self.row.recovering = 1
            self.row.recover = self.taken

    def _store_telemetry(self, ack: Packet) -> None:
        first = int(self.row.first_telemetry) + ack.echo % self.law.span * int(self.row.hops)
        rows = self._rows.telemetry[first : first + int(self.row.hops)]
        rows["time"] = 0  # of links that a trimmed packet passed without payload
        for row, reading in zip(rows, ack.readings, strict=False):
            row["time"], row["sent"], row["drain"], row["ps_per_byte"] = reading

    # Time.

    def _plan_alarm(self, time: int) -> None:
        if time > self.network.now:
            self.source.plan(time, AGENDA + ALARM, self.index, self._alarm)

    def _restart_timer(self) -> None:
        self._timeout_at = NEVER
        if self.row.acknowledged < self.row.next_number:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timeout_at = self.network.now + math.floor(float(self.row.timeout))
        self._plan_alarm(self._timeout_at)

    def _alarm(self) -> None:
        if self._timeout_at <= self.network.now:
            self._time_out()
        self.source.reconsider(self)

    def _time_out(self) -> None:
        row: Any = self.row
        row.timeouts += 1
        self._tell("time_out", self.network.now)
        round_trip.back_off(row, self.record)
        row.recovering = 0
        row.in_flight = 0
        self._start_timer()
        if not self.selective:
            row.next_number = row.acknowledged
            return
        for number, status in self._status.items():
            if status == IN_FLIGHT:
                self._status[number] = MISSING
                row.lost += 1
        self._found_lost.clear()
        self._scanned = int(row.next_number)
