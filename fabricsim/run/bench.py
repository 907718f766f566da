"""What nccl-tests and the OSU latency test would measure on a simulated cluster."""

from collections.abc import Callable, Generator, Sequence
from typing import cast

import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import InputError
from fabricsim.report.nccl_table import BenchRow
from fabricsim.scenario.cluster import Nic
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.transport import Mpi
from fabricsim.traces.nccl_tests import Device
from fabricsim.units import PS_PER_S

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Collectives that `collective_times` can run."""
TESTS = {**{name: name for name in COLLECTIVES}, "all_to_all": "all_to_all", "sendrecv": "ring_exchange"}
"""Tests of nccl-tests, and what each runs: in ``sendrecv_perf`` every rank sends to the next."""
_HEADER = 64  # bytes of Open MPI's matching and rendezvous headers, rounded to a cache line


def collective_times(
    scenario: Scenario, collective: str, sizes: Sequence[int], progress: Callable[[float], None] | None = None
) -> list[BenchRow]:
    """Time a collective over all ranks of the cluster, as nccl-tests does after its warm-up.

    `scenario`: cluster, fabric, transport and collectives.
    `collective`: a collective of `Fabric`, such as those of `TESTS`.
    `sizes`: bytes, each at least 1.
    Returns: from the call until the last rank is done, one per size.
    """
    env = simpy.Environment()
    fabric = Fabric(env, scenario)
    start: Callable[[range, int], simpy.Event] = getattr(fabric, collective)
    ranks = range(scenario.cluster.ranks)
    env.run(start(ranks, max(sizes)))  # warm connections, as the warm-up of nccl-tests leaves them
    rows = []
    issued = scenario.collectives.process_gpus * scenario.collectives.launch / PS_PER_S
    for size in sizes:
        if scenario.transport.initial_window is not None:
            env.run(start(ranks, size))  # calls alike come before those that count
        taken = max(issued, cast("float", env.run(start(ranks, size))))
        rows.append(BenchRow(size, taken))
        if progress is not None:
            progress(len(rows) / len(sizes))
    return rows


def devices(scenario: Scenario) -> list[Device]:
    """List the ranks of a cluster as nccl-tests does."""
    cluster = scenario.cluster
    return [
        Device(rank, f"host{rank // cluster.gpus_per_host}", rank % cluster.gpus_per_host, cluster.gpu.name)
        for rank in range(cluster.ranks)
    ]


def point_to_point_times(
    scenario: Scenario, sizes: Sequence[int], progress: Callable[[float], None] | None = None
) -> list[BenchRow]:
    """Time one message between the memories of two hosts, as the OSU latency test does over MPI.

    `scenario`: cluster, fabric and transport, with what its MPI does.
    `sizes`: bytes, each at least 1.
    Returns: One-way times on open connections, one per size.
    Raises InputError if the cluster has one host, or the transport has no ``[mpi]`` table.
    """
    mpi = scenario.transport.mpi
    if scenario.cluster.hosts < 2:  # noqa: PLR2004  a sender and a receiver
        raise InputError(f"cluster {scenario.cluster.name} has one host; a point-to-point test needs two")
    if mpi is None:
        name = scenario.transport.name
        msg = f"transport {name} has no [mpi] table, so how its MPI sends is not known; choose another transport"
        raise InputError(msg)
    rows = []
    for size in sizes:
        env = simpy.Environment()
        exchange = _Exchange(env, scenario, mpi)
        env.run(env.process(exchange.send(size)))  # opens the connections
        began = env.now
        env.run(env.process(exchange.send(size)))
        rows.append(BenchRow(size, float(env.now - began)))
        if progress is not None:
            progress(len(rows) / len(sizes))
    return rows


class _Exchange:
    """MPI's eager and rendezvous protocols between two host memories.

    Eager messages are copied through bounce buffers where the transport's MPI does so. Above the
    eager limit the first part travels with the request, the receiver acknowledges, and the rest is
    written in place. With interrupt moderation, the leg that follows an interrupt of the same
    exchange is held back for the interval; the rest arrives when that has run out.
    """

    def __init__(self, env: simpy.Environment, scenario: Scenario, mpi: Mpi) -> None:
        self.env = env
        self.fabric = Fabric(env, scenario)
        self.nic: Nic = scenario.nic
        self.mpi = mpi
        self.copy_rate = scenario.cluster.cpu.copy_rate
        self.moderated = self.fabric.model.interrupts

    def send(self, size: int) -> Generator[simpy.Event, object, None]:
        """One message of `size` bytes from host 0 to host 1."""
        limit = self.mpi.eager_limit - _HEADER
        if size <= limit:
            yield from self._eager(size)
            return
        yield from self._eager(limit)
        yield from self._acknowledge(size)
        yield self._leg(0, 1, size - limit)

    def _eager(self, size: int) -> Generator[simpy.Event, object, None]:
        inline = self.nic.mpi_inline_limit is not None and size <= self.nic.mpi_inline_limit
        yield self._leg(0, 1, size)
        if self.mpi.eager_copy and not inline:
            yield self.env.timeout(2 * size / self.copy_rate)

    def _acknowledge(self, size: int) -> Generator[simpy.Event, object, None]:
        began = self.env.now
        yield self._leg(1, 0, _HEADER)
        held = self._interval(size) - (self.env.now - began)
        if held > 0:
            yield self.env.timeout(held)

    def _leg(self, source: int, target: int, size: int) -> simpy.Event:
        inline = self.nic.mpi_inline_limit is not None and size <= self.nic.mpi_inline_limit
        latency = self.nic.mpi_inline_latency if inline else self.nic.mpi_latency
        if self.mpi.latency is not None:
            latency = self.mpi.latency
        memory = self.fabric.host_memory
        return self.fabric.send(memory(source), memory(target), size, latency=latency)

    def _interval(self, size: int) -> float:
        steps = self.nic.interrupt_moderation if self.moderated else ()
        passed = [step.interval for step in steps if size > step.above]
        return max(passed, default=0) / PS_PER_S
