"""Programs on the reference of the packet engine: each packet a SimPy event, slow and readable.

Operations, collectives and messages are those of both engines, one event at a time; what a message does
on its way is up to `fabricsim.engine.reference`.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from fabricsim.engine.flow.world import past_the_clock
from fabricsim.engine.packet.kernels.delivery import BATCH_DONE, INBOX_BITS, report_arrival
from fabricsim.engine.packet.kernels.main_loop import PIECE, SEGMENT
from fabricsim.engine.packet.state import PacketState
from fabricsim.engine.packet.world import PacketWorld
from fabricsim.engine.program import dispatch
from fabricsim.engine.program.lane import NO_EXTRA, SEND, message_bytes, run_lane, sent
from fabricsim.engine.program.queue import close_bucket, has_event_at, next_time, post
from fabricsim.engine.program.transfer import handed_over, note_slowdown
from fabricsim.engine.reference import Reference
from fabricsim.engine.reference.stages import pass_all, times_alone
from fabricsim.errors import SimulationError
from fabricsim.records.packet import DATA
from fabricsim.records.program import CLOCK_END, NEVER, NONE

_BUDGET = 20_000
"""Steps of SimPy between two reports of progress."""
_OF_FLOWS = ("posted", "acknowledged", "retransmissions", "timeouts")
_OF_LINKS = ("packets", "bytes", "marks", "drops", "errors", "trims", "pauses", "deepest", "payload", "paused")


class _Sent(NamedTuple):
    size: int
    posted: int


class _Inside:
    """Messages of a flow within a host: bytes left and owner of each, and when the next piece may pass, ps."""

    def __init__(self) -> None:
        self.messages: deque[list[int]] = deque()
        self.next_piece = 0


class _Used:
    """Tables of a network without the rows that no flow uses yet."""

    _GROWING = ("flows", "laws", "stages", "servers", "endpoints")

    def __init__(self, network: PacketState) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a table
        table = getattr(self._network, name)
        return table[: self._network.used[name]] if name in self._GROWING else table


class ReferenceWorld(PacketWorld):
    """One simulated fabric, packet by packet, in SimPy; parameters as of `PacketWorld`."""

    _run: Reference | None = None
    _sent: defaultdict[int, deque[_Sent]]
    _inside: defaultdict[int, _Inside]

    def cancel_message(self, now: int, message: int) -> None:  # noqa: ARG002  of the other engines
        """Refuse to."""
        raise SimulationError('the reference engine cannot cancel a transfer: set engine = "packet"')

    def explain(self) -> None:
        """Say nothing: deadlocks are found in the packet engine's tables."""

    @property
    def _reference(self) -> Reference:
        if self._run is None:
            self._run, self._sent = Reference(cast("PacketState", _Used(self.network))), defaultdict(deque)
            self._inside = defaultdict(_Inside)
        return self._run

    def run(self, horizon: int, budget: int) -> int:
        """Run until there is something to tell; as `World.run`.

        Raises SimulationError if simulated time runs past the end of the clock.
        """
        run, limit = self._reference, min(horizon, CLOCK_END)
        run.take_in_flows()
        looks = not self.intact() and self._lasting() and max(self.moves_at(), self._next_look) < limit
        limit = max(self.moves_at(), self._next_look) if looks else limit
        last = int(self.world["events"][0]) + min(budget, _BUDGET)
        while True:
            now, first = int(next_time(self)), int(min(run.environment.peek(), NEVER))
            if min(now, first) > limit:
                self._write_back()
                return self._at_horizon(limit, horizon) if looks else self._at_rest(min(now, first), horizon)
            if first < now:
                self._run_network(min(now, limit + 1, first + int(self.network.world["window"][0])))
            else:
                self._handle(now)
            if self.world["outbox"][0] > 0:
                self._write_back()
                return dispatch.COMPLETIONS
            if self.world["events"][0] >= last:
                return dispatch.PAUSED

    @staticmethod
    def _at_rest(upcoming: int, horizon: int) -> int:
        if upcoming < NEVER and horizon > CLOCK_END:
            raise past_the_clock()
        return dispatch.HORIZON if upcoming < NEVER else dispatch.IDLE

    def moves_at(self) -> int:
        """When something moves next, ps; NEVER if nothing does."""
        return int(min(next_time(self), self._reference.environment.peek(), NEVER))

    # ---- the network ------------------------------------------------------------------------------

    def _run_network(self, until: int) -> None:
        """Run it up to `until` (ps), and post an event for each message received."""
        run = self._reference
        while run.environment.peek() < until:
            run.environment.step()
            self.world["events"] += 1
        flows = self.network.flows
        for delivery in sorted(run.completed, key=lambda each: (each.time, flows["target"][each.flow])):
            message, route = self._sent[delivery.flow].popleft(), int(flows["route"][delivery.flow])
            arrival = handed_over(self, route, message.size, message.posted, delivery.time)
            note_slowdown(self, route, message.size, delivery.time - message.posted)
            report_arrival(self, delivery.owner, arrival, delivery.time + int(self.network.world["window"][0]))
        run.completed.clear()
        run.entries.clear()  # a log of all packets, which only tests read
        run.sent_controls.clear()

    def _start(self, flow: int, size: int, owner: int) -> None:
        """Begin a message on a flow."""
        now = int(self.world["now"][0])
        self.world["messages"] += 1
        if self.network.flows["first_link"][flow] != NONE:
            self._sent[flow].append(_Sent(size, now))
            self._reference.post(now, flow, size, owner)
            return
        inside = self._inside[flow]
        inside.messages.append([size, owner])
        if len(inside.messages) == 1:
            post(self, max(now, inside.next_piece), PIECE, flow, NO_EXTRA)

    def _pass_piece(self, flow: int) -> None:
        """Pass a piece of a message within a host; the next would arrive right behind it if nothing came between."""
        now, inside, way = int(self.world["now"][0]), self._inside[flow], self._reference.senders[flow].way_out
        message = inside.messages[0]
        piece = min(message[0], SEGMENT) if way else message[0]
        alone, done = times_alone(way, piece), pass_all(way, piece, now)
        inside.next_piece = done - sum(alone) + max(alone, default=0)
        message[0] -= piece
        if message[0] == 0:
            inside.messages.popleft()
            latency = int(self.routes["latency"][self.network.flows["route"][flow]])
            report_arrival(self, message[1], done + latency, now)
        if inside.messages:
            post(self, inside.next_piece, PIECE, flow, NO_EXTRA)

    # ---- what is given up -------------------------------------------------------------------------

    def owners(self, flow: int) -> list[int]:
        """List whose messages a flow still has to deliver."""
        return self._reference.receivers[flow].waiting()

    def end_flow(self, flow: int) -> None:
        """Have a flow send nothing any more."""
        self._reference.senders[flow].abandon()

    def stop_calls(self, calls: Iterable[int]) -> None:
        """Send nothing more for some calls that have failed."""
        if self._run is not None:
            self._write_back()
        super().stop_calls(calls)

    # ---- programs ---------------------------------------------------------------------------------

    def _handle(self, now: int) -> None:
        """Do all that programs and messages have to do at one time."""
        self.world["now"] = now
        while has_event_at(self, now):
            todo, target, extra = (int(each) for each in dispatch.handle(self))
            if todo == dispatch.NO_LANES:
                self.grow_calls()
            elif todo in {dispatch.RUN, dispatch.START}:
                self._run_lane(target, extra if todo == dispatch.START else NONE)
            elif todo == dispatch.POST:
                message = self.messages[target]
                self._start(int(self.routes["flow"][message.route]), int(message.bytes), -1 - target)
            elif todo == PIECE:
                self._pass_piece(target)
            elif todo == BATCH_DONE:
                dispatch.report(self, dispatch.JOB_DONE, target)
        close_bucket(self, now)

    def _run_lane(self, lane: int, connection: int) -> None:
        """Let a lane go on until it must wait; `connection` is that on which it is due to send, or NONE."""
        while True:
            if connection == NONE:
                connection = int(run_lane(self, lane))
                if connection < 0:
                    return
                overhead = int(self.routes["overhead"][self.connections["route"][connection]])
                if overhead > 0:
                    post(self, int(self.world["now"][0]) + overhead, SEND, lane, connection)
                    return
            size = int(message_bytes(self, lane, connection))
            flow, inbox = int(self.connections["flow"][connection]), int(self.connections["inbox"][connection])
            owner = int(sent(self, lane, connection)) << INBOX_BITS | inbox
            self._start(flow, max(size, 1), owner)
            connection = NONE

    # ---- what changes -----------------------------------------------------------------------------

    def take_down(self, wires: Iterable[int]) -> None:
        """Have links lose what is given to them."""
        super().take_down(wires := [*wires])
        self._renew_links(wires)

    def bring_up(self, wires: Sequence[int]) -> None:
        """Have links carry packets again."""
        super().bring_up(wires)
        self._renew_links(wires)

    def set_rate(self, wires: Sequence[int], rate: float) -> None:
        """Change the rate of links, bytes/s; NaN: that as built."""
        super().set_rate(wires, rate)
        self._renew_links(wires)

    def set_loss(self, wires: Sequence[int], bit_error_rate: float) -> None:
        """Change the bit error rate of links; NaN: that as built."""
        super().set_loss(wires, bit_error_rate)
        self._renew_links(wires)

    def _renew_links(self, wires: Iterable[int]) -> None:
        for wire in wires if self._run is not None else ():
            self._reference.links[wire].set(self.network.links[wire])

    def reroute(self, routes: Iterable[int], *, at_once: bool = False) -> None:  # noqa: ARG002  of the flow engine
        """Have flows send their next packets by the present ways of their routes."""
        some = set(routes)
        if self._run is not None:
            self._run.reroute([flow for flow, row in enumerate(self._run.rows.flows) if int(row.route) in some])

    # ---- what came of it --------------------------------------------------------------------------

    def _write_back(self) -> None:
        """Enter what was counted into the packet engine's tables, from which results are made."""
        run, network = self._reference, self.network
        for name in _OF_LINKS:
            network.links[name] = [link.counters[name] for link in run.links]
        for number, sender in enumerate(run.senders):
            for name in _OF_FLOWS:
                network.flows[name][number] = sender.row[name]
        count = len(run.receivers)
        network.receivers["expected"][:count] = [receiver.expected for receiver in run.receivers]
        network.receivers["copies"][:count] = [receiver.copies for receiver in run.receivers]
        for name in ("busy", "bytes"):
            network.servers[name][: len(run.servers)] = [getattr(server, name) for server in run.servers]
        network.world["data_hops"], network.world["ack_hops"] = run.hops[DATA], run.hops.total() - run.hops[DATA]
