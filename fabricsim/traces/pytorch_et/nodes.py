"""Nodes of PyTorch's ExecutionTraceObserver, as its schemas 1.0.1 (flat) and 1.0.2 to 1.1.1 (nested) write them.

After ``torch/csrc/profiler/standalone/execution_trace_observer.cpp`` of github.com/pytorch/pytorch; the keys with times
are those that Chakra's ``trace_link`` adds (github.com/mlcommons/chakra).
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.json_objects import decoded

Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, lt=2**63 / 1e6)]


class Tensor(NamedTuple):
    """A tensor as a node names it.

    `number`, `storage`: of the tensor, and of the memory that it lies in; memory that was freed may get the number of
        what follows it.
    `elements`, `item`: how many elements, of how many bytes.
    `device`: such as ``"cuda:0"``.
    """

    number: int
    storage: int
    elements: int
    item: int
    device: str


class _Values(msgspec.Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class OperatorNode(msgspec.Struct):
    """A node of either schema; of `schema`, `thread` and those that follow it the properties are to be used."""

    id: Id
    name: str
    parent: Id | None = None
    ctrl_deps: Id | None = None
    rf_id: Any = None
    tid: Id = 0
    op_schema: str = ""
    inputs: list[Any] | _Values = []
    input_shapes: list[Any] = []
    input_types: list[str] = []
    outputs: list[Any] | _Values = []
    output_shapes: list[Any] = []
    attrs: list[_Attribute] = []
    cat: str | None = None
    ts: Microseconds | None = None
    inclusive_dur: Microseconds | None = None
    stream: Id | None = None
    sync_dep: list[Id] | None = None
    inter_thread_dep: Id | None = None

    @property
    def above(self) -> int:
        """Id of the node that called this one."""
        return self.ctrl_deps if self.parent is None and self.ctrl_deps is not None else self.parent or 0

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What the nested schema keeps as a list of names and values."""
        return {attribute.name: attribute.value for attribute in self.attrs}

    @property
    def record(self) -> int | None:
        """Number of the call, which Kineto notes as ``"Record function id"``; None if it has none."""
        found = self.attributes.get("rf_id") if self.rf_id is None else self.rf_id
        return found if type(found) is int else None

    @property
    def arguments(self) -> list[Any]:
        """Values handed in."""
        return self.inputs.values if isinstance(self.inputs, _Values) else self.inputs

    @property
    def shapes(self) -> list[Any]:
        """Dimensions of `arguments`."""
        return self.inputs.shapes if isinstance(self.inputs, _Values) else self.input_shapes

    @property
    def types(self) -> list[str]:
        """Types of `arguments`."""
        return self.inputs.types if isinstance(self.inputs, _Values) else self.input_types

    @property
    def results(self) -> list[Any]:
        """Values handed out."""
        return self.outputs.values if isinstance(self.outputs, _Values) else self.outputs

    @property
    def result_shapes(self) -> list[Any]:
        """Dimensions of `results`."""
        return self.outputs.shapes if isinstance(self.outputs, _Values) else self.output_shapes


_decode = msgspec.json.Decoder(OperatorNode).decode
_TENSOR = 6  # values that stand for one


def node_of(text: bytes, label: str, number: int) -> OperatorNode:
    """Decode the node of that number.

    Raises TraceError if it is no node.
    """
    node = decoded(_decode, text, label, f"node {number}")
    if node.parent is None and node.ctrl_deps is None:
        raise TraceError(label, f"node {number} ({node.name!r}) names no parent; give the file as it was written")
    return node


def tensors(value: object, levels: int = 3) -> Iterator[Tensor]:
    """Give the tensors in an argument: one, or a list of them, or a list of such lists; none from deeper ones."""
    if not isinstance(value, list):
        return
    if len(value) == _TENSOR and isinstance(value[5], str) and all(type(part) is int for part in value[:5]):
        number, storage, _, elements, item, device = value
        if min(number, storage, elements, item) >= 0 and elements * item < 2**62:
            yield Tensor(number, storage, elements, item, device)
        return
    for part in value if levels else ():
        yield from tensors(part, levels - 1)
