"""The JSON files of Chakra: a trace as one list of nodes, and the ranks of groups."""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.chakra.schema import Attribute, ChakraNode
from fabricsim.traces.trace import GroupList

_MOST_BYTES = 256 * 2**20  # of a JSON file, which is read whole
_MOST_RANKS = 10**7

_T = TypeVar("_T")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_RANKS)]


class _Node(msgspec.Struct):
    """A node as Chakra's feeder reads it from JSON (src/feeder/JSONNode.cpp)."""

    id: Count = msgspec.field(name="Id")
    name: str = msgspec.field(name="Name", default="")
    type: Count = msgspec.field(name="NodeType", default=0)
    control: list[Count] = msgspec.field(name="ctrlDeps", default_factory=list)
    data: list[Count] = msgspec.field(name="data_deps", default_factory=list)
    runtime: Count = 0
    is_cpu_op: bool = False
    tensor_size: Count | None = None
    comm_type: Count | None = None
    comm_size: Count | None = None
    comm_src: Count | None = None
    comm_dst: Count | None = None
    comm_tag: Count | None = None
    pg_name: str | None = None


class _Graph(msgspec.Struct):
    workload_graph: list[_Node]
    ngpus: Rank | None = None


_decode_graph = msgspec.json.Decoder(_Graph).decode
_decode_groups = msgspec.json.Decoder(dict[str, list[Rank]]).decode


class JsonTrace(NamedTuple):
    """A trace in JSON: its nodes, and the number of ranks, NONE if it does not say."""

    nodes: Iterator[ChakraNode]
    ranks: int


def is_graph(head: bytes) -> bool:
    """Whether a file that begins like this holds a trace."""
    return re.search(rb'"workload_graph"\s*:\s*\[', head) is not None


def is_groups(head: bytes) -> bool:
    """Whether a file that begins like this lists the ranks of groups."""
    return re.match(rb'\s*\{\s*(?:"[^"\\]{1,200}"\s*:\s*\[\s*\d+\s*[],]|\}\s*$)', head) is not None


def read_graph(source: Source) -> JsonTrace:
    """Read a trace."""
    graph = _decoded(source, _decode_graph)
    return JsonTrace(map(_plain, graph.workload_graph), NONE if graph.ngpus is None else graph.ngpus)


_NUMBERS = ("tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag")


def _plain(node: _Node) -> ChakraNode:
    attributes = [Attribute("is_cpu_op", "bool", node.is_cpu_op)]
    attributes += [
        Attribute(key, "int64", value) for key in _NUMBERS if (value := getattr(node, key, None)) is not None
    ]
    if node.pg_name is not None:
        attributes.append(Attribute("pg_name", "string", node.pg_name))
    deps = tuple(node.control), tuple(node.data)
    return ChakraNode(node.id, node.name, node.type, *deps, duration=node.runtime, attributes=tuple(attributes))


def read_groups(source: Source) -> GroupList:
    """Read the ranks of groups."""
    groups = {name: tuple(ranks) for name, ranks in _decoded(source, _decode_groups).items()}
    for name, ranks in groups.items():
        if not ranks or len(set(ranks)) < len(ranks):
            msg = f"group {name!r} has {'a rank twice' if ranks else 'no ranks'}; list each rank of a group once"
            raise TraceError(source.label, msg)
    return GroupList(source.label, groups)


def _decoded(source: Source, decode: Callable[[bytes], _T]) -> _T:
    data = source.stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        msg = f"more than {_MOST_BYTES // 2**20} MiB of JSON are too much to read whole; give the .et form of the trace"
        raise TraceError(source.label, msg)
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(source.label, f"is no JSON of Chakra ({error}); check that the file is whole") from error


class ChakraGroup(msgspec.Struct):
    """A process group as a node of PyTorch's that makes it lists it."""

    pg_name: str
    ranks: list[Rank] = msgspec.field(default_factory=list)


_decode_process_groups = msgspec.json.Decoder(list[ChakraGroup]).decode


def process_groups(values: str) -> list[ChakraGroup] | None:
    """Read the text of a node that makes process groups, a list in a list; None if it is none."""
    try:
        return _decode_process_groups(values[2:-2])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
