"""Which operators of PyTorch run a kernel, and what the kernel reads, writes and computes.

From the schemas that the trace itself holds, such as ``aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar
alpha=1) -> Tensor(a!)``: ``(a)`` marks a view of an argument, ``(a!)`` an argument that is written
(``aten/src/ATen/native/README.md`` of github.com/pytorch/pytorch).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from fabricsim.records.program import NONE
from fabricsim.traces.pytorch_et.nodes import OperatorNode, Tensor, tensors

_NO_OPERATORS = frozenset({"c10d", "c10d_functional", "_c10d_functional", "prim", "profiler", "record_function"})
"""Namespaces whose operators only call others."""
_NO_KERNEL = frozenset(
    {
        "_has_compatible_shallow_copy_type",
        "_version",
        "as_strided_",
        "data",
        "detach_",
        "empty",
        "empty_like",
        "empty_quantized",
        "empty_strided",
        "is_nonzero",
        "is_pinned",
        "is_same_size",
        "item",
        "new_empty",
        "new_empty_strided",
        "record_stream",
        "rename_",
        "requires_grad_",
        "resize_",
        "resize_as_",
        "result_type",
        "retain_grad",
        "set_",
        "set_data",
        "size",
        "squeeze_",
        "stride",
        "swapaxes_",
        "swapdims_",
        "sym_numel",
        "sym_size",
        "sym_storage_offset",
        "sym_stride",
        "t_",
        "transpose_",
        "unflatten_dense_tensors",
        "unsqueeze_",
    }
)
"""Operators of ``aten`` that allocate memory, ask about a tensor, or change no more than its description."""
_OVERWRITES = frozenset({"copy_", "fill_", "zero_"})
_PICKS = frozenset({"embedding", "gather", "index", "index_select", "take"})
_COPIES = frozenset({"copy_", "_local_scalar_dense"})
_HOSTS = frozenset({"cpu", "meta", ""})
_LONGEST_SCHEMA = 2**14
_NAME = re.compile(r"(\w{1,100})::(\w{1,200})")
_RETURNS_VIEW = re.compile(r"\(\w+(?:\|\w+)*\)")


class KernelWork(NamedTuple):
    """What the kernel of an operator does; NONE if it cannot be told.

    `reads`, `writes`: numbers of the memory of tensors.
    `makes`: those of `writes` that hold nothing before.
    `device`: of the first tensor that is not in the host's memory, such as ``"cuda:0"``; empty if all are.
    `bytes`: that it reads and writes.
    `flops`: a multiplication and an addition count as two.
    `copies`: whether it is a memory copy.
    `custom`: whether it is none of PyTorch's own operators, which may call those beside a kernel of its own.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    makes: tuple[int, ...]
    device: str
    bytes: int
    flops: int
    copies: bool
    custom: bool


class _Schema(NamedTuple):
    space: str
    name: str
    written: tuple[bool, ...]
    only_written: tuple[bool, ...]
    view: bool


@lru_cache(maxsize=4096)
def _schema(text: str) -> _Schema | None:
    match = _NAME.match(text)
    if match is None or len(text) > _LONGEST_SCHEMA:
        return None
    before, _, returns = text.rpartition("->")
    arguments = [part for part in _split(before[before.find("(") + 1 :].rstrip().removesuffix(")")) if part != "*"]
    written = tuple("!" in part.partition(" ")[0] for part in arguments)
    only = tuple(
        mark and (match[2] in _OVERWRITES or part.split("=")[0].rsplit(" ", 1)[-1].startswith("out"))
        for mark, part in zip(written, arguments, strict=True)
    )
    return _Schema(match[1], match[2], written, only, bool(_RETURNS_VIEW.search(returns)) and "!" not in returns)


def _split(text: str) -> list[str]:
    """Cut at commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def work_of(node: OperatorNode, schema_text: str, backend: str) -> KernelWork | None:
    """Say what a node's kernel does, should it have one; None if it has none itself.

    `schema_text`: schema of its operator; empty if it is none.
    `backend`: such as ``"triton"`` where a kernel was made for the node; else empty.
    """
    schema = _schema(schema_text)
    if schema is None:
        return _custom_work(node) if backend else None
    if schema.space in _NO_OPERATORS or schema.view or (schema.space == "aten" and schema.name in _NO_KERNEL):
        return None
    if schema.space != "aten":
        return _custom_work(node)
    results = list(tensors(node.results))
    reads, writes = [], results.copy()
    for place, argument in enumerate(node.arguments):
        found = list(tensors(argument))
        if place < len(schema.written) and schema.written[place]:
            writes += [tensor for tensor in found if tensor not in results]
        if not (place < len(schema.only_written) and schema.only_written[place]):
            reads += found
    return _work(node, reads, writes, _bytes(schema.name, reads, writes), _flops(schema.name, node), schema.name)


def _custom_work(node: OperatorNode) -> KernelWork | None:
    return _work(node, list(tensors(node.arguments)), list(tensors(node.results)), NONE, NONE, "")


def _work(  # noqa: PLR0913, PLR0917  one parameter per column
    node: OperatorNode, reads: Sequence[Tensor], writes: Sequence[Tensor], moved: int, flops: int, name: str
) -> KernelWork | None:
    if not reads and not writes:
        return None
    written = dict.fromkeys(tensor.storage for tensor in writes)
    taken = {tensor.storage for tensor in tensors(node.arguments)}
    return KernelWork(
        tuple(dict.fromkeys(tensor.storage for tensor in reads)),
        tuple(written),
        tuple(storage for storage in written if storage not in taken),
        device_of((*reads, *writes)),
        moved,
        flops,
        name in _COPIES,
        not name,
    )


def device_of(found: Sequence[Tensor]) -> str:
    """Give the device of the first tensor that is not in the host's memory; empty if all are."""
    return next((tensor.device for tensor in found if tensor.device not in _HOSTS), "")


def _bytes(name: str, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> int:
    out = sum(tensor.elements * tensor.item for tensor in writes)
    if name in _PICKS:  # of the table only what comes out is read, and where to find it
        return 2 * out + sum(tensor.elements * tensor.item for tensor in reads[1:])
    return out + sum(tensor.elements * tensor.item for tensor in reads)


def _flops(name: str, node: OperatorNode) -> int:
    """Count the operations of matrix products and convolutions by their shapes, ``2 m n k``; NONE of all else."""
    shapes = [_dimensions(shape) for shape in node.shapes]
    first = _MATRICES.get(name)
    if first is not None:
        left, right = (shapes[place] if place < len(shapes) else () for place in (first, first + 1))
        wide = 2 <= len(left) <= 3 and len(left) == len(right) and left[-1] == right[-2]  # noqa: PLR2004  matrices, or batches
        return _held(2 * prod(left) * right[-1]) if wide else NONE
    if name in _CONVOLUTIONS and len(shapes) > 1 and node.result_shapes:
        return _convolution(_dimensions(node.result_shapes[0]), shapes[1], 1)
    if name == "convolution_backward" and len(shapes) > 2:  # noqa: PLR2004  gradient, input, weight
        mask = node.arguments[-1]  # which gradients are wanted: of the input, the weight, the bias
        return _convolution(shapes[0], shapes[2], sum(want is True for want in mask[:2]) if type(mask) is list else 2)
    return NONE


def _convolution(result: Sequence[int], weight: Sequence[int], times: int) -> int:
    wide = len(weight) > 2 and len(result) == len(weight) and result[1] == weight[0]  # noqa: PLR2004  channels and room
    return _held(2 * times * prod(result) * prod(weight[1:])) if wide else NONE


_MATRICES = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "baddbmm_": 1}  # where the left matrix stands
_CONVOLUTIONS = frozenset({"cudnn_convolution", "miopen_convolution", "mkldnn_convolution", "_conv_depthwise2d"})


def _dimensions(shape: object) -> tuple[int, ...]:
    if isinstance(shape, list) and shape and all(type(length) is int and 0 <= length < 2**40 for length in shape):
        return tuple(shape)
    return ()


def _held(count: int) -> int:
    return count if count < 2**62 else NONE
