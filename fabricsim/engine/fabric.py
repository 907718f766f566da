"""The SimPy face of the fabric: any process of any environment may send, reduce or replay on it."""

from __future__ import annotations

import operator
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.engine.pump import Pump
from fabricsim.engine.wiring import Wiring
from fabricsim.engine.world import World
from fabricsim.errors import InputError, SimulationError
from fabricsim.tables import CALL, CLOCK_END, COLLECTIVE, NONE, OP, SPAN
from fabricsim.topology.platform import WIRE, Platform
from fabricsim.transports import TRANSPORTS
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import SupportsIndex

    import simpy
    from numpy.typing import NDArray

    from fabricsim.engine.recorder import Recorder, Watch
    from fabricsim.engine.world import Batch, Job
    from fabricsim.spec.cluster import Cluster
    from fabricsim.spec.scenario import Scenario
    from fabricsim.workload.program import Call, Program

_MOST_TAPS = 256
"""Wires whose rate is recorded over time; a larger fabric records those of its first hosts."""
_LARGEST = 2**53
"""Bytes; float64 counts them one by one up to here."""
_LAST_PORT = 2**31 - 1


@dataclass(frozen=True)
class Replay:
    """A replayed program.

    Attributes
    ----------
    start, end
        When it was posted and when its last op was done, ps.
    spans
        ``SPAN`` records, one per op, ps since the environment's zero.
    calls
        ``CALL`` records, one per collective call, with the times at which its last rank joined and
        was done.
    """

    start: int
    end: int
    spans: NDArray[np.void]
    calls: NDArray[np.void]


@dataclass(frozen=True)
class _Waiting:
    event: simpy.Event
    posted: int
    job: Job | None = None
    elapsed: bool = True


class Fabric:
    """A cluster and its network inside a SimPy environment.

    Parameters
    ----------
    env
        Any SimPy environment; its time is taken in seconds unless `time_unit` says otherwise.
    scenario
        Cluster, fabric, transport and collectives; the job is not looked at.
    time_unit
        Picoseconds per unit of ``env.now``, at least 1.
    taps
        Whether payload rates of wires are recorded over time by the flow engine.
    watch
        What the packet engine records besides its totals; its flows are tapped by `Recorder.tap_flows`.
    progress
        Called now and then with the number of DAG nodes done so far.

    Raises
    ------
    SimulationError
        Where `time_unit` is no time.
    InputError
        Where `watch` names a wire that is not there, or the engine is not that of packets.

    Attributes
    ----------
    recorder
        Of a packet run; None in a flow run.

    Examples
    --------
    >>> import simpy, fabricsim as fs
    >>> env = simpy.Environment()
    >>> fabric = fs.Fabric(env, fs.load("ideal-16").scenario)
    >>> def user(env):
    ...     yield fabric.send(0, 1, 12_500_000)
    ...     yield fabric.all_reduce(range(4), 1_000_000)
    >>> env.run(env.process(user(env)))
    """

    def __init__(  # noqa: PLR0913  the last four are rarely given, and by name only
        self,
        env: simpy.Environment,
        scenario: Scenario,
        *,
        time_unit: int = PS_PER_S,
        taps: bool = False,
        watch: Watch | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._unit = _within(time_unit, "time_unit, picoseconds per unit of the environment's time,", 1, CLOCK_END)
        self.env = env
        self.scenario = scenario
        self.model = TRANSPORTS[scenario.transport.kind](scenario.transport)
        if scenario.nic.latency is not None:
            self.model = replace(self.model, latency=scenario.nic.latency, overhead=0)
        self.platform = Platform(
            _with_adapter(scenario),
            scenario.fabric,
            scenario.switch,
            scenario.link_rate,
            self.model.costs,
            scenario.seed,
        )
        self.taps = self._tapped() if taps else ()
        self.recorder: Recorder | None = None
        self.world, self.wiring = self._compiled(scenario, watch)
        self._pump = Pump(env, self.world, unit=self._unit, deliver=self._deliver, idle=self._fail, progress=progress)
        self._jobs: dict[int, _Waiting] = {}
        self._messages: dict[int, _Waiting] = {}
        self._batches: dict[int, tuple[simpy.Event, Batch, NDArray[np.int64]]] = {}

    def _compiled(self, scenario: Scenario, watch: Watch | None) -> tuple[World, Wiring]:
        """Make the world of the scenario's engine."""
        if scenario.engine == "packet":
            from fabricsim.engine.packets import make  # noqa: PLC0415  compiles much that the flow engine does not need

            packets = make(self.platform, self.model, scenario, watch)
            self.recorder = packets[2]
            return packets[:2]
        if watch:
            msg = "taps and captures need packets, and the flow engine has none; run with --engine packet"
            raise InputError(msg)
        world = World(self.platform.resources.capacities, self.taps)
        moderation = scenario.nic.interrupt_moderation
        return world, Wiring(world, self.platform, self.model, scenario.collectives, moderation)

    def _tapped(self) -> tuple[int, ...]:
        kinds = self.platform.resources.kinds
        return tuple(index for index, kind in enumerate(kinds) if kind == WIRE)[:_MOST_TAPS]

    # ---- what a process may do ------------------------------------------------------------------

    def send(  # noqa: PLR0913  the last three are rarely given, and by name only
        self, source: int, target: int, size: int, *, weight: float = 1.0, port: int = 0, latency: int | None = None
    ) -> simpy.Event:
        """Send a message from one endpoint's memory to another's.

        Parameters
        ----------
        source, target
            Ranks, or host memories by `host_memory`.
        size
            Bytes, at least 1.
        weight
            Share of a contended resource relative to other messages. Flow engine only: packets compete as queues
            and congestion control have it.
        port
            Tells connections of one pair apart; ECMP hashes it. 0 to 2**31 - 1.
        latency
            Takes the place of the transport's latency and send overhead, ps.

        Returns
        -------
        simpy.Event
            Succeeds on delivery; its value is the time taken, in units of the environment.

        Raises
        ------
        SimulationError
            Where an argument is out of its range, or no whole number where one is needed; floats without a
            fraction, such as ``1e6``, are whole. Where a weight other than 1 is given to the packet engine.
        """
        source, target = _whole(source, "a rank"), _whole(target, "a rank")
        size = _checked_size(size, "a transfer")
        port = _within(port, "a port", 0, _LAST_PORT)
        latency = None if latency is None else _checked_latency(latency)
        weight = _checked_weight(weight, self.scenario.engine)
        now = self._pump.now()
        route = self.wiring.route(source, target, port=port, latency=latency)
        self.wiring.prepare(source, target, port, route, awaited=True)
        delay = int(self.world.tables["routes"]["overhead"][route])
        event = self.env.event()
        message = self.world.post_message(now, route, size, weight, delay)
        self._messages[message] = _Waiting(event, now)
        self._pump.wake()
        return event

    def send_all(self, matrix: NDArray[np.void], ports: Sequence[int]) -> simpy.Event:
        """Send many messages, each at its time, none of which anybody waits for alone.

        Parameters
        ----------
        matrix
            Records with ``source``, ``target`` (ranks), ``bytes`` and ``start`` (ps from now), shape ``(n,)``.
        ports
            Of each, as in `send`.

        Returns
        -------
        simpy.Event
            Succeeds when the last has been delivered, or in the packet engine up to a window later; its value is
            the time of each from its start to its delivery, ps, shape ``(n,)``.

        Raises
        ------
        SimulationError
            As `send`.
        """
        now = self._pump.now()
        rows = zip(matrix["source"].tolist(), matrix["target"].tolist(), ports, strict=True)
        routes = [self._unawaited_route(source, target, port) for source, target, port in rows]
        starts = (matrix["start"] + now).tolist()
        overheads = self.world.tables["routes"]["overhead"][routes].tolist()
        sizes = [_checked_size(size, "a transfer") for size in matrix["bytes"].tolist()]
        event = self.env.event()
        begin = [start + overhead for start, overhead in zip(starts, overheads, strict=True)]
        batch = self.world.post_batch(begin, routes, sizes)
        self._batches[batch.job] = (event, batch, np.array(starts, np.int64))
        self._pump.wake()
        return event

    def _unawaited_route(self, source: int, target: int, port: int) -> int:
        route = self.wiring.route(source, target, port=port)
        self.wiring.prepare(source, target, port, route, awaited=False)
        return route

    def host_memory(self, host: int) -> int:
        """Endpoint number of a host's memory, for `send`; a `SimulationError` where there is no such host."""
        number, hosts = _whole(host, "a host"), self.scenario.cluster.hosts
        if not 0 <= number < hosts:
            msg = f"host {number} is not there: the cluster has hosts 0 to {hosts - 1}"
            raise SimulationError(msg)
        return self.platform.host_memory(number)

    def all_reduce(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """All-reduce a buffer of `size` bytes; the value is the time taken."""
        return self._collective("all_reduce", ranks, size)

    def reduce_scatter(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """Reduce-scatter with `size` bytes of input per rank; the value is the time taken."""
        return self._collective("reduce_scatter", ranks, size)

    def all_gather(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """All-gather to `size` bytes of output per rank; the value is the time taken."""
        return self._collective("all_gather", ranks, size)

    def broadcast(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """Broadcast `size` bytes from the first of `ranks`; the value is the time taken."""
        return self._collective("broadcast", ranks, size)

    def _collective(self, collective: str, ranks: Iterable[int], size: int) -> simpy.Event:
        group = _group(ranks)
        size = _checked_size(size, f"{collective} over {len(group)} ranks")
        if len(set(group)) != len(group) or not group:
            msg = f"a group needs at least one rank and each rank once, not {list(group)}"
            raise SimulationError(msg)
        for rank in group:
            self.platform.require_rank(rank)
        ops = np.zeros(len(group), OP)
        ops["rank"], ops["kind"], ops["member"] = group, COLLECTIVE, np.arange(len(group))
        calls = self._calls([(collective, group, size)])
        return self._post(ops, np.zeros(0, np.int64), calls, elapsed=True)

    def replay(self, program: Program) -> simpy.Event:
        """Replay a program from now on; the event's value is a `Replay`.

        Raises
        ------
        SimulationError
            Where the program has more ranks than the cluster.
        """
        if program.ranks > self.scenario.cluster.ranks:
            have = self.scenario.cluster.ranks
            msg = f"the program runs on {program.ranks} ranks, the cluster has {have}: add hosts or lower the degrees"
            raise SimulationError(msg)
        calls = self._calls([(call.collective, call.ranks, call.size) for call in program.calls])
        return self._post(program.ops, program.successors, calls, elapsed=False)

    def communicators(self, calls: Sequence[Call]) -> list[int]:
        """Index of the communicator of each call, for `Wiring.resources_of`."""
        return [self.wiring.communicator(call.collective, call.ranks) for call in calls]

    # ---- between SimPy and the world ------------------------------------------------------------

    def _calls(self, wanted: Sequence[tuple[str, tuple[int, ...], int]]) -> NDArray[np.void]:
        rows = []
        for collective, ranks, size in wanted:
            _checked_size(size, f"{collective} over {len(ranks)} ranks")
            rows.append((self.wiring.communicator(collective, ranks), size, self.wiring.chunk(collective, ranks, size)))
        calls = np.zeros(len(wanted), CALL)
        calls["first_lane"] = NONE
        if rows:
            calls["communicator"], calls["bytes"], calls["chunk"] = zip(*rows, strict=True)
        return calls

    def _post(
        self, ops: NDArray[np.void], successors: NDArray[np.int64], calls: NDArray[np.void], *, elapsed: bool
    ) -> simpy.Event:
        event = self.env.event()
        now = self._pump.now()
        if len(ops) == 0:
            msg = "the program has no operations: nothing would be simulated"
            raise SimulationError(msg)
        job = self.world.post_job(now, ops, successors, calls)
        self._jobs[job.number] = _Waiting(event, now, job, elapsed=elapsed)
        self._pump.wake()
        return event

    def _deliver(self) -> None:
        now = self._pump.now()
        for is_job, number in self.world.fetch():
            if number in self._batches and is_job:
                self._finish_batch(number)
            elif is_job:
                self._finish_job(number)
            else:
                waiting = self._messages.pop(number)
                self.world.free_message(number)
                waiting.event.succeed((now - waiting.posted) / self._unit)

    def _finish_batch(self, number: int) -> None:
        event, batch, starts = self._batches.pop(number)
        ended = self.world.tables["messages"]["ended"][list(batch.messages)]
        self.world.free_batch(batch)
        event.succeed(ended - starts)

    def _finish_job(self, number: int) -> None:
        waiting = self._jobs.pop(number)
        job = waiting.job
        if job is None:
            return
        tables = self.world.tables
        end = int(tables["jobs"]["ended"][number])
        if waiting.elapsed:
            value: float | Replay = (end - waiting.posted) / self._unit
        else:
            spans = np.array(tables["spans"][job.first_op : job.first_op + job.ops], SPAN)
            calls = np.array(tables["calls"][job.first_call : job.first_call + job.calls], CALL)
            value = Replay(waiting.posted, end, spans, calls)
        self.world.free_job(job)
        waiting.event.succeed(value)

    def _fail(self) -> None:
        stuck = len(self._jobs) + len(self._messages) + len(self._batches)
        if stuck == 0:
            return
        msg = (
            f"nothing can happen any more, yet {stuck} jobs or messages are not done: "
            "they wait for one another, or their rate is too small for the clock"
        )
        msg = self.world.explain() or msg
        waiting = (*self._jobs.values(), *self._messages.values())
        self._jobs.clear()
        self._messages.clear()
        events = [*(each.event for each in waiting), *(event for event, _, _ in self._batches.values())]
        self._batches.clear()
        for event in events:
            event.fail(SimulationError(msg))


def _with_adapter(scenario: Scenario) -> Cluster:
    """Put the adapter that the transport uses in the place of ``nic``; what is said of that one's slot goes with it."""
    cluster = scenario.cluster
    below = cluster.nic_below_gpu_switch and scenario.nic is cluster.nic
    return cluster.model_copy(update={"nic": scenario.nic, "nic_below_gpu_switch": below})


def _whole(value: SupportsIndex | float, what: str) -> int:
    """Take a whole number, also as a float such as ``1e6``; anything else is a `SimulationError`."""
    if isinstance(value, (float, np.floating)):
        if value.is_integer():
            return int(value)
    else:
        with suppress(TypeError):
            return operator.index(value)
    msg = f"{what} is a whole number, not {value!r}"
    raise SimulationError(msg)


def _within(value: SupportsIndex | float, what: str, least: int, most: int) -> int:
    number = _whole(value, what)
    if not least <= number <= most:
        msg = f"{what} is {least} to {most}, not {number}"
        raise SimulationError(msg)
    return number


def _group(ranks: Iterable[int]) -> tuple[int, ...]:
    try:
        members = tuple(ranks)
    except TypeError:
        msg = f"a group is several ranks, such as range(8), not {ranks!r}"
        raise SimulationError(msg) from None
    return tuple(_whole(rank, "a rank") for rank in members)


def _checked_latency(latency: int) -> int:
    number = _whole(latency, "a latency in ps")
    if number < 0:
        msg = f"a latency of {number} ps would deliver before it is sent; it must be 0 or more"
        raise SimulationError(msg)
    return number


def _checked_weight(weight: float, engine: str) -> float:
    number = isinstance(weight, (int, float, np.integer, np.floating))
    if not (number and 0 < weight <= sys.float_info.max):
        msg = f"a weight of {weight!r} gives no share; it must be a number above 0"
        raise SimulationError(msg)
    if engine == "packet" and weight != 1:
        msg = f'a weight of {weight!r} has no effect in the packet engine: leave it out, or set engine = "flow"'
        raise SimulationError(msg)
    return float(weight)


def _checked_size(size: int, what: str) -> int:
    number = _whole(size, f"the size of {what}, in bytes,")
    if number < 1:
        msg = f"{what} of {number} bytes moves nothing: it has at least 1 byte"
        raise SimulationError(msg)
    if number > _LARGEST:
        msg = f"{what} of {number} bytes is too large: at most 2**53 bytes (8 PiB)"
        raise SimulationError(msg)
    return number
