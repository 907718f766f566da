"""Given paths: a CSV that says which way connections take.

A header that names the columns ``src``, ``dst`` and ``node_path``, and perhaps ``id`` and ``hops``, in any order; then
a connection on each line. ``src`` and ``dst`` are hosts, or NICs where hosts have several; ``hops`` counts cables, and
``node_path`` lists the nodes from one to the other, such as ``0-128-160-131-12``, written as in a file of cables
(`fabricsim.topology.cable_file`). The first line of a pair is for its connection of port 0, the second for that of
port 1, and so on.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fabricsim.errors import TraceError
from fabricsim.scenario.network import Ends
from fabricsim.scenario.suggest import show
from fabricsim.topology.cable_file import node_name, rows

MOST_PATHS = 1_000_000
"""Paths of the largest file."""

_COLUMNS = ("id", "src", "dst", "hops", "node_path")
_NEEDED = ("src", "dst", "node_path")
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)


class GivenPath(NamedTuple):
    """The way of one connection between two hosts, or NICs where hosts have several."""

    line: int  # of the file
    source: int
    target: int
    nodes: tuple[str, ...]  # names, those of both ends included


def read(path: Path | str, hosts: int, nics_per_host: int = 1) -> list[GivenPath]:
    """Read given paths.

    `path`: CSV: plain text, gzip or xz, at most 256 MiB unpacked.
    `hosts`, `nics_per_host`: how many hosts the fabric has, and how many NICs each.
    Returns: in the order of the file. Whether their nodes exist and are joined only the fabric knows.
    Raises TraceError: with file and line, if it cannot be read or is no list of paths, an id is given twice, a path
        does not begin and end at its hosts, comes through a node twice, or has not as many hops as stated.
    """
    path = Path(path)
    found: list[GivenPath] = []
    ids: dict[int, int] = {}
    ends = Ends(hosts, nics_per_host)
    for line, row in rows(path, _COLUMNS, _NEEDED):
        if len(found) == MOST_PATHS:
            raise TraceError(path, f"more than {MOST_PATHS} paths; leave out what routing finds by itself", line)
        if "id" in row:
            number = _whole(path, line, "id", row["id"])
            if number in ids:
                raise TraceError(path, f"the id {number} is on line {ids[number]}, too; give each its own", line)
            ids[number] = line
        found.append(_path(path, line, row, ends))
    return found


def _path(path: Path, line: int, row: dict[str, str], ends: Ends) -> GivenPath:
    source, target = (_end(path, line, row, column, ends) for column in ("src", "dst"))
    nodes = tuple(node_name(path, line, node.strip(), ends) for node in row["node_path"].split("-"))
    for column, node, end in (("src", nodes[0], source), ("dst", nodes[-1], target)):
        if node != ends.name(end):
            verb = "begins" if column == "src" else "ends"
            what = f"node_path {show(row['node_path'])} {verb} at {node}, not at {column} {row[column]}"
            raise TraceError(path, f"{what}; mend one of the two", line)
    if source == target:
        raise TraceError(path, f"the path leads from {ends.kind} {source} to itself; name two {ends.kind}s", line)
    _refuse_loop(path, line, nodes)
    if "hops" in row and _whole(path, line, "hops", row["hops"]) != len(nodes) - 1:
        what = f"hops {row['hops']}, but node_path {show(row['node_path'])} has {len(nodes) - 1}"
        raise TraceError(path, f"{what}; mend one of the two", line)
    return GivenPath(line, source, target, nodes)


def _refuse_loop(path: Path, line: int, nodes: Sequence[str]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node in seen:
            raise TraceError(path, f"the path comes through {node} twice; take the loop out", line)
        seen.add(node)


def _end(path: Path, line: int, row: dict[str, str], column: str, ends: Ends) -> int:
    text = row[column]
    number = ends.number(node_name(path, line, text, ends))
    if number is None:
        what = f"{column} {show(text)} is no {ends.kind}: there are {ends.kind}s 0 to {ends.count - 1}"
        raise TraceError(path, f"{what}; mend it, or set cluster.hosts", line)
    return number


def _whole(path: Path, line: int, column: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise TraceError(path, f"{column} {show(text)} is no whole number from 0", line)
    return int(text)
