"""What the timeline of a page shows: ranks, and what each did when, as little as makes the picture."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, HOST_STREAM, MAIN_STREAM
from fabricsim.report import style
from fabricsim.results.breakdown import critical_rank, simulated_ranks
from fabricsim.results.jobs import of_longest
from fabricsim.results.places import jobs_of_ranks, place_of, places
from fabricsim.results.result import RunRecord
from fabricsim.units import seconds

MOST_RANKS = 32
"""Ranks shown at most: the critical one first, others evenly."""
MOST_SPANS = 40_000
"""Spans of all ranks at most; neighbours of one name are drawn as one if there are more."""
WAITING = "waiting for other ranks"
"""Name of the time in a collective before its last rank is ready."""
HOSTING = "host"
"""Name of what the host does."""
_TICKS = 10**7  # in which times are counted, of the whole run


def spans(result: RunRecord) -> dict[str, Any]:
    """Give what the script of the page draws: rows, names with their colours, and seconds in a unit of time."""
    critical, simulated = critical_rank(of_longest(result)), simulated_ranks(result)
    some = [simulated[place] for place in style.evenly(len(simulated), MOST_RANKS)]
    ranks = [critical, *(rank for rank in some if rank != critical)][:MOST_RANKS]
    names = _names(result)
    number = {name: place for place, name in enumerate(names)}
    colours = _colours(result, names)
    found, job_of = places(result), jobs_of_ranks(result)
    return {
        "end": _TICKS,
        "unit": seconds(max(result.iteration, 1)) / _TICKS,
        "names": [[name, colours[name]] for name in names],
        "rows": [
            {
                "name": ", ".join(filter(None, (f"rank {rank}", place_of(found, rank), job_of.get(rank, "")))),
                **_row(result, rank, number, MOST_SPANS // len(ranks)),
            }
            for rank in ranks
        ],
    }


def _names(result: RunRecord) -> list[str]:
    """Timers of computation, and collectives with their dimension."""
    of_calls = dict.fromkeys(f"{kind.dimension} {kind.collective}" for kind in result.calls.kinds)
    computing = np.unique(result.ops["timer"][result.ops["kind"] == COMPUTE]).tolist()
    waiting = [WAITING] if of_calls else []
    waiting += [HOSTING] if (result.ops["stream"] == HOST_STREAM).any() else []
    return list(dict.fromkeys([*(result.timers[timer] for timer in computing), *of_calls, *waiting]))


def _colours(result: RunRecord, names: list[str]) -> dict[str, str]:
    dimension = {names.index(f"{kind.dimension} {kind.collective}"): kind.dimension for kind in result.calls.kinds}
    hosting = [names.index(HOSTING)] if HOSTING in names else []
    looks = style.timer_colours(names, dimension, hosting, result.calls.dimensions)
    return {name: style.shade(look) for name, look in zip(names, looks, strict=True)} | {WAITING: style.BUBBLE_COLOUR}


def _row(result: RunRecord, rank: int, number: dict[str, int], most: int) -> dict[str, list[int]]:
    ops = result.ops
    mine = np.flatnonzero((ops["rank"] == rank) & (result.spans["end"] > result.spans["start"]))
    mine = mine[~((ops["kind"][mine] == HOST) & (ops["stream"][mine] == MAIN_STREAM))]
    collective = ops["kind"][mine] == COLLECTIVE
    of_kind = np.array([number[f"{kind.dimension} {kind.collective}"] for kind in result.calls.kinds] or [0])
    of_timer = np.array([number.get(timer, 0) for timer in result.timers] or [0])
    calls = np.where(collective, ops["call"][mine], 0)
    kinds = result.calls.kind[calls] if len(result.calls) else np.zeros(len(mine), np.int64)
    of = np.where(collective, of_kind[kinds], of_timer[ops["timer"][mine]])
    of[ops["kind"][mine] == HOST] = number.get(HOSTING, 0)
    band = np.where(ops["kind"][mine] == HOST, 2, np.where(ops["stream"][mine] == MAIN_STREAM, 0, 1))
    start, end = result.spans["start"][mine], result.spans["end"][mine]
    ready = result.calls.start[calls] if len(result.calls) else start
    waits = collective & (ready > start) & (ready < end)  # an op that is done before has not waited
    of = np.concatenate([of, np.full(int(waits.sum()), number.get(WAITING, 0))])
    band = np.concatenate([band, band[waits]])
    start, end = np.concatenate([np.where(waits, ready, start), start[waits]]), np.concatenate([end, ready[waits]])
    key = of * 4 + band
    order = np.lexsort((start, key))
    key, start, end = key[order], start[order], end[order]
    if len(key) > most:
        key, start, end = _coarser(key, start, end, most, result.iteration)
    scale = _TICKS / max(result.iteration, 1)
    begins, ends = np.rint(start * scale).astype(np.int64), np.rint(end * scale).astype(np.int64)
    columns = {"of": key // 4, "band": key % 4, "start": begins, "time": np.maximum(ends - begins, 1)}
    return {name: column.tolist() for name, column in columns.items()}


def _coarser(
    key: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], most: int, whole: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw the spans that begin in one slot of time and are shorter as one, called what takes most of that time."""
    slot = max(1, 6 * whole // most)  # a band has its own slots, and half of what is drawn may be longer ones
    place = np.where(end - start < slot, (key % 4) * (whole // slot + 1) + start // slot, -1 - np.arange(len(key)))
    order = np.lexsort((key, place))
    key, place, start, end = key[order], place[order], start[order], end[order]
    firsts = np.flatnonzero((np.diff(place, prepend=place[0] - 1) != 0) | (np.diff(key, prepend=-1) != 0))
    took = np.add.reduceat(end - start, firsts)
    longest = firsts[np.lexsort((-took, place[firsts]))]
    slots = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
    longest = longest[np.flatnonzero(np.diff(place[longest], prepend=place[0] - 1))]
    return key[longest], np.minimum.reduceat(start, slots), np.maximum.reduceat(end, slots)
