"""What was captured of a job: per rank, operations with their times, order, dependencies and messages.

Every trace reader makes `Recording` values, one per rank, and says nothing that its file does not say:
what is missing is ``NONE``, an empty name or an empty tuple. `fabricsim.traces.rebuild` makes a program of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.rank_groups import MOST_LISTED

Operation = Literal[
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "send",
    "recv",
    "send_recv",
    "unknown",
]
"""What a communication does; ``"send_recv"`` is an NCCL group of sends and receives whose parts are not known."""

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
BY_PLAIN_NAME: dict[str, Operation] = {name.replace("_", ""): name for name in OPERATIONS}
"""Operations by their names without underscores, such as ``"allreduce"``."""

COMPUTE = 0
"""Kind of a node: work of a device, or of a rank where devices are not told apart."""
COMMUNICATION = 1
"""Kind of a node: one rank's part of a collective, a send or a receive."""
COPY = 2
"""Kind of a node: a memory copy or fill of a device."""
HOST = 3
"""Kind of a node: work of a thread of the host."""
LAUNCH = 4
"""Kind of a node: a thread hands work to a device; an edge leads to that work."""
WAIT = 5
"""Kind of a node: a thread waits for devices; edges lead from what it waits for, if that is known."""
KINDS = ("compute", "communication", "copy", "host", "launch", "wait")

NODE = np.dtype(
    [
        ("kind", np.int8),
        ("lane", np.int32),  # index into Recording.lanes
        ("name", np.int32),  # index into Recording.names
        ("communication", np.int32),  # index into Recording.communications; NONE for other kinds
        ("sequence", np.int64),  # the group's own number of the communication; NONE if not captured
        ("start", np.int64),  # ps after Recording.origin; NONE if not captured
        ("duration", np.int64),  # ps; NONE if not captured
        ("flops", np.int64),  # of the work; NONE if not captured
        ("bytes", np.int64),  # that the work reads and writes; NONE if not captured
    ],
    align=True,
)
"""An operation of one rank."""

EDGE = np.dtype(
    [
        ("before", np.int64),  # index into Recording.nodes
        ("after", np.int64),  # as before
        ("on_start", np.bool_),  # `after` may begin as soon as `before` has begun; else when it has ended
    ],
    align=True,
)
"""A dependency that the file states."""

STEP = np.dtype([("number", np.int64), ("start", np.int64), ("end", np.int64)])
"""An iteration that the job itself has marked: its number, and its time in ps after Recording.origin."""


LaneKind = Literal["stream", "thread", "any", "cpu"]
"""What a lane is, as `Lane` says."""


class Lane(NamedTuple):
    """What runs its nodes one after the other, in the order of their starts, or of the file if they have none.

    Attributes
    ----------
    kind
        ``"stream"`` of a device, ``"thread"`` of a host, ``"any"`` where nodes have no order but their edges,
        ``"cpu"`` of a GOAL schedule: work goes one by one as it becomes ready, a message waits beside it.
    name
        As the file calls it, such as ``"stream 7"``.
    """

    kind: LaneKind
    name: str


class ProcessGroup(NamedTuple):
    """A communicator.

    Attributes
    ----------
    name
        As the file calls it; groups of one name are the same on all ranks that are in them.
    description
        Such as ``"default_pg"``; may be empty.
    ranks
        Global ranks in the order of the group; empty if the file does not list them.
    size
        How many ranks; NONE if the file does not say.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    size: int


class Communication(NamedTuple):
    """What a node of kind COMMUNICATION does.

    Attributes
    ----------
    operation
        What it does.
    group
        Index into `Recording.groups`; NONE if not captured, or for a message between two global ranks.
    size
        Bytes as nccl-tests count them: the whole buffer of an all-reduce, broadcast or reduction, the total input of
        a reduce-scatter, the total output of an all-gather (and of a gather), what one rank hands in (its own part
        included) of an all-to-all (and the total input of a scatter), the message of a send or receive; NONE if
        not captured.
    datatype
        As NCCL names it, such as ``"bfloat16"``; may be empty.
    peer
        The root, or the other end of a send or receive, as global rank; NONE if there is none or not captured.
    tag
        Of a send or receive; 0 if there is none, NONE if any will do.
    sent, received
        Bytes to and from each member of the group in order, where an all-to-all says so; else empty.
    nic
        Adapter of its rank that a send or receive goes by; NONE if not captured.
    share
        Bytes that one rank hands in to an all-gather or gather whose `size` is not known because the size of its group
        is not; else NONE.
    member
        Place in its group of the peer, where its global rank is not known as yet; else NONE.
    """

    operation: Operation
    group: int = NONE
    size: int = NONE
    datatype: str = ""
    peer: int = NONE
    tag: int = 0
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    nic: int = NONE
    share: int = NONE
    member: int = NONE


@dataclass(frozen=True)
class Recording:
    """What was captured of one rank.

    Attributes
    ----------
    rank
        Global rank; NONE if the file does not say.
    world
        Ranks of the job; NONE if the file does not say.
    source
        File, and member of an archive, for messages.
    nodes
        ``NODE`` records, shape ``(n_nodes,)``, in the order of the file.
    edges
        ``EDGE`` records, shape ``(n_edges,)``.
    steps
        ``STEP`` records in the order of time, shape ``(n_steps,)``; empty if the job marks none. If nodes have no
        starts, those of kind WAIT tell them apart: one ends what comes before step 1, and one each step from then on,
        so that step n lies between the n-th and the next; not all steps have to be there.
    lanes, names, groups, communications
        What nodes refer to.
    origin
        Time 0, in ns of the clock of its host since that clock's epoch; 0 if not captured.
    host
        Name of the host whose clock it is; empty if not captured.
    device
        Name of the GPU; empty if not captured.
    missing
        What the file should say and does not, a sentence each, without a full stop.
    """

    rank: int
    world: int
    source: str
    nodes: NDArray[np.void]
    edges: NDArray[np.void]
    steps: NDArray[np.void]
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    groups: tuple[ProcessGroup, ...]
    communications: tuple[Communication, ...]
    origin: int = 0
    host: str = ""
    device: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupList:
    """What a file beside the recordings says of all of them: the ranks of groups.

    Attributes
    ----------
    source
        File, and member of an archive, for messages.
    groups
        Global ranks of each group by its name; NONE in places that this file does not know.
    """

    source: str
    groups: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Trace:
    """What was captured of a job.

    Attributes
    ----------
    form
        Name of the reader, such as ``"kineto"``.
    recordings
        At least one, in the order of their ranks.
    world
        Ranks of the job; NONE if no file says.
    """

    form: str
    recordings: tuple[Recording, ...]
    world: int


@dataclass
class RecordingBuilder:
    """Collects nodes and what they refer to; equal lanes, names, groups and communications are kept once.

    Attributes
    ----------
    source
        As of `Recording`.
    """

    source: str
    lanes: dict[Lane, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    groups: dict[ProcessGroup, int] = field(default_factory=dict)
    communications: dict[Communication, int] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    _nodes: list[tuple[int, ...]] = field(default_factory=list)
    _edges: list[tuple[int, int, bool]] = field(default_factory=list)
    _packed_nodes: list[NDArray[np.void]] = field(default_factory=list)
    _packed_edges: list[NDArray[np.void]] = field(default_factory=list)
    count: int = 0
    _counted: int = NONE  # the last group whose ranks have been counted
    _room: int = MOST_LISTED

    def lane(self, kind: LaneKind, name: str) -> int:
        """Return the number of a lane."""
        return self.lanes.setdefault(Lane(kind, name), len(self.lanes))

    def group(self, name: str, description: str = "", ranks: tuple[int, ...] = (), size: int = NONE) -> int:
        """Return the number of a group.

        Raises
        ------
        TraceError
            If the groups have too many ranks.
        """
        number = self.groups.setdefault(ProcessGroup(name, description, ranks, size), len(self.groups))
        if number == len(self.groups) - 1 != self._counted:
            self._counted, self._room = number, self._room - len(ranks)
            if self._room < 0:
                msg = f"its groups have more than {MOST_LISTED} ranks in all; copy the file again"
                raise TraceError(self.source, msg)
        return number

    def node(  # noqa: PLR0913  one parameter per column
        self,
        kind: int,
        lane: int,
        name: str,
        *,
        communication: Communication | None = None,
        sequence: int = NONE,
        start: int = NONE,
        duration: int = NONE,
        work: tuple[int, int] = (NONE, NONE),
    ) -> int:
        """Add a node; returns its index. Parameters are as the columns of ``NODE``; `work` has ``flops`` and ``bytes``.

        Raises
        ------
        TraceError
            If it communicates what no rank can; or, with it or a later one, if a number is none, less than it can be
            or of more than 64 bits, or a node ends after the clock does.
        """
        number = self.names.setdefault(name, len(self.names))
        what = NONE if communication is None else self.communications.get(communication, len(self.communications))
        if communication is not None and what == len(self.communications):
            self._require_possible(communication)
            self.communications[communication] = what
        self._nodes.append((kind, lane, number, what, sequence, start, duration, *work))
        if len(self._nodes) == _PACK:
            self._pack()
        self.count += 1
        return self.count - 1

    def _require_possible(self, what: Communication) -> None:
        if what.operation not in OPERATIONS:
            raise TraceError(self.source, f"has a communication {what.operation!r}; there are {', '.join(OPERATIONS)}")
        for size in (what.size, what.share, *what.sent, *what.received):
            if not isinstance(size, int) or not NONE <= size <= MOST_SIZE:
                msg = f"has a {what.operation} of {size!r} bytes; a whole number of at most {MOST_SIZE} can be read"
                raise TraceError(self.source, f"{msg}; copy the file again")
        if not NONE <= what.group < len(self.groups):
            msg = f"has a {what.operation} of group {what.group}, but there are {len(self.groups)} groups"
            raise TraceError(self.source, f"{msg}; take what RecordingBuilder.group gives")

    def edge(self, before: int, after: int, *, on_start: bool = False) -> None:
        """Let `after` wait for `before`."""
        self._edges.append((before, after, on_start))
        if len(self._edges) == _PACK:
            self._pack()

    def _pack(self) -> None:
        nodes = self._numbered()
        late = nodes["duration"] > CLOCK_END - np.maximum(nodes["start"], 0)
        if late.any():
            name = list(self.names)[nodes["name"][late][0]]
            msg = f"operation {name!r} ends after the 92 days of the simulated clock; copy the file again"
            raise TraceError(self.source, msg)
        self._packed_nodes.append(nodes)
        self._packed_edges.append(np.array(self._edges, EDGE))
        self._nodes.clear()
        self._edges.clear()

    def _numbered(self) -> NDArray[np.void]:
        """Pack nodes; refuse what NumPy would round, or take from the end of a list."""
        nodes = np.empty(len(self._nodes), NODE)
        if not self._nodes:
            return nodes
        most = _MOST.copy()
        most[1] = len(self.lanes) - 1
        numbers = np.array(self._nodes)  # of another type, unless all are Python's and have 64 bits
        if numbers.dtype.kind != "i" or not ((numbers >= _LEAST) & (numbers <= most)).all():
            self._require_numbers(most.tolist())
            return np.array(self._nodes, NODE)
        for column, name in enumerate(NODE.names or ()):
            nodes[name] = numbers[:, column]
        return nodes

    def _require_numbers(self, most: Sequence[int]) -> None:
        for node in self._nodes:
            for column, value, low, high in zip(NODE.names or (), node, _LEAST.tolist(), most, strict=True):
                if not isinstance(value, int | np.integer) or not low <= value <= high:
                    msg = f"operation {list(self.names)[node[2]]!r} has the {column} {value!r}; it is a whole number "
                    raise TraceError(self.source, f"{msg}from {low} to {high}; copy the file again")

    def build(self, rank: int, world: int = NONE, *, origin: int = 0, host: str = "", device: str = "") -> Recording:
        """Finish; parameters are as of `Recording`, errors as of `node`, and if a job has no ranks."""
        if world != NONE and world < 1:
            raise TraceError(
                self.source, f"is of a job of {world} ranks, but a job has one at least; copy the file again"
            )
        self._pack()
        return Recording(
            rank,
            world,
            self.source,
            np.concatenate(self._packed_nodes),
            np.concatenate(self._packed_edges),
            np.array(sorted(self.steps, key=lambda step: step[1]), STEP),
            tuple(self.lanes),
            tuple(self.names),
            tuple(self.groups),
            tuple(self.communications),
            origin,
            host,
            device,
            tuple(self.missing),
        )


MOST_SIZE = 2**53
"""Bytes of the largest communication."""
_PACK = 2**16
"""Nodes or edges that a builder holds as Python integers."""
_LEAST = np.array((0, 0, 0, *(NONE,) * 6))
_MOST = np.array((len(KINDS) - 1, *(2**63 - 1,) * 8))
"""Bounds of the columns of a node; there are fewer lanes."""
