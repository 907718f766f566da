"""Which kernels of the compute model the operators of PyTorch launch, by the shapes that they are called with.

Places of arguments are those of the schemas in ``aten/src/ATen/native/native_functions.yaml`` of
github.com/pytorch/pytorch, and of ``flash_attn/flash_attn_interface.py`` of github.com/Dao-AILab/flash-attention.
Operators such as ``aten::linear`` and ``aten::scaled_dot_product_attention`` call these. An operator has what the model
has an operation for; kernels of others, and of numbers that are neither fp16 nor bf16 nor fp32, have none.
"""

import re
from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from fabricsim.scenario.cluster import Precision, StreamName
from fabricsim.traces.kineto.inputs import Inputs
from fabricsim.workload.attention import Core, fused, fused_gradient
from fabricsim.workload.tape import PRECISION_BYTES, product, streamed
from fabricsim.workload.work import MASK, Kernel, Operation, Pass

_PRECISIONS: dict[str, Precision] = {"c10::Half": "fp16", "c10::BFloat16": "bf16", "float": "fp32"}
_LARGEST = 2**31  # lengths that a measured kernel may have are below this one

ANY = re.compile(r".*", re.DOTALL)
_MATRIX = re.compile(r"(?!.*at::native).*", re.DOTALL)
"""Not PyTorch's own kernels: ``addmm`` copies its bias into the result first where the library does not add it."""
_SUMS = re.compile(r".*dot_do_o.*", re.DOTALL)
"""FlashAttention's kernel of sums of result times gradient, which is an operation of its own in the model."""
_NO_SUMS = re.compile(r"(?!.*dot_do_o).*", re.DOTALL)
_OF_WEIGHTS = re.compile(r".*(?i:gamma_?beta).*", re.DOTALL)
_OF_INPUTS = re.compile(r"(?!.*(?i:gamma_?beta)).*", re.DOTALL)


class What(NamedTuple):
    """A kernel of the compute model.

    `operation`: as the compiler of jobs makes it.
    `precision`: of its numbers; None of memory-bound kernels, which bytes tell.
    `causal`: whether a causal mask hides part of an attention; None of all else, and if not captured.
    """

    operation: Operation
    precision: Precision | None = None
    causal: bool | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What tells measured kernels apart."""
        one = self.operation
        identity = (one.name, one.traffic) if one.shape is None else (one.kernel, one.shape)
        return (*identity, self.precision, self.causal)

    @property
    def kind(self) -> str:
        """Name for people."""
        one = self.operation
        return one.name if one.shape is None else f"{one.kernel.replace('-', ' ')} {self.precision}"


class OperatorKernels(NamedTuple):
    """Kernels of one operator, by their names, and what they do together."""

    kernels: re.Pattern[str]
    what: What


def parts(name: str, inputs: Inputs) -> tuple[OperatorKernels, ...]:
    """List what an operator does that the model has an operation for. `inputs`: what it was called with."""
    if name in _PRODUCTS:
        return tuple(_product(inputs, *_PRODUCTS[name]))
    if name in _ATTENTIONS:
        return tuple(_attention(inputs, _ATTENTIONS[name]))
    if name in _STREAMS:
        return tuple(_streams(inputs, _STREAMS[name]))
    if name in _ADDS:
        return tuple(_added(inputs))
    return tuple(_gathered(inputs)) if name == _GATHER else ()


def is_known(name: str) -> bool:
    """Whether an operator does something that the model has an operation for."""
    return name in _PRODUCTS or name in _ATTENTIONS or name in _STREAMS or name in _ADDS or name == _GATHER


_PRODUCTS: dict[str, tuple[int, int]] = {
    "aten::mm": (0, 2),
    "aten::addmm": (1, 2),
    "aten::addmm_": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::bmm": (0, 3),
    "aten::baddbmm": (1, 3),
    "aten::baddbmm_": (1, 3),
}
"""Place of the left matrix, which the right one follows, and dimensions of both."""


def _product(inputs: Inputs, place: int, dimensions: int) -> Iterator[OperatorKernels]:
    left, right = inputs.shape(place), inputs.shape(place + 1)
    precision = _PRECISIONS.get(inputs.type(place))
    if precision is None or not len(left) == len(right) == dimensions or left[-1] != right[-2]:
        return
    shape = (left[0] if len(left) > 2 else 1, left[-2], left[-1], right[-1])  # noqa: PLR2004  a batch of matrices
    if _fits(shape) and left[:-2] == right[:-2]:
        yield OperatorKernels(_MATRIX, What(product("product", shape, PRECISION_BYTES[precision]), precision))


class _Attention(NamedTuple):
    """Where the arguments of a fused attention stand."""

    query: int  # the key follows it
    causal: int
    sequences: int | None = None  # ends of sequences of several lengths in one: what they are is not captured
    tokens: Literal[1, 2] = 1  # dimension of a query that counts them; the other of both counts heads
    backward: bool = False


_ATTENTIONS = {
    "aten::_flash_attention_forward": _Attention(0, 8, 3),
    "aten::_flash_attention_backward": _Attention(1, 11, 6, backward=True),
    "aten::_efficient_attention_forward": _Attention(0, 9, 4),
    "aten::_efficient_attention_backward": _Attention(1, 14, 6, backward=True),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(0, 6, tokens=2),
    "aten::_cudnn_attention_forward": _Attention(0, 10, 4, tokens=2),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(1, 14, 9, tokens=2, backward=True),
    "flash_attn::_flash_attn_forward": _Attention(0, 5),
    "flash_attn::_flash_attn_backward": _Attention(1, 11, backward=True),
}
_CAUSAL = {"True": True, "False": False, "0": False, "1": True, "2": True}
"""Values of a flag, and of the kind of mask that memory-efficient attention takes."""


def _attention(inputs: Inputs, where: _Attention) -> Iterator[OperatorKernels]:
    query, key = inputs.shape(where.query), inputs.shape(where.query + 1)
    precision = _PRECISIONS.get(inputs.type(where.query))
    packed = where.sequences is not None and inputs.shape(where.sequences)
    if precision is None or packed or not len(query) == len(key) == 4:  # noqa: PLR2004  sequences, tokens, heads, width
        return
    heads = 3 - where.tokens
    causal = _CAUSAL.get(inputs.value(where.causal))
    core = Core(
        query[0], query[heads], key[heads], query[3], query[where.tokens], key[where.tokens], causal=causal or False
    )
    if not _fits((core.batch * core.heads, core.queries, core.head, core.keys)):
        return
    width = PRECISION_BYTES[precision]
    if where.backward:
        sums, gradient = fused_gradient(width, core)
        yield OperatorKernels(_SUMS, What(sums))
        yield OperatorKernels(_NO_SUMS, What(gradient, precision, causal))
    else:
        yield OperatorKernels(ANY, What(fused(width, core), precision, causal))


class _Stream(NamedTuple):
    """What a memory-bound operator moves per element of one of its arguments."""

    operation: StreamName
    move: Pass
    kernel: Kernel = "stream"
    place: int = 0
    kernels: re.Pattern[str] = ANY


_SOFTMAX = (_Stream("softmax", Pass(1, 1), "function"),)
_SOFTMAX_BACK = (_Stream("softmax gradient", Pass(2, 1), "function"),)
_MASKED = Pass(1, 1, MASK)
_STREAMS: dict[str, tuple[_Stream, ...]] = {
    "aten::native_layer_norm": (_Stream("layer norm", Pass(1, 1)),),
    "aten::native_layer_norm_backward": (
        _Stream("layer norm gradient", Pass(2, 1), place=1, kernels=_OF_INPUTS),
        _Stream("layer norm gradient", Pass(2, 0, weight=True), place=1, kernels=_OF_WEIGHTS),
    ),
    "aten::_softmax": _SOFTMAX,
    "aten::_softmax_backward_data": _SOFTMAX_BACK,
    "ScaledUpperTriangMaskedSoftmax": _SOFTMAX,  # of Megatron-LM and Apex, as the next three
    "ScaledUpperTriangMaskedSoftmaxBackward": _SOFTMAX_BACK,
    "ScaledMaskedSoftmax": _SOFTMAX,
    "ScaledMaskedSoftmaxBackward": _SOFTMAX_BACK,
    "aten::native_dropout": (_Stream("dropout", _MASKED, "function"),),
    "aten::native_dropout_backward": (_Stream("dropout gradient", _MASKED, "function"),),
    "aten::gelu": (_Stream("bias-GELU", Pass(1, 1), "function"),),
    "aten::gelu_backward": (_Stream("bias-GELU gradient", Pass(2, 1), "function"),),
    "aten::embedding_dense_backward": (_Stream("gather gradient", Pass(2, 1)),),
}
_OF_SCORES: dict[str, StreamName] = {"dropout": "attention dropout", "dropout gradient": "attention dropout gradient"}
"""What a dropout is of that has four dimensions: sequences, heads, queries and keys."""


def _streams(inputs: Inputs, does: tuple[_Stream, ...]) -> Iterator[OperatorKernels]:
    for one in does:
        shape = inputs.shape(one.place)
        name = _OF_SCORES.get(one.operation, one.operation) if len(shape) == 4 else one.operation  # noqa: PLR2004  as above
        yield from _moved(name, prod(shape) if shape else 0, one, inputs.type(one.place))


_ADDS = frozenset({"aten::add", "aten::add_"})
_RESIDUALS: tuple[_Stream, ...] = (_Stream("residual", Pass(2, 1)), _Stream("residual gradient", Pass(2, 1)))


def _added(inputs: Inputs) -> Iterator[OperatorKernels]:
    shape = inputs.shape(0)
    if shape and shape == inputs.shape(1) and inputs.type(0) == inputs.type(1):
        for one in _RESIDUALS:
            yield from _moved(one.operation, prod(shape), one, inputs.type(0))


_GATHER = "aten::index_select"  # what aten::embedding calls: table, dimension, indices


def _gathered(inputs: Inputs) -> Iterator[OperatorKernels]:
    table, indices = inputs.shape(0), inputs.shape(2)
    if len(table) == 2 and len(indices) == 1 and inputs.value(1) in {"", "0"}:  # noqa: PLR2004  rows and their width
        yield from _moved("gather", indices[0] * table[1], _Stream("gather", Pass(1, 1)), inputs.type(0))


def _moved(name: str, elements: int, how: _Stream, type_: str) -> Iterator[OperatorKernels]:
    precision = _PRECISIONS.get(type_)
    if precision is not None and 0 < elements < _LARGEST**2:
        operation = streamed(name, elements, how.move, PRECISION_BYTES[precision], how.kernel)
        yield OperatorKernels(how.kernels, What(operation))


def _fits(shape: tuple[int, ...]) -> bool:
    return all(0 < length < _LARGEST for length in shape)
