"""Text workloads of ASTRA-sim 1.0 and SimAI: compute times and collectives of the layers of one rank.

Form after ``Workload::initialize_workload`` in ``astra-sim/workload/Workload.cc`` of ASTRA-sim 1.0 and of
github.com/aliyun/SimAI. The order in which the layers run is in `fabricsim.traces.astrasim.order`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fabricsim.files.lines import LineParser, lines
from fabricsim.files.sources import Source
from fabricsim.records.program import CLOCK_END
from fabricsim.traces.astrasim.order import POLICIES, Header, Layer, LayerPass, unroll
from fabricsim.traces.form import Form
from fabricsim.traces.trace import Operation, Recording
from fabricsim.units import PS_PER_NS

MOST_LAYERS = 500_000
"""Layers of one file."""
MOST_RANKS = 2**20
"""Ranks of a job, and of a group."""

OPERATIONS: dict[str, Operation] = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
"""Collectives by their names in a workload."""

_MOST_TIME = CLOCK_END // PS_PER_NS
_MOST_SIZE = 2**53
_FIELDS = 12
_TYPE = re.compile(rf"({'|'.join(OPERATIONS)})(|_EP|_DP_EP)")
_COUNT = re.compile(rb"[^\n]*\n\s*\d+\s")
_KEYS = {
    "model_parallel_NPU_group": "tensor",
    "ep": "expert",
    "pp": "pipeline",
    "ga": "accumulation",
    "all_gpus": "world",
    "pp_comm": "pipeline_bytes",
    "DLRM_LAST_BOTTOM_LAYER": "last_bottom",
}
_LISTS = ("checkpoints", "checkpoint_initiates")


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  the first line says it all
    """Whether a file is a workload: a parallelism, and the number of layers below it."""
    words = head.split(maxsplit=1)
    return bool(words) and words[0].decode("ascii", "replace") in POLICIES and _COUNT.match(head) is not None


def read(source: Source) -> Iterator[Recording]:
    """Give what rank 0 does in one pass, which stands for all ranks.

    Yields: one. Sizes of its groups, and their ranks where all sizes are known, are those that the first line gives.
    Raises TraceError if the first line, the number of layers, or a layer cannot be used.
    """
    reader = _Reader(source)
    for number, line in lines(source):
        reader.number = number
        if line.strip():
            reader.take(line.split())
    yield unroll(source.label, *reader.finish())


@dataclass
class _Reader(LineParser):
    """Takes the workload line by line."""

    header: Header | None = None
    count: int = -1
    layers: list[Layer] = field(default_factory=list)

    def take(self, words: list[str]) -> None:
        if self.header is None:
            self.header = self._header(words)
        elif self.count < 0:
            self.count = self.integer(words[0], "the number of layers", MOST_LAYERS)
            if not self.count or len(words) > 1:
                self.fail(f"{' '.join(words)!r} is not a number of layers; write how many lines follow")
        elif len(self.layers) == self.count:
            self.fail(f"a line more than the {self.count} layers that line 2 announces; correct the number there")
        else:
            self.layers.append(self._layer(words, self.header))

    def finish(self) -> tuple[Header, list[Layer]]:
        if self.header is None or len(self.layers) != max(self.count, 1):
            expected = (
                f"{self.count} layers are announced, {len(self.layers)} are there" if self.count > 0 else "no layers"
            )
            self.fail(f"{expected}: the file is cut")
        return self.header, self.layers

    def _header(self, words: list[str]) -> Header:
        if words[0] not in POLICIES:
            self.fail(f"{words[0]!r} is no parallelism of ASTRA-sim; it is one of {', '.join(POLICIES)}")
        fields: dict[str, Any] = {}
        place = 1
        while place < len(words):
            key, value = words[place].rstrip(":"), words[place + 1] if place + 1 < len(words) else ""
            if key in _LISTS:
                count = self.integer(value, key, MOST_LAYERS)
                listed = words[place + 2 : place + 2 + count]
                if len(listed) < count:
                    self.fail(f"{key} announces {count} layers, and {len(listed)} follow; list them all")
                fields[key] = tuple(self.integer(word, f"a layer of {key}", MOST_LAYERS) for word in listed)
                place += count
            elif key in _KEYS:
                most = _MOST_SIZE if key == "pp_comm" else MOST_RANKS
                fields[_KEYS[key]] = self.integer(value, key, most)
            place += 2
        return self._checked(Header(words[0], **fields))

    def _checked(self, header: Header) -> Header:
        stage = header.tensor * (header.pipeline or 1)
        if header.world and stage and header.world % stage:
            self.fail(f"all_gpus {header.world} is no multiple of {stage}, tensor times pipeline parallel ranks")
        if header.world and stage and header.expert and header.world // stage % header.expert:
            data = header.world // stage
            self.fail(f"ep {header.expert} does not divide the {data} data parallel ranks; give one that does")
        return header

    def _layer(self, words: list[str], header: Header) -> Layer:
        if len(words) < _FIELDS:
            self.fail(f"{len(words)} fields, a layer has {_FIELDS}; the line is cut, or line 2 announces too many")
        self.integer(words[1], "the dependency", MOST_LAYERS, least=-1)
        forward, input_gradient, weight_gradient = (self._part(*words[place : place + 3]) for place in (2, 5, 8))
        update = self.integer(words[11], "the update time", _MOST_TIME) * PS_PER_NS
        policy = header.policy
        if policy == "HYBRID_CUSTOMIZED":
            policy = words[_FIELDS] if len(words) > _FIELDS else ""
            if policy not in POLICIES:
                self.fail(f"{policy!r} is no parallelism; a layer of HYBRID_CUSTOMIZED ends with its own")
        return Layer(words[0][:256], forward, input_gradient, weight_gradient, update, policy)

    def _part(self, time: str, collective: str, written_size: str) -> LayerPass:
        compute = self.integer(time, "a compute time", _MOST_TIME) * PS_PER_NS
        size = self.integer(written_size, "a size", _MOST_SIZE)
        if collective == "NONE" or not size:
            return LayerPass(compute)
        match = _TYPE.fullmatch(collective)
        if match is None:
            known = ", ".join(("NONE", *OPERATIONS))
            self.fail(f"{collective!r} is no collective; it is one of {known}, with _EP or _DP_EP behind it")
        return LayerPass(compute, OPERATIONS[match[1]], match[2].removeprefix("_"), size)


FORM = Form("astrasim", "text workloads of ASTRA-sim 1.0 and SimAI", recognises, read)
