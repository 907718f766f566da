"""A sweep from its file to its index.

::

    STUDY.toml ── read ──► Sweep: points ── carry_out, by workers ──► a file per run ── rows ──► index

The files of runs are all that counts: whatever ends a sweep, what they hold is not simulated again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fabricsim.errors import InputError
from fabricsim.run.bill import COST, POWER, REMARK
from fabricsim.run.sweeps import index
from fabricsim.run.sweeps.points import flat, points
from fabricsim.run.sweeps.runs import COLUMNS, SweptRun, Task, buffer_size, carried_out, read_run, texts_in
from fabricsim.run.sweeps.written import places, placing, sections
from fabricsim.run.warm import compile_kernels
from fabricsim.scenario.base import Spec
from fabricsim.scenario.include import is_key
from fabricsim.scenario.load import load
from fabricsim.scenario.prices import read_prices
from fabricsim.scenario.source import exists, parse, read_text
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.scenario.swept import ReplayedTrace, SentTraffic, SweptScenario, TimedCollective
from fabricsim.scenario.toml_text import SET
from fabricsim.scenario.tree import TreeNode, build
from fabricsim.scenario.validated import validated

RUNS = "runs"
"""Folder of the files of runs, in that of the sweep."""
_FORGOTTEN = 3600.0
"""Seconds after which a file that was begun is nobody's."""
_SIZE = "bench.size"
_KINDS: dict[str, type[Spec]] = {"traffic": SentTraffic, "bench": TimedCollective, "replay": ReplayedTrace}


class Progress(NamedTuple):
    """How far a sweep is: runs that are done, those of them that failed or were there, and all."""

    done: int
    failed: int
    known: int
    total: int


class Shard(NamedTuple):
    """One of several parts of a sweep, from 1: every `of`-th of its points."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``3/8``. Raises InputError if it is none."""
        number, slash, of = text.partition("/")
        if slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of):
            return cls(int(number), int(of))
        raise InputError(f"--shard {text}: is no part of a sweep; write the third of eight as 3/8")


@dataclass(frozen=True)
class Sweep:
    """A sweep as its file describes it.

    `written`: the file. `folder`: that scenarios and traces lie in. `points`: what is varied, and its values.
    `tree`: the file, with the places of its keys.
    """

    name: str
    written: SweptScenario
    folder: Path
    points: tuple[dict[str, Any], ...]
    tree: TreeNode

    @property
    def kind(self) -> str:
        """``job``, ``traffic``, ``bench`` or ``replay``."""
        return next((kind for kind in _KINDS if getattr(self.written, kind) is not None), "job")

    def tasks(self, output: Path) -> Iterator[Task]:
        """Make a task of each point, whose file goes into a folder."""
        kind = self.kind
        options = {} if kind == "job" else getattr(self.written, kind).model_dump(exclude_none=True)
        fixed = {key: self._file_beside(value) for key, value in flat(self.written.settings).items()}
        for number, point in enumerate(self.points):
            own = {key.partition(".")[2]: value for key, value in point.items() if self._is_option(key)}
            asked = {**options, **own}
            if kind == "replay":
                named = asked["trace"]
                asked["trace"] = tuple(map(self.beside, [named] if isinstance(named, str) else named))
            rest = {
                key: self._file_beside(value)
                for key, value in point.items()
                if key != "scenario" and not self._is_option(key)
            }
            scenario = self.beside(str(point.get("scenario", self.written.scenario)))
            more = self.written.keep_results, self.beside(self.written.prices or "")
            laid = {**fixed, **rest}
            where = places(self.tree, laid, self._written_out(number))
            yield Task(number, kind, scenario, laid, asked, output, *more, where)

    @cached_property
    def varied(self) -> list[str]:
        """Keys that points have, in the order in which they are written."""
        return list(dict.fromkeys(key for point in self.points for key in point))

    def _written_out(self, number: int) -> int:
        """Give the number of a point in the list of those that are written out, if there are such."""
        return number * len(self.written.points) // len(self.points)

    def check_sizes(self) -> None:
        """Refuse sizes of buffers that are none, where they are written."""
        if self.written.bench is None:
            return
        first: dict[str, int] = {}  # points of each size
        for number, point in enumerate(self.points):
            first.setdefault(str(point.get(_SIZE, self.written.bench.size)), number)
        for size, number in first.items():
            with placing(self.tree, [f"points.{self._written_out(number)}.", *sections(0), ""]):
                buffer_size(size)

    def _is_option(self, key: str) -> bool:
        """Whether a key is an option of what is done, not of the scenario."""
        return self.kind != "job" and key.partition(".")[0] == self.kind

    def beside(self, name: str) -> str:
        """Take a file as lying beside that of the sweep, if one does."""
        path = self.folder / name
        return str(path) if path.exists() and name else name

    def _file_beside(self, value: Any) -> Any:  # noqa: ANN401  as of TOML
        """Take the value of a setting that names a file as lying beside that of the sweep, if one does."""
        found = isinstance(value, str) and Path(value).suffix and (self.folder / value).is_file()
        return self.beside(value) if found else value

    def engines(self) -> set[str]:
        """Engines that the runs use; those of scenarios that cannot be loaded are left out."""
        found = set()
        for scenario, engine in {
            (str(task.scenario), str(task.settings.get("engine", ""))) for task in self.tasks(Path())
        }:
            try:
                found.add(engine or load(scenario, with_job=False).scenario.engine)
            except InputError:  # which the run will say; a cluster that is replayed on is none
                found.add("flow")
        return found & {"flow", "packet", "reference"}

    def inputs(self) -> set[Path]:
        """Files that the runs read: scenarios, what these name before anything is varied, settings and options."""
        named, scenarios, found = {self.beside(self.written.prices or "")}, set[str](), set[Path]()
        for task in self.tasks(Path()):
            named |= {*texts_in({**task.settings}), *texts_in({**task.options})}
            scenarios.add(str(task.scenario))
        for scenario in scenarios:
            with suppress(InputError):  # as of `engines`
                found |= {*load(scenario).files}
        return found | {
            Path(name) for name in named | scenarios if name and exists(Path(name)) and Path(name).is_file()
        }


def read(study: str | Path | Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Sweep:
    """Read the file of a sweep, or take nested dicts with what it would say.

    `settings`: laid over those of the file.
    Raises InputError if it cannot be read, or what it varies cannot be; ScenarioError if it has mistakes.
    """
    if isinstance(study, Mapping):
        tree, folder, name = build(study), Path(), "sweep"
    else:
        path = Path(study)
        if not exists(path):
            msg = f"{study}: there is no such file; name the TOML file of a sweep, with its scenario and what varies"
            raise InputError(msg)
        tree, folder, name = parse(read_text(path), str(study)), path.parent, path.stem
    written = validated(tree, SweptScenario, "the sweep")
    if settings:
        laid = {key: TreeNode(value, SET) for key, value in settings.items()}
        below = tree.table("settings")
        tree = tree.laid({"settings": TreeNode({**(below.value if below else {}), **laid})})
        written = written.model_copy(update={"settings": {**flat(written.settings), **settings}})
    if len(given := [kind for kind in _KINDS if getattr(written, kind) is not None]) > 1:
        msg = (
            f"{study if not isinstance(study, Mapping) else name}: has {' and '.join(given)}; a sweep does one of them"
        )
        raise InputError(msg)
    with placing(tree, [*sections(len(written.points)), ""]):
        sweep = Sweep(written.name or name, written, folder, tuple(points(written)), tree)
        _check_options(sweep)
        _check_pictures(sweep)
        if written.prices:
            read_prices(sweep.beside(written.prices))  # a mistake in it is no matter of single runs
    sweep.check_sizes()
    return sweep


def _check_options(sweep: Sweep) -> None:
    """Refuse keys that no scenario can have, and options that what is done does not have."""
    for key in sweep.varied:
        if not is_key(key):
            raise InputError(f"{key}: is no key of a scenario; write it like cluster.hosts")
    if sweep.kind == "job":
        return
    known = _KINDS[sweep.kind].model_fields
    for key in sweep.varied:
        kind, _, option = key.partition(".")
        if kind == sweep.kind and option not in known:
            raise InputError(f"{key}: unknown option; {did_you_mean(option, known, 'known are ' + ', '.join(known))}")


def _check_pictures(sweep: Sweep) -> None:
    """Refuse pictures of columns that the index will not have, before anything is run."""
    priced = (COST, POWER, REMARK) if sweep.written.prices else ()
    known = [*sweep.varied, "run", "status", *COLUMNS[sweep.kind], *priced, "error"]
    for number, picture in enumerate(sweep.written.pictures):
        named = {key: name for key, name in picture.model_dump().items() if key != "kind" and name is not None}
        for key, name in named.items():
            if name not in known:
                hint = did_you_mean(name, known, f"columns are {', '.join(known)}")
                raise InputError(f"pictures[{number}].{key}: the index has no column {name!r}; {hint}")


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep.

    `rows`: the index (`fabricsim.run.sweeps.index.rows`). `files`: that it was written to. `progress`: at the end.
    """

    sweep: Sweep
    rows: list[dict[str, Any]]
    files: list[Path]
    progress: Progress


def run(  # noqa: PLR0913  the rest are rarely given, and by name only
    sweep: Sweep,
    output: Path,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    shard: Shard | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> SweepResult:
    """Make all runs of a sweep, and write its index.

    `output`: folder of the index and of the files of runs. `resume`: whether it may hold runs already, which then are
        not made again.
    `workers`, `scheduler`: as of `fabricsim.run.sweeps.workers.results`; results do not depend on them.
    `shard`: the part to run; the index of a part is named after it.
    Raises InputError if the folder is in use, by runs that did not all fail, or cannot be written.
    """
    folder = _folder(output, shard, resume=resume)
    tasks = [task for task in sweep.tasks(folder) if shard is None or task.number % shard.of == shard.number - 1]
    if shard is not None and not tasks:
        msg = f"--shard {shard.number}/{shard.of}: the sweep has {len(sweep.points)} runs only; take fewer parts"
        raise InputError(msg)
    for engine in sorted(sweep.engines()):
        compile_kernels(engine)
    outcomes: dict[int, SweptRun] = {}
    state = Progress(0, 0, 0, len(tasks))
    for number, outcome, known in carried_out(tasks, workers, scheduler):
        outcomes[number] = outcome
        failed = state.failed + (outcome["status"] == "failed")
        state = Progress(state.done + 1, failed, state.known + known, state.total)
        if progress is not None:
            progress(state)
    rows = index.rows(sweep.points, outcomes)
    return SweepResult(sweep, rows, index.write(rows, output, index_of(shard)), state)


def index_of(shard: Shard | None) -> str:
    """Name the index of a sweep, or of a part of it."""
    return "index" if shard is None else f"index-{shard.number}-of-{shard.of}"


def _has_failed(path: Path) -> bool:
    run = read_run(path)
    return run is not None and run["status"] == "failed"


def _folder(output: Path, shard: Shard | None, *, resume: bool) -> Path:
    folder = output / RUNS
    kept = [] if resume else list(folder.glob("*.json"))
    if kept and (shard is not None or not all(map(_has_failed, kept))):
        msg = f"-o {output}: holds the runs of a sweep; add --resume to go on with it, or name another folder"
        raise InputError(msg)
    try:
        for path in kept:  # nothing is lost with runs that failed, as all do by a misspelt key
            path.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {output}: cannot be used as output folder: {error.strerror}; name another") from error
    for part in folder.glob(".*"):  # of processes that were killed; other shards may be writing
        if time.time() - part.stat().st_mtime > _FORGOTTEN:
            part.unlink(missing_ok=True)
    return folder
