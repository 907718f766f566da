"""Loading a scenario: file, what it extends, library files and ``--set``, checked as one.

::

    read ─► lay over what it extends ─► lay --set over it ─► look names up ─► validate ─► Scenario

Every mistake is noted with its place, and all are reported together.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from fabricsim.errors import InputError, Mistake, ScenarioError
from fabricsim.scenario import given, library
from fabricsim.scenario.certainty import grades
from fabricsim.scenario.checks import problems
from fabricsim.scenario.collectives import is_described
from fabricsim.scenario.explain import explain
from fabricsim.scenario.fabric import file_keys
from fabricsim.scenario.include import Includer, anchored, digests, extended, names_to_includes, overlay, override
from fabricsim.scenario.named_files import named_files
from fabricsim.scenario.partial import Partial
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.source import exists, parse, read_text
from fabricsim.scenario.suggest import did_you_mean, show
from fabricsim.scenario.toml_text import lines, texts
from fabricsim.scenario.tree import TreeNode, build, leaves, plain, where

_DICT = "the dict"  # in the place of a file
_OF_JOBS = frozenset({"job", "jobs", "traffic"})  # keys that a fabric without a job has no use for
_OF_ONE = re.compile(r"^jobs\.[^.]+\.")
_INCOMPLETE = ("missing", "union_tag_not_found", "default_factory_not_called")
"""What pydantic says of a table that lacks keys."""
_PARTS = re.compile(r'"([^"]*)"|([^.\[\]]+)')  # of a dotted key; one that holds a point stands in quotes
Overrides = Mapping[str, Any] | Sequence[str]
"""Settings by their keys, such as ``{"cluster.hosts": 4}``, or texts as ``--set`` takes them."""


@dataclass(frozen=True)
class LoadedScenario:
    """A scenario and where it came from.

    `scenario`: the checked scenario.
    `source`: the file, verbatim; what it extends and ``--set`` are not in it.
    `resolved`: all tables with everything included and overridden, units still written out: validating it again gives
        the same scenario.
    `path`: the file.
    `grades`: how certain the values are that presets gave, by key path, see `fabricsim.scenario.certainty`.
    `files`: all that were read for it, and those that it names and a run reads.
    `asked`: keys of the settings that were laid over it.
    """

    scenario: Scenario
    source: str
    resolved: dict[str, Any]
    path: Path
    grades: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    asked: tuple[str, ...] = ()


def load(
    scenario: str | Path | Mapping[str, Any], overrides: Overrides = (), *, with_job: bool = True
) -> LoadedScenario:
    """Load a scenario.

    `scenario`: a TOML file; the name of a shipped scenario such as ``"gpt2-medium-dp"``; or nested dicts with what a
        file would say, such as ``{"extends": "gpt2-medium-dp", "cluster": {"hosts": 4}}``. Files that its fabric names
        lie beside it, or for dicts in the working directory.
    `overrides`: settings laid over it, in order: ``{"cluster.hosts": 4, "transport": "tcp-10g", "job.micro_batch":
        2}``, or texts as ``--set`` takes them, ``["cluster.hosts=4"]``. Files in them lie below the working directory.
    `with_job`: whether to keep the scenario's job.
    Raises InputError if the file cannot be read, is no TOML, or an override has no ``key=value`` form; ScenarioError if
        the scenario has mistakes; it lists all of them.
    """
    laid = texts(overrides)
    if isinstance(scenario, Mapping):
        name = str(scenario.get("name", "scenario"))
        text = "\n".join(lines(scenario, {}))
        return _loaded(f"{text}\n", Path(f"{name}.toml"), _DICT, laid, with_job=with_job)
    given.require(scenario, (str, Path), "scenario", "a file, the name of a shipped one, or dicts")
    file, label = _locate(scenario)
    return _loaded(read_text(file, label), file, label, laid, with_job=with_job)


def machine(name: str, transport: str, hosts: int, overrides: Sequence[str] = ()) -> LoadedScenario:
    """Make a scenario of a cluster in the library: its hosts behind one switch, no job.

    `hosts`: how many of its hosts.
    `overrides`: as of `load`.
    Raises InputError if there is no cluster or transport of that name; ScenarioError if they do not go together, or an
        override is wrong.
    """
    library.path("clusters", name)
    library.path("transports", transport)
    source = f"""# {name}: {hosts} of its hosts behind one switch
name = "{name}"
cluster = {{ include = "{name}", hosts = {hosts} }}
fabric = "single-switch"
transport = "{transport}"
collectives = "nccl"
"""
    return _loaded(source, Path(f"{name}.toml"), name, texts(overrides))


def _loaded(source: str, file: Path, label: str, settings: Sequence[str], *, with_job: bool = True) -> LoadedScenario:
    includer = Includer()
    root = _laid(source, file, label, settings, includer, with_job=with_job)
    scenario, laid = _checked(root, includer)
    tables = _tables(laid)
    read = [*([] if label == _DICT else [file]), *includer.files, *named_files(tables)]
    asked = tuple(".".join(path) for text in settings for path, _ in leaves(override(text)))
    return LoadedScenario(scenario, source, tables, file, dict(grades(laid)), tuple(dict.fromkeys(read)), asked)


def _laid(  # noqa: PLR0913  as of `_loaded`
    source: str, file: Path, label: str, settings: Sequence[str], includer: Includer, *, with_job: bool = True
) -> TreeNode:
    """Lay a scenario over what it extends, and settings over both."""
    own = parse(source, label, numbered=label != _DICT)
    root = _extended(own, [(file, label)], includer)
    if "name" not in own.value:  # a scenario is not called after the one that it extends
        root = overlay(root, TreeNode({"name": TreeNode(file.stem, label)}, root.where))
    if not with_job:
        root = root.without(_OF_JOBS)
    for text in settings:
        laid = override(text)
        if not with_job and (left := _OF_JOBS & laid.value.keys()):
            key = text.partition("=")[0].strip()
            msg = (
                f"{key}: {min(left)} of the scenario is left aside here, so that this would change nothing; take it out"
            )
            raise InputError(msg)
        root = overlay(root, laid)
    return root


def resolved_tree(path: str | Path, overrides: Sequence[str] = ()) -> TreeNode:
    """Load a scenario as tables whose values know where they were written; parameters and errors as of `load`."""
    file, label = _locate(path)
    includer = Includer()
    root = _laid(read_text(file, label), file, label, texts(overrides), includer)
    _checked(root, includer)
    return _with_base_switch(Includer().resolve(_with_base_job(root)))


def from_tables(tables: Mapping[str, Any]) -> Scenario:
    """Validate a scenario that is already in memory.

    `tables`: nested tables as a TOML file would give them, such as `LoadedScenario.resolved`; library names are looked
        up as in files. Python files that they name are not run.
    Raises ScenarioError if the scenario has mistakes; it lists all of them.
    """
    return _checked(names_to_includes(build(tables)), Includer(trusted=False))[0]


def _locate(path: str | Path) -> tuple[Path, str]:
    """Find a file or shipped scenario, and its name for people."""
    file = Path(path)
    shipped = library.names("scenarios")
    if str(path) in shipped and not _is_file(file):
        return library.path("scenarios", str(path)), f"workloads/scenarios/{path}.toml"
    if not exists(file):
        hint = did_you_mean(str(path), shipped, "`fabricsim list scenarios` names the shipped ones")
        raise InputError(f"{path}: there is no such file or shipped scenario; {hint}")
    return file, str(path)


def _is_file(file: Path) -> bool:
    return exists(file) and file.is_file()


def _extended(tree: TreeNode, met: list[tuple[Path, str]], includer: Includer) -> TreeNode:
    """Lay a file, the last of those `met`, over what it extends, and that over what it extends."""
    folder = met[-1][0].parent
    tree = _anchored(names_to_includes(extended(anchored(tree, folder))), folder)
    name = tree.value.get("extends")
    if name is None:
        return tree
    beside = tree.without({"extends"})
    try:
        below, base = _base(name.value, met)
    except InputError as error:
        includer.mistakes.append(Mistake("extends", str(error), "", name.where))
        includer.broken.add(())
        return beside
    includer.files.append(base[0])
    return overlay(_extended(below, [*met, base], includer), beside)


def _anchored(tree: TreeNode, folder: Path) -> TreeNode:
    """Take the files that a scenario's fabric, traffic and collectives name as lying beside the scenario."""
    tree = _beside(_with_matrices(tree, folder), "fabric", folder, file_keys())
    collectives = tree.table("collectives")
    algorithm = collectives and collectives.table("algorithm")
    if collectives is None or algorithm is None:
        return tree
    files = [key for key, node in algorithm.value.items() if is_described(str(node.value))]
    return tree.laid({"collectives": _beside(collectives, "algorithm", folder, files)})


def _with_matrices(tree: TreeNode, folder: Path) -> TreeNode:
    """Take the files of traffic matrices as lying beside the scenario; names of patterns have no point or slash."""
    traffic = tree.table("traffic")
    if traffic is None:
        return tree
    for name, table in traffic.value.items():
        pattern = str(table.value["pattern"].value) if table.is_table and "pattern" in table.value else ""
        if "." in pattern or "/" in pattern or (pattern and _is_file(folder / pattern)):
            traffic = _beside(traffic, name, folder, ["pattern"])
    return tree.laid({"traffic": traffic})


def _beside(tree: TreeNode, name: str, folder: Path, keys: Iterable[str]) -> TreeNode:
    """Take the files that some keys of a table name as lying in a folder."""
    table = tree.table(name)
    if table is None:
        return tree
    named = {key: node for key, node in table.value.items() if key in keys and isinstance(node.value, str)}
    moved = {key: TreeNode(str(folder / node.value), node.where) for key, node in named.items() if node.value}
    return tree.laid({name: table.laid(moved)})


def _base(name: object, met: list[tuple[Path, str]]) -> tuple[TreeNode, tuple[Path, str]]:
    if not isinstance(name, str):
        raise InputError(f'{show(name)} is no file or name; write it like extends = "gpt2-medium-dp"')
    base, label = _locate_base(name, met[-1][0])
    if base.resolve() in [file.resolve() for file, _ in met]:
        chain = " -> ".join([*(label for _, label in met), label])
        raise InputError(f"the files extend each other: {chain}")
    return parse(read_text(base, label), label), (base, label)


def _locate_base(name: str, file: Path) -> tuple[Path, str]:
    """Find what a file extends: a file beside it, or a shipped scenario."""
    beside = file.parent / name
    if name in library.names("scenarios") and not _is_file(beside):
        return library.path("scenarios", name), f"workloads/scenarios/{name}.toml"
    return _locate(beside)


def _tables(root: TreeNode) -> dict[str, Any]:
    """Give a scenario as plain tables, with the digests of the extensions that it names."""
    tables: dict[str, Any] = plain(root)
    if known := digests(root):
        tables["extensions"] = known
    return tables


def _checked(root: TreeNode, includer: Includer) -> tuple[Scenario, TreeNode]:
    """Check a scenario; returns it, and its tables with everything included."""
    root = _with_base_switch(includer.resolve(_with_base_job(root)))
    mistakes = list(includer.mistakes)
    if lacking := list(_lacking(plain(root).get("extensions"), digests(root))):
        raise ScenarioError(lacking)
    tables = _tables(root)
    try:
        scenario = _validated(tables)
    except ValidationError as error:
        view = cast("Scenario", Partial(Scenario, tables, includer.broken))
        mistakes += _placed([*explain(error, Scenario, includer.broken), *problems(view)], root)
    except ScenarioError as error:  # the tables are good, but do not fit together
        mistakes += _placed(error.mistakes, root)
    if mistakes:
        raise ScenarioError(_said_once(mistakes) if tables.get("jobs") else mistakes)
    return scenario, root


def _validated(tables: Mapping[str, Any]) -> Scenario:
    """Validate tables; without the job that several are laid over, if all that is wrong is what it lacks."""
    try:
        return Scenario.model_validate(tables)
    except ValidationError as error:
        wrong = {(detail["loc"][0], detail["type"]) for detail in error.errors(include_url=False)}
        if not tables.get("jobs") or not wrong <= {("job", kind) for kind in _INCOMPLETE}:
            raise
    return Scenario.model_validate({key: table for key, table in tables.items() if key != "job"})


def _said_once(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Leave out what the job lacks that several are laid over, and what each of them has wrong from there."""
    own = [mistake for mistake in mistakes if mistake.key.startswith("job.") and mistake.problem != "is missing"]
    said = {(each.where, each.key, each.problem) for each in own}
    of_jobs = [mistake for mistake in mistakes if not mistake.key.startswith("job.")]
    alike = [(each.where, _OF_ONE.sub("job.", each.key), each.problem) for each in of_jobs]
    return own + [mistake for mistake, one in zip(of_jobs, alike, strict=True) if one not in said]


def _lacking(needed: object, known: Mapping[str, str]) -> Iterator[Mistake]:
    """Find extensions that a scenario was made with, and that are not there as they were."""
    for name, digest in needed.items() if isinstance(needed, dict) else ():
        if known.get(name) != digest:
            there = f"has SHA-256 {known[name]}" if name in known else "was not run, as no result runs code by itself"
            way_out = "name that file on the command line with --extension FILE, if you trust it"
            yield Mistake("extensions", f"{show(name)} of SHA-256 {digest} is needed, and {there}", way_out)


def _with_base_switch(root: TreeNode) -> TreeNode:
    """Lay a switch of the fabric that has no name over that of the transport, which it changes some keys of."""
    fabric, transport = root.table("fabric"), root.table("transport")
    switch, base = fabric and fabric.table("switch"), transport and transport.table("switch")
    if fabric is None or switch is None or base is None or "name" in switch.value:
        return root
    return root.laid({"fabric": fabric.laid({"switch": overlay(base, switch, ("fabric", "switch"))})})


def _with_base_job(root: TreeNode) -> TreeNode:
    """Lay each of several jobs over the scenario's job, whose keys they change."""
    base, jobs = root.table("job"), root.table("jobs")
    if base is None or jobs is None:
        return root
    laid = {name: overlay(base, node, ("job",)) if node.is_table else node for name, node in jobs.value.items()}
    return root.laid({"jobs": TreeNode(laid, jobs.where)})


def _placed(mistakes: Sequence[Mistake], root: TreeNode) -> list[Mistake]:
    """Add the place of each mistake's key."""
    placed = []
    for mistake in mistakes:
        here, there = (where(root, _path(key)) for key in (mistake.key, mistake.against))
        also = f"; {mistake.against} is from {there}" if mistake.against and there and there != here else ""
        placed.append(Mistake(mistake.key, f"{mistake.problem}{also}", mistake.way_out, here))
    return placed


def _path(key: str) -> tuple[str | int, ...]:
    parts = [quoted or bare for quoted, bare in _PARTS.findall(key)]
    return tuple(int(part) if part.isdigit() else part for part in parts)
