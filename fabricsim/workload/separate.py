"""What lies between products, if each operation, or each operator of a framework, is a kernel of its own.

The operations are those of TensorFlow without XLA in google-research/bert (``modeling.py``), of which the BERT of
TensorFlow's model garden has the same but for its masks:

- GELU is ``x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3))))``;
- a layer norm is ``nn.moments`` and ``nn.batch_normalization``, whose ``mean``, scale and offset are as large as its
  input once they are multiplied (epsilon is 1e-12, too small for the fused kernel);
- dropout is ``nn.dropout``: random numbers, a comparison, a scale, a cast and a product;
- scores are scaled, masked, and go through ``Softmax``, which reads them three times (maximum, sum, quotient);
- queries, keys and values get their bias and are transposed.

Gradients are those that TensorFlow registers for each operation (``math_grad.py``, ``nn_grad.py``), without those that
nobody uses; a gradient that comes back by several ways is summed by ``AddN``.

With 16 bits, GELU, layer norms and sums with the residual are in 32 bits, with casts around them: "Use float32 in keras
layer norm and the gelu activation" (official/nlp/modeling/layers/transformer.py of the garden, r2.3). If a graph is
rewritten, the same comes of ``Pow`` and ``Mean`` among the denied operations, and of what follows on them up to the
next product (tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h). Biases, dropout outside of attention
and gradients of softmax are in 32 bits there, too, and in 16 here.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from fabricsim.workload.work import MASK, Kernel, Pass

_WHOLE = 4  # bytes per element in 32 bits


class Elementwise(NamedTuple):
    """A kernel with its way back; `kept` elements of each stay for that.

    `mixed`: whether it is in 32 bits even if others are in 16, or a cast that is only there then.
    """

    name: str
    forward: Pass | None
    backward: tuple[Pass, ...] = ()
    kept: int = 0
    kernel: Kernel = "stream"
    mixed: Literal["whole", "cast"] | None = None


def _whole(*parts: Elementwise) -> tuple[Elementwise, ...]:
    return tuple(part._replace(mixed="whole") for part in parts)


_ONE, _TWO = Pass(1, 1), Pass(2, 1)  # of one input, and of two
_FILL, _REDUCE = Pass(0, 1), Pass(1, 0)
_WEIGHT = Pass(1, 0, weight=True)
_BIAS = Elementwise("bias", _ONE, (_WEIGHT,))
_TO_WHOLE = Elementwise("cast to 32 bits", Pass(1, 2), (Pass(2, 1),), mixed="cast")  # in elements of 16 bits
_TO_HALF = Elementwise("cast to 16 bits", Pass(2, 1), (Pass(1, 2),), mixed="cast")

_DROPOUT = (
    Elementwise("random numbers", _FILL, kernel="function"),
    Elementwise("keep", Pass(1, 0, MASK)),
    Elementwise("scale up", _ONE, (_ONE,)),
    Elementwise("cast mask", Pass(0, 1, MASK), kept=1),
    Elementwise("drop", _TWO, (_TWO,)),
)

_TRANSPOSE = Elementwise("transpose", _ONE, (_ONE,))
_QKV = {"QKV join and bias": (_BIAS, _TRANSPOSE), "QKV bias": (_BIAS,), "QKV join": (_TRANSPOSE,)}

SEPARATE = {
    "bias-GELU": (
        _BIAS,
        _TO_WHOLE,
        *_whole(
            Elementwise("sum of input gradients", None, (Pass(3, 1),)),
            Elementwise("power", _ONE, (_ONE, _ONE, _TWO), kept=1, kernel="function"),
            Elementwise("times 0.044715", _ONE, (_ONE,)),
            Elementwise("plus input", _TWO),
            Elementwise("times root", _ONE, (_ONE,)),
            Elementwise("tanh", _ONE, (_TWO,), kept=1, kernel="function"),
            Elementwise("plus 1", _ONE),
            Elementwise("times 0.5", _ONE, (_ONE,)),
            Elementwise("times input", _TWO, (_TWO, _TWO), kept=1),
        ),
        _TO_HALF,
    ),
    "layer norm": (
        *_whole(
            Elementwise("sum of input gradients", None, (Pass(3, 1),)),
            Elementwise("mean", _REDUCE, (_FILL, _ONE), kept=1),
            Elementwise("squared difference", _ONE, (_ONE, _ONE, _TWO)),
            Elementwise("variance", _REDUCE, (_FILL, _ONE)),
            Elementwise("inverse times scale", _FILL, (_ONE, _REDUCE, _ONE, _WEIGHT), kept=1),
            Elementwise("sum of inverse gradients", None, (_TWO,)),
            Elementwise("mean times inverse", _ONE, (_TWO, _REDUCE, _ONE)),
            Elementwise("offset less mean", _ONE, (_WEIGHT, _ONE)),
            Elementwise("input times inverse", _TWO, (_TWO, _TWO)),
            Elementwise("plus offset", _TWO),
        ),
        _TO_HALF,
    ),
    "softmax": (
        Elementwise("scale scores", _ONE, (_ONE,)),
        Elementwise("mask scores", _ONE),
        Elementwise("maximum", _REDUCE),
        Elementwise("sum", _REDUCE, kernel="function"),
        Elementwise("softmax", _ONE, (_TWO, _REDUCE, _ONE, _TWO), kept=1, kernel="function"),
    ),
    **_QKV,
    "attention dropout": (*_DROPOUT, Elementwise("dropped", None, kept=1)),
    "dropout": _DROPOUT,
    "bias-dropout-residual": (_BIAS, *_DROPOUT, _TO_WHOLE, *_whole(Elementwise("plus residual", _TWO))),
    "residual": _whole(Elementwise("sum of both gradients", None, (_TWO,))),
}
"""Kernels in the place of one that Megatron-LM fuses, by its name."""


_DROPPED = Elementwise("dropout", Pass(1, 1, MASK), (Pass(1, 1, MASK),), kept=1, kernel="function")
_OPERATORS = {
    "bias-GELU": (_BIAS, Elementwise("GELU", _ONE, (_TWO,), kept=1, kernel="function")),
    "softmax": (
        Elementwise("scale scores", _ONE, (_ONE,)),
        Elementwise("mask scores", _ONE),
        Elementwise("softmax", _ONE, (_TWO,), kept=1, kernel="function"),
    ),
    **_QKV,
    "bias-dropout-residual": (_BIAS, _DROPPED, Elementwise("plus residual", _TWO)),
}
"""The same if a framework has GELU, layer norms, softmax and dropout as one kernel each."""

_NORM = Elementwise("layer norm", _ONE, (_TWO, Pass(2, 0, weight=True)), kept=1)
_MIXED = {
    "bias-GELU": (_BIAS, _TO_WHOLE, *_whole(Elementwise("GELU", _ONE, (_TWO,), kept=1, kernel="function")), _TO_HALF),
    "layer norm": (*_whole(_NORM), _TO_HALF),
    "softmax": (
        Elementwise("mask scores", _ONE),
        _TO_WHOLE,
        *_whole(Elementwise("softmax", _ONE, (_TWO,), kept=1, kernel="function")),
    ),
    **_QKV,
    "attention dropout": (*_whole(_DROPPED), _TO_HALF),
    "bias-dropout-residual": (_BIAS, _DROPPED, _TO_WHOLE, *_whole(Elementwise("plus residual", _TWO))),
    "residual": SEPARATE["residual"],
}
"""The same with 32 bits, and casts around them, for softmax, which PaddlePaddle 1.8 denies 16 bits, for GELU and layer
norms, which its lists do not have, and for what takes their outputs, but for products (``fp16_lists.py`` and
``fp16_utils.py`` of ``fluid/contrib/mixed_precision``). Scores are scaled in their product there (``alpha``)."""

_TABLES: Mapping[str, Mapping[str, tuple[Elementwise, ...]]] = {
    "separate": SEPARATE,
    "operators": _OPERATORS,
    "mixed-operators": _MIXED,
}


def in_place_of(fused: Elementwise, how: str, width: int) -> Iterator[tuple[Elementwise, int]]:
    """Give the kernels in the place of one, and the bytes of their elements.

    `how`: what is fused, as ``elementwise`` of the job.
    `width`: bytes of an element of activations.
    """
    for part in _TABLES.get(how, {}).get(fused.name, (fused,)):
        if part.mixed != "cast" or width < _WHOLE:
            yield part, _WHOLE if part.mixed == "whole" else width
