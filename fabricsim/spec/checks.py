"""Checks across the tables of a scenario: what each is allowed, given the others.

Each check yields the mistakes it finds. A scenario that has other mistakes is checked as far as its
good values go: asking for one that is not settled raises `Unsettled`, and that check ends there.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fabricsim.errors import Mistake
from fabricsim.spec.partial import Unsettled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabricsim.spec.scenario import Scenario

MOST_GPUS = 2**20
"""GPUs of the largest cluster that is accepted; beyond it a slip of the pen is likelier than a wish."""

MOST_MICRO_BATCHES = 10_000_000
"""Micro-batches of all ranks together in one iteration; each becomes several operations in memory."""

MOST_LAYERS = 100_000
"""Layers of a model, encoder and decoder together."""

MOST_PORTS = 1024
"""Ports of a switch towards others; the largest sold have some hundred."""

LONGEST_CABLE = 20_000_000.0
"""Metres: half way round the Earth."""

SOCKET_KINDS = ("tcp", "ipoib")
"""Transports that go through the kernel's sockets, and so through host memory."""

_NEVER_ZERO = (
    "cluster.gpu.memory",
    "cluster.gpu.memory_rate",
    "cluster.gpu.nvlink_rate",
    "cluster.cpu.copy_rate",
    "cluster.cpu.inter_socket_rate",
    "fabric.link_rate",
    "fabric.uplink_rate",
    "transport.line_rate",
    "job.bucket",
    "job.first_bucket",
    "collectives.chunk",
)

_TOPOLOGY_KEYS = {
    "single-switch": set[str](),
    "leaf-spine": {"hosts_per_leaf", "spines", "uplink_rate", "switch_cable"},
    "fat-tree": {"k", "uplink_rate", "switch_cable"},
}
"""Keys of `fabric` that only some topologies have a use for."""


def problems(scenario: Scenario) -> list[Mistake]:
    """Find what does not fit together.

    Parameters
    ----------
    scenario
        A scenario, or a `Partial` that stands in for one with other mistakes.

    Returns
    -------
    list of Mistake
        Without places; empty where all fits.
    """
    mistakes: list[Mistake] = []
    for check in _CHECKS:
        with suppress(Unsettled):
            for mistake in check(scenario):
                mistakes.append(mistake)  # noqa: PERF402  what was found before a check ends is kept
    return mistakes


def _value(scenario: Scenario, key: str) -> Any:  # noqa: ANN401  settings are of many types
    value: Any = scenario
    for part in key.split("."):
        value = None if value is None else getattr(value, part)
    return value


def _not_zero(scenario: Scenario, key: str) -> Iterator[Mistake]:
    if _value(scenario, key) == 0:
        yield Mistake(key, "is zero, so nothing could ever be done", "write a positive quantity")


def _peaks(scenario: Scenario) -> Iterator[Mistake]:
    peak = scenario.cluster.gpu.peak
    for precision, rate in peak.items():
        if rate == 0:
            yield Mistake(f"cluster.gpu.peak.{precision}", "is zero", "write a positive rate, or leave it out")
    if scenario.job.precision not in peak:
        known = ", ".join(peak) or "none"
        problem = f"the GPU {scenario.cluster.gpu.name!r} has no peak for {scenario.job.precision!r} (it has {known})"
        yield Mistake("job.precision", problem, "choose one of those, or add it to cluster.gpu.peak")


def _group(scenario: Scenario) -> Iterator[Mistake]:
    degrees, cluster = scenario.job.parallelism, scenario.cluster
    needed, there = degrees.data * degrees.pipeline, cluster.hosts * cluster.gpus_per_host
    if there > MOST_GPUS:
        yield Mistake("cluster.hosts", f"the cluster has {there} GPUs, more than {MOST_GPUS}", "lower hosts")
    if needed > there:
        problem = (
            f"the group is larger than the cluster: data {degrees.data} x pipeline {degrees.pipeline} = {needed} ranks,"
            f" but cluster.hosts {cluster.hosts} x cluster.gpus_per_host {cluster.gpus_per_host} = {there} GPUs"
        )
        yield Mistake("job.parallelism", problem, "lower a degree, or raise cluster.hosts")


def _batch(scenario: Scenario) -> Iterator[Mistake]:
    job = scenario.job
    step = job.micro_batch * job.parallelism.data
    if job.global_batch % step:
        problem = f"{job.global_batch} is no multiple of micro_batch {job.micro_batch} x data {job.parallelism.data}"
        nearest = max(1, round(job.global_batch / step)) * step
        yield Mistake("job.global_batch", problem, f"such as {nearest}")
    elif job.global_batch // job.micro_batch * job.parallelism.pipeline > MOST_MICRO_BATCHES:
        problem = f"{job.global_batch} makes more than {MOST_MICRO_BATCHES} micro-batches over all ranks"
        yield Mistake("job.global_batch", problem, "lower it, or raise job.micro_batch")


def _stages(scenario: Scenario) -> Iterator[Mistake]:
    model, stages = scenario.job.model, scenario.job.parallelism.pipeline
    layers, what = model.layers, f"{model.layers} layers"
    if model.family == "t5":
        layers += model.decoder_layers or 0
        what = f"{model.layers} encoder and {model.decoder_layers} decoder layers"
    if layers > MOST_LAYERS:
        yield Mistake("job.model.layers", f"{what} are too many", f"at most {MOST_LAYERS}")
    elif layers % stages:
        fitting = [str(degree) for degree in range(1, layers + 1) if layers % degree == 0]
        problem = f"{what} cannot be shared evenly by {stages} stages"
        yield Mistake("job.parallelism.pipeline", problem, f"one of {', '.join(fitting)}")


def _decoder(scenario: Scenario) -> Iterator[Mistake]:
    family = scenario.job.model.family
    for key in ("job.model.decoder_layers", "job.decoder_sequence"):
        value = _value(scenario, key)
        if family == "t5" and value is None:
            yield Mistake(key, "is missing: a t5 has a decoder", "add it")
        if family != "t5" and value is not None:
            yield Mistake(key, f"has no effect: a {family} has no separate decoder", "take it out")


def _positions(scenario: Scenario) -> Iterator[Mistake]:
    limit = scenario.job.model.positions
    for key in ("job.sequence", "job.decoder_sequence"):
        value = _value(scenario, key)
        if value is not None and value > limit:
            problem = f"{value} is longer than the {limit} positions of the model {scenario.job.model.name!r}"
            yield Mistake(key, problem, f"at most {limit}, or raise job.model.positions")


def _heads(scenario: Scenario) -> Iterator[Mistake]:
    model = scenario.job.model
    if model.head_width is None and model.hidden % model.heads:
        problem = f"hidden {model.hidden} is no multiple of {model.heads} heads"
        yield Mistake("job.model.heads", problem, "or set job.model.head_width")


def _idle_job_keys(scenario: Scenario) -> Iterator[Mistake]:
    job = scenario.job
    written = job.model_fields_set
    for key in ("bucket", "first_bucket"):
        if key in written and job.overlap == "none":
            yield Mistake(f"job.{key}", 'has no effect with overlap = "none"', 'set overlap = "ddp" or take it out')
    if "schedule" in written and job.parallelism.pipeline == 1:
        yield Mistake("job.schedule", "has no effect with pipeline = 1", "take it out, or raise the degree")


def _topology(scenario: Scenario) -> Iterator[Mistake]:
    fabric = scenario.fabric
    topology = fabric.topology
    of_others = set[str]().union(*_TOPOLOGY_KEYS.values()) - _TOPOLOGY_KEYS[topology]
    for key in sorted(of_others & fabric.model_fields_set):
        having = " or ".join(name for name, keys in _TOPOLOGY_KEYS.items() if key in keys)
        yield Mistake(f"fabric.{key}", f"has no effect in a {topology} fabric", f"take it out, or choose {having}")
    if topology == "leaf-spine":
        for key in ("hosts_per_leaf", "spines"):
            if getattr(fabric, key) is None:
                yield Mistake(f"fabric.{key}", "is missing: a leaf-spine fabric needs it", "add it")


def _not_above(scenario: Scenario, key: str, largest: float) -> Iterator[Mistake]:
    value = _value(scenario, key)
    if value is not None and value > largest:
        yield Mistake(key, f"{value} is too large", f"at most {largest}")


def _fat_tree(scenario: Scenario) -> Iterator[Mistake]:
    k, hosts = scenario.fabric.k, scenario.cluster.hosts
    if scenario.fabric.topology == "fat-tree" and k is not None and k**3 // 4 < hosts <= MOST_GPUS:
        fitting = next(ports for ports in range(2, 2 * hosts + 4, 2) if ports**3 // 4 >= hosts)
        problem = f"a fat tree of {k}-port switches holds {k**3 // 4} hosts (k^3/4), not the {hosts} of the cluster"
        yield Mistake("fabric.k", problem, f"at least {fitting}, or leave it out")


def _sockets(scenario: Scenario) -> Iterator[Mistake]:
    nic, cpu = scenario.cluster.nic, scenario.cluster.cpu
    if nic.socket >= cpu.sockets:
        problem = f"{nic.socket} is no socket of a CPU {cpu.name!r} with {cpu.sockets} (counted from 0)"
        yield Mistake("cluster.nic.socket", problem, f"at most {cpu.sockets - 1}")
    if scenario.cluster.join == "pcie" and cpu.sockets > 1 and cpu.inter_socket_rate is None:
        yield Mistake("cluster.cpu.inter_socket_rate", f"is missing: there are {cpu.sockets} sockets", "add it")


def _pcie(scenario: Scenario) -> Iterator[Mistake]:
    cluster = scenario.cluster
    tree = ("gpu_pcie", "gpus_per_pcie_switch", "nic_below_gpu_switch", "gpudirect")
    if cluster.join == "ideal":
        for key in (key for key in tree if key in cluster.model_fields_set):
            yield Mistake(f"cluster.{key}", 'has no effect with join = "ideal"', 'take it out, or set join = "pcie"')
    if cluster.gpus_per_host % cluster.gpus_per_pcie_switch:
        problem = f"{cluster.gpus_per_pcie_switch} does not divide the {cluster.gpus_per_host} GPUs of a host"
        yield Mistake("cluster.gpus_per_pcie_switch", problem, "choose a divisor")
    if cluster.nic_below_gpu_switch and cluster.gpus_per_pcie_switch == 1:
        problem = "is true, but gpus_per_pcie_switch = 1 means that there is no switch"
        yield Mistake("cluster.nic_below_gpu_switch", problem, "set it to false, or raise gpus_per_pcie_switch")
    if cluster.nic_below_gpu_switch and cluster.nic.socket > 0:
        problem = f"the NIC is below the switch of GPU 0, which hangs on socket 0, not on {cluster.nic.socket}"
        yield Mistake("cluster.nic.socket", problem, "set it to 0, or nic_below_gpu_switch to false")


def _intra_host(scenario: Scenario) -> Iterator[Mistake]:
    cluster = scenario.cluster
    if cluster.intra_host == "nvlink" and cluster.gpu.nvlink_rate is None:
        problem = f"the GPU {cluster.gpu.name!r} has no nvlink_rate"
        yield Mistake("cluster.intra_host", problem, 'choose "shared-memory" or "pcie-p2p", or add the rate')


def _gpudirect(scenario: Scenario) -> Iterator[Mistake]:
    if scenario.transport.kind in SOCKET_KINDS and scenario.cluster.gpudirect:
        problem = f"a {scenario.transport.kind} transport reaches host memory only"
        yield Mistake("cluster.gpudirect", problem, "set it to false, or choose infiniband or roce")


def _slow_start(scenario: Scenario) -> Iterator[Mistake]:
    transport = scenario.transport
    for key in ("initial_window", "idle_restart"):
        if transport.kind not in SOCKET_KINDS and getattr(transport, key) is not None:
            problem = f"has no effect on a transport of kind {transport.kind}, which has no slow start"
            yield Mistake(f"transport.{key}", problem, "take it out")
    if transport.kind in SOCKET_KINDS and transport.idle_restart is not None and transport.initial_window is None:
        yield Mistake("transport.idle_restart", "has no effect without initial_window", "add initial_window")


def _mpi(scenario: Scenario) -> Iterator[Mistake]:
    mpi = scenario.transport.mpi
    if mpi is None:
        return
    if mpi.inline_limit > mpi.eager_limit:
        yield Mistake("transport.mpi.inline_limit", "is larger than eager_limit", "inline messages are eager")
    if (mpi.inline_limit > 0) != (mpi.inline_latency is not None):
        problem = "inline_limit and inline_latency have an effect only together"
        yield Mistake("transport.mpi.inline_latency", problem, "write both or neither")


def _moderation(scenario: Scenario) -> Iterator[Mistake]:
    steps = scenario.cluster.nic.interrupt_moderation
    for index, (lower, upper) in enumerate(pairwise(steps), start=1):
        if upper.above <= lower.above:
            key = f"cluster.nic.interrupt_moderation[{index}].above"
            yield Mistake(key, "is not larger than that of the step before", "write the steps in ascending order")


_CHECKS: tuple[Callable[[Scenario], Iterator[Mistake]], ...] = (
    *(partial(_not_zero, key=key) for key in _NEVER_ZERO),
    partial(_not_above, key="fabric.k", largest=MOST_PORTS),
    partial(_not_above, key="fabric.spines", largest=MOST_PORTS),
    partial(_not_above, key="fabric.host_cable", largest=LONGEST_CABLE),
    partial(_not_above, key="fabric.switch_cable", largest=LONGEST_CABLE),
    _peaks,
    _group,
    _batch,
    _stages,
    _decoder,
    _positions,
    _heads,
    _idle_job_keys,
    _topology,
    _fat_tree,
    _sockets,
    _pcie,
    _intra_host,
    _gpudirect,
    _slow_start,
    _mpi,
    _moderation,
)
