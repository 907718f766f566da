"""What lies between products, if each operation is a kernel of its own: TensorFlow without XLA.

The operations are those of google-research/bert (``modeling.py``), of which the BERT of TensorFlow's model garden has
the same but for its masks:

- GELU is ``x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3))))``;
- a layer norm is ``nn.moments`` and ``nn.batch_normalization``, whose ``mean``, scale and offset are as large as its
  input once they are multiplied (epsilon is 1e-12, too small for the fused kernel);
- dropout is ``nn.dropout``: random numbers, a comparison, a scale, a cast and a product;
- scores are scaled, masked, and go through ``Softmax``, which reads them three times (maximum, sum, quotient);
- queries, keys and values get their bias and are transposed.

Gradients are those that TensorFlow registers for each operation (``math_grad.py``, ``nn_grad.py``), without those that
nobody uses; a gradient that comes back by several ways is summed by ``AddN``. Casts of mixed precision are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from fabricsim.workload.work import MASK, Kernel, Pass


class Elementwise(NamedTuple):
    """A kernel with its way back; `kept` elements of each stay for that."""

    name: str
    forward: Pass | None
    backward: tuple[Pass, ...] = ()
    kept: int = 0
    kernel: Kernel = "stream"


_ONE, _TWO = Pass(1, 1), Pass(2, 1)  # of one input, and of two
_FILL, _REDUCE = Pass(0, 1), Pass(1, 0)
_WEIGHT = Pass(1, 0, weight=True)
_BIAS = Elementwise("bias", _ONE, (_WEIGHT,))

_DROPOUT = (
    Elementwise("random numbers", _FILL, kernel="function"),
    Elementwise("keep", Pass(1, 0, MASK)),
    Elementwise("scale up", _ONE, (_ONE,)),
    Elementwise("cast mask", Pass(0, 1, MASK), kept=1),
    Elementwise("drop", _TWO, (_TWO,)),
)

SEPARATE = {
    "bias-GELU": (
        _BIAS,
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
    "layer norm": (
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
    "softmax": (
        Elementwise("scale scores", _ONE, (_ONE,)),
        Elementwise("mask scores", _ONE),
        Elementwise("maximum", _REDUCE),
        Elementwise("sum", _REDUCE, kernel="function"),
        Elementwise("softmax", _ONE, (_TWO, _REDUCE, _ONE, _TWO), kept=1, kernel="function"),
    ),
    "QKV join and bias": (_BIAS, Elementwise("transpose", _ONE, (_ONE,))),
    "attention dropout": (*_DROPOUT, Elementwise("dropped", None, kept=1)),
    "dropout": _DROPOUT,
    "bias-dropout-residual": (_BIAS, *_DROPOUT, Elementwise("plus residual", _TWO)),
}
"""Kernels in the place of one that Megatron-LM fuses, by its name."""
