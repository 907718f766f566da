"""What failures left of the rates of wires over time."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.results.columns import FAILURES

Times = NDArray[np.int64] | NDArray[np.float64]


class RateLeft(NamedTuple):
    """What is left of the rate of one wire over time.

    `times`: ps, ascending, at which that changes; shape ``(n,)``.
    `lost`: time at the rate as built that was lost up to each of them, ps; nothing is lost before the first and after
        the last. Shape ``(n,)``.
    """

    times: NDArray[np.int64]
    lost: NDArray[np.float64]

    def worth(self, begin: Times, end: Times) -> NDArray[np.float64]:
        """Time at the rate as built that would carry as much as the wire can from `begin` to `end`, ps."""
        lost = np.interp(end, self.times, self.lost) - np.interp(begin, self.times, self.lost)
        return np.asarray(end - begin - lost, np.float64)

    def mean(self, begin: int, end: int) -> float:
        """Mean share of the rate as built from `begin` to `end` (ps), which is later."""
        return float(self.worth(np.array(begin), np.array(end))) / (end - begin)


def none_failed() -> NDArray[np.void]:
    """Give the table of failures of a run in which nothing failed."""
    return np.zeros(0, FAILURES.record)


def rates_left(failures: NDArray[np.void]) -> dict[int, RateLeft]:
    """Give what is left of the rate of each wire that was slowed down, by its index.

    Of slowdowns at the same time the greatest counts. While a wire is down, its rate is that of before: what is not
    sent then is no use of it.
    """
    slow = failures[failures["share"] > 0]
    slow = slow[np.argsort(slow["link"], kind="stable")]
    links, first = np.unique(slow["link"], return_index=True)
    return dict(zip(links.tolist(), map(_rate_left, np.split(slow, first[1:])), strict=True)) if len(slow) else {}


def _rate_left(slow: NDArray[np.void]) -> RateLeft:
    times = np.unique(np.concatenate([slow["start"], slow["end"]]))
    left = np.ones(len(times) - 1)
    slow = slow[np.argsort(-slow["share"], kind="stable")]  # the slowest is written last
    begin, end = np.searchsorted(times, slow["start"]), np.searchsorted(times, slow["end"])
    if (end == begin + 1).all():  # none lies beside another that begins or ends meanwhile
        left[begin] = slow["share"]
    else:
        for one, other, share in zip(begin.tolist(), end.tolist(), slow["share"].tolist(), strict=True):
            left[one:other] = share
    return RateLeft(times, np.concatenate([[0.0], np.cumsum((1 - left) * np.diff(times))]))
