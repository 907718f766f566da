"""Checks across the tables of a scenario: what each is allowed, given the others.

Each check yields the mistakes it finds. A scenario that has other mistakes is checked as far as its
good values go: asking for one that is not settled raises `Unsettled`, and that check ends there.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import bidirectional, category

from fabricsim.errors import Mistake
from fabricsim.extensions import answers
from fabricsim.scenario.collectives import ALGORITHMS, DEFAULTS, algorithms, chakra_files, has, is_described
from fabricsim.scenario.fabric import TOPOLOGIES, keys_of
from fabricsim.scenario.job import DIMENSIONS, Job, Parallelism
from fabricsim.scenario.job_checks import job_problems, peak_problems
from fabricsim.scenario.nvlinks import NvlinkMesh
from fabricsim.scenario.packet import SOCKET_KINDS
from fabricsim.scenario.packet_checks import packet_checks
from fabricsim.scenario.partial import Unsettled, settled
from fabricsim.scenario.parts import Parts
from fabricsim.scenario.several_checks import background_problems, kind_problems, placement_problems
from fabricsim.scenario.size_checks import MOST_GPUS, too_large
from fabricsim.scenario.source import not_a_file
from fabricsim.scenario.suggest import did_you_mean, show

_NEVER_ZERO = ("cluster.gpu.memory", "job.bucket", "job.first_bucket", "collectives.chunk", "collectives.send_chunk")

_NAMES = ("name", "transport.name", "cluster.name", "traffic")

_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = "\u200e\u200f\u061c"  # left-to-right, right-to-left, Arabic: letters without a shape

_ADAPTERS = ("cluster.nic", "cluster.ethernet_nic")


def problems(scenario: Parts) -> list[Mistake]:
    """Find what does not fit together.

    `scenario`: a scenario, or a `Partial` that stands in for one with other mistakes.
    Returns: without places; empty if all fits.
    """
    return settled(partial(check, scenario) for check in _CHECKS)


def _value(scenario: Parts, key: str) -> Any:  # noqa: ANN401  settings are of many types
    value: Any = scenario
    for part in key.split("."):
        value = None if value is None else getattr(value, part)
    return value


def _not_zero(scenario: Parts, key: str) -> Iterator[Mistake]:
    if _value(scenario, key) == 0:
        yield Mistake(key, "is zero, so nothing could ever be done", "write a positive quantity")


def _printable(scenario: Parts, key: str) -> Iterator[Mistake]:
    """Find characters in names that no line of a terminal, file or page has as such."""
    named = _value(scenario, key)
    for name in named if isinstance(named, dict) else [named]:
        if name and (hidden := next(filter(_is_hidden, name), None)):
            problem = f"{show(name)} has the control character U+{ord(hidden):04X} in it"
            yield Mistake(key, problem, "write names in one line of visible characters")


def _is_hidden(letter: str) -> bool:
    """Whether it is a control character, of lines or directions too, or half a character."""
    return category(letter) in {"Cc", "Cs", "Zl", "Zp"} or bidirectional(letter) in _DIRECTIONS or letter in _MARKS


def _job(scenario: Parts) -> Job:
    """Return the job; without one, or with several, which are laid over it, checks of it end here."""
    if scenario.job is None or scenario.jobs:
        raise Unsettled
    return scenario.job


def _job_alone(scenario: Parts) -> Iterator[Mistake]:
    yield from job_problems(_job(scenario))


def _peak(scenario: Parts) -> Iterator[Mistake]:
    yield from peak_problems(_job(scenario), scenario.cluster.gpu)


def _group(scenario: Parts) -> Iterator[Mistake]:
    cluster = scenario.cluster
    there = cluster.hosts * cluster.gpus_per_host
    degrees = _job(scenario).parallelism
    needed = degrees.tensor * degrees.context * degrees.data * degrees.pipeline
    if needed > there:
        product = " x ".join(f"{name} {getattr(degrees, name)}" for name in _written(degrees))
        problem = (
            f"the group is larger than the cluster: {product} = {needed} ranks,"
            f" but cluster.hosts {cluster.hosts} x cluster.gpus_per_host {cluster.gpus_per_host} = {there} GPUs"
        )
        yield Mistake("job.parallelism", problem, "lower a degree, or raise cluster.hosts")


def _jobs(scenario: Parts) -> Iterator[Mistake]:
    """Check each of several jobs as if it was alone, and then how they go together."""
    if "jobs" in scenario.model_fields_set and not scenario.jobs:
        yield Mistake("jobs", "has no effect: it names no job", "name one, such as jobs.a = {}, or take it out")
    for name, job in scenario.jobs.items():
        if not re.fullmatch(r"[\w-]+", name):
            yield Mistake(f"jobs.{name}", "is no name of a job", "write letters, digits, - and _")
        alone = scenario.model_copy(update={"job": job, "jobs": {}})
        for check in (_job_alone, _peak, _group, _idle_job_keys):
            for mistake in check(alone):
                yield replace(mistake, key=re.sub(r"^job\b", f"jobs.{name}", mistake.key))
    yield from placement_problems(scenario)


def _written(degrees: Parallelism) -> list[str]:
    """Name the dimensions that a message should speak of."""
    return [name for name in DIMENSIONS if name in {"data", "pipeline"} or getattr(degrees, name) > 1]


def _idle_job_keys(scenario: Parts) -> Iterator[Mistake]:
    job = _job(scenario)
    written = job.model_fields_set
    for key in ("bucket", "first_bucket"):
        if key in written and job.overlap == "none":
            yield Mistake(f"job.{key}", 'has no effect with overlap = "none"', 'set overlap = "ddp" or take it out')
    if job.overlap == "ddp" and not job.parallelism.reduces:
        yield Mistake("job.overlap", "has no effect with data = 1: there is no gradient to reduce", "take it out")
    if "schedule" in written and job.parallelism.pipeline == 1:
        yield Mistake("job.schedule", "has no effect with pipeline = 1", "take it out, or raise the degree")


def _idle_fabric_keys(scenario: Parts) -> Iterator[Mistake]:
    fabric = scenario.fabric
    for key in sorted(fabric.idle & fabric.model_fields_set):
        having = " or ".join(name for name, topology in TOPOLOGIES.all().items() if key in keys_of(topology))
        problem = f'has no effect with topology = "{fabric.topology}"'
        yield Mistake(f"fabric.{key}", problem, f"take it out, or choose {having}")
    if fabric.routing not in fabric.routings:
        problem = f"{fabric.routing!r} has no meaning in a {fabric.topology} fabric"
        yield Mistake("fabric.routing", problem, f"choose {' or '.join(fabric.routings)}")


def _cables(scenario: Parts) -> Iterator[Mistake]:
    for pattern, change in scenario.fabric.cables.items():
        key = f"fabric.cables.{pattern}"
        if not change.model_fields_set:
            yield Mistake(key, "changes nothing", "write rate, length, delay or bit_error_rate")
        if change.length is not None and change.delay is not None:
            yield Mistake(key, "has a length and a delay, of which one decides", "take one out")


def _topology(scenario: Parts) -> Iterator[Mistake]:
    if scenario.ends.hosts * scenario.cluster.gpus_per_host > MOST_GPUS:
        return  # too large whatever the topology
    for mistake in answers(scenario.fabric.problems, Mistake, scenario.ends):
        yield replace(mistake, key=f"fabric.{mistake.key}")


def _fabric_files(scenario: Parts) -> Iterator[Mistake]:
    for key in scenario.fabric.files:
        name = getattr(scenario.fabric, key)
        problem = not_a_file(Path(name)) if name is not None and key not in scenario.fabric.idle else ""
        if problem:
            way_out = "name a CSV file, from the folder of the scenario"
            yield Mistake(f"fabric.{key}", f"{show(name)} {problem}", way_out)


def _socket(scenario: Parts, adapter: str) -> Iterator[Mistake]:
    nic, cpu = _value(scenario, adapter), scenario.cluster.cpu
    if nic is not None and nic.socket >= cpu.sockets:
        problem = f"{nic.socket} is no socket of a CPU {cpu.name!r} with {cpu.sockets} (counted from 0)"
        yield Mistake(f"{adapter}.socket", problem, f"at most {cpu.sockets - 1}")


def _between_sockets(scenario: Parts) -> Iterator[Mistake]:
    cpu = scenario.cluster.cpu
    if scenario.cluster.join == "pcie" and cpu.sockets > 1 and cpu.inter_socket_rate is None:
        yield Mistake("cluster.cpu.inter_socket_rate", f"is missing: there are {cpu.sockets} sockets", "add it")


def _pcie(scenario: Parts) -> Iterator[Mistake]:
    cluster = scenario.cluster
    tree = ("gpu_pcie", "gpus_per_pcie_switch", "nic_below_gpu_switch", "gpudirect")
    if cluster.join == "ideal":
        for key in (key for key in tree if key in cluster.model_fields_set):
            yield Mistake(f"cluster.{key}", 'has no effect with join = "ideal"', 'take it out, or set join = "pcie"')
    if cluster.gpus_per_host % cluster.gpus_per_pcie_switch:
        problem = f"{cluster.gpus_per_pcie_switch} does not divide the {cluster.gpus_per_host} GPUs of a host"
        yield Mistake("cluster.gpus_per_pcie_switch", problem, "choose a divisor", against="cluster.gpus_per_host")
    if cluster.nic_below_gpu_switch and cluster.gpus_per_pcie_switch == 1:
        problem = "is true, but gpus_per_pcie_switch = 1 means that there is no switch"
        yield Mistake("cluster.nic_below_gpu_switch", problem, "set it to false, or raise gpus_per_pcie_switch")
    if cluster.nic_below_gpu_switch and cluster.nic.socket > 0 and cluster.nics_per_host == 1:
        problem = f"the NIC is below the switch of GPU 0, which hangs on socket 0, not on {cluster.nic.socket}"
        yield Mistake("cluster.nic.socket", problem, "set it to 0, or nic_below_gpu_switch to false")


def _nics(scenario: Parts) -> Iterator[Mistake]:
    cluster, nics = scenario.cluster, scenario.cluster.nics_per_host
    if cluster.gpus_per_host % nics:
        problem = f"{nics} does not divide the {cluster.gpus_per_host} GPUs of a host: each NIC belongs to as many"
        way_out = "choose a divisor of gpus_per_host"
        yield Mistake("cluster.nics_per_host", problem, way_out, against="cluster.gpus_per_host")
    if nics > 1 and cluster.nic.socket > 0:
        problem = f"has no effect with nics_per_host = {nics}: each NIC is on the socket of its GPUs"
        yield Mistake("cluster.nic.socket", problem, "take it out")


def _pxn(scenario: Parts) -> Iterator[Mistake]:
    """Check what has GPUs use each other's NICs."""
    for key in ("pxn", "nic_failover"):
        if getattr(scenario.cluster, key):
            for problem, way_out in _of_forwarding(scenario):
                yield Mistake(f"cluster.{key}", problem, f"set it to false, or {way_out}")


def _of_forwarding(scenario: Parts) -> Iterator[tuple[str, str]]:
    cluster, kind = scenario.cluster, scenario.transport.kind
    if cluster.nics_per_host == 1:
        yield "has no effect if a host has one NIC", "add NICs"
        return
    if cluster.intra_host != "nvlink":
        yield f"goes over NVLink, and intra_host is {cluster.intra_host!r}", 'intra_host to "nvlink"'
    if cluster.join == "pcie" and not cluster.gpudirect:
        problem = "has a NIC read the memory of another GPU than the sender, which it can with gpudirect only"
        yield problem, "gpudirect to true"
    if scenario.nics_per_host > 1 and kind in SOCKET_KINDS:
        problem = f"has a NIC read GPU memory, and a transport of kind {kind} stages in host memory"
        yield problem, "choose an RDMA transport"


def _intra_host(scenario: Parts) -> Iterator[Mistake]:
    cluster = scenario.cluster
    if cluster.intra_host == "nvlink" and cluster.gpu.nvlink_rate is None:
        problem = f"the GPU {cluster.gpu.name!r} has no nvlink_rate"
        yield Mistake("cluster.intra_host", problem, 'choose "shared-memory" or "pcie-p2p", or add the rate')


def _nvlinks(scenario: Parts) -> Iterator[Mistake]:
    """Check what joins the GPUs of a host without a switch."""
    cluster, key = scenario.cluster, "cluster.nvlinks_between"
    between, count, links = cluster.nvlinks_between, cluster.gpus_per_host, cluster.gpu.nvlinks
    if between == "switch":
        return
    if cluster.intra_host != "nvlink":
        if "intra_host" not in cluster.model_fields_set:
            problem = f"has no effect if intra_host is {cluster.intra_host!r}"
            yield Mistake(key, problem, 'set cluster.intra_host to "nvlink", or take this out')
    elif links is None:
        problem = f"is in links, and the GPU {cluster.gpu.name!r} does not say of how many its nvlink_rate is"
        yield Mistake(key, problem, "add cluster.gpu.nvlinks")
    elif isinstance(between, NvlinkMesh) and len(between.rows) < count:
        yield Mistake(key, f"has {len(between.rows)} rows, and a host has {count} GPUs", "write a row for each GPU")
    elif (most := _most_links(between, count)) > links:
        problem = f"gives a GPU {most} links, and {cluster.gpu.name!r} has {links}"
        yield Mistake(key, problem, "write fewer, or correct gpu.nvlinks")


def _most_links(between: int | NvlinkMesh, gpus: int) -> int:
    """Count the links of the GPU that has most."""
    return between * (gpus - 1) if isinstance(between, int) else max(map(sum, between.rows))


def _speeds(scenario: Parts) -> Iterator[Mistake]:
    cluster = scenario.cluster
    hosts = cluster.hosts
    for key, what, count in (("gpu_speed", "rank", hosts * cluster.gpus_per_host), ("host_speed", "host", hosts)):
        speeds = getattr(cluster, key)
        if speeds.each and len(speeds.each) != count:
            problem = f"has {len(speeds.each)} numbers for {count} {what}s"
            yield Mistake(f"cluster.{key}", problem, f"write one for each {what}")
        elif speeds.last >= count:
            problem = f"names {what} {speeds.last}, and there are 0 to {count - 1}"
            yield Mistake(f"cluster.{key}", problem, f"name {what}s that are there")


def _kinds(scenario: Parts) -> Iterator[Mistake]:
    """Check the hosts of each kind as if all were such, and then how they go together."""
    known = {(mistake.key, mistake.problem) for mistake in _of_hosts(scenario)}
    for (name, kind), cluster in zip(scenario.cluster.kinds.items(), scenario.cluster.variants[1:], strict=True):
        alone = {"cluster": cluster, "transport": kind.transport or scenario.transport}
        for mistake in _of_hosts(scenario.model_copy(update=alone)):
            if (mistake.key, mistake.problem) not in known:
                yield replace(mistake, key=re.sub(r"^cluster\b", f"cluster.kinds.{name}", mistake.key))
    yield from kind_problems(scenario)


def _of_hosts(scenario: Parts) -> Iterator[Mistake]:
    for adapter in _ADAPTERS:
        yield from _socket(scenario, adapter)
    for check in (_between_sockets, _pcie, _nics, _pxn, _intra_host, _nvlinks):
        yield from check(scenario)


def _slow_start(scenario: Parts) -> Iterator[Mistake]:
    transport = scenario.transport
    for key in ("initial_window", "idle_restart"):
        if transport.kind not in SOCKET_KINDS and getattr(transport, key) is not None:
            problem = f"has no effect on a transport of kind {transport.kind}, which has no slow start"
            yield Mistake(f"transport.{key}", problem, "take it out")
    alone = transport.idle_restart is not None and transport.initial_window is None
    if scenario.engine == "flow" and transport.kind in SOCKET_KINDS and alone:
        problem = "has no effect without initial_window in the flow engine"
        yield Mistake("transport.idle_restart", problem, "add initial_window")


def _inline(scenario: Parts, adapter: str) -> Iterator[Mistake]:
    nic = _value(scenario, adapter)
    if nic is not None and (nic.mpi_inline_limit is None) != (nic.mpi_inline_latency is None):
        missing = "mpi_inline_latency" if nic.mpi_inline_latency is None else "mpi_inline_limit"
        problem = "is missing: mpi_inline_limit and mpi_inline_latency have an effect only together"
        yield Mistake(f"{adapter}.{missing}", problem, "write both or neither")


def _algorithms(scenario: Parts) -> Iterator[Mistake]:
    wanted = scenario.collectives.algorithm
    if isinstance(wanted, str):
        if wanted != "auto" and ALGORITHMS.find(wanted) is None:
            hint = did_you_mean(wanted, sorted(ALGORITHMS.all()))
            yield Mistake("collectives.algorithm", f"{show(wanted)} is no algorithm", hint)
        return
    for collective, name in wanted.items():
        key = f"collectives.algorithm.{collective}"
        if collective not in DEFAULTS:
            yield Mistake(key, f"{show(collective)} is no collective", did_you_mean(collective, DEFAULTS))
        elif is_described(name):
            yield from _described(key, name)
        elif not has(collective, name):
            hint = did_you_mean(name, algorithms(collective))
            if name.endswith(".et"):
                hint = "for Chakra files of all ranks write name.*.et"
            yield Mistake(key, f"{show(name)} is no algorithm for {collective}", hint)


def _described(key: str, name: str) -> Iterator[Mistake]:
    """Find what is wrong with the name of an algorithm's file or files; of Chakra's the first must be there."""
    try:
        files = chakra_files(name)
    except ValueError as error:
        yield Mistake(key, str(error), "such as name.*.et@1MiB")
        return
    file, kind = (name, "an XML file of MSCCL") if files is None else (files.pattern, "Chakra files, as name.*.et,")
    problem = not_a_file(Path(file if files is None else f"{file.removesuffix('*.et')}0.et"))
    if problem:
        shown = show(file) if files is None else f"{show(file)} for rank 0:"
        yield Mistake(key, f"{shown} {problem}", f"name {kind} from the scenario's folder")


def _in_switches(scenario: Parts) -> Iterator[Mistake]:
    wanted = scenario.collectives.algorithm
    for collective, name in {"": wanted}.items() if isinstance(wanted, str) else wanted.items():
        key = f"collectives.algorithm.{collective}".removesuffix(".")
        switches = found.switches if (found := ALGORITHMS.find(name)) else "none"
        if switches != "host":
            continue
        problem = f"{show(name)} needs the switch that joins the GPUs of a host"
        if scenario.cluster.intra_host != "nvlink":
            yield Mistake(key, problem, 'set cluster.intra_host = "nvlink", or choose another algorithm')
        elif scenario.cluster.nvlinks_between != "switch":
            yield Mistake(key, problem, 'set cluster.nvlinks_between to "switch", or choose another algorithm')


def _moderation(scenario: Parts, adapter: str) -> Iterator[Mistake]:
    nic = _value(scenario, adapter)
    steps = () if nic is None else nic.interrupt_moderation
    for index, (lower, upper) in enumerate(pairwise(steps), start=1):
        if upper.above <= lower.above:
            key = f"{adapter}.interrupt_moderation[{index}].above"
            yield Mistake(key, "is not larger than that of the step before", "write the steps in ascending order")


def _nccl(scenario: Parts) -> Iterator[Mistake]:
    """Find settings of collectives that NCCL's cost model decides, or that only it looks at."""
    settings = scenario.collectives
    written = settings.model_fields_set
    if settings.nccl is None:
        for key in ("protocol", "adapter_latency", "min_channels", "max_channels"):
            if key in written:
                problem = "has no effect without collectives.nccl"
                yield Mistake(f"collectives.{key}", problem, "set it, or take this out")
        return
    instead = {"channels": "collectives.max_channels limits them"}
    for key in ("channels", "chunk", "start", "network_step", "intra_host_step", "ll"):
        if key in written:
            problem = f"has no effect: NCCL {settings.nccl} decides"
            way_out = instead.get(key, "or take collectives.nccl out")
            yield Mistake(f"collectives.{key}", problem, f"take it out; {way_out}")


_CHECKS: tuple[Callable[[Parts], Iterator[Mistake]], ...] = (
    *(partial(_printable, key=key) for key in _NAMES),
    *(partial(_not_zero, key=key) for key in _NEVER_ZERO),
    _fabric_files,
    *(partial(check, adapter=adapter) for adapter in _ADAPTERS for check in (_socket, _inline, _moderation)),
    too_large,
    _group,
    _job_alone,
    _peak,
    _idle_job_keys,
    _jobs,
    background_problems,
    _kinds,
    _idle_fabric_keys,
    _cables,
    _topology,
    _between_sockets,
    _pcie,
    _nics,
    _pxn,
    _intra_host,
    _nvlinks,
    _speeds,
    _nccl,
    _slow_start,
    _algorithms,
    _in_switches,
    *packet_checks(),
)
