"""How fast the GPUs of a job are by a measured iteration: one number, for runs that nobody has measured.

The time of an iteration grows with what its kernels take, from that of communication and hosts alone; both ends of a
stretch that holds the measured time are brought together by the Illinois method (Dowell and Jarratt, BIT 11, 1971).
"""

from collections.abc import Callable

from fabricsim.errors import InputError
from fabricsim.scenario.variation import MOST

_CLOSE = 1e-4
"""Share of the measured time within which it is met."""
_RUNS = 40
_FASTEST = 64
"""Times as fast as by their preset; more than anybody's GPUs are."""


def gpu_speed(iteration: Callable[[float], float], measured: float) -> float:
    """Find the ``cluster.gpu_speed`` with which an iteration takes the measured time.

    `iteration`: its time with GPUs of a speed, s; called with each speed once.
    `measured`: s.
    Returns: four digits.
    Raises InputError if no speed does.
    """
    known: dict[float, float] = {}

    def excess(factor: float) -> float:
        """Time beyond the measured one of an iteration whose kernels take so many times as long, s."""
        speed = _rounded(factor)
        if speed not in known:
            known[speed] = iteration(speed) - measured
        return known[speed]

    low, high = _stretch(excess, measured)
    below, above, side = excess(low), excess(high), 0
    for _ in range(_RUNS):
        if min(abs(below), abs(above)) <= _CLOSE * measured or above == below:
            break
        factor = (low * above - high * below) / (above - below)
        if (found := excess(factor)) < 0:
            low, below, above = factor, found, above / (2 if side < 0 else 1)
            side = -1
        else:
            high, above, below = factor, found, below / (2 if side > 0 else 1)
            side = 1
    return _rounded(min((low, high), key=lambda factor: abs(excess(factor))))


def _rounded(factor: float) -> float:
    return float(f"{1 / factor:.4g}")


def _stretch(excess: Callable[[float], float], measured: float) -> tuple[float, float]:
    """Find two factors of the time of kernels between which the measured time lies."""
    low = high = 1.0
    while excess(high) < 0:
        low, high = high, 2 * high
        if high > MOST:
            raise InputError(f"no GPU speed makes an iteration last {measured:g} s: its kernels are no part of it")
    while excess(low) > 0:
        low, high = low / 2, low
        if low * _FASTEST < 1:
            least = excess(2 * low) + measured
            msg = (
                f"no GPU speed makes an iteration last {measured:g} s: it takes {least:.3g} s with GPUs {_FASTEST} "
                "times as fast, which communication and the host need; `fabricsim run` says what they wait for"
            )
            raise InputError(msg)
    return low, high
