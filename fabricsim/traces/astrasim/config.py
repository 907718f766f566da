"""Configurations of ASTRA-sim 2: the network of its analytical back end (YAML), and its system layer (JSON).

Keys after ``NetworkParser.cpp`` of github.com/astra-sim/astra-network-analytical and ``Sys::initialize_sys`` in
``astra-sim/system/Sys.cc`` of github.com/astra-sim/astra-sim.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, cast, get_args

import msgspec
import yaml

from fabricsim.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

Shape = Literal["Ring", "FullyConnected", "Switch"]
"""How the NPUs of one dimension are joined."""

SHAPES: tuple[Shape, ...] = get_args(Shape)
MOST_BYTES = 64 * 2**10
"""Bytes of the largest configuration."""
MOST_NPUS = 65_536
"""NPUs of the largest network."""

IMPLEMENTATIONS = {
    "all-reduce-implementation": "all_reduce",
    "reduce-scatter-implementation": "reduce_scatter",
    "all-gather-implementation": "all_gather",
    "all-to-all-implementation": "all_to_all",
}
"""Collectives by the keys that give their algorithm for each dimension."""
CUSTOM = {f"{key}-custom": collective for key, collective in IMPLEMENTATIONS.items()}
"""Collectives by the keys that name Chakra files of their algorithm (``CollectiveImplLookup.cc``)."""

_DIMENSIONS = 8
_DEPTH = 6
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{0,12})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_SIMAI = re.compile(r"^(?:(?:TP|DP|EP|PP):\s|Size,1 Node)", re.MULTILINE)  # busbw.yaml, and tables of ratios
_HEAD = re.compile(rb"^(?:topology|npus_count)[ \t]*:", re.MULTILINE)
_ALGORITHM = re.compile(r"[A-Za-z]{1,32}\d{0,5}", re.ASCII)
_MOST_GB, _MOST_NS = 900_000.0, 1e9  # PB/s and s: beyond them is no network


class NetworkDimension(NamedTuple):
    """One dimension of a network.

    `shape`: how its NPUs are joined.
    `npus`: how many, at least 2.
    `bandwidth`: of each link and direction, in GB/s of 2^30 bytes, as written.
    `latency`: of each link, ns, as written.
    """

    shape: Shape
    npus: int
    bandwidth: str
    latency: str


@dataclass(frozen=True)
class System:
    """What a system configuration says.

    `path`: the file.
    `algorithms`: for each collective that it names, the algorithm of each dimension.
    `custom`: for some collectives the beginning of the names of Chakra files, which end in ``.<rank>.et``; these go
        before.
    `others`: other keys, as written and shortened.
    """

    path: Path
    algorithms: dict[str, tuple[str, ...]]
    custom: dict[str, str]
    others: dict[str, str]


def recognises(name: str, head: bytes) -> bool:
    """Whether a file is a network configuration."""
    return name.endswith((".yml", ".yaml")) and len(set(_HEAD.findall(head))) > 1


def read_network(path: Path | str) -> tuple[NetworkDimension, ...]:
    """Read the network of an analytical back end.

    `path`: YAML of at most `MOST_BYTES`: lists ``topology``, ``npus_count``, ``bandwidth`` and ``latency``.
    Returns: at least one; the first is that of neighbouring NPUs.
    Raises TraceError if it cannot be read, is not such a file, or a value cannot be used.
    """
    path = Path(path)
    text = _text(path)
    if _SIMAI.search(text):
        msg = "gives bus bandwidths that SimAI puts into a formula, and no links; describe the fabric by its links"
        raise TraceError(path, msg)
    lists = _lists(path, text)
    if absent := [key for key in _KEYS if key not in lists]:
        raise TraceError(path, f"has no list {absent[0]}; a network of ASTRA-sim has {', '.join(_KEYS)}")
    counts = {key: len(lists[key]) for key in _KEYS}
    if len(set(counts.values())) > 1 or not 1 <= counts["topology"] <= _DIMENSIONS:
        shown = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise TraceError(path, f"has lists of {shown} values; each has one per dimension, 1 to {_DIMENSIONS}")
    dimensions = tuple(_dimension(path, *row) for row in zip(*(lists[key] for key in _KEYS), strict=True))
    if (npus := prod(dimension.npus for dimension in dimensions)) > MOST_NPUS:
        raise TraceError(path, f"has {npus} NPUs; at most {MOST_NPUS} can be converted, so shrink npus_count")
    return dimensions


def read_system(path: Path | str) -> System:
    """Read a system configuration.

    `path`: JSON of at most `MOST_BYTES`.
    Raises TraceError if it cannot be read, is no object, or an algorithm is no list of names, or of one beginning of
        files.
    """
    path = Path(path)
    try:
        decoded = msgspec.json.decode(_text(path), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise TraceError(
            path, f"is no system configuration: {error}; give the JSON file of the system layer"
        ) from error
    algorithms: dict[str, tuple[str, ...]] = {}
    custom: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, value in decoded.items():
        if key in IMPLEMENTATIONS:
            algorithms[IMPLEMENTATIONS[key]] = _algorithms(path, key, value)
        elif key in CUSTOM:
            custom[CUSTOM[key]] = _files(path, key, value)
        else:
            others[ascii(key)[1:-1][:60]] = ascii(value)[:60]
    return System(path, algorithms, custom, others)


def _text(path: Path) -> str:
    if not path.is_file():
        raise TraceError(path, "no such file; check the path")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise TraceError(path, f"is larger than {MOST_BYTES // 2**10} KiB; no configuration of ASTRA-sim is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(path, "is no text in UTF-8; give a configuration of ASTRA-sim") from error


def _lists(path: Path, text: str) -> dict[str, list[str]]:
    """Read a mapping from names to lists of words; what nests deeper is left aside.

    Taken from the parser's events, so that aliases, tags and depth build nothing.
    """
    lists: dict[str, list[str]] = {}
    depth, key = 0, ""
    try:
        for event in _events(text):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                line = event.start_mark.line + 1
                raise TraceError(path, "has anchors or aliases, which no configuration of ASTRA-sim needs", line)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _DEPTH:  # stops before the scanner's time grows with the square of the depth
                    raise TraceError(path, "nests too deep for a configuration of ASTRA-sim", event.start_mark.line + 1)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
                key = "" if depth == 1 else key
            elif isinstance(event, yaml.ScalarEvent) and depth == 1 and not key:
                key = event.value
                if key in lists:
                    raise TraceError(path, f"has {ascii(key)[:60]} twice", event.start_mark.line + 1)
                lists[key] = []
            elif isinstance(event, yaml.ScalarEvent) and key:
                lists[key].append(event.value)
                key = "" if depth == 1 else key
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise TraceError(path, f"is no YAML: {problem}", mark.line + 1 if mark else None) from error
    return lists


def _events(text: str) -> Iterator[yaml.Event]:
    return cast("Iterator[yaml.Event]", yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _dimension(path: Path, shape: str, npus: str, bandwidth: str, latency: str) -> NetworkDimension:
    if shape not in SHAPES:
        _refuse(path, "topology", shape, f"it is one of {', '.join(SHAPES)}")
    if not _COUNT.fullmatch(npus) or int(npus) < 2:  # noqa: PLR2004  as the parser of ASTRA-sim demands
        _refuse(path, "npus_count", npus, "it is a whole number of at least 2")
    if not _NUMBER.fullmatch(bandwidth) or not 0.001 <= float(bandwidth) <= _MOST_GB:  # noqa: PLR2004  1 Mbit/s
        _refuse(path, "bandwidth", bandwidth, f"it is a number of GB/s from 0.001 to {_MOST_GB:g}")
    if not _NUMBER.fullmatch(latency) or float(latency) > _MOST_NS:
        _refuse(path, "latency", latency, f"it is a number of ns up to {_MOST_NS:g}")
    return NetworkDimension(shape, int(npus), bandwidth, latency)


def _refuse(path: Path, key: str, value: str, way_out: str) -> NoReturn:
    raise TraceError(path, f"{key} is {ascii(value)[:60]}; {way_out}")


def _algorithms(path: Path, key: str, value: object) -> tuple[str, ...]:
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(names) != len(value) or not 1 <= len(names) <= _DIMENSIONS:
        _refuse(path, key, str(value)[:100], "it is a list of names, one per dimension")
    for name in names:
        if not _ALGORITHM.fullmatch(name):
            _refuse(path, key, name, "an algorithm is a word such as ring, direct or halvingDoubling")
    return tuple(names)


def _files(path: Path, key: str, value: object) -> str:
    """Read the one beginning of file names that ASTRA-sim takes for all dimensions."""
    match value:
        case [str() as name] if name and name.isprintable():
            return name
    _refuse(path, key, str(value)[:100], "it is a list of one name, that of Chakra files without .<rank>.et")
