"""What people do with fabricsim in Python, a verb each; `fabricsim.load` and `fabricsim.simulate` come first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypedDict, Unpack, cast

from fabricsim.errors import InputError
from fabricsim.files.atomic import whole
from fabricsim.results.hdf5 import read_any
from fabricsim.results.traffic import Matrix
from fabricsim.run import bench as benchmarks
from fabricsim.run import pipeline
from fabricsim.run import traffic as patterns
from fabricsim.run.at_once import simulate_all
from fabricsim.run.graphs import cables_of
from fabricsim.run.result import Result, TrafficResult, shown
from fabricsim.scenario import given, library
from fabricsim.scenario.load import LoadedScenario, Overrides, load
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.scenario.toml_text import settings, texts
from fabricsim.traces.readers import read as read_trace
from fabricsim.traces.rebuild.programs import rebuild

if TYPE_CHECKING:
    import networkx as nx

    from fabricsim.engine.packet.recorder import Watch

    Scenarios = LoadedScenario | str | Path | Mapping[str, Any]

BENCH_SIZES = tuple(2**exponent for exponent in range(10, 31, 2))
"""Bytes that `bench` measures if none are given: 1 KiB to 1 GiB."""


class Changes(TypedDict, total=False):
    """What `replay` may say about a captured job that the trace does not, and change about it."""

    form: str | None
    only: str | None
    ranks_per_host: int | None
    gpu_speed: float
    message_size: float
    scale_to: int | None
    ranks: int | None


_CHECKS: dict[str, Callable[[object, str], object]] = {
    "form": given.text,
    "only": given.text,
    "ranks_per_host": given.whole,
    "gpu_speed": given.number,
    "message_size": given.number,
    "scale_to": given.whole,
    "ranks": given.whole,
}


def replay(
    trace: str | Path | Iterable[str | Path],
    fabric: str | Path,
    *,
    transport: str | None = None,
    overrides: Overrides = (),
    progress: Callable[[float], None] | None = None,
    **changes: Unpack[Changes],
) -> Result:
    """Replay the trace of a real job on a fabric.

    Parameters
    ----------
    trace
        File, folder or archive, or several files of one job; or the name of a shipped trace.
    fabric
        A scenario, whose job is left aside, or a cluster of the library.
    transport
        In place of the scenario's; a cluster of several hosts needs one.
    overrides
        As of `fabricsim.load`.
    progress
        Called now and then with the share that is done, 0 to 1.
    **changes
        ``form``: of the trace, if its contents do not show it, or ``"FILE.py"`` that reads it; ``only``: pattern of the
        names of files that are read; ``ranks_per_host``: of a Horovod timeline whose hierarchical all-reduces do not
        show it; ``gpu_speed``: how many times faster than captured kernels run; ``message_size``: how many times as
        many bytes as captured each communication moves; ``scale_to``: ranks to which data parallelism is extended;
        ``ranks``: of the job, if the trace does not say.

    Returns
    -------
    Result
        With what was captured in its `capture`.

    Raises
    ------
    FabricsimError
        If the trace or the scenario has mistakes, or they do not go together.
    """
    changes = _checked(changes)
    files = [trace] if isinstance(trace, (str, Path)) else given.several(trace, "trace")
    for file in files:
        given.require(file, (str, Path), "trace", "a file, or several")
    found = read_trace(
        [library.trace(Path(file)) for file in files],
        changes.get("form"),
        only=changes.get("only"),
        ranks_per_host=changes.get("ranks_per_host"),
    )
    rebuilt = rebuild(
        found,
        gpu_speed=changes.get("gpu_speed", 1.0),
        message_size=changes.get("message_size", 1.0),
        scale_to=changes.get("scale_to"),
        ranks=changes.get("ranks"),
    )
    loaded = pipeline.load_fabric(fabric, rebuilt.program.ranks, transport, overrides)
    return pipeline.replay(loaded, rebuilt, found.form, progress=progress)


def _checked(changes: Changes) -> Changes:
    """Take the arguments of `replay` that are given. Raises InputError if one is of another type than it has."""
    if unknown := changes.keys() - _CHECKS.keys():
        raise TypeError(f"replay() got an unexpected keyword argument {min(unknown)!r}")
    taken = {name: _CHECKS[name](value, name) for name, value in changes.items() if value is not None}
    return cast("Changes", taken)


def traffic(  # noqa: PLR0913  the rest are rarely given, and by name only
    demand: str | Path | Matrix,
    scenario: Scenarios,
    *,
    overrides: Overrides = (),
    size: str | None = None,
    flows: int | None = None,
    load: float | None = None,  # as on the command line
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
) -> TrafficResult:
    """Send a traffic matrix over the idle fabric of a scenario.

    Parameters
    ----------
    demand
        A pattern such as ``"incast"``, a file, or a `Matrix` of `fabricsim.workload`.
    scenario, overrides
        As of `fabricsim.load`; the job is left aside.
    size
        Of a pattern's flows: a quantity such as ``"1MB"``, or a distribution of the library such as ``"hadoop"``.
    flows, load
        Number of senders, or of arrivals; load of ``"poisson"``, 0 to 1.
    watch, progress
        As of `fabricsim.simulate`.

    Raises
    ------
    FabricsimError
        If there is no such pattern or file, or it names ranks that the cluster does not have.
    """
    given.require(demand, (str, Path, Matrix), "demand", "a pattern, a file or a Matrix")
    loaded = pipeline.load_any(scenario, overrides, with_job=False)
    if isinstance(demand, (str, Path)):
        if not isinstance(size, str | None):
            raise InputError(f"size {size!r}: what a flow sends is a text such as '1MB' or 'hadoop'")
        flows = None if flows is None else given.whole(flows, "flows")
        load = None if load is None else given.number(load, "load")
        matrix = patterns.demand(str(demand), loaded.scenario, size=size, flows=flows, load=load)
    else:
        matrix = demand
    return patterns.send(loaded, matrix, watch=watch, progress=progress)


def bench(
    test: str,
    scenario: Scenarios,
    *,
    overrides: Overrides = (),
    sizes: Iterable[SupportsIndex | float] = BENCH_SIZES,
    progress: Callable[[float], None] | None = None,
) -> dict[int, float]:
    """Time a collective over all ranks of a cluster, as nccl-tests does after its warm-up.

    Parameters
    ----------
    test
        Such as ``"all_reduce"``, ``"all_to_all"`` or ``"sendrecv"``.
    scenario, overrides
        As of `fabricsim.load`; the job is left aside.
    sizes
        Bytes as nccl-tests counts them, each at least 1.
    progress
        Called with the share of the sizes that is done.

    Returns
    -------
    dict
        Time of each size, from the call until the last rank is done, s.

    Raises
    ------
    FabricsimError
        If there is no such test, or the cluster cannot run it.
    """
    given.require(test, str, "test", "a name such as 'all_reduce'")
    if test not in benchmarks.TESTS:
        msg = f"there is no test {test!r}; {did_you_mean(test, benchmarks.TESTS, ', '.join(benchmarks.TESTS))}"
        raise InputError(msg)
    timed = [given.whole(size, "sizes") for size in given.several(sizes, "sizes")]
    rows = benchmarks.collective_times(
        pipeline.load_any(scenario, overrides, with_job=False).scenario, benchmarks.TESTS[test], timed, progress
    )
    return {row.size: row.seconds for row in rows}


def compare(
    scenario: Scenarios,
    over: Mapping[str, Iterable[Any]],
    *,
    overrides: Overrides = (),
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
) -> list[Result]:
    """Simulate a scenario with each combination of some settings.

    Parameters
    ----------
    scenario, overrides
        As of `fabricsim.load`.
    over
        Values of keys, such as ``{"transport": ["tcp-10g", "rdma-100g"], "job.micro_batch": [1, 2]}``.
    jobs
        Simulations at the same time; results do not depend on it.
    progress
        Called with the share that is done.

    Returns
    -------
    list of Result
        The last key changes first.

    Raises
    ------
    FabricsimError
        If one of them cannot be simulated.
    """
    jobs = given.whole(jobs, "jobs")
    given.require(over, Mapping, "over", "a dict of keys and the values of each")
    lists = {key: given.several(values, f"over[{key!r}]") for key, values in over.items()}
    if not isinstance(scenario, LoadedScenario):
        own = texts(overrides)
        every = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
        loaded = [load(scenario, [*own, *settings(each, "over")]) for each in every]
        return simulate_all(loaded, jobs=jobs, progress=progress)
    raise InputError("a loaded scenario is settled: give compare its name, file or dict")


def read(path: str | Path) -> Result | TrafficResult:
    """Read a result that `Result.save` or the command line wrote.

    Raises
    ------
    ResultError
        If it cannot be read, or is no such file.
    """
    given.require(path, (str, Path), "path", "a file that was saved")
    return shown(read_any(path))


def write(graph: nx.Graph, path: str | Path) -> None:
    """Write a networkx graph as the file of cables of a fabric, ``{"topology": "file", "links": path}``.

    Parameters
    ----------
    graph
        Nodes ``host0``, ``host1``, ... are hosts, all others switches. Edges are cables, each with a ``rate`` such as
        ``"100Gbps"`` and a ``delay`` such as ``"500ns"``; where edges have directions, one each way alike.
    path
        CSV file to write; one of that name is replaced.

    Raises
    ------
    InputError
        If an edge has no rate or delay, the graph is no fabric, or the file cannot be written.
    """
    given.require(path, (str, Path), "path", "a file to write")
    rows = ["a,b,gbps,delay_ns", *cables_of(graph)]
    with whole(Path(path), "name a file in a folder that exists") as part:
        part.write_text("\n".join(rows) + "\n", encoding="utf-8")
