"""One run of a sweep, in whatever process: it is simulated unless its file is there, and the file is written whole.

A run is named by what decides it: the scenario with all that it includes, what is done with it, the contents of files
that it names, and the version of fabricsim. Two points that come to the same are one run.
"""

import hashlib
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from fabricsim import provenance
from fabricsim.errors import FabricsimError, InputError
from fabricsim.files.atomic import whole
from fabricsim.results.summary import Summary, bus_factor, summarise
from fabricsim.results.traffic import TrafficSummary, summarise_traffic
from fabricsim.run import bench, pipeline
from fabricsim.run.bill import COST, POWER, REMARK, per_gpu
from fabricsim.run.result import Result, TrafficResult
from fabricsim.run.sweeps.workers import results
from fabricsim.run.verbs import bench as time_collective
from fabricsim.run.verbs import traffic as send
from fabricsim.scenario import library
from fabricsim.scenario.load import LoadedScenario
from fabricsim.scenario.prices import read_prices
from fabricsim.scenario.suggest import show
from fabricsim.scenario.toml_text import SET, Setting, settings
from fabricsim.traces.readers import read as read_trace
from fabricsim.traces.rebuild.programs import Rebuilt, rebuild
from fabricsim.units import BYTES, parse

FORMAT = 1
"""Of the files of runs."""
Row = dict[str, str | int | float | None]
"""Headline results of a run."""
_KEPT = "result_sha256"
"""Of the HDF5 file beside that of a run, in which it is."""
_PATHLIKE = "./"
"""Letters one of which is in the name of each file that a scenario names."""


_OF_JOB = (
    *("iteration_time_s", "tokens_per_s", "tflops_per_gpu", "mfu", "compute_s", "exposed_communication_s", "host_s"),
    *("bubble_s", "overlapped_communication_s", "ranks", "first_cause", "first_cause_share"),
    *("hottest_link", "hottest_link_utilisation"),
)
_SPREAD = ("min", "mean", "p50", "p99", "max")
COLUMNS = {
    "job": _OF_JOB,
    "replay": (*_OF_JOB, "captured_iteration_time_s"),
    "traffic": (
        "makespan_s",
        *(f"{name}_{each}" for name in ("completion_time_s", "slowdown") for each in _SPREAD),
        *("flows", "total_bytes", "hottest_link", "hottest_link_utilisation"),
    ),
    "bench": ("time_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "size_bytes", "ranks"),
}
"""Headline results of a run, by what is done."""


class Task(NamedTuple):
    """A run to make.

    `number`: of its point, from 0. `kind`: ``job``, ``traffic``, ``bench`` or ``replay``. `scenario`: a file, a
    name, or tables. `settings`: laid over it, by their keys. `options`: of the kind. `folder`: of the files.
    `keep`: whether to write the result as HDF5, too. `prices`: list by which the network is priced, if any.
    `places`: where settings are written, by key.
    """

    number: int
    kind: str
    scenario: str | Mapping[str, Any]
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    folder: Path
    keep: bool = False
    prices: str = ""
    places: Mapping[str, str] | None = None


class SweptRun(TypedDict):
    """What came of a run: its name, ``done`` or ``failed``, headline results, and the error if it failed."""

    run: str
    status: str
    results: Row
    error: str


def carry_out(task: Task) -> tuple[SweptRun, bool]:
    """Make a run, or read what it gave if its file is there.

    Returns: the outcome, and whether it was there. An error that a user can mend is an outcome; others are raised.
    """
    try:
        loaded = _load(task)
    except FabricsimError as error:
        name = _digest([task.kind, task.scenario, settings(task.settings), dict(task.options)])
        there = (task.folder / f"{name}.json").exists()
        return _failed(task, name, error), there
    priced = [read_prices(task.prices).model_dump()] if task.prices else []
    name = _digest([task.kind, dict(task.options), loaded.resolved, list(_contents(task, loaded)), *priced])
    known = read_run(task.folder / f"{name}.json")
    if known is not None and (known["status"] == "failed" or not task.keep or _is_kept(task, name)):
        return known, True
    try:
        results, summary = _KINDS[task.kind](task, loaded, name)
    except _UnkeptError as error:
        return {"run": name, "status": "failed", "results": {}, "error": str(error)}, False  # to be made once more
    except FabricsimError as error:
        return _failed(task, name, error), False
    outcome: SweptRun = {"run": name, "status": "done", "results": {**results, **_costs(task, loaded)}, "error": ""}
    kept = {_KEPT: _sha256(_result(task, name))} if task.keep else {}
    return _written(task, outcome, {**kept, "resolved": loaded.resolved, "summary": summary}), False


def _costs(task: Task, loaded: LoadedScenario) -> Row:
    """Price the network of a run; if that cannot be done, prices are absent, and the remark says why."""
    if not task.prices:
        return {}
    try:
        return {**per_gpu(loaded.scenario, read_prices(task.prices))}
    except FabricsimError as error:
        return {COST: None, POWER: None, REMARK: str(error)}


def carried_out(
    tasks: Iterable[Task], workers: int, scheduler: str | None = None
) -> Iterator[tuple[int, SweptRun, bool]]:
    """Make runs, and give of each that is done the number of its task, the outcome and whether it was there.

    `workers`, `scheduler`: who makes them, as of `fabricsim.run.sweeps.workers.results`.
    """
    for task, found, error in results(carry_out, tasks, workers, scheduler):
        yield task.number, *((_crashed(task, error), False) if error is not None else found)


def _crashed(task: Task, error: BaseException) -> SweptRun:
    """Say of a run that it ended by what is no mistake of the user; it has no file, so that it is tried again."""
    told = "".join(traceback.format_exception_only(error)).strip()
    name = _digest([task.kind, task.scenario, settings(task.settings), dict(task.options)])
    return {"run": name, "status": "failed", "results": {}, "error": told}


def _failed(task: Task, name: str, error: FabricsimError) -> SweptRun:
    return _written(task, {"run": name, "status": "failed", "results": {}, "error": str(error)}, {})


def _written(task: Task, outcome: SweptRun, more: Mapping[str, object]) -> SweptRun:
    """Write the file of a run; if it cannot be written, the run has failed for that, and is tried again."""
    try:
        _write(task, outcome, more)
    except InputError as error:
        return {"run": outcome["run"], "status": "failed", "results": {}, "error": outcome["error"] or str(error)}
    return outcome


def _digest(parts: object) -> str:
    text = json.dumps([FORMAT, provenance.version(), parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _contents(task: Task, loaded: LoadedScenario) -> Iterator[tuple[str, str]]:
    """Digest the files that a run reads beside the scenario: cables, paths, algorithms, matrices, traces."""
    for text in sorted({*texts_in(loaded.resolved), *texts_in({**task.options})}):
        if any(letter in text for letter in _PATHLIKE) and (found := _file_digest(text)):
            yield text, found


def texts_in(value: object) -> Iterator[str]:
    """Give all texts of one line in nested tables and lists."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, str) and "\n" not in value:
        yield value


@lru_cache(maxsize=256)
def _file_digest(text: str) -> str:
    """Digest a file, or the names, sizes and times of those in a folder; empty if there is neither."""
    try:
        path = Path(text)
        if path.is_file():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        if path.is_dir():
            found = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in sorted(path.rglob("*"))]
            return hashlib.sha256(repr(found).encode()).hexdigest()
    except (OSError, ValueError):
        pass
    return ""


def _load(task: Task) -> LoadedScenario:
    """Load the scenario of a run; mistakes of settings are said to be where the sweep has them."""
    places, texts = task.places or {}, settings(task.settings)
    given = [Setting(text, places.get(key) or SET) for key, text in zip(task.settings, texts, strict=True)]
    if task.kind == "replay":
        ranks = _rebuilt(task).program.ranks
        return pipeline.load_fabric(str(task.scenario), ranks, task.options.get("transport"), given)
    return pipeline.load(task.scenario, given, with_job=task.kind == "job")


def _job(task: Task, loaded: LoadedScenario, name: str) -> tuple[Row, object]:
    return _of_iteration(pipeline.simulate(loaded), task, name)


def _replay(task: Task, loaded: LoadedScenario, name: str) -> tuple[Row, object]:
    return _of_iteration(
        pipeline.replay(loaded, _rebuilt(task), _trace(_files(task), task.options.get("ranks_per_host")).form),
        task,
        name,
    )


def _of_iteration(result: Result, task: Task, name: str) -> tuple[Row, object]:
    _keep(result, task, name)
    summary = summarise(result)
    return _of_job(summary), {**summary, "wall_seconds": None}


def _traffic(task: Task, loaded: LoadedScenario, name: str) -> tuple[Row, object]:
    asked = {key: value for key, value in task.options.items() if key != "pattern"}
    result = send(str(task.options["pattern"]), loaded, **asked)
    _keep(result, task, name)
    summary = summarise_traffic(result)
    return _of_traffic(summary), {**summary, "wall_seconds": None}


def buffer_size(given: object) -> int:
    """Read the size of a buffer, bytes. Raises InputError if it is none."""
    try:
        size = int(parse(str(given), BYTES))
    except ValueError as error:
        raise InputError(f"bench.size: {error}") from error
    if size < 1:
        raise InputError(f"bench.size: {show(given)} is less than a byte; write it like 64MiB")
    return size


def _bench(task: Task, loaded: LoadedScenario, _: str) -> tuple[Row, object]:
    test, size = str(task.options["test"]), buffer_size(task.options["size"])
    took = time_collective(test, loaded, sizes=[size])[size]
    rate = size / took
    bus = rate * bus_factor(bench.TESTS[test], loaded.scenario.cluster.ranks)
    row: Row = {
        "time_s": took,
        "algbw_bytes_per_s": rate,
        "busbw_bytes_per_s": bus,
        "size_bytes": size,
        "ranks": loaded.scenario.cluster.ranks,
    }
    return row, row


_KINDS = {"job": _job, "replay": _replay, "traffic": _traffic, "bench": _bench}


def _files(task: Task) -> tuple[str, ...]:
    named = task.options["trace"]
    return (named,) if isinstance(named, str) else tuple(named)


def _rebuilt(task: Task) -> Rebuilt:
    rest = {key: value for key, value in task.options.items() if key not in {"trace", "transport"}}
    per_host = rest.pop("ranks_per_host", None)
    return _rebuild(_files(task), per_host, **rest)


@lru_cache(maxsize=1)
def _trace(files: tuple[str, ...], per_host: int | None) -> Any:  # noqa: ANN401  as `read_trace` gives it
    return read_trace([library.trace(Path(file)) for file in files], ranks_per_host=per_host)


@lru_cache(maxsize=2)  # the points of a sweep replay few programs on many fabrics
def _rebuild(files: tuple[str, ...], per_host: int | None, **changes: Any) -> Rebuilt:  # noqa: ANN401  options
    return rebuild(_trace(files, per_host), **changes)


def _result(task: Task, name: str) -> Path:
    return task.folder / f"{name}.h5"


def _is_kept(task: Task, name: str) -> bool:
    """Whether the result of a run is there, byte for byte as it was written."""
    try:
        told = json.loads((task.folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return bool(told.get(_KEPT, "none") == _sha256(_result(task, name)))  # None of a benchmark, which has no result


def _sha256(path: Path) -> str | None:
    """Digest a file; None if there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


class _UnkeptError(FabricsimError):
    """A result that could not be written."""


def _keep(result: Result | TrafficResult, task: Task, name: str) -> None:
    if not task.keep:
        return
    try:
        result.save(_result(task, name))
    except FabricsimError as error:
        raise _UnkeptError(str(error)) from error


def _write(task: Task, outcome: SweptRun, more: Mapping[str, object]) -> None:
    """Write the file of a run; another process may write the same one at the same time."""
    told = {"format": FORMAT, "fabricsim": provenance.version(), **outcome, "kind": task.kind}
    told |= {"scenario": task.scenario, "settings": {**task.settings}, "options": {**task.options}, **more}
    with whole(task.folder / f"{outcome['run']}.json", "name another folder with -o") as part:
        part.write_text(json.dumps(told, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def read_run(path: Path) -> SweptRun | None:
    """Read what a run gave; None if the file is not there or none of ours, so that the run is made anew."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["format"] == FORMAT and told["run"] == path.stem and isinstance(told["results"], dict):
            return {key: told[key] for key in ("run", "status", "results", "error")}  # type: ignore[return-value]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def _of_job(summary: Summary) -> Row:
    """Say of an iteration how long it takes, what it achieves, and where the time goes."""
    parts, links, causes = summary["breakdown_s"], summary["links"], summary["causes"]
    achieved: dict[str, Any] = {**summary.get("throughput", {})}
    captured = summary.get("capture")
    return {
        "iteration_time_s": summary["iteration_time_s"],
        **({} if captured is None else {"captured_iteration_time_s": captured["captured_iteration_s"]}),
        "tokens_per_s": achieved.get("tokens_per_s"),
        "tflops_per_gpu": achieved.get("tflops_per_gpu"),
        "mfu": achieved.get("mfu"),
        "compute_s": parts["compute"],
        "exposed_communication_s": summary["exposed_communication_s"],
        "host_s": parts["host"],
        "bubble_s": parts["bubble"],
        "overlapped_communication_s": parts["overlapped_communication"],
        "ranks": summary["ranks"],
        "first_cause": causes[0]["cause"] if causes else None,
        "first_cause_share": causes[0]["share"] if causes else None,
        "hottest_link": links[0]["name"] if links else None,
        "hottest_link_utilisation": links[0]["utilisation"] if links else None,
    }


def _of_traffic(summary: TrafficSummary) -> Row:
    """Say of traffic when it ended, and how long flows took."""
    spreads: dict[str, Any] = {"completion_time_s": summary["completion_time_s"], "slowdown": summary["slowdown"]}
    links = summary["links"]
    return {
        "makespan_s": summary["makespan_s"],
        **{f"{name}_{key}": value for name, spread in spreads.items() for key, value in spread.items()},
        "flows": summary["flow_count"],
        "total_bytes": summary["total_bytes"],
        "hottest_link": links[0]["name"] if links else None,
        "hottest_link_utilisation": links[0]["utilisation"] if links else None,
    }
