"""Networks of ASTRA-sim 2, the YAML of its analytical back end, as cables.

Keys after ``NetworkParser.cpp`` of github.com/astra-sim/astra-network-analytical. Each NPU has a router with its links
in all dimensions; NPUs that only a switch joins have one cable to that.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from fabricsim.errors import InputError, TraceError
from fabricsim.files import yaml_text
from fabricsim.scenario.network import Ends

Shape = Literal["Ring", "FullyConnected", "Switch"]
"""How the NPUs of one dimension are joined."""

SHAPES: tuple[Shape, ...] = get_args(Shape)
MOST_BYTES = 64 * 2**10
"""Bytes of the largest configuration."""
MOST_NPUS = 65_536
"""NPUs of the largest network."""
MOST_CABLES = 250_000
"""Cables of the largest network that is written."""

MOST_DIMENSIONS = 8

_DEPTH = 6
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{0,12})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_HEAD = re.compile(r"^(?:topology|npus_count|bandwidth|latency)[ \t]*:", re.MULTILINE)
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_SIMAI = re.compile(r"^(?:(?:TP|DP|EP|PP):\s|Size,1 Node)", re.MULTILINE)  # busbw.yaml, and tables of ratios
_MOST_GB, _MOST_NS = 900_000.0, 1e9  # PB/s and s: beyond them is no network
_BYTES_PER_GB = 2**30  # NetworkFunction.cc: "1 GB is 2^30 B"


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


class CableRow(NamedTuple):
    """A line of a file of cables: ends, Gbit/s and ns."""

    a: str
    b: str
    gbps: str
    delay: str


def recognises(text: str) -> bool:
    """Whether YAML is a network configuration."""
    return len(set(_HEAD.findall(text))) > 1


def read_network(path: Path | str) -> tuple[NetworkDimension, ...]:
    """Read the network of an analytical back end.

    `path`: YAML of at most `MOST_BYTES`: lists ``topology``, ``npus_count``, ``bandwidth`` and ``latency``.
    Returns: at least one; the first is that of neighbouring NPUs.
    Raises TraceError if it cannot be read, is not such a file, or a value cannot be used.
    """
    path = Path(path)
    text = read_text(path)
    if _SIMAI.search(text):
        msg = "gives bus bandwidths that SimAI puts into a formula, and no links; describe the fabric by its links"
        raise TraceError(path, msg)
    lists = _lists(path, text)
    if absent := [key for key in _KEYS if key not in lists]:
        raise TraceError(path, f"has no list {absent[0]}; a network of ASTRA-sim has {', '.join(_KEYS)}")
    counts = {key: len(lists[key]) for key in _KEYS}
    if len(set(counts.values())) > 1 or not 1 <= counts["topology"] <= MOST_DIMENSIONS:
        shown = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise TraceError(path, f"has lists of {shown} values; each has one per dimension, 1 to {MOST_DIMENSIONS}")
    dimensions = tuple(_dimension(path, *row) for row in zip(*(lists[key] for key in _KEYS), strict=True))
    if (npus := prod(dimension.npus for dimension in dimensions)) > MOST_NPUS:
        raise TraceError(path, f"has {npus} NPUs; at most {MOST_NPUS} can be converted, so shrink npus_count")
    return dimensions


def read_text(path: Path) -> str:
    """Read a configuration whole; raises TraceError if that cannot be, or it has more than `MOST_BYTES`."""
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
    """Read a mapping from names to lists of words; what nests deeper is left aside."""
    whole = yaml_text.read(path, text, _DEPTH)
    found = (
        {key: [value] if isinstance(value, str) else value for key, value in whole.items()}
        if isinstance(whole, dict)
        else {}
    )
    return {key: [word for word in words if isinstance(word, str)] for key, words in found.items()}


def _dimension(path: Path, shape: str, npus: str, bandwidth: str, latency: str) -> NetworkDimension:
    if shape not in SHAPES:
        raise refused(path, "topology", shape, f"it is one of {', '.join(SHAPES)}")
    if not _COUNT.fullmatch(npus) or int(npus) < 2:  # noqa: PLR2004  as the parser of ASTRA-sim demands
        raise refused(path, "npus_count", npus, "it is a whole number of at least 2")
    if not _NUMBER.fullmatch(bandwidth) or not 0.001 <= float(bandwidth) <= _MOST_GB:  # noqa: PLR2004  1 Mbit/s
        raise refused(path, "bandwidth", bandwidth, f"it is a number of GB/s from 0.001 to {_MOST_GB:g}")
    if not _NUMBER.fullmatch(latency) or float(latency) > _MOST_NS:
        raise refused(path, "latency", latency, f"it is a number of ns up to {_MOST_NS:g}")
    return NetworkDimension(shape, int(npus), bandwidth, latency)


def refused(path: Path, key: str, value: str, way_out: str) -> TraceError:
    """Make the error of a key's value."""
    return TraceError(path, f"{key} is {ascii(value)[:60]}; {way_out}")


def rows(path: Path, ends: Ends) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the cables of a network as lines of a CSV file, the NPUs being hosts.

    If hosts have several NICs, the first dimension is inside of them, and each NIC has a network of the others' shape.
    Raises as `read_network` does, or if the cluster is not of that size.
    """
    dimensions = read_network(path)
    counts = [dimension.npus for dimension in dimensions]
    several = ends.nics_per_host > 1
    if prod(counts) != ends.count or (several and (counts[0] != ends.nics_per_host or len(counts) == 1)):
        shape = " x ".join(map(str, counts))
        msg = f"has {shape} NPUs, the cluster {ends.hosts} hosts of {ends.nics_per_host} NICs"
        way_out = f"set cluster.hosts = {prod(counts)} with one NIC each"
        if len(counts) > 1:
            way_out += f", or cluster.hosts = {prod(counts[1:])} and cluster.nics_per_host = {counts[0]}"
        raise TraceError(path, f"{msg}; {way_out}")
    for rail in range(ends.nics_per_host):
        names = [ends.name(host * ends.nics_per_host + rail) for host in range(ends.hosts)]
        prefix = f"rail{rail}" if several else ""
        for cable in cables_of(names, dimensions[several:], prefix):
            yield 1, {"a": cable.a, "b": cable.b, "gbps": cable.gbps, "delay_ns": cable.delay}


def cables_of(ends: Sequence[str], dimensions: Sequence[NetworkDimension], prefix: str) -> Iterator[CableRow]:
    """Yield the cables of a network: an end, its router, and the router's links in each dimension."""
    if len(dimensions) == 1 and dimensions[0].shape == "Switch":
        rate, delay = _gbps(float(dimensions[0].bandwidth)), plain(float(dimensions[0].latency))
        yield from (CableRow(end, f"{prefix}switch", rate, delay) for end in ends)
        return
    count = len(ends) + sum(_links(dimension) * len(ends) // dimension.npus for dimension in dimensions)
    if count > MOST_CABLES:
        raise InputError(f"the network has {count} links, at most {MOST_CABLES} can be written; shrink npus_count")
    total = sum(float(dimension.bandwidth) * _degree(dimension) for dimension in dimensions)
    for number, end in enumerate(ends):
        yield CableRow(end, f"{prefix}npu{number}", _gbps(total), "0")
    stride = 1
    for place, dimension in enumerate(dimensions):
        for first in range(len(ends)):
            if first // stride % dimension.npus == 0:
                members = [f"{prefix}npu{first + member * stride}" for member in range(dimension.npus)]
                yield from _joined(members, dimension, f"{prefix}dim{place}switch{first}")
        stride *= dimension.npus


def _joined(members: Sequence[str], dimension: NetworkDimension, switch: str) -> Iterator[CableRow]:
    match dimension.shape:
        case "Switch":
            pairs = [(member, switch) for member in members]
        case "FullyConnected":
            pairs = list(combinations(members, 2))
        case "Ring":
            pairs = list(zip(members, [*members[1:], members[0]], strict=True))[: _links(dimension)]
    rate, delay = _gbps(float(dimension.bandwidth)), plain(float(dimension.latency))
    for one, other in pairs:
        yield CableRow(one, other, rate, delay)


def _links(dimension: NetworkDimension) -> int:
    """Count the links of one group of NPUs."""
    n = dimension.npus
    ring = 1 if n == 2 else n  # noqa: PLR2004  both neighbours are the same
    return {"Switch": n, "FullyConnected": n * (n - 1) // 2, "Ring": ring}[dimension.shape]


def _degree(dimension: NetworkDimension) -> int:
    n = dimension.npus
    return {"Switch": 1, "FullyConnected": n - 1, "Ring": min(n - 1, 2)}[dimension.shape]


def _gbps(bandwidth: float) -> str:
    return plain(bandwidth * _BYTES_PER_GB * 8 / 1e9)


def plain(value: float) -> str:
    """Write a number without exponent."""
    return f"{value:.9f}".rstrip("0").rstrip(".")
