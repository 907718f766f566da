"""Algorithms as XML files of MSCCL, Microsoft's collective communication library (github.com/Azure/msccl-tools).

A file lists, for every GPU, thread blocks with one peer to send to and one to receive from, and their steps:
``s`` sends, ``r`` receives, ``rcs`` receives and passes on, ``rrc`` receives and reduces, ``rrs`` and ``rrcs`` also
pass on the result, ``cpy`` and ``re`` copy and reduce within the GPU, ``nop`` waits for another thread block. Thread
blocks run side by side, as strands. What ``rrs`` passes on is kept in the source as well. Files must be in place
(``inplace="1"``); times of copies within a GPU, and which channel a thread block has, are not modelled.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from fabricsim.collectives.base import Template
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.semantics import check
from fabricsim.errors import InputError

LARGEST = 16 * 2**20
"""Bytes of the largest file that is read."""

_COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_RECEIVING = {"r", "rcs", "rrc", "rrs", "rrcs"}
_SENDING = {"s", "rcs", "rrs", "rrcs"}
_REDUCING = {"rrc", "rrs", "rrcs"}
_TYPES = _RECEIVING | _SENDING | {"cpy", "re", "nop"}

Attributes = dict[str, str]


@dataclass
class _Block:
    """A thread block: its attributes and those of its steps."""

    gpu: int
    attributes: Attributes
    steps: list[Attributes] = field(default_factory=list)


@dataclass
class MscclAlgorithm:
    """What a file says.

    `path`: the file.
    `collective`, `protocol`: what it is for: a collective's name here, and MSCCL's name of the protocol.
    `ranks`, `chunks`: GPUs, and equal parts of the buffer.
    """

    path: str
    collective: str = ""
    protocol: str = ""
    ranks: int = 0
    chunks: int = 0
    gpus: dict[int, Attributes] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error that names the file."""
        raise InputError(f"{self.path}: {problem}")

    def number(self, element: Attributes, key: str, default: int | None = None, least: int = -1) -> int:
        """Read an attribute that is a whole number."""
        text = element.get(key)
        if text is None and default is not None:
            return default
        try:
            value = int(text or "")
        except ValueError:
            self.refuse(f"{key}={text!r} is no whole number")
        if not least <= value <= LARGEST:
            self.refuse(f"{key}={text!r} is out of range")
        return value


@lru_cache(maxsize=16)
def read(path: str) -> MscclAlgorithm:
    """Read a file.

    Raises InputError if it cannot be read, is too large, is no XML, has a document type, or says nothing that is known.
    """
    found = MscclAlgorithm(path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        found.refuse(f"cannot be read: {error.strerror}")
    if len(text) > LARGEST:
        found.refuse(f"is larger than {LARGEST // 2**20} MiB")
    parser = expat.ParserCreate()

    def start(name: str, attributes: Attributes) -> None:
        _element(found, name, attributes)

    def refuse(*_: object) -> None:
        found.refuse("has a document type; MSCCL's files have none: take it out")

    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, refuse
    try:
        parser.Parse(text, True)  # noqa: FBT003  expat takes it by place
    except expat.ExpatError as error:
        found.refuse(f"is no XML: {error}")
    if not found.collective:
        found.refuse("has no <algo>")
    return found


def _element(found: MscclAlgorithm, name: str, attributes: Attributes) -> None:
    if name == "algo":
        coll = attributes.get("coll", "")
        if coll not in _COLLECTIVES:
            found.refuse(f"coll={coll!r} is not known; there are {', '.join(_COLLECTIVES)}")
        if attributes.get("inplace") != "1":
            found.refuse('works out of place; compile it with inplace="1"')
        found.collective, found.protocol = _COLLECTIVES[coll], attributes.get("proto", "Simple")
        found.ranks = found.number(attributes, "ngpus", least=1)
        found.chunks = found.number(attributes, "nchunksperloop", least=1)
    elif name == "gpu":
        found.gpus[found.number(attributes, "id", least=0)] = attributes
    elif name == "tb" and found.gpus:
        found.blocks.append(_Block(list(found.gpus)[-1], attributes))
    elif name == "step" and found.blocks:
        found.blocks[-1].steps.append(attributes)
    else:
        found.refuse(f"<{name}> is not known, or not where it belongs")


def template(path: str, collective: str, members: int) -> Template:
    """Make the template of a file. Raises InputError if the file is for something else, or does not do what it says."""
    found = read(path)
    if found.collective != collective:
        found.refuse(f"is for {found.collective}, not for {collective}")
    if found.ranks != members or sorted(found.gpus) != list(range(members)):
        found.refuse(f"is for {found.ranks} ranks, not for {members}")
    scratch = max(found.number(gpu, "s_chunks", 0, 0) for gpu in found.gpus.values())
    made = _Maker(found, scratch).make()
    check(collective, made, path)
    return made


class _Maker:
    """Turns thread blocks into strands."""

    def __init__(self, found: MscclAlgorithm, scratch: int) -> None:
        self._found = found
        self._lanes: dict[tuple[int, int], int] = {}
        self._of: dict[tuple[int, int, str], list[int]] = {}
        strands: dict[int, int] = {}
        for block in found.blocks:
            number = strands.get(block.gpu, 0)
            strands[block.gpu] = number + 1
            lane = number * found.ranks + block.gpu
            self._lanes[block.gpu, found.number(block.attributes, "id", least=0)] = lane
            channel = found.number(block.attributes, "chan", 0)
            for key in ("send", "recv"):
                peer = found.number(block.attributes, key)
                self._of.setdefault((block.gpu, peer, f"{key}{channel}"), []).append(lane)
        self._builder = Builder(found.ranks, found.chunks, max(strands.values(), default=1), scratch=scratch)

    def make(self) -> Template:
        """Add the steps of all blocks, with the tokens of those that wait for one another."""
        tokens: dict[tuple[int, int], list[int]] = {}
        waits: dict[tuple[int, int], int] = {}
        for block in self._found.blocks:
            lane, latest = self._lane(block), dict[int, int]()
            for number, step in enumerate(block.steps):
                other, after = self._found.number(step, "depid", -1), self._found.number(step, "deps", -1)
                if other < 0:
                    continue
                before = self._lanes.get((block.gpu, other))
                if before is None:
                    self._found.refuse(f"depid={other} of GPU {block.gpu} is no thread block")
                if after > latest.get(before, -1):  # who has waited for a later step need not wait for an earlier
                    latest[before] = after
                    tokens.setdefault((before, after), []).append(lane)
                    waits[lane, number] = before
        for block in self._found.blocks:
            lane = self._lane(block)
            for number, step in enumerate(block.steps):
                if (lane, number) in waits:
                    self._builder.receive(lane, waits[lane, number], 0, 0)
                self._add(block, lane, step)
                for waiting in tokens.get((lane, number), ()):
                    self._builder.send(lane, waiting, 0, 0)
        return self._builder.build()

    def _lane(self, block: _Block) -> int:
        return self._lanes[block.gpu, int(block.attributes["id"])]

    def _add(self, block: _Block, lane: int, step: Attributes) -> None:
        kind = step.get("type", "")
        if kind not in _TYPES:
            self._found.refuse(f"step type {kind!r} is not known; there are {', '.join(sorted(_TYPES))}")
        if kind == "nop":
            return
        count = self._found.number(step, "cnt", least=1)
        source, target = (self._slot(block.gpu, step, end, count) for end in ("src", "dst"))
        if kind in {"cpy", "re"}:  # a message to itself
            self._builder.send(lane, lane, source, count)
            self._builder.receive(lane, lane, target, count, reduce=kind == "re")
            return
        if kind in _RECEIVING:
            into = source if kind == "rrs" else target
            self._builder.receive(lane, self._peer(block, "recv"), into, count, reduce=kind in _REDUCING)
        if kind in _SENDING:
            self._builder.send(lane, self._peer(block, "send"), source if kind in {"s", "rrs"} else target, count)

    def _peer(self, block: _Block, way: str) -> int:
        """Lane at the other end: the thread block of the peer that has this GPU as its own peer on the channel."""
        peer = self._found.number(block.attributes, way)
        other = "recv" if way == "send" else "send"
        channel = self._found.number(block.attributes, "chan", 0)
        lanes = self._of.get((peer, block.gpu, f"{other}{channel}"), [])
        if len(lanes) != 1:
            problem = f"GPU {block.gpu} has {len(lanes)} thread blocks of GPU {peer} to {way} with on channel {channel}"
            self._found.refuse(problem)
        return lanes[0]

    def _slot(self, gpu: int, step: Attributes, end: str, count: int) -> int:
        """Shard of a buffer's chunk: in place, the shorter of input and output lies within the longer."""
        buffer, offset = step.get(f"{end}buf", "i"), self._found.number(step, f"{end}off", 0)
        chunks, builder = self._found.chunks, self._builder
        if buffer == "s":
            first, end_of_buffer = chunks + offset, chunks + builder.scratch
        elif buffer in {"i", "o"}:
            short = {"all_gather": "i", "reduce_scatter": "o"}.get(self._found.collective)
            first = offset + (gpu * chunks // self._found.ranks if buffer == short else 0)
            end_of_buffer = chunks
        else:
            self._found.refuse(f"buffer {buffer!r} is not known; there are i, o and s")
        if offset < 0 or first + count > end_of_buffer:
            self._found.refuse(f"chunks {offset} to {offset + count - 1} of buffer {buffer!r} are not there")
        return first
