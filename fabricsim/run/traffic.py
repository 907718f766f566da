"""A traffic matrix on a fabric.

::

    file or pattern ── demand ──► Matrix ──┐
    scenario.toml ───── load ───► Scenario ┴─ simulate ──► TrafficResult
"""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from fabricsim import provenance
from fabricsim.engine.carried import carried
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.outcome import counters, mean_capacities, rate_series
from fabricsim.engine.packet.recorder import Watch
from fabricsim.engine.program.transfer import time_alone
from fabricsim.engine.wiring import connections
from fabricsim.errors import InputError
from fabricsim.results.result import LinkRecord
from fabricsim.results.traffic import Matrix, ResourceUse
from fabricsim.run.result import TrafficResult
from fabricsim.scenario import library
from fabricsim.scenario.load import LoadedScenario
from fabricsim.scenario.remarks import remarks
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.source import exists, is_result
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.scenario.traffic import FlowSizes, load_sizes
from fabricsim.transports import flow_model
from fabricsim.units import BYTES, parse
from fabricsim.workload import matrix as files
from fabricsim.workload.traffic import PATTERNS, Request, generate

_SIZE = "10MB"  # of each flow if none is asked for; ``poisson`` takes `_SIZES`
_SIZES = "websearch"


def read(name: str) -> Matrix | None:
    """Read a matrix file; None if `name` is that of a pattern and no such file is there.

    Raises InputError if there is neither, or the file is no traffic matrix.
    """
    there = exists(Path(name))
    if name in PATTERNS and not (there and Path(name).is_file()):
        return None
    if not there:
        hint = did_you_mean(name, PATTERNS, f"patterns are {', '.join(PATTERNS)}")
        raise InputError(f"{name}: there is no such file or pattern; {hint}")
    if is_result(Path(name)):
        raise InputError(f"{name}: is a result, not a traffic matrix; fabricsim report and fabricsim plot read results")
    return files.read(name)


def refuse_amounts(name: str, options: Mapping[str, object]) -> None:
    """Raise InputError if one of the options that say what a pattern sends is given beside the file `name`."""
    for option, value in options.items():
        if value is not None:
            raise InputError(f"{option} has no effect: {name} is a file and says itself what is sent; take it out")


class PatternAmounts(TypedDict):
    """What a pattern sends, as of `request`."""

    size: str | None
    flows: int | None
    load: float | None


def demand(name: str, scenario: Scenario, *, ranks: int | None = None, **amounts: Unpack[PatternAmounts]) -> Matrix:
    """Read a matrix file, which says all by itself, or draw a pattern, as `read` and `request` do."""
    matrix = read(name)
    if matrix is None:
        return request(name, scenario, ranks=ranks, **amounts)
    refuse_amounts(name, amounts)
    return matrix


def request(  # noqa: PLR0913  the rest are rarely given, and by name only
    pattern: str,
    scenario: Scenario,
    *,
    size: str | None = None,
    flows: int | None = None,
    load: float | None = None,
    ranks: int | None = None,
) -> Matrix:
    """Draw a pattern for the ranks of a scenario's cluster.

    `pattern`: such as ``"incast"``.
    `scenario`: gives ranks, seed, and the rate that a load refers to: the payload that fits on a NIC's link, shared
        among the ranks of the NIC, of which those of one host send one another nothing over it.
    `size`: a quantity such as ``"1MB"``, or a distribution of the library such as ``"hadoop"``.
    `flows`, `load`: as in `fabricsim.workload.traffic.Request`.
    Raises InputError if the pattern cannot be had so.
    """
    sizes = parse_size(size or (_SIZES if pattern == "poisson" else _SIZE))
    if isinstance(sizes, int) and sizes < 1:
        raise InputError(f"size {size!r} is less than a byte, and moves nothing; write it like 10MB")
    wire = flow_model(scenario.transport).costs.wire
    per_host, count = scenario.cluster.gpus_per_host, ranks or scenario.cluster.ranks
    rate = scenario.link_rate / wire / (per_host // scenario.nics_per_host)
    if count > per_host:  # flows between ranks of a host do not take its link
        rate *= (count - 1) / (count - per_host)
    return generate(Request(pattern, count, sizes, scenario.seed, rate, flows, load))


def parse_size(text: str) -> int | FlowSizes:
    """Read a quantity, or the name of a distribution of the library; an `InputError` if it is neither."""
    known = library.names("traffic")
    if text in known:
        return load_sizes(text)
    try:
        return int(parse(text, BYTES))
    except ValueError as error:
        hint = did_you_mean(text, known, f"or name a distribution: {', '.join(known)}")
        raise InputError(f"size {error}; {hint}") from error


def send(
    loaded: LoadedScenario, matrix: Matrix, *, watch: Watch | None, progress: Callable[[float], None] | None
) -> TrafficResult:
    """Do as `simulate` on a scenario that was loaded; the result knows it, and what a reader has to know."""
    result = simulate(loaded.scenario, matrix, watch=watch, progress=progress)
    notes = *remarks(loaded.scenario, loaded.asked), *result.notes
    return replace(result, source=loaded.source, resolved=loaded.resolved, notes=notes, asked=loaded.asked)


def simulate(
    scenario: Scenario, matrix: Matrix, *, watch: Watch | None = None, progress: Callable[[float], None] | None = None
) -> TrafficResult:
    """Send all flows of a matrix over an idle fabric, each at its start, and wait for all.

    Every flow is a connection of its own: the second one of a pair may take another path than the first.

    `scenario`: cluster, fabric and transport; the job is not looked at.
    `matrix`: its endpoints are ranks.
    `watch`: what a packet run is to record besides its totals; flows are found by their ids too.
    `progress`: called now and then with the share of the flows that is done, 0 to 1.
    Raises InputError if the matrix names a rank that the cluster does not have, or `watch` what is not there;
        SimulationError if the run cannot go on.
    """
    _check_ranks(scenario, matrix)
    env = simpy.Environment()
    report = None if progress is None else (lambda done: progress(done / len(matrix.flows)))
    fabric = Fabric(env, scenario, time_unit=1, watch=watch, progress=report)
    ports = np.array(connection_ports(matrix.flows, matrix.endpoints), np.int64)
    began = time.perf_counter()
    done = fabric.send_all(matrix.flows, ports.tolist())
    routes = _routes(fabric, matrix, ports)
    if fabric.recorder is not None:
        flows = fabric.world.routes["flow"][routes].tolist()
        fabric.recorder.tap_flows(dict(zip(flows, map(str, matrix.flows["id"].tolist()), strict=True)))
    completion = cast("NDArray[np.int64]", env.run(done))
    wall = time.perf_counter() - began
    end = int((matrix.flows["start"] + completion).max())
    links, failures = _links(fabric, routes, int(matrix.flows["start"].min()), end)
    return TrafficResult(
        name=scenario.name,
        matrix=matrix,
        transport=scenario.transport.name,
        engine=scenario.engine,
        seed=scenario.seed,
        version=provenance.version(),
        completion=completion,
        alone=_time_alone(fabric, routes, matrix.flows["bytes"]),
        links=links,
        counters=counters(fabric),
        wall_seconds=wall,
        packets=None if fabric.recorder is None else fabric.recorder.packets(),
        series=None if fabric.recorder is None else rate_series(fabric, end),
        failures=failures,
        notes=tuple(fabric.failures.notes(end)),
    )


def _check_ranks(scenario: Scenario, matrix: Matrix) -> None:
    ranks, flows = scenario.cluster.ranks, matrix.flows
    highest = np.maximum(flows["source"], flows["target"])
    if highest.max() >= ranks:
        first = flows[np.argmax(highest >= ranks)]
        way = f"flow {first['id']} goes from rank {first['source']} to {first['target']}"
        raise InputError(f"{matrix.name}: {way}, but the cluster has ranks 0 to {ranks - 1}; raise cluster.hosts")


def _routes(fabric: Fabric, matrix: Matrix, ports: NDArray[np.int64]) -> NDArray[np.int64]:
    """Route of each flow, an index into the table of routes."""
    return np.array(fabric.wiring.routes(connections(matrix.flows, ports.tolist())), np.int64)


def connection_ports(flows: NDArray[np.void], endpoints: int) -> list[int]:
    """Count the flows of each pair from 0, in their order: each is a connection of its own."""
    pair = flows["source"].astype(np.int64) * endpoints + flows["target"]
    order = np.argsort(pair, kind="stable")
    first = np.flatnonzero(np.diff(pair[order], prepend=-1))
    ports = np.empty(len(pair), np.int64)
    ports[order] = np.arange(len(pair)) - np.repeat(first, np.diff(first, append=len(pair)))
    return ports.tolist()


def _time_alone(fabric: Fabric, routes: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Send overhead, transfer alone on the route, and latency, ps.

    Slow start and interrupt moderation are left out: they are what a transport adds to it, and so part of the slowdown.
    """
    table = fabric.world.routes[routes]
    transfer: NDArray[np.float64] = inspect.unwrap(time_alone)(table, sizes)  # not compiled: for arrays
    alone: NDArray[np.int64] = table["overhead"] + np.ceil(transfer).astype(np.int64) + table["latency"]
    return alone


def _links(
    fabric: Fabric, routes: NDArray[np.int64], begin: int, end: int
) -> tuple[tuple[ResourceUse, ...], NDArray[np.void]]:
    """List the resources that carried something from `begin` to `end` (ps), and what failures did to them."""
    resources, capacities = fabric.platform.resources, mean_capacities(fabric, begin, end)
    load, payload = carried(fabric.parts)
    flows = np.zeros(len(resources.names), np.int64)
    for route, count in zip(*np.unique(routes, return_counts=True), strict=True):
        flows[list(fabric.wiring.route_hops[route])] += count
    if fabric.recorder is not None and not fabric.recorder.one_path:
        flows[fabric.recorder.between_switches()] = 0  # each packet finds its own way
    used = np.flatnonzero((flows > 0) | (load > 0))
    failures = fabric.failures.records(end)
    failures = failures[np.isin(failures["link"], used)]
    failures["link"] = np.searchsorted(used, failures["link"])
    links = tuple(
        ResourceUse(
            LinkRecord(
                name=resources.names[index],
                kind=resources.kinds[index],
                capacity=capacities[index],
                load=load[index].item(),
                payload=payload[index].item(),
                calls=(),
            ),
            flows[index].item(),
        )
        for index in used.tolist()
    )
    return links, failures
