"""Reads algorithms that are given as Chakra files, one per rank, as ASTRA-sim takes them.

A file holds the nodes of one rank: sends, receives, and computations that reduce what was received, each with those
that it waits for. Form: what ``chakra_converter`` of github.com/astra-sim/collectiveapi writes, and
``CustomAlgorithm.cc`` of github.com/astra-sim/astra-sim (astra-sim/system/astraccl/custom_collectives) runs: ranks are
places in the group, a send finds the receive of the same tag, and files are named ``<name>.<rank>.et``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn
from xml.parsers import expat

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source, sources
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.chakra.own import PREFIX, Attributes, by_name
from fabricsim.traces.chakra.schema import (
    COMM_RECV,
    COMM_SEND,
    COMP,
    ChakraNode,
    Metadata,
    WireError,
    decode_metadata,
    decode_node,
    messages,
)
from fabricsim.units import PS_PER_US

MOST_NODES = 2**18
"""Nodes of all ranks together."""
MOST_WAITS = 2**20
"""Dependencies of all nodes together."""

_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""By the names that the converter writes into the attribute ``collective``."""
_DURATION = f"{PREFIX}duration_ps"
_WANTED = frozenset(name.encode() for name in ("comm_src", "comm_dst", "comm_size", "comm_tag", _DURATION))
"""Names of the attributes of nodes that are read."""
_MOST_BYTES, _MOST_RANK, _MOST_TAG = 2**50, 10**6, 2**63 - 1


class ChakraWork(NamedTuple):
    """A node.

    `id`: as in the file.
    `kind`: ``COMM_SEND``, ``COMM_RECV`` or ``COMP`` of the schema.
    `before`: places in the file of the nodes that it waits for.
    `peer`, `tag`, `bytes`: of a message: the other rank, what tells it from others of the pair, and its bytes.
    `duration`: of a computation, ps.
    """

    id: int
    kind: int
    before: tuple[int, ...]
    peer: int = NONE
    tag: int = 0
    bytes: int = 0
    duration: int = 0


@dataclass(frozen=True)
class RankFile:
    """The file of one rank.

    `path`: for messages.
    `works`: its nodes in their order.
    `collective`: what it is for; empty if it does not say.
    `size`: bytes of the collective that it was written for; 0 if it does not say.
    """

    path: str
    works: tuple[ChakraWork, ...]
    collective: str
    size: int

    def refuse(self, place: int, problem: str) -> NoReturn:
        """Raise the error that names file and node."""
        raise TraceError(self.path, f"node {self.works[place].id} {problem}")


def file_of(pattern: str, rank: int) -> str:
    """Name the file of a rank: ``name.*.et`` stands for ``name.0.et`` and so on."""
    return f"{pattern.removesuffix('*.et')}{rank}.et"


def read(pattern: str, ranks: int) -> tuple[RankFile, ...]:
    """Read the files of all ranks.

    `pattern`: such as ``"my-ring.*.et"``.
    `ranks`: of the group.
    Raises TraceError if a file is missing, damaged or too large, there is one more than ranks, or a node is none of an
        algorithm.
    """
    if Path(file_of(pattern, ranks)).exists():
        problem = f"the group has {ranks} ranks, 0 to {ranks - 1}, and this file is for one more"
        raise TraceError(file_of(pattern, ranks), f"{problem}; name an algorithm for {ranks} ranks")
    files, nodes, waits = [], MOST_NODES, MOST_WAITS
    for rank in range(ranks):
        path = file_of(pattern, rank)
        if not Path(path).is_file():
            raise TraceError(path, f"no such file; an algorithm for {ranks} ranks has files 0 to {ranks - 1}")
        file = _Reader(path, rank, ranks, nodes, waits).read()
        nodes -= len(file.works)
        waits -= sum(len(work.before) for work in file.works)
        files.append(file)
    return tuple(files)


class _Reader:
    """Reads the file of a rank."""

    def __init__(self, path: str, rank: int, ranks: int, nodes: int, waits: int) -> None:
        self._path, self._rank, self._ranks = path, rank, ranks
        self._nodes, self._waits = nodes, waits  # that are left

    def read(self) -> RankFile:
        nodes: list[ChakraNode] = []
        about, waits = None, 0
        found = sources([self._path])
        for message in self._messages(next(found)):
            if about is None:
                about = self._decoded_metadata(message)
                continue
            node = self._decoded(message, len(nodes))
            nodes.append(node)
            waits += len(node.data) + len(node.control)
            if len(nodes) > self._nodes or waits > self._waits:
                most = f"{MOST_NODES} nodes" if len(nodes) > self._nodes else f"{MOST_WAITS} dependencies"
                raise TraceError(self._path, f"with the files before it has more than {most}; no algorithm needs them")
        if about is None or not nodes:
            raise TraceError(self._path, "holds no nodes; each rank of an algorithm sends or receives")
        works = self._works(nodes)
        collective, size = self._about(by_name(about.attributes), works)
        return RankFile(self._path, works, collective, size)

    def _messages(self, source: Source) -> Iterator[bytes]:
        try:
            yield from messages(source.stream)
        except WireError as error:
            raise TraceError(self._path, f"is no whole Chakra file ({error}); copy it again") from error

    def _decoded_metadata(self, message: bytes) -> Metadata:
        try:
            return decode_metadata(message)
        except WireError as error:
            raise TraceError(self._path, f"does not begin as a Chakra file ({error}); copy it again") from error

    def _decoded(self, message: bytes, number: int) -> ChakraNode:
        try:
            return decode_node(message, wanted=_WANTED)
        except WireError as error:
            problem = f"the {number + 1}. node is no node of Chakra ({error}); copy the file again"
            raise TraceError(self._path, problem) from error

    def _works(self, nodes: list[ChakraNode]) -> tuple[ChakraWork, ...]:
        places: dict[int, int] = {}
        for place, node in enumerate(nodes):
            if places.setdefault(node.id, place) != place:
                raise TraceError(self._path, f"two nodes have the id {node.id}; ids must differ")
        return tuple(self._work(node, places) for node in nodes)

    def _work(self, node: ChakraNode, places: dict[int, int]) -> ChakraWork:
        wanted = node.data + node.control
        if len(wanted) > 1:
            wanted = tuple(dict.fromkeys(wanted))
        try:
            before = tuple([places[other] for other in wanted])
        except KeyError as absent:
            self._refuse(node, f"waits for node {absent}, which the file does not hold; copy it again")
        attributes = by_name(node.attributes)
        if node.type == COMP:
            return ChakraWork(node.id, COMP, before, duration=self._duration(node, attributes))
        if node.type not in {COMM_SEND, COMM_RECV}:
            problem = f"has the type {node.type}; an algorithm consists of sends ({COMM_SEND}), receives ({COMM_RECV})"
            self._refuse(node, f"{problem} and computations ({COMP})")
        end = "comm_dst" if node.type == COMM_SEND else "comm_src"
        peer = self._count(node, attributes, end, _MOST_RANK)
        if peer >= self._ranks or peer == self._rank:
            self._refuse(node, f"has {end} {peer}; the others are 0 to {self._ranks - 1}, but {self._rank}")
        size = self._count(node, attributes, "comm_size", _MOST_BYTES, least=1)
        tag = self._count(node, attributes, "comm_tag", _MOST_TAG) if "comm_tag" in attributes else 0
        return ChakraWork(node.id, node.type, before, peer, tag, size)

    def _duration(self, node: ChakraNode, attributes: Attributes) -> int:
        if _DURATION in attributes:
            return self._count(node, attributes, _DURATION, CLOCK_END)
        if node.duration * PS_PER_US > CLOCK_END:
            self._refuse(node, f"takes {node.duration} µs; no operation takes 92 days")
        return node.duration * PS_PER_US

    def _count(self, node: ChakraNode, attributes: Attributes, key: str, most: int, least: int = 0) -> int:
        if key not in attributes:
            self._refuse(node, f"has no {key}, which every send and receive needs")
        value = attributes[key]
        if not isinstance(value, int) or not least <= value <= most:
            self._refuse(node, f"has {key} {value!r:.60}; write a number from {least} to {most}")
        return int(value)

    def _refuse(self, node: ChakraNode, problem: str) -> NoReturn:
        raise TraceError(self._path, f"node {node.id} {problem}")

    def _about(self, attributes: Attributes, works: tuple[ChakraWork, ...]) -> tuple[str, int]:
        """Read what the converter says of the file; the size is chunks times their bytes."""
        name = attributes.get("collective", "")
        if name and name not in _COLLECTIVES:
            raise TraceError(self._path, f"is for the collective {name!r:.60}; there are {', '.join(_COLLECTIVES)}")
        chunks, sent = _chunks(str(attributes.get("input_file", "")), self._rank)
        bytes_ = sum(work.bytes for work in works if work.kind == COMM_SEND)
        size = chunks * bytes_ // sent if sent and bytes_ % sent == 0 else 0
        return _COLLECTIVES.get(str(name), ""), size


def _chunks(text: str, rank: int) -> tuple[int, int]:
    """Count in an XML file of MSCCL the chunks of the buffer, and those that a rank sends; 0 if it is none."""
    chunks = sent = 0
    gpu = NONE
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal chunks, sent, gpu
        if name == "algo":
            chunks = _whole(attributes.get("nchunksperloop", ""))
        elif name == "gpu":
            gpu = _whole(attributes.get("id", ""))
        elif name == "step" and gpu == rank and attributes.get("type") == "s":
            sent += _whole(attributes.get("cnt", ""))

    def stop(*_: object) -> None:  # entities grow without bound
        parser.StartElementHandler = None
        raise ValueError

    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, stop
    try:
        parser.Parse(text.encode(), True)  # noqa: FBT003  expat takes it by place
    except (expat.ExpatError, ValueError):
        return 0, 0
    return chunks, sent


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004  below 2^31
