"""Clocks of several hosts, brought together by the common end of what their ranks do together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.tables import NONE
from fabricsim.traces.trace import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fabricsim.captured.dependencies import Ordered
    from fabricsim.captured.matching import Matched
    from fabricsim.traces.trace import Recording

PS_PER_NS = 1000

_ENDS_TOGETHER = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")
"""Operations that no rank can leave before the last has entered."""

_AGREED = 100 * 10**6
"""Clocks that differ by less, ps, are left alone: ranks of one host see ends differ by some 10 us."""


def delays(recordings: Sequence[Recording], ordered: Sequence[Ordered], matched: Matched) -> NDArray[np.int64]:
    """Say how much later than the first of all each recording began, by one clock.

    Clocks differ by the median of the differences between the ends of those collectives that no rank can leave before
    the last has come; where that is below `_AGREED`, they are taken to agree.

    Parameters
    ----------
    recordings, ordered
        What was captured, and its nodes in order.
    matched
        Their communications.

    Returns
    -------
    numpy.ndarray
        In ps, shape ``(recordings,)``; the least is 0.
    """
    if any(some.zero == NONE for some in ordered):
        return np.zeros(len(recordings), np.int64)
    zero = min(some.origin for some in recordings)
    begun = [
        (recording.origin - zero) * PS_PER_NS + some.zero for recording, some in zip(recordings, ordered, strict=True)
    ]
    ends = [_ends(some) + begin for some, begin in zip(ordered, begun, strict=True)]
    begins = np.array(begun, np.int64) - _ahead(recordings, matched, ends)
    after: NDArray[np.int64] = begins - begins.min()
    return after


def _ends(ordered: Ordered) -> NDArray[np.int64]:
    nodes = ordered.nodes[ordered.nodes["kind"] == COMMUNICATION]
    ends: NDArray[np.int64] = nodes["start"] + nodes["duration"]
    return ends


def _ahead(recordings: Sequence[Recording], matched: Matched, ends: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Give how far each clock is ahead of the first, ps, shape ``(recordings,)``."""
    differences: list[list[int]] = [[] for _ in recordings]
    places: dict[int, dict[int, int]] = {}
    for index, recording in enumerate(recordings):
        for place, number in enumerate(matched.numbers[max(recording.rank, 0)]):
            places.setdefault(number, {})[index] = place
    for number, found in places.items():
        operation = next(iter(matched.matches[number].nodes.values()))[1].operation
        if 0 in found and operation in _ENDS_TOGETHER:
            for other, place in found.items():
                differences[other].append(int(ends[other][place] - ends[0][found[0]]))
    medians = np.array([int(np.median(some)) if some else 0 for some in differences], np.int64)
    return np.where(np.abs(medians) >= _AGREED, medians, 0)
