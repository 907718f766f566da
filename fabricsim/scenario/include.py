"""Includes and overrides: how a scenario is put together from files, library and command line.

A library name stands for a table: ``transport = "rdma-100g"`` means
``transport = { include = "rdma-100g" }``. A name that ends in ``.toml`` is that of a file of the user, such as one that
``fabricsim calibrate`` wrote. Keys beside ``include`` override those of the library file.
Later layers (the file over what it extends, ``--set`` over the file) are laid over earlier ones
*before* names are looked up, so that a later name replaces the library file and the keys that were
written beside the earlier name stay. A table that was written in full is replaced by a name.
"""

import functools
import re
import tomllib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from fabricsim import extensions
from fabricsim.errors import InputError, Mistake
from fabricsim.extensions import Registry
from fabricsim.scenario import library
from fabricsim.scenario.balancing import RULES
from fabricsim.scenario.certainty import graded
from fabricsim.scenario.collectives import ALGORITHMS
from fabricsim.scenario.congestion import LAWS
from fabricsim.scenario.fabric import TOPOLOGIES, given_up
from fabricsim.scenario.schedule import SCHEDULES
from fabricsim.scenario.source import parse, read_text
from fabricsim.scenario.suggest import did_you_mean, show
from fabricsim.scenario.toml_text import SET, Setting
from fabricsim.scenario.tree import TreeNode, build

TablePath = tuple[str, ...]

INCLUDABLE: dict[TablePath, str] = {
    ("cluster",): "clusters",
    ("cluster", "gpu"): "gpus",
    ("cluster", "nic"): "nics",
    ("cluster", "ethernet_nic"): "nics",
    ("cluster", "cpu"): "cpus",
    ("fabric",): "fabrics",
    ("fabric", "switch"): "switches",
    ("transport",): "transports",
    ("transport", "switch"): "switches",
    ("job", "model"): "models",
    ("collectives",): "collectives",
}
"""Tables that a library name may stand for, and the kind of the library."""

EXTENSIBLE: dict[TablePath, Registry[Any]] = {
    ("fabric", "topology"): TOPOLOGIES,
    ("job", "schedule"): SCHEDULES,
    ("collectives", "algorithm"): ALGORITHMS,
    ("transport", "congestion_control", "law"): LAWS,
    ("transport", "load_balancing", "kind"): RULES,
}
"""Keys that may name a Python file, by themselves or as tables of names, and what the file then declares."""


@dataclass(frozen=True)
class _Choice:
    """Keys that decide what else a table may hold.

    `keys`: one key, which chooses by its value, or several, which choose by which of them is there.
    `dependents`: keys that are given up with a choice; None: the whole table.
    """

    keys: tuple[str, ...]
    dependents: AbstractSet[str] | None = None

    def made(self, table: TreeNode) -> list[object]:
        """Return the choices that a table makes."""
        there = [(key, table.value[key].value) for key in self.keys if key in table.value]
        return (
            [value for _, value in there] if len(self.keys) == 1 else [key for key, value in there if value != "none"]
        )

    def without_other(self, below: TreeNode, above: TreeNode) -> TreeNode:
        """Take out of `below` what goes with a choice that `above` replaces."""
        made, earlier = self.made(above), self.made(below)
        if not made or not earlier or made == earlier:
            return below
        gone = set(below.value if self.dependents is None else self.dependents)
        return below.without(gone)


_BUFFER = _Choice(("per_port", "shared"))
_FLOW_CONTROL = _Choice(("pfc", "credits"), {"pfc", "credits", "buffer"})
_CHOICES: dict[TablePath, _Choice] = {
    ("transport", "congestion_control"): _Choice(("law",)),
    ("transport", "load_balancing"): _Choice(("kind",)),
    ("transport", "packet"): _Choice(("recovery",), {"reordering", "nack_interval"}),
    **{(table, "switch"): _FLOW_CONTROL for table in ("fabric", "transport")},
    **{(table, "switch", "buffer"): _BUFFER for table in ("fabric", "transport")},
    **{(table, "switch", "scheduler"): _Choice(("kind",)) for table in ("fabric", "transport")},
}
"""A choice laid over another one gives up what went with that: a law its parameters, PFC the credits."""

_FILE = ".toml"
_KEYS = re.compile(r"[\w*?#>/,-]+(\.[\w*?#>/,-]+)*", re.ASCII)  # patterns and ranges are keys, too


def alike(path: TablePath) -> TablePath:
    """Give the path of the table that one of several of its kind is like: of ``jobs.red.model`` it is ``job.model``."""
    if path[:1] == ("jobs",) and len(path) > 1:
        return ("job", *path[2:])
    if path[:2] == ("cluster", "kinds") and path[2:]:
        return path[3:] if path[3:4] == ("transport",) else ("cluster", *path[3:])
    return path


def names_to_includes(node: TreeNode, path: TablePath = ()) -> TreeNode:
    """Write every library name as a table with ``include``, so that layers merge alike."""
    if alike(path) in INCLUDABLE and isinstance(node.value, str):
        return TreeNode({"include": node}, node.where)
    if node.is_table:
        return TreeNode({key: names_to_includes(item, (*path, key)) for key, item in node.value.items()}, node.where)
    return node


def is_file_name(name: object) -> bool:
    """Whether what stands for a table names a file, not a preset of the library."""
    return isinstance(name, str) and name.endswith(_FILE)


def anchored(node: TreeNode, folder: Path, path: TablePath = ()) -> TreeNode:
    """Take the files that stand for tables, and Python files, as lying in a folder.

    `node`: what a file in that folder says.
    `folder`: where it lies.
    `path`: of `node` in the scenario.
    """
    named = alike(path) in INCLUDABLE and is_file_name(node.value)
    if named or (_registry(path) and extensions.is_file(node.value)):
        return TreeNode(str(folder / str(node.value)), node.where)
    if not node.is_table:
        return node
    inner = {key: anchored(item, folder, (*path, key)) for key, item in node.value.items()}
    name = inner.get("include")
    if alike(path) in INCLUDABLE and name is not None and is_file_name(name.value):
        inner["include"] = TreeNode(str(folder / str(name.value)), name.where)
    return TreeNode(inner, node.where)


def extended(node: TreeNode, path: TablePath = ()) -> TreeNode:
    """Run the Python files that settings name, and return the settings; only for what users have written themselves.

    Raises InputError if a file cannot be run, or declares nothing of its kind.
    """
    for key, registry, name in _extensible(node, path):
        if extensions.is_file(name.value):
            try:
                extensions.run(name.value)
                registry.find(name.value)
            except InputError as error:
                raise InputError(f"{name.where}: {'.'.join(key)}: {error}") from error
    return node


def digests(root: TreeNode) -> dict[str, str]:
    """Return the SHA-256 of each extension that a scenario names, by its name."""
    found = {name.value: registry.digest(str(name.value)) for _, registry, name in _extensible(root)}
    return {name: digest for name, digest in found.items() if digest is not None}


def _extensible(node: TreeNode, path: TablePath = ()) -> Iterator[tuple[TablePath, Registry[Any], TreeNode]]:
    if node.is_table:
        for key, item in node.value.items():
            yield from _extensible(item, (*path, key))
    elif (registry := _registry(path)) is not None:
        yield path, registry, node


def _registry(path: TablePath) -> Registry[Any] | None:
    path = alike(path)
    return EXTENSIBLE.get(path) or EXTENSIBLE.get(path[:-1])


def overlay(below: TreeNode, above: TreeNode, path: TablePath = ()) -> TreeNode:
    """Lay one tree over another: tables merge key by key, anything else is replaced.

    If a table in `above` names a library file, keys that stand beside another name in `below`
    stay; a table that was written in full is replaced. If a key chooses what else a table may hold, as
    ``law`` does, another choice drops what went with the one below.

    `below`, `above`: with library names written as ``include``.
    `path`: of both in the scenario.
    """
    if not (below.is_table and above.is_table):
        return above
    if alike(path) in INCLUDABLE and "include" in above.value and "include" not in below.value:
        return above
    if path == ("fabric",) and "topology" in above.value:
        below = _without_shape(below, above.value["topology"].value)
    if path in _CHOICES:
        below = _CHOICES[path].without_other(below, above)
    merged = dict(below.value)
    for key, node in above.value.items():
        merged[key] = overlay(merged[key], node, (*path, key)) if key in merged else node
    return TreeNode(merged, above.where)


def _without_shape(below: TreeNode, topology: object) -> TreeNode:
    """Give up the keys of a fabric's shape: a topology that is written describes it anew, also the same one."""
    if not {"topology", "include"} & below.value.keys():
        return below
    routing = below.value.get("routing")
    return below.without(given_up(str(topology), None if routing is None else routing.value))


def is_key(text: str) -> bool:
    """Whether a dotted key has the form of those of scenarios."""
    return _KEYS.fullmatch(text) is not None


def override(text: str) -> TreeNode:
    """Read one ``--set`` such as ``"cluster.hosts=4"``, or a `Setting`, which says where its mistakes are said to be.

    Returns: the override as a tree of tables. The value is read as TOML; what is no TOML value, such as ``tcp-10g`` or
        ``25MB``, is taken as text.
    Raises InputError if there is no equals sign or no dotted key before it.
    """
    place = text.place if isinstance(text, Setting) else SET
    key, equals, value = text.partition("=")
    if not equals or not is_key(key.strip()):
        raise InputError(f"{place} {str(text)!r} is not of the form table.key=value, such as cluster.hosts=4")
    if key.strip() == "extends":
        msg = f"{place} {str(text)!r}: what a scenario extends is written in its file; load that scenario instead"
        raise InputError(msg)
    node = build(_value(value.strip()), place)
    for part in reversed(key.strip().split(".")):
        node = TreeNode({part: node}, place)
    return extended(names_to_includes(node))


def _value(text: str) -> object:
    try:
        tables = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    value = tables["value"]
    if len(tables) > 1 or isinstance(value, date | datetime | time):
        return text
    return value


@dataclass
class Includer:
    """Resolves library names and notes what is wrong with them.

    `mistakes`: of names, in the order in which they were met.
    `broken`: tables whose library file was not found: what they lack is not worth a message each. The empty path stands
        for the whole scenario.
    `files`: those of the user that were read.
    `trusted`: whether what includes was written by the user, so that Python files that are named are run.
    """

    trusted: bool = True
    mistakes: list[Mistake] = field(default_factory=list)
    broken: set[TablePath] = field(default_factory=set)
    files: list[Path] = field(default_factory=list)

    def resolve(self, node: TreeNode, path: TablePath = ()) -> TreeNode:
        """Replace every ``include`` in a tree by the library file it names."""
        if not node.is_table:
            return node
        if alike(path) in INCLUDABLE:
            node = self._included(node, path)
        return TreeNode({key: self.resolve(item, (*path, key)) for key, item in node.value.items()}, node.where)

    def _included(self, node: TreeNode, path: TablePath) -> TreeNode:
        met: list[str] = []
        while "include" in node.value:
            name = node.value["include"]
            beside = node.without({"include"})
            problem = self._problem(name.value, INCLUDABLE[alike(path)], met)
            if problem is not None:
                self.mistakes.append(Mistake(".".join(path), *problem, name.where))
                self.broken.add(path)
                return beside
            met.append(name.value)
            try:
                table = _library_table(path, name.value)
                if self.trusted:
                    extended(table, path)
            except InputError as error:  # of a user's file; those of the library can be read
                self.mistakes.append(Mistake(".".join(path), str(error), "", name.where))
                self.broken.add(path)
                return beside
            self.files += [Path(name.value)] if is_file_name(name.value) else []
            node = overlay(table, beside, path)
        return node

    @staticmethod
    def _problem(name: object, kind: str, met: list[str]) -> tuple[str, str] | None:
        if not isinstance(name, str):
            return f"include = {show(name)} is no name", f'write it like "{library.names(kind)[0]}"'
        if name in met:
            return f"the library files include each other: {' -> '.join([*met, name])}", "take one include out"
        if is_file_name(name):
            return None
        if name not in library.names(kind):
            known = ", ".join(library.names(kind))
            return f"there is no {name!r} in workloads/{kind}", did_you_mean(name, library.names(kind), f"use {known}")
        return None


def _library_table(path: TablePath, name: str) -> TreeNode:
    if is_file_name(name):
        table = anchored(parse(read_text(Path(name), name), name), Path(name).parent, path)
        return names_to_includes(graded(table), path)
    return _shipped_table(library.path(INCLUDABLE[alike(path)], name), alike(path))


@functools.cache
def _shipped_table(file: Path, path: TablePath) -> TreeNode:
    label = f"workloads/{file.parent.name}/{file.name}"
    return names_to_includes(graded(parse(read_text(file, label), label)), path)
