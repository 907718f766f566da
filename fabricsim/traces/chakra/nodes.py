"""Chakra nodes as operations of a recording."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import get_args

import numpy as np
from msgspec import MsgspecError
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.chakra import json_form as chakra_json
from fabricsim.traces.chakra import own, schema
from fabricsim.traces.chakra.groups import Named, plain_names
from fabricsim.traces.chakra.own import Attributes, by_name
from fabricsim.traces.chakra.schema import ChakraNode, Metadata
from fabricsim.traces.dependencies import edges_of, in_a_cycle, of_lanes
from fabricsim.traces.groups import ALL_RANKS
from fabricsim.traces.trace import (
    BY_PLAIN_NAME,
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    KINDS,
    Communication,
    Lane,
    LaneKind,
    Operation,
    Recording,
    RecordingBuilder,
)

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
GATHERING = ("all_gather", "gather")
"""Operations of which ``comm_size`` is what each rank hands in, and the whole is as many times more."""

_KERNELS = ("reducescatter", "allreduce", "allgather", "alltoall", "broadcast", "reduce")
"""Parts of kernel names without underscores and hyphens."""
_ROOTED = {"broadcast", "reduce", "gather", "scatter"}
_MICROSECOND = 10**6
_MOST = 2**63 - 1
_STANDARD = ("is_cpu_op", "num_ops", "tensor_size", "stream", "tid", "pg_name", "comm_type", "comm_size")
_ENDS = ("comm_src", "comm_dst", "comm_tag")
READ = frozenset(name.encode() for name in (*_STANDARD, *_ENDS, *(own.PREFIX + name for name in own.OF_NODES)))
"""Names of the attributes of nodes that are read."""
_LARGEST = {
    "comm_size": 2**50,
    "comm_src": 10**7,
    "comm_dst": 10**7,
    f"{own.PREFIX}size": 2**50,
    f"{own.PREFIX}start_ps": CLOCK_END,
    f"{own.PREFIX}sent": 2**50,
    f"{own.PREFIX}received": 2**50,
    f"{own.PREFIX}world": 10**7,
}
"""Beyond this a number is a damage: a message of 1 PiB, ten million ranks."""


class NodeCollector:
    """Collects the nodes of a file.

    `source`: file, for messages.
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
        self._about: Attributes = {}
        self._named: dict[str, Named] = {}

    def note(self, metadata: Metadata) -> None:
        """Take up what the file says of itself."""
        self._about = by_name(metadata.attributes)
        try:
            self._named = own.groups_of(self._about)
        except MsgspecError as error:
            raise TraceError(self.source, f"its {own.PREFIX}groups are none ({error}); leave them out") from error

    def add(self, node: ChakraNode) -> None:
        """Add a node."""
        if not schema.INVALID <= node.type <= schema.CHECKPOINT:
            raise self._error(node, f"has the type {node.type}; the types of Chakra are 0 to {schema.CHECKPOINT}")
        attributes = by_name(node.attributes)
        self._captured |= "tid" in attributes or bool(attributes.get("is_cpu_op"))
        if node.type in _COMMUNICATIONS and not attributes.get("is_cpu_op"):
            self._communicate(node, attributes)
        else:
            self._work(node, attributes)
        if node.type == schema.METADATA:
            self._note_groups(node)
        self._ids.append(node.id)
        for (before, after), dependencies in ((self._data, node.data), (self._control, node.control)):
            before.extend(dependencies)
            after.extend([len(self._ids) - 1] * len(dependencies))

    def _work(self, node: ChakraNode, attributes: Attributes) -> None:
        kind = self._kind(node, attributes)
        bytes_ = self._count(node, attributes, "tensor_size")
        moved = bytes_ > 0 and node.type in {schema.MEM_LOAD, schema.MEM_STORE}
        silent = NONE if moved or self._count(node, attributes, "num_ops") > 0 else 0
        duration = self._duration(node, attributes, silent)
        if duration == NONE:
            self.builder.missing["the time of operations of which FLOPs or bytes are given"] = None
        self._put(node, attributes, kind, duration)

    def _kind(self, node: ChakraNode, attributes: Attributes) -> int:
        own_kind = attributes.get(f"{own.PREFIX}kind")
        if own_kind is not None:
            if own_kind not in KINDS or own_kind == KINDS[COMMUNICATION]:
                raise self._error(node, f"is of the kind {own_kind!r:.60}; the kinds are {', '.join(KINDS)}")
            return KINDS.index(str(own_kind))
        if node.type in {schema.MEM_LOAD, schema.MEM_STORE}:
            return COPY
        if node.type != schema.COMP or attributes.get("is_cpu_op"):
            return HOST
        return own.plain_kind(COMPUTE, node.name)

    def _put(
        self, node: ChakraNode, attributes: Attributes, kind: int, duration: int, what: Communication | None = None
    ) -> None:
        lane = self.builder.lane(*self._lane(node, attributes, kind))
        sequence = self._count(node, attributes, f"{own.PREFIX}sequence")
        start = self._count(node, attributes, f"{own.PREFIX}start_ps")
        self._starts.append(node.start if start == NONE else 0)
        self.builder.node(
            kind,
            lane,
            node.name,
            communication=what,
            sequence=sequence,
            start=start,
            duration=duration,
            work=(self._count(node, attributes, "num_ops"), self._count(node, attributes, "tensor_size")),
        )

    def _lane(self, node: ChakraNode, attributes: Attributes, kind: int) -> Lane:
        own_lane = attributes.get(f"{own.PREFIX}lane")
        if own_lane is None:
            return own.plain_lane(kind, attributes)
        word, _, name = str(own_lane).partition(" ")
        if word not in get_args(LaneKind):
            raise self._error(node, f"runs on {own_lane!r:.60}; write stream, thread, cpu or any and a name")
        return Lane(word, name)  # type: ignore[arg-type]  # one of these

    def _communicate(self, node: ChakraNode, attributes: Attributes) -> None:
        operation = self._operation(node, attributes)
        size = self._count(node, attributes, "comm_size")
        if size == NONE and operation != "barrier":
            self.builder.missing["the bytes of communications"] = None
        if node.type == schema.COMM_COLL:
            what = self._collective(operation, size, self._count(node, attributes, "comm_src"), attributes)
        else:
            peer = self._count(node, attributes, "comm_dst" if node.type == schema.COMM_SEND else "comm_src")
            if peer == NONE:
                self.builder.missing["the other ends of sends and receives"] = None
            tag = max(self._count(node, attributes, "comm_tag"), 0)
            what = Communication(operation, self._group(attributes), size, peer=peer, tag=tag)
        total = self._count(node, attributes, f"{own.PREFIX}size")
        if total != NONE:
            what = what._replace(size=total, share=NONE)
        what = what._replace(
            datatype=str(attributes.get(f"{own.PREFIX}datatype", "")),
            sent=self._counts(node, attributes, f"{own.PREFIX}sent"),
            received=self._counts(node, attributes, f"{own.PREFIX}received"),
            nic=self._count(node, attributes, f"{own.PREFIX}nic"),
        )
        self._put(node, attributes, COMMUNICATION, self._duration(node, attributes, NONE), what)

    def _collective(self, operation: Operation, size: int, root: int, attributes: Attributes) -> Communication:
        """Turn the bytes of the input, which Chakra counts, into those that nccl-tests counts."""
        group = self._group(attributes)
        if operation not in _ROOTED:
            root = NONE
        elif root == NONE:
            self.builder.missing["the roots of broadcasts and reductions"] = None
        if operation in GATHERING:
            return Communication(operation, group, peer=root, share=size)
        return Communication(operation, group, size, peer=root)

    def _operation(self, node: ChakraNode, attributes: Attributes) -> Operation:
        if node.type != schema.COMM_COLL:
            return "send" if node.type == schema.COMM_SEND else "recv"
        number = self._count(node, attributes, "comm_type")
        if number == NONE:
            self.builder.missing["what collectives do, but for the names of their kernels"] = None
            name = node.name.lower().replace("_", "").replace("-", "")
            return next((BY_PLAIN_NAME[part] for part in _KERNELS if part in name), "unknown")
        if number >= len(COLLECTIVES):
            raise self._error(node, f"has comm_type {number}; the collectives are 0 to {len(COLLECTIVES) - 1}")
        return COLLECTIVES[number]

    def _group(self, attributes: Attributes) -> int:
        """Find the group that a node names; without a name it is of all ranks, as in ASTRA-sim."""
        if "pg_name" not in attributes:
            if self._captured:
                self.builder.missing["the groups of communications, which are taken to be all ranks"] = None
            return NONE
        name = str(attributes["pg_name"])
        if name not in self._groups:
            title, description, ranks = self._named.get(name, (*plain_names(name), ()))
            self._groups[name] = self.builder.group(title, description, ranks, len(ranks) or NONE)
        return self._groups[name]

    def _note_groups(self, node: ChakraNode) -> None:
        """Take up the process groups that PyTorch lists in a node of its own."""
        if "process_group:init" not in node.name or node.inputs is None:
            return
        found = chakra_json.process_groups(node.inputs.values)
        if found is None:
            self.builder.missing["the ranks of process groups, whose list cannot be read"] = None
        for group in found or ():
            if group.pg_name not in self._groups:
                description, ranks = "" if group.ranks else ALL_RANKS, tuple(group.ranks)
                number = self.builder.group(group.pg_name, description, ranks, len(ranks) or NONE)
                self._groups[group.pg_name] = number

    def _duration(self, node: ChakraNode, attributes: Attributes, silent: int) -> int:
        """Give the time of a node in ps, `silent` if nothing is said: proto3 leaves out what is 0."""
        exact = self._count(node, attributes, f"{own.PREFIX}duration_ps")
        duration = (node.duration * _MICROSECOND or silent) if exact == NONE else exact
        if duration > CLOCK_END:
            raise self._error(node, f"takes {node.duration} µs; no operation takes 92 days")
        return duration

    def _counts(self, node: ChakraNode, attributes: Attributes, key: str) -> tuple[int, ...]:
        values = attributes.get(key, ())
        if not isinstance(values, tuple):
            raise self._error(node, f"has {key} {values!r:.60}; write a list of numbers")
        return tuple(self._count(node, {key: value}, key) for value in values)

    def _count(self, node: ChakraNode | None, attributes: Attributes, key: str) -> int:
        if key not in attributes:
            return NONE
        value = attributes[key]
        most = _LARGEST.get(key, _MOST)
        if not isinstance(value, int) or not 0 <= value <= most:
            raise self._error(node, f"has {key} {value!r:.60}; write a number from 0 to {most}")
        return int(value)

    def _error(self, node: ChakraNode | None, problem: str) -> TraceError:
        place = "" if node is None else f"node {node.id} ({node.name!r}) "
        return TraceError(self.source, place + problem)

    def recording(self, rank: int, world: int = NONE) -> Recording:
        """Finish; parameters are as of `Recording`.

        Raises TraceError if two nodes have the same id, or nodes wait for themselves.
        """
        if not self._ids:
            raise TraceError(self.source, "holds no nodes; capture at least one iteration")
        if world == NONE:
            world = self._count(None, self._about, f"{own.PREFIX}world")
        host, device = (str(self._about.get(own.PREFIX + key, "")) for key in ("host", "device"))
        made = self.builder.build(rank, world, host=host, device=device)
        origin = max(self._count(None, self._about, f"{own.PREFIX}origin_ns"), 0) or self._set_starts(made.nodes)
        (before, after), lanes = self._dependencies(made)
        edges = edges_of(before, after)
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

    def _dependencies(self, made: Recording) -> tuple[Edges, tuple[Lane, ...]]:
        """Give the dependencies by index, and the lanes that agree with them.

        Files that come from PyTorch have the call tree as control dependencies, which may contradict the data
        dependencies: then these alone count, as they did in Chakra's first feeder.
        """
        data, control = self._resolved(self._data), self._resolved(self._control)
        count, lanes = len(self._ids), made.lanes
        ordered = of_lanes(made.nodes["lane"], lanes)
        control = _without(control, ordered)
        both = np.concatenate([data[0], control[0]]), np.concatenate([data[1], control[1]])
        if not in_a_cycle(count, [data, control, ordered]).size:
            return _once(both), lanes
        if len(control[0]):
            self.builder.missing["control dependencies that agree with the data dependencies: they are left out"] = None
        if not in_a_cycle(count, [data, ordered]).size:
            return _once(data), lanes
        stuck = in_a_cycle(count, [data])
        if stuck.size:
            msg = f"node {self._ids[stuck[0]]} waits for itself, by way of others; its dependencies form a circle"
            raise TraceError(self.source, msg)
        self.builder.missing["an order of streams and threads that agrees with the dependencies"] = None
        return _once(data), tuple(lane._replace(kind="any") for lane in lanes)

    def _resolved(self, edges: tuple[array[int], array[int]]) -> Edges:
        """Turn ids into indices; dependencies on nodes that are not in the file are left out."""
        ids = np.frombuffer(self._ids, np.uint64)
        order = np.argsort(ids, kind="stable")
        twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        if twice.size:
            raise TraceError(self.source, f"two nodes have the id {ids[order][twice[0]]}; ids must differ")
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


_COMMUNICATIONS = {schema.COMM_SEND, schema.COMM_RECV, schema.COMM_COLL}


Edges = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
"""Nodes waited for, and those that wait."""


def _keys(edges: Edges) -> NDArray[np.int64]:
    return edges[1] << 32 | edges[0]


def _without(edges: Edges, others: Edges) -> Edges:
    """Leave out edges that are among `others`, such as those that the order of lanes stands for anyway."""
    kept = ~np.isin(_keys(edges), _keys(others))
    return edges[0][kept], edges[1][kept]


def _once(edges: Edges) -> Edges:
    """Leave out repeated edges, and put them into the order of the nodes that wait."""
    keys, first = np.unique(_keys(edges), return_index=True)
    order = np.lexsort((first, keys >> 32))
    first = first[order]
    return edges[0][first], edges[1][first]
