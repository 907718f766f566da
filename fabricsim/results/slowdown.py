"""The histogram of message slowdowns: its bins and percentiles."""

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import SLOWDOWN_BINS, SLOWDOWN_BINS_PER_OCTAVE


def edges() -> NDArray[np.float64]:
    """Upper edge of each bin, shape ``(SLOWDOWN_BINS,)``: 1 for messages as fast as alone, then 32 per octave."""
    return 2.0 ** (np.arange(SLOWDOWN_BINS) / SLOWDOWN_BINS_PER_OCTAVE)


def percentile(counts: NDArray[np.int64], share: float) -> float | None:
    """Slowdown that a share of all messages does not exceed, to a bin's width (2.2 %).

    `counts`: messages per bin, shape ``(SLOWDOWN_BINS,)``.
    `share`: 0 to 1.
    Returns: none if there was no message.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    place = int(np.searchsorted(np.cumsum(counts), share * total))
    return float(edges()[min(place, len(counts) - 1)])  # of huge counts the share is rounded
