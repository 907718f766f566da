"""Chakra nodes as operations of a recording."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.tables import CLOCK_END, NONE
from fabricsim.traces import chakra_json
from fabricsim.traces.chakra_schema import (
    CHECKPOINT,
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    INVALID,
    MEM_LOAD,
    MEM_STORE,
    METADATA,
)
from fabricsim.traces.dependencies import in_a_cycle, of_lanes
from fabricsim.traces.groups import ALL_RANKS
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, EDGE, HOST, Communication, RecordingBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.traces.chakra_schema import Node
    from fabricsim.traces.protobuf import Value
    from fabricsim.traces.trace import Lane, Operation, Recording

COLLECTIVES: tuple[Operation, ...] = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",  # of equal blocks, as MPI calls it
    "barrier",
)
"""What the numbers of ``comm_type`` mean."""
DURATION = "duration_ps"
"""Attribute of fabricsim's own: the time of a node in ps, where that is no whole number of µs."""

_KERNELS: dict[str, Operation] = {
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""Parts of kernel names without underscores and hyphens."""
_COPIES = ("Memcpy ", "Memset ")
"""Beginnings of the names that PyTorch's profiler gives to copies and fills."""
_GATHERING = {"all_gather", "gather"}
_ROOTED = {"broadcast", "reduce", "gather", "scatter"}
_MICROSECOND = 10**6
_MOST = 2**63 - 1
_LARGEST = {"comm_size": 2**50, "comm_src": 10**7, "comm_dst": 10**7}
"""Beyond this a number is a damage: a message of 1 PiB, ten million ranks."""
_DEFAULT_GROUP = "0"

Attributes = dict[str, "Value | tuple[Value, ...]"]


class Recorder:
    """Collects the nodes of a file.

    Parameters
    ----------
    source
        File, for messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.builder = RecordingBuilder(source)
        self._ids = array("Q")
        self._starts = array("Q")  # µs; 0: not said
        self._data = (array("Q"), array("q"))  # ids before, indices after
        self._control = (array("Q"), array("q"))
        self._groups: dict[str, int] = {}
        self._captured = False  # from a run, not made by a generator

    def add(self, node: Node) -> None:
        """Add a node."""
        if not INVALID <= node.type <= CHECKPOINT:
            raise self._error(node, f"has the type {node.type}; the types of Chakra are 0 to {CHECKPOINT}")
        attributes: Attributes = {attribute.name: attribute.value for attribute in node.attributes}
        self._captured |= "tid" in attributes or bool(attributes.get("is_cpu_op"))
        if node.type in _COMMUNICATIONS and not attributes.get("is_cpu_op"):
            self._communicate(node, attributes)
        else:
            self._work(node, attributes)
        if node.type == METADATA:
            self._note_groups(node)
        self._ids.append(node.id)
        self._starts.append(node.start)
        for (before, after), dependencies in ((self._data, node.data), (self._control, node.control)):
            before.extend(dependencies)
            after.extend([len(self._ids) - 1] * len(dependencies))

    def _work(self, node: Node, attributes: Attributes) -> None:
        kind = HOST
        if node.type in {MEM_LOAD, MEM_STORE}:
            kind = COPY
        elif node.type == COMP and not attributes.get("is_cpu_op"):
            kind = COPY if node.name.startswith(_COPIES) else COMPUTE
        flops, bytes_ = self._count(node, attributes, "num_ops"), self._count(node, attributes, "tensor_size")
        duration = self._duration(node, attributes)
        if not duration and (flops > 0 or (kind == COPY and bytes_ > 0)):
            duration = NONE
            self.builder.missing["the time of operations of which FLOPs or bytes are given"] = None
        lane = self._lane(kind, attributes)
        self.builder.node(kind, lane, node.name, duration=duration, flops=flops, bytes_=bytes_)

    def _communicate(self, node: Node, attributes: Attributes) -> None:
        operation = self._operation(node, attributes)
        size = self._count(node, attributes, "comm_size")
        if size == NONE and operation != "barrier":
            self.builder.missing["the bytes of communications"] = None
        if node.type == COMM_COLL:
            what = self._collective(operation, size, self._count(node, attributes, "comm_src"), attributes)
        else:
            peer = self._count(node, attributes, "comm_dst" if node.type == COMM_SEND else "comm_src")
            group = NONE
            if peer == NONE:
                self.builder.missing["the other ends of sends and receives"] = None
                group = self._group(attributes)
            tag = max(self._count(node, attributes, "comm_tag"), 0)
            what = Communication(operation, group, size, peer=peer, tag=tag)
        lane, duration = self._lane(COMMUNICATION, attributes), self._duration(node, attributes)
        self.builder.node(COMMUNICATION, lane, node.name, communication=what, duration=duration or NONE)

    def _collective(self, operation: Operation, size: int, root: int, attributes: Attributes) -> Communication:
        """Turn the bytes of the input, which Chakra counts, into those that nccl-tests counts."""
        group = self._group(attributes)
        if operation not in _ROOTED:
            root = NONE
        elif root == NONE:
            self.builder.missing["the roots of broadcasts and reductions"] = None
        if operation in _GATHERING:
            return Communication(operation, group, peer=root, share=size)
        return Communication(operation, group, size, peer=root)

    def _operation(self, node: Node, attributes: Attributes) -> Operation:
        if node.type != COMM_COLL:
            return "send" if node.type == COMM_SEND else "recv"
        number = self._count(node, attributes, "comm_type")
        if number == NONE:
            self.builder.missing["what collectives do, but for the names of their kernels"] = None
            name = node.name.lower().replace("_", "").replace("-", "")
            return next((operation for part, operation in _KERNELS.items() if part in name), "unknown")
        if number >= len(COLLECTIVES):
            raise self._error(node, f"has comm_type {number}; the collectives are 0 to {len(COLLECTIVES) - 1}")
        return COLLECTIVES[number]

    def _group(self, attributes: Attributes) -> int:
        """Find the group that a node names; without a name it is of all ranks, as in ASTRA-sim."""
        name = str(attributes.get("pg_name", "")) or _DEFAULT_GROUP
        if name == _DEFAULT_GROUP and self._captured and "pg_name" not in attributes:
            self.builder.missing["the groups of communications, which are taken to be all ranks"] = None
        if name not in self._groups:
            description = ALL_RANKS if name == _DEFAULT_GROUP else ""
            self._groups[name] = self.builder.group(name, description)
        return self._groups[name]

    def _note_groups(self, node: Node) -> None:
        """Take up the process groups that PyTorch lists in a node of its own."""
        if "process_group:init" not in node.name or node.inputs is None:
            return
        found = chakra_json.process_groups(node.inputs.values)
        if found is None:
            self.builder.missing["the ranks of process groups, whose list cannot be read"] = None
        for group in found or ():
            description = "" if group.ranks else ALL_RANKS
            size = len(group.ranks) or NONE
            if group.pg_name not in self._groups:
                ranks = tuple(group.ranks)
                self._groups[group.pg_name] = self.builder.group(group.pg_name, description, ranks, size)

    def _lane(self, kind: int, attributes: Attributes) -> int:
        """Find what runs a node; the profiler calls a stream ``tid``, too."""
        number = attributes.get("stream", attributes.get("tid"))
        if not isinstance(number, int) or number < 0:
            return self.builder.lane("any", "")
        if kind == HOST:
            return self.builder.lane("thread", f"thread {number}")
        return self.builder.lane("stream", f"stream {number}")

    def _duration(self, node: Node, attributes: Attributes) -> int:
        exact = self._count(node, attributes, DURATION)
        duration = node.duration * _MICROSECOND if exact == NONE else exact
        if duration > CLOCK_END:
            raise self._error(node, f"takes {node.duration} µs; no operation takes 92 days")
        return duration

    def _count(self, node: Node, attributes: Attributes, key: str) -> int:
        if key not in attributes:
            return NONE
        value = attributes[key]
        most = _LARGEST.get(key, _MOST)
        if not isinstance(value, int) or not 0 <= value <= most:
            raise self._error(node, f"has {key} {value!r:.60}; write a number from 0 to {most}")
        return int(value)

    def _error(self, node: Node, problem: str) -> TraceError:
        return TraceError(self.source, f"node {node.id} ({node.name[:60]!r}) {problem}")

    def recording(self, rank: int, world: int = NONE) -> Recording:
        """Finish; parameters are as of `Recording`.

        Raises
        ------
        TraceError
            Where two nodes have the same id, or nodes wait for themselves.
        """
        if not self._ids:
            raise TraceError(self.source, "holds no nodes; capture at least one iteration")
        made = self.builder.build(rank, world)
        origin = self._set_starts(made.nodes)
        before, after, lanes = self._dependencies(made)
        edges = np.zeros(len(before), EDGE)
        edges["before"], edges["after"] = before, after
        self._check_waited_for(made.nodes, before)
        return replace(made, edges=edges, lanes=lanes, origin=origin, missing=tuple(self.builder.missing))

    def _set_starts(self, nodes: NDArray[np.void]) -> int:
        """Fill in when nodes started; returns the origin in ns."""
        starts = np.frombuffer(self._starts, np.uint64)
        known = starts > 0
        if not known.any():
            return 0
        first = int(starts[known].min())
        if (int(starts.max()) - first) * _MICROSECOND > CLOCK_END or first > _MOST // 1000:
            raise TraceError(self.source, "its nodes start more than 92 days apart; check the starts, which are in µs")
        nodes["start"][known] = (starts[known] - np.uint64(first)).astype(np.int64) * _MICROSECOND
        return first * 1000

    def _dependencies(self, made: Recording) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[Lane, ...]]:
        """Give the dependencies by index, and the lanes that agree with them.

        Files that come from PyTorch have the call tree as control dependencies, which may contradict the data
        dependencies: then these alone count, as they did in Chakra's first feeder.
        """
        data, control = self._resolved(self._data), self._resolved(self._control)
        count, lanes = len(self._ids), made.lanes
        ordered = of_lanes(made.nodes["lane"], [lane.kind != "any" for lane in lanes])
        both = tuple(np.concatenate(parts) for parts in zip(data, control, strict=True))
        if not in_a_cycle(count, [data, control, ordered]).size:
            return (*_once(*both), lanes)
        if len(control[0]):
            self.builder.missing["control dependencies that agree with the data dependencies: they are left out"] = None
        if not in_a_cycle(count, [data, ordered]).size:
            return (*_once(*data), lanes)
        stuck = in_a_cycle(count, [data])
        if stuck.size:
            msg = f"node {self._ids[stuck[0]]} waits for itself, by way of others; its dependencies form a circle"
            raise TraceError(self.source, msg)
        self.builder.missing["an order of streams and threads that agrees with the dependencies"] = None
        return (*_once(*data), tuple(lane._replace(kind="any") for lane in lanes))

    def _resolved(self, edges: tuple[array[int], array[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Turn ids into indices; dependencies on nodes that are not in the file are left out."""
        ids = np.frombuffer(self._ids, np.uint64)
        order = np.argsort(ids, kind="stable")
        twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        if twice.size:
            msg = f"two nodes have the id {ids[order][twice[0]]}; ids must differ"
            raise TraceError(self.source, msg)
        wanted, after = np.frombuffer(edges[0], np.uint64), np.frombuffer(edges[1], np.int64)
        place = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
        before = order[place]
        known = ids[before] == wanted
        if not known.all():
            self.builder.missing["nodes on which others depend"] = None
        return before[known], after[known]

    def _check_waited_for(self, nodes: NDArray[np.void], before: NDArray[np.int64]) -> None:
        """Say where the linker of captured traces has lost what follows communications, as it is known to."""
        communications = np.flatnonzero(nodes["kind"] == COMMUNICATION)
        lost = len(communications) - np.isin(communications, before).sum()
        if self._captured and lost > 1:
            self.builder.missing[f"what waits for {lost} of {len(communications)} communications"] = None


_COMMUNICATIONS = {COMM_SEND, COMM_RECV, COMM_COLL}


def _once(before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Leave out repeated edges; the order of those that stay is that of the file."""
    _, first = np.unique(before * (after.max(initial=0) + 1) + after, return_index=True)
    first.sort()
    return before[first], after[first]
