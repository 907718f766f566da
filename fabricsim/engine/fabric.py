"""The SimPy face of the fabric: any process of any environment may send, reduce or replay on it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import simpy
from numpy.typing import NDArray

from fabricsim.engine.arguments import (
    checked_group,
    checked_latency,
    checked_loss,
    checked_messages,
    checked_name,
    checked_port,
    checked_ports,
    checked_program,
    checked_rate,
    checked_size,
    checked_weight,
    whole,
    within,
)
from fabricsim.engine.assembly import assemble
from fabricsim.engine.carried import LinkUse, link_use
from fabricsim.engine.completions import Completions
from fabricsim.engine.failures import FabricEvent, What
from fabricsim.engine.packet.recorder import Watch
from fabricsim.engine.pump import Pump
from fabricsim.engine.wiring import connections
from fabricsim.errors import InputError, SimulationError
from fabricsim.records.program import CALL, CLOCK_END, COLLECTIVE, NONE, OP
from fabricsim.scenario.load import LoadedScenario, load
from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.targets import FabricPart, find, in_both_directions
from fabricsim.units import PS_PER_S
from fabricsim.workload.program import Call, Program


class Transfer(simpy.Event):
    """A message on its way, as `Fabric.send` gives it: an event that succeeds on delivery.

    Attributes
    ----------
    value
        The time taken, in units of the environment; once delivered.
    """

    def __init__(self, env: simpy.Environment, cancel: Callable[[], None]) -> None:
        super().__init__(env)
        self._cancel = cancel

    def cancel(self) -> None:
        """Send nothing more, and give the bandwidth back; whoever waits gets a `SimulationError`.

        What has left the sender by now still arrives. Of packets, those that the adapter has taken have left, and one
        of each message at least; of a message within a host all have. What is delivered or cancelled stays so.
        """
        if not self.triggered:
            self._cancel()


class Fabric:
    """A cluster and its network inside a SimPy environment.

    Parameters
    ----------
    env
        Any SimPy environment; its time is taken in seconds unless `time_unit` says otherwise.
    scenario
        Cluster, fabric, transport and collectives; the job is not looked at. What `load` gives, a scenario itself, or a
        name or path for `load`.
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
        If `time_unit` is no time.
    InputError
        If `scenario` is none, or `watch` names a wire that is not there, or the engine is not that of packets.

    Attributes
    ----------
    parts
        What the fabric is made of: cost model, platform, compiled world, wiring.
    recorder
        Of a packet run; None in a flow run.

    Examples
    --------
    >>> import simpy, fabricsim as fs
    >>> env = simpy.Environment()
    >>> fabric = fs.Fabric(env, "ideal-16")
    >>> def user(env):
    ...     yield fabric.send(0, 1, 12_500_000)
    ...     yield fabric.all_reduce(range(4), 1_000_000)
    >>> env.run(env.process(user(env)))
    """

    def __init__(  # noqa: PLR0913  the last four are rarely given, and by name only
        self,
        env: simpy.Environment,
        scenario: Scenario | LoadedScenario | str | Path,
        *,
        time_unit: int = PS_PER_S,
        taps: bool = False,
        watch: Watch | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._unit = within(time_unit, "time_unit, picoseconds per unit of the environment's time,", 1, CLOCK_END)
        self.env = env
        self.scenario = _checked(scenario)
        self.parts = parts = assemble(self.scenario, taps=taps, watch=watch)
        self.model, self.platform, self.taps = parts.model, parts.platform, parts.taps
        self.world, self.wiring, self.recorder, self.failures = (
            parts.world,
            parts.wiring,
            parts.recorder,
            parts.failures,
        )
        self._completions = Completions(self.world, self._unit)
        self._pump = Pump(
            env,
            self.world,
            unit=self._unit,
            deliver=lambda: self._completions.deliver(self._pump.now()),
            idle=self._completions.fail,
            progress=progress,
        )

    # ---- what a process may do ------------------------------------------------------------------

    def send(  # noqa: PLR0913  the last three are rarely given, and by name only
        self, source: int, target: int, size: int, *, weight: float = 1.0, port: int = 0, latency: int | None = None
    ) -> Transfer:
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
        Transfer
            Succeeds on delivery; its value is the time taken, in units of the environment. It can be cancelled. It
            fails with a `SimulationError` if links that are down for good leave no way, and the sender has timed out
            three times.

        Raises
        ------
        SimulationError
            If an argument is out of its range, or no whole number if one is needed; floats without a
            fraction, such as ``1e6``, are whole. If a weight other than 1 is given to the packet engine.
        """
        source, target = whole(source, "a rank"), whole(target, "a rank")
        size = checked_size(size, "a transfer")
        port = checked_port(port)
        latency = None if latency is None else checked_latency(latency)
        weight = checked_weight(weight, self.scenario.engine)
        now = self._present((source, target))
        route = self.wiring.route(source, target, port=port, latency=latency)
        self.wiring.prepare([route], awaited=True)
        delay = int(self.world.routes["overhead"][route])
        message = self.world.post_message(now, route, size, weight, delay)
        event = Transfer(self.env, lambda: self._cancel(message))
        self._completions.await_message(message, event, now)
        self._pump.wake()
        return event

    def _cancel(self, message: int) -> None:
        self._completions.cancel(message, self._pump.now())
        self._pump.wake()

    def send_all(self, matrix: NDArray[np.void], ports: Sequence[int] | None = None) -> simpy.Event:
        """Send many messages, each at its time, none of which anybody waits for alone.

        Parameters
        ----------
        matrix
            Records with ``source``, ``target`` (ranks), ``bytes`` and ``start`` (ps from now), shape ``(n,)``, all
            whole numbers.
        ports
            Of each, as in `send`; 0 if left out.

        Returns
        -------
        simpy.Event
            Succeeds when the last has been delivered, at once if there are none, or in the packet engine up to a
            window later; its value is the time of each from its start to its delivery, ps, shape ``(n,)``.

        Raises
        ------
        SimulationError
            As `send`.
        """
        matrix = checked_messages(matrix)
        ports = checked_ports(ports, len(matrix))
        if not len(matrix):
            return self.env.event().succeed(np.zeros(0, np.int64))
        now = self._present([*matrix["source"].tolist(), *matrix["target"].tolist()])
        routes = self.wiring.routes(connections(matrix, ports))
        self.wiring.prepare(routes, awaited=False)
        starts = (matrix["start"] + now).astype(np.int64)
        event = self.env.event()
        batch = self.world.post_batch(starts + self.world.routes["overhead"][routes], routes, matrix["bytes"])
        self._completions.await_batch(batch, event, starts)
        self._pump.wake()
        return event

    def host_memory(self, host: int) -> int:
        """Endpoint number of a host's memory, for `send`; a `SimulationError` if there is no such host."""
        number, hosts = whole(host, "a host"), self.scenario.cluster.hosts
        if not 0 <= number < hosts:
            raise SimulationError(f"host {number} is not there: the cluster has hosts 0 to {hosts - 1}")
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

    def reduce(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """Reduce a buffer of `size` bytes to the first of `ranks`; the value is the time taken."""
        return self._collective("reduce", ranks, size)

    def all_to_all(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """Send each rank its part of the `size` bytes that every rank has; the value is the time taken."""
        return self._collective("all_to_all", ranks, size)

    def ring_exchange(self, ranks: Iterable[int], size: int) -> simpy.Event:
        """Send `size` bytes from each rank to the next, the last to the first; the value is the time taken."""
        return self._collective("ring_exchange", ranks, size)

    def _collective(self, collective: str, ranks: Iterable[int], size: int) -> simpy.Event:
        group = checked_group(ranks)
        size = checked_size(size, f"{collective} over {len(group)} ranks")
        for rank in group:
            self.platform.require_rank(rank)
        ops = np.zeros(len(group), OP)
        ops["rank"], ops["kind"], ops["member"] = group, COLLECTIVE, np.arange(len(group))
        calls = self._calls([(collective, group, size)])
        return self._post(ops, np.zeros(0, np.int64), calls, elapsed=True)

    def replay(self, program: Program, ranks: Sequence[int] | None = None) -> simpy.Event:
        """Replay a program from now on; the event's value is a `fabricsim.Replay`.

        Parameters
        ----------
        program
            As `fabricsim.program` gives it.
        ranks
            Of the cluster, in the places of the program's ranks 0, 1, ...; these themselves if left out.

        Raises
        ------
        SimulationError
            If the program has more ranks than the cluster or other than are given, or one is not there.
        """
        checked_program(program, Program)
        if ranks is not None:
            program = program.placed(checked_group(ranks))
            for rank in {rank for call in program.calls.kinds for rank in call.ranks}:
                self.platform.require_rank(rank)
        self.require_ranks(program.ranks)
        if program.representatives is not None and self.wiring.folding is None:
            raise SimulationError("the program has operations of some ranks only: give the fabric its folding first")
        kinds = self._calls([(call.collective, call.ranks, call.size) for call in program.calls.kinds])
        calls = kinds[program.calls.kind]
        return self._post(program.ops, program.successors, calls, elapsed=False)

    def require_ranks(self, ranks: int) -> None:
        """Refuse programs of more ranks than the cluster has, by a `SimulationError`."""
        have = self.scenario.cluster.ranks
        if ranks > have:
            msg = f"the program runs on {ranks} ranks, the cluster has {have}: add hosts, or take fewer ranks"
            raise SimulationError(msg)

    def communicators(self, calls: Iterable[Call]) -> list[int]:
        """Index of the communicator of each call, for `Wiring.resources_of`."""
        return [self.wiring.call(call.collective, call.ranks, call.size)[0] for call in calls]

    def links(self) -> dict[str, LinkUse]:
        """Tell what each wire and each resource of hosts has carried by now, by name.

        Returns
        -------
        dict
            Payload in bytes, time in use at full capacity in units of the environment, and capacity. Of flows also what
            is on its way; of packets what was given to the wire, what is sent again included in the time only. If
            packets are sprayed, the payload between switches is not known, and 0.
        """
        return link_use(self.parts, self._pump.now(), self._unit)

    # ---- what fails -------------------------------------------------------------------------------

    def fail(self, name: str) -> None:
        """Have something fail now, until `restore`.

        What is sent over a cable that is down is lost until routing knows of it (``fabric.reconvergence``). Whoever
        waits for something that no way is left for, or for a GPU or host that is gone, gets a `SimulationError`.

        Parameters
        ----------
        name
            A cable (``"leaf0-spine1"``), which is down in both directions even if one is named (``"leaf0->spine1"``), a
            switch (``"spine1"``), a NIC (``"host3/nic0"``), a host (``"host3"``) or a GPU by its rank (``"gpu24"``);
            ``*`` and ``?`` stand for any characters.

        Raises
        ------
        SimulationError
            If there is no such thing, or the fabric is folded.
        """
        self._change(name, "down")

    def restore(self, name: str) -> None:
        """Have something work as built again, whatever befell it; names and errors as of `fail`."""
        now = self._present()
        for target in self._targets(name):
            self.failures.restore(now, target)
        self._pump.wake()

    def set_rate(self, name: str, rate: float | str) -> None:
        """Change the rate of cables from now on, bytes/s or such as ``"25Gbps"``; names and errors as of `fail`.

        Whatever slowed them down is over. They may be faster than built; later failures slow them down again.
        """
        self._change(name, "rate", checked_rate(rate, name))

    def set_loss(self, name: str, bit_error_rate: float) -> None:
        """Have cables lose packets to bit errors from now on; names and errors as of `fail`.

        In the flow engine they carry less by the share of the packets that is lost, and nothing waits for what is.
        Whatever had them lose packets is over; later failures have them lose more again.
        """
        self._change(name, "loss", checked_loss(bit_error_rate))

    def _change(self, name: str, what: What, value: float = float("nan")) -> None:
        now = self._present()
        for target in self._targets(name):
            part = in_both_directions(self.platform, target) if what == "down" else target
            self.failures.post(FabricEvent(now, part, what, value))
        self.world.act(now)
        self._pump.wake()

    def _targets(self, name: str) -> list[FabricPart]:
        if self.wiring.folding is not None:
            msg = 'nothing can fail on a folded fabric, on which one rank stands for others: set folding = "off"'
            raise SimulationError(msg)
        return find(self.platform, checked_name(name))

    def _present(self, endpoints: Iterable[int] = ()) -> int:
        """Present time, ps, at which all has happened to the fabric that is due, and endpoints must be up."""
        now = self._pump.now()
        if self.failures.intact:
            return now
        if self.failures.due <= now:
            self.world.act(now)
        self.failures.require_up(endpoints)
        return now

    # ---- what is posted ---------------------------------------------------------------------------

    def _calls(self, wanted: Sequence[tuple[str, tuple[int, ...], int]]) -> NDArray[np.void]:
        calls = np.zeros(len(wanted), CALL)
        calls["first_lane"] = NONE
        rows = []
        for collective, ranks, size in wanted:
            checked_size(size, f"{collective} over {len(ranks)} ranks")
            communicator, chunk = self.wiring.call(collective, ranks, size)
            rows.append((communicator, size, chunk))
        calls["communicator"], calls["bytes"], calls["chunk"] = np.array(rows, np.int64).reshape(-1, 3).T
        return calls

    def _post(
        self, ops: NDArray[np.void], successors: NDArray[np.int64], calls: NDArray[np.void], *, elapsed: bool
    ) -> simpy.Event:
        event = self.env.event()
        if len(ops) == 0:
            raise SimulationError("the program has no operations: nothing would be simulated")
        now = self._present(ops["rank"].tolist() if self.failures.gone else ())
        job = self.world.post_job(now, ops, successors, calls)
        self._completions.await_job(job, event, now, elapsed=elapsed)
        self._pump.wake()
        return event


def _checked(scenario: Scenario | LoadedScenario | str | Path) -> Scenario:
    """Take what a fabric can be made of; anything else is an `InputError`."""
    if isinstance(scenario, (str, Path)):
        scenario = load(scenario, with_job=False)
    if isinstance(scenario, LoadedScenario):
        scenario = scenario.scenario
    if not isinstance(scenario, Scenario):
        what = type(scenario).__name__
        msg = f'a fabric is made of a scenario or its name, and not of type {what}: write Fabric(env, load("ideal-16"))'
        raise InputError(msg)
    return scenario
