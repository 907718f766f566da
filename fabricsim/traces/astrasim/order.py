"""The order in which ASTRA-sim 1.0 and SimAI run the layers of a text workload, and what waits for what.

After the ``iterate_...`` functions in ``astra-sim/workload/Workload.cc``: forward through all layers, backward in
reverse. A collective that blocks holds up the next computation; others run beside it. A layer's update time passes
after each of its collectives (``Layer::call`` in ``Layer.cc``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rank_groups import Sizes, groups_of_rank_0
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    Communication,
    Operation,
    ProcessGroup,
    Recording,
    RecordingBuilder,
)

_TRANSFORMERS = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
_HYBRID = ("TP", "DP")
POLICIES: dict[str, tuple[str, str]] = {
    "DATA": ("", "all"),
    "MODEL": ("all", ""),
    "HYBRID_TRANSFORMER": _HYBRID,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _HYBRID,
    "HYBRID_DATA_MODEL": _HYBRID,
    "HYBRID_MODEL_DATA": _HYBRID,
    "HYBRID_CUSTOMIZED": _HYBRID,
    "HYBRID_DLRM": ("", "all"),
    "HYBRID_DLRM_ENHANCED": ("", "all"),
    "DISTRIBUTED_INFERENCE": ("all", ""),
    "MICRO": ("", "all"),
}
"""Parallelisms: the groups of forward and input-gradient, and of weight-gradient collectives; empty: there are none."""


class Header(NamedTuple):
    """First line of a workload; 0 is not given.

    `policy`: parallelism, of `POLICIES`.
    `tensor`, `expert`, `pipeline`, `world`: ranks of a group of each kind, and of the job.
    `accumulation`: Micro-batches of an iteration, which the layers repeat.
    `pipeline_bytes`: bytes that a stage hands to the next.
    `last_bottom`: last layer of DLRM's bottom network.
    `checkpoints`, `checkpoint_initiates`: layers whose input is kept, and layers before whose gradient the forward pass
        from there is repeated.
    """

    policy: str
    tensor: int = 0
    expert: int = 0
    pipeline: int = 0
    accumulation: int = 0
    world: int = 0
    pipeline_bytes: int = 0
    last_bottom: int = 0
    checkpoints: tuple[int, ...] = ()
    checkpoint_initiates: tuple[int, ...] = ()


class LayerPass(NamedTuple):
    """One pass of a layer.

    `compute`: ps.
    `operation`: collective after it; empty if there is none.
    `suffix`: ``"EP"``, ``"DP_EP"``, or empty for the group of the pass.
    `size`: bytes as written.
    """

    compute: int
    operation: Operation | None = None
    suffix: str = ""
    size: int = 0


class Layer(NamedTuple):
    """A layer; times ps.

    `name`: as written.
    `forward`, `input_gradient`, `weight_gradient`: its passes.
    `update`: passes after each of its collectives.
    `policy`: its own parallelism in ``HYBRID_CUSTOMIZED``, else that of the workload.
    """

    name: str
    forward: LayerPass
    input_gradient: LayerPass
    weight_gradient: LayerPass
    update: int
    policy: str


def unroll(source: str, header: Header, layers: Sequence[Layer]) -> Recording:
    """Let one pass run.

    Returns: of rank 0.
    Raises TraceError if checkpoints name layers that are not there, or none to repeat from.
    """
    run = _Run(source, header, layers)
    match header.policy:
        case "MICRO":
            run.communicate(0, "weight gradient", layers[0].weight_gradient)
        case "DISTRIBUTED_INFERENCE":
            run.forward_all()
        case "DATA":
            run.data_parallel()
        case "HYBRID_DLRM" | "HYBRID_DLRM_ENHANCED":
            run.dlrm()
        case _:
            run.forward_all()
            run.backward_all()
    return run.finish()


@dataclass
class _Run:
    source: str
    header: Header
    layers: Sequence[Layer]
    waiting: list[int] = field(default_factory=list)  # what the next computation waits for
    last: int = NONE  # the last computation

    def __post_init__(self) -> None:
        self.builder = RecordingBuilder(self.source)
        self.groups = _groups(self.header)
        self.lane = self.builder.lane("stream", "compute")
        self.initiates = frozenset(self.header.checkpoint_initiates)
        self.checkpoints = frozenset(self.header.checkpoints)
        beyond = max((*self.initiates, *self.checkpoints), default=0)
        if beyond >= len(self.layers):
            self._fail(f"checkpoints name layer {beyond}, and there are {len(self.layers)}; layers count from 0")

    def forward_all(self) -> None:
        for index in range(len(self.layers)):
            self.forward(index)

    def forward(self, index: int) -> None:
        self.compute(index, "forward", self.layers[index].forward)
        self.wait(self.communicate(index, "forward", self.layers[index].forward))

    def backward_all(self) -> None:
        """Gradients of inputs before those of weights; a transformer's input gradient blocks."""
        blocks = self.header.policy in _TRANSFORMERS
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            if index in self.initiates and self.header.policy == "HYBRID_TRANSFORMER_FWD_IN_BCKWD":
                self.repeat_forward(index)
            self.compute(index, "input gradient", layer.input_gradient)
            done = self.communicate(index, "input gradient", layer.input_gradient) if blocks or index else NONE
            if blocks:
                self.wait(done)
            self.compute(index, "weight gradient", layer.weight_gradient)
            self.communicate(index, "weight gradient", layer.weight_gradient)
            if not blocks:
                self.wait(done)

    def repeat_forward(self, index: int) -> None:
        """Run forward again from the last checkpoint before a layer up to it."""
        begin = index - 1
        while begin >= 0 and begin not in self.checkpoints:
            if begin in self.initiates:
                self._fail(f"layer {index} repeats layers over {begin}, which does so itself; put a checkpoint between")
            begin -= 1
        if begin < 0:
            self._fail(f"layer {index} repeats the forward pass, and no checkpoint is before it; list one")
        for repeated in range(begin, index):
            self.forward(repeated)

    def data_parallel(self) -> None:
        for index, layer in enumerate(self.layers):
            self.compute(index, "forward", layer.forward)
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            self.compute(index, "weight gradient", layer.weight_gradient)
            self.communicate(index, "weight gradient", layer.weight_gradient)
            if index:
                self.compute(index, "input gradient", layer.input_gradient)

    def dlrm(self) -> None:
        """Embeddings are layer 0: their all-to-all runs beside the bottom network, forward and backward."""
        bottom = self.header.last_bottom
        exchanged = NONE
        for index, layer in enumerate(self.layers):
            self.compute(index, "forward", layer.forward)
            if not index and layer.forward.operation == "all_to_all":
                exchanged = self.communicate(index, "forward", layer.forward)
            elif index == bottom:
                self.wait(exchanged)
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            self.compute(index, "weight gradient", layer.weight_gradient)
            self.communicate(index, "weight gradient", layer.weight_gradient)
            if index:
                self.compute(index, "input gradient", layer.input_gradient)
            if index == bottom + 1:
                self.communicate(0, "input gradient", self.layers[0].input_gradient)

    def compute(self, index: int, phase: str, part: LayerPass) -> None:
        """Compute, after all that is waited for."""
        self.last = self.builder.node(COMPUTE, self.lane, f"{self.layers[index].name} {phase}", duration=part.compute)
        for before in self.waiting:
            self.builder.edge(before, self.last)
        self.waiting.clear()

    def wait(self, node: int) -> None:
        """Let the next computation wait."""
        if node != NONE:
            self.waiting.append(node)

    def communicate(self, index: int, phase: str, part: LayerPass) -> int:
        """Begin a collective after the last computation; returns what has to end before others may go on."""
        layer = self.layers[index]
        group = self.groups.get(self._group_name(index, phase, part))
        if part.operation is None or group is None or group.size == 1:
            return NONE
        communication = Communication(part.operation, group=self.builder.group(*group), size=self._size(part, group))
        name = f"{layer.name} {phase}"
        lane = self.builder.lane("stream", group.name)
        node = self.builder.node(COMMUNICATION, lane, name, communication=communication)
        if self.last != NONE:
            self.builder.edge(self.last, node)
        if not layer.update:
            return node
        update = self.builder.node(COMPUTE, self.builder.lane("any", "update"), f"{name} update", duration=layer.update)
        self.builder.edge(node, update)
        return update

    def _group_name(self, index: int, phase: str, part: LayerPass) -> str:
        if self.header.policy.startswith("HYBRID_DLRM") and not index:
            return "all"
        model, data = POLICIES[self.layers[index].policy]
        own = data if phase == "weight gradient" else model
        return part.suffix or own

    def _size(self, part: LayerPass, group: ProcessGroup) -> int:
        """Count bytes as nccl-tests do: an all-gather of ASTRA-sim (``Ring.cc``) has a rank's part, SimAI's the sum."""
        if part.operation != "all_gather" or self.header.tensor:
            return part.size
        if group.size == NONE:
            self.builder.missing["sizes of all-gathers: the file gives one rank's part, and not how many ranks"] = None
            return NONE
        return part.size * group.size

    def finish(self) -> Recording:
        header, missing = self.header, self.builder.missing
        missing["what other ranks do: the file describes one rank that stands for all"] = None
        if any(not group.ranks for group in self.builder.groups):
            missing["which ranks are in a group: the file gives not all of its sizes"] = None
        elif any(group.name != "all" for group in self.builder.groups):
            missing["the order of ranks: it is taken as tensor, expert, data, pipeline parallel, as AICB has it"] = None
        if header.pipeline > 1:
            handed = f"{header.pipeline_bytes} bytes"
            missing[f"when a stage hands {handed} to the next: the file does not say between which layers"] = None
        return self.builder.build(0, header.world or NONE)

    def _fail(self, problem: str) -> NoReturn:
        raise TraceError(self.source, problem, 1)


def _groups(header: Header) -> dict[str, ProcessGroup]:
    """Give the groups of rank 0, with their ranks where all sizes are known."""
    tensor, world = header.tensor, header.world
    sizes = {"TP": tensor, "EP": header.expert, "DP": 0, "DP_EP": 0, "all": world}
    if tensor and world:
        data = world // (tensor * (header.pipeline or 1))
        expert = header.expert or 1
        ranks = groups_of_rank_0(Sizes(tensor, expert, data, header.pipeline or 1))
        return {name: ProcessGroup(name, "", members, len(members)) for name, members in ranks.items()}
    known = {name: tuple(range(size)) if name in {"TP", "all"} else () for name, size in sizes.items()}
    return {name: ProcessGroup(name, "", known[name], size or NONE) for name, size in sizes.items()}
