"""How far the model would be off if it had all parameters right.

`model_spread` says by how much: the median of what studies of training are off, part of which is their parameters'. If
a study is judged, that is the median of all others.
"""

from collections.abc import Sequence
from math import exp
from statistics import NormalDist, median

import numpy as np

from fabricsim.results.uncertainty import INSIDE

MODEL_ERRORS = {
    "megatron": 0.034,
    "vtrain": 0.105,
    "jean-zay": 0.023,
    "fsdp": 0.091,
    "dgxc": 0.052,
    "mlperf": 0.064,
    "megatron-bridge": 0.119,
    "dlperf": 0.111,
    "simumax": 0.125,
    "jax": 0.176,
    "efa-experts": 0.734,
}
"""By study, the standard deviation of the logarithm of predicted over measured iterations.

Of a normal distribution that has as many of the rows within its middle 80 %: the quantile 0.8 of their absolute value
over 1.2816. `fabricsim validate NAME --json` gives the rows, of `simumax` those with kernels of the host;
`docs/explanation/validation.md` says when.
"""

_PARTS = 99  # quantiles of the model's error that are put to each run


def interval(iterations: Sequence[float], model: float) -> tuple[float, float]:
    """Give between which two times the middle `INSIDE` lie, if each of some iterations is off by a factor besides.

    `model`: standard deviation of the logarithm of that factor, which is log-normal.
    """
    normal = NormalDist()
    factors = [exp(model * normal.inv_cdf((part + 0.5) / _PARTS)) for part in range(_PARTS)]
    low, high = np.quantile(np.outer(iterations, factors), [(1 - INSIDE) / 2, (1 + INSIDE) / 2]).tolist()
    return low, high


def model_spread(but: str = "") -> float:
    """Return the standard deviation of the logarithm of the model's error: the median of all studies but one."""
    return median(spread for study, spread in MODEL_ERRORS.items() if study != but)
