"""Cables of fabrics in other forms than CSV: GraphML, node-link JSON, ``.topo`` of htsim, ASTRA-sim and InfraGraph.

Each form gives rows as the CSV file has them, so that what is wrong with a cable is found and told in one place. Edges
of graphs have ``rate`` (``"100Gbps"``) or ``gbps``, and ``delay`` (``"500ns"``) or ``delay_ns``.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any
from xml.parsers import expat

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.text import read_lines
from fabricsim.scenario.network import Ends
from fabricsim.scenario.suggest import show
from fabricsim.units import DURATION, RATE, Dimension, parse

Rows = Iterator[tuple[int, dict[str, str]]]

MOST_EDGES = 1_000_000
"""Edges of the largest graph."""
MOST_YAML = 4 * 2**20
"""Characters of the largest YAML, which takes some seconds."""

_DEPTH = 16  # levels of YAML

_UNITS: tuple[tuple[str, str, Dimension, float], ...] = (
    ("gbps", "rate", RATE, 8 / 1e9),
    ("delay_ns", "delay", DURATION, 1e-3),
)


def form_of(path: Path) -> Callable[[Path, Ends], Rows] | None:
    """Return the reader of a file by its name; None of CSV."""
    forms = {".graphml": _graphml, ".json": _json, ".topo": _htsim, ".yml": _yaml, ".yaml": _yaml}
    return forms.get(path.suffix.lower())


def _row(path: Path, line: int, ends: tuple[object, object], edge: Mapping[str, object]) -> dict[str, str]:
    row = {"a": _node(path, line, ends[0]), "b": _node(path, line, ends[1])}
    for column, key, dimension, factor in _UNITS:
        if column in edge and key in edge:
            what = f"has {key} {show(str(edge[key]))} and {column} {show(str(edge[column]))}; take one out"
            raise TraceError(path, f"the edge {row['a']} - {row['b']} {what}", line)
        if column in edge:
            row[column] = f"{edge[column]}"
            continue
        try:
            row[column] = f"{float(parse(str(edge[key]), dimension)) * factor:.12f}"
        except (KeyError, ValueError) as error:
            what = f"is missing: give each edge {key} or {column}" if isinstance(error, KeyError) else str(error)
            raise TraceError(path, f"{key} of the edge {row['a']} - {row['b']}: {what}", line) from error
    return row


def _node(path: Path, line: int, name: object) -> str:
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise TraceError(path, f"{show(str(name))} is no node: write a number or a name", line)
    return str(name)


def _text(path: Path) -> str:
    return "\n".join(text for _, text in read_lines(path))


def _yaml(path: Path, ends: Ends) -> Rows:
    """Read a network of ASTRA-sim, or InfraGraph."""
    from fabricsim.files import yaml_text  # noqa: PLC0415  most fabrics need no YAML
    from fabricsim.topology import astrasim_file, infragraph_file  # noqa: PLC0415  as above

    text = _text(path)
    if len(text) > MOST_YAML:
        raise TraceError(path, f"is larger than {MOST_YAML // 2**20} MiB; write it as JSON")
    if astrasim_file.recognises(text):
        yield from astrasim_file.rows(path, ends)
    else:
        yield from infragraph_file.rows(path, yaml_text.read(path, text, _DEPTH), ends)


def _json(path: Path, ends: Ends) -> Rows:
    try:
        graph: Any = msgspec.json.decode(_text(path).encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(path, f"is no JSON: {error}") from error
    if isinstance(graph, dict) and graph.keys() & {"infrastructure", "instances"}:
        from fabricsim.topology import infragraph_file  # noqa: PLC0415  most fabrics are none

        yield from infragraph_file.rows(path, graph, ends)
    else:
        yield from _node_link(path, graph)


def _node_link(path: Path, graph: Any) -> Rows:  # noqa: ANN401  as decoded
    """Read what ``networkx.node_link_data`` gives; the number of an edge stands for its line."""
    edges = (graph.get("edges") or graph.get("links")) if isinstance(graph, dict) else None
    if not isinstance(edges, list) or len(edges) > MOST_EDGES:
        raise TraceError(
            path, f"needs a list of edges (or links), {MOST_EDGES} at most, as networkx.node_link_data writes"
        )
    for number, edge in enumerate(edges, 1):
        if not isinstance(edge, dict) or not {"source", "target"} <= edge.keys():
            raise TraceError(path, "an edge is a table with source and target; mend it", number)
        yield number, _row(path, number, (edge["source"], edge["target"]), edge)


class _Edges:
    """Takes elements of GraphML; entities and document types are refused, so that nothing grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.found = path, list[tuple[int, dict[str, str]]]()
        self._keys: dict[str, str] = {}
        self._edge: dict[str, str] | None = None
        self._ends, self._key = ("", ""), ""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.CharacterDataHandler, self.parser.StartDoctypeDeclHandler = self._data, self._refuse

    def _refuse(self, *_: object) -> None:
        raise TraceError(self.path, "has a document type, which GraphML does not need; take it out")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "key":
            self._keys[attributes.get("id", "")] = attributes.get("attr.name", "")
        elif name == "edge":
            self._edge, self._ends = {}, (attributes.get("source", ""), attributes.get("target", ""))
        elif name == "data":
            self._key = self._keys.get(attributes.get("key", ""), "")

    def _data(self, text: str) -> None:
        if self._edge is not None and self._key and len(text) < 100:  # noqa: PLR2004  no quantity is longer
            self._edge[self._key] = self._edge.get(self._key, "") + text.strip()

    def _end(self, name: str) -> None:
        if name == "data":
            self._key = ""
        elif name == "edge" and self._edge is not None:
            line = self.parser.CurrentLineNumber
            if len(self.found) == MOST_EDGES:
                raise TraceError(self.path, f"more than {MOST_EDGES} edges; describe a smaller fabric", line)
            self.found.append((line, _row(self.path, line, self._ends, self._edge)))
            self._edge = None


def _graphml(path: Path, _: Ends) -> Rows:
    edges = _Edges(path)
    try:
        edges.parser.Parse(_text(path), True)  # noqa: FBT003  expat takes it by place
    except expat.ExpatError as error:
        raise TraceError(path, f"is no XML: {error}") from error
    if not edges.found:
        raise TraceError(path, "has no edges; write it as networkx.write_graphml does")
    yield from edges.found


_TOPO_KEYS = ("downlink_speed_gbps", "downlink_latency_ns", "radix_down")


def _htsim(path: Path, _: Ends) -> Rows:
    """Lay out the fat tree of two or three tiers that a ``.topo`` file of htsim describes (csg-htsim, uet-htsim)."""
    whole, tiers = _topo_keys(path)
    hosts, pod = whole.get("nodes", 0), whole.get("podsize", whole.get("nodes", 0))
    if whole.get("tiers") != len(tiers) or len(tiers) not in {2, 3}:
        raise TraceError(path, "needs Tiers 2 or 3, and a section Tier 0, Tier 1 (and Tier 2)")
    for number, tier in enumerate(tiers):
        lacking = [
            key for key in (*_TOPO_KEYS, *(("radix_up",) if number + 1 < len(tiers) else ())) if not tier.get(key)
        ]
        if lacking:
            raise TraceError(path, f"Tier {number} lacks {', '.join(lacking)}")
    down, up, bundle = tiers[0]["radix_down"], tiers[0]["radix_up"], tiers[1].get("bundle", 1)
    pod = pod if len(tiers) == 3 else hosts  # noqa: PLR2004  tiers
    if not (0 < hosts <= MOST_EDGES and hosts % pod == 0 and pod % down == 0 and up % bundle == 0):
        raise TraceError(path, f"Nodes {hosts}, Podsize {pod}, Radix_Down {down} and Radix_Up {up} do not divide")
    edges, spines, pods = pod // down, up // bundle, hosts // pod
    cores = tiers[1]["radix_up"] // tiers[2].get("bundle", 1) if len(tiers) == 3 else 0  # noqa: PLR2004  tiers
    if pods * spines * (edges + cores) + hosts > MOST_EDGES:
        raise TraceError(path, f"more than {MOST_EDGES} cables; describe a smaller fabric")

    def cable(a: str, b: str, tier: int, times: int = 1) -> tuple[int, dict[str, str]]:
        rate, delay = (tiers[tier][key] for key in _TOPO_KEYS[:2])
        return 1, {"a": a, "b": b, "gbps": str(rate * times), "delay_ns": str(delay)}

    yield from (cable(f"host{host}", f"edge{host // down}", 0) for host in range(hosts))
    above = "aggregation" if cores else "core"
    for number, i, j in product(range(pods), range(edges), range(spines)):
        yield cable(f"edge{number * edges + i}", f"{above}{number * spines + j}", 1, bundle)
    for number, i, j in product(range(pods), range(spines), range(cores)):
        yield cable(f"aggregation{number * spines + i}", f"core{i * cores + j}", 2, tiers[2].get("bundle", 1))


def _topo_keys(path: Path) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Read its keys: those of the whole, and those of each tier."""
    whole: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    for line, text in read_lines(path):
        words = text.split("#")[0].lower().split()
        if not words:
            continue
        if len(words) != 2 or not (words[1].isascii() and words[1].isdigit()) or len(words[1]) > 9:  # noqa: PLR2004
            raise TraceError(path, f"{show(text.strip())} is no key with a whole number, such as Nodes 128", line)
        if words[0] == "tier":
            if int(words[1]) != len(tiers):
                raise TraceError(path, f"Tier {words[1]} is out of order: tiers follow from 0", line)
            tiers.append({})
        else:
            (tiers[-1] if tiers else whole)[words[0]] = int(words[1])
    return whole, tiers
