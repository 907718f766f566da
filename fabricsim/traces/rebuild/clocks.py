"""Clocks of several hosts, brought together by the common end of what their ranks do together."""

from collections.abc import Sequence
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.traces.rebuild.dependencies import Ordered
from fabricsim.traces.rebuild.matching import Matched
from fabricsim.traces.trace import COMMUNICATION, Recording
from fabricsim.units import PS_PER_NS

LONGEST = 3600 * 10**12
"""Time by which ranks of one job may begin apart, ps."""

ENDS_TOGETHER = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")
"""Operations that no rank can leave before the last has entered."""

_AGREED = 100 * 10**6  # clocks that differ by less, ps, are left alone: ranks of one host see ends differ by some 10 us


def delays(recordings: Sequence[Recording], ordered: Sequence[Ordered], matched: Matched) -> NDArray[np.int64]:
    """Say how much later than the first of all each recording began, by one clock.

    Clocks differ by the median of the differences between the ends of those collectives that no rank can leave before
    the last has come; where that is below `_AGREED`, they are taken to agree.

    Returns: in ps, shape ``(recordings,)``; the least is 0.
    """
    if not all(some.timed for some in ordered):
        return np.zeros(len(recordings), np.int64)
    zeros = [max(some.zero, 0) for some in ordered]
    begun = [recording.origin * PS_PER_NS + zero for recording, zero in zip(recordings, zeros, strict=True)]
    ends = [_ends(some) for some in ordered]
    begins = [begin - ahead for begin, ahead in zip(begun, _ahead(recordings, matched, begun, ends), strict=True)]
    first = min((begin for begin, some in zip(begins, ordered, strict=True) if len(some.nodes)), default=0)
    later = [begin - first if len(some.nodes) else 0 for begin, some in zip(begins, ordered, strict=True)]
    worst = later.index(max(later))
    if later[worst] > LONGEST:
        msg = "begins more than an hour after the first rank, and does nothing together with others that could tell"
        raise TraceError(recordings[worst].source, f"{msg} how far their clocks differ; give the files of one run")
    return np.array(later, np.int64)


def _ends(ordered: Ordered) -> list[int]:
    """When each communication ended, ps after the zero of its recording."""
    nodes = ordered.nodes[ordered.nodes["kind"] == COMMUNICATION]
    ends: list[int] = (nodes["start"] + nodes["duration"]).tolist()
    return ends


def _ahead(
    recordings: Sequence[Recording], matched: Matched, begun: Sequence[int], ends: Sequence[list[int]]
) -> list[int]:
    """Give how far each clock is ahead of the first that it can be compared with, through others or not, ps."""
    places: dict[int, dict[int, int]] = {}
    for index, recording in enumerate(recordings):
        for place, number in enumerate(matched.numbers[max(recording.rank, 0)]):
            places.setdefault(number, {})[index] = place
    shared: dict[int, dict[int, list[int]]] = {index: {} for index in range(len(recordings))}
    for number, found in places.items():
        if next(iter(matched.matches[number].nodes.values()))[1].operation in ENDS_TOGETHER:
            when = {index: begun[index] + ends[index][place] for index, place in found.items()}
            one = next(iter(when))
            for other in list(when)[1:]:
                shared[one].setdefault(other, []).append(when[other] - when[one])
                shared[other].setdefault(one, []).append(when[one] - when[other])
    ahead: dict[int, int] = {}
    for start in range(len(recordings)):
        waiting = [] if start in ahead else [start]
        ahead.setdefault(start, 0)
        while waiting:
            index = waiting.pop()
            for other, differences in shared[index].items():
                if other not in ahead:
                    difference = median_low(differences)
                    ahead[other] = ahead[index] + (difference if abs(difference) >= _AGREED else 0)
                    waiting.append(other)
    return [ahead[index] for index in range(len(recordings))]
