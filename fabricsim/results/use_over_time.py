"""Use of resources over time, by tier: of wires as recorded, of others by the calls that they held."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.results.resources import tier
from fabricsim.results.result import RunRecord, Series

BINS = 240
"""Stretches of time at most."""
_WHOLE = 2**53
"""Whole numbers that a float has."""


class TierUse(NamedTuple):
    """Use of the resources of one tier.

    ``alike`` is how many were looked at, ``busiest`` the one with the highest mean use. ``least``, ``mean`` and
    ``most`` of them have a share of the capacity, 0 to 1, for each stretch of time. Of resources that are not recorded
    (``held``) there is the most alone: each call adds its mean use of the resource that limits it while it runs.
    """

    tier: str
    kind: str
    alike: int
    busiest: str
    least: NDArray[np.float64]
    mean: NDArray[np.float64]
    most: NDArray[np.float64]
    held: bool = False


def use_over_time(result: RunRecord, bins: int = BINS) -> tuple[NDArray[np.float64], list[TierUse]]:
    """Give the edges of `bins` stretches of time in ps, and the use of each tier that was used, the busiest first."""
    edges, wires = of_series(result.series, result.iteration, bins)
    return edges, sorted([*wires, *_held(result, edges, {use.tier for use in wires})], key=lambda use: -use.most.mean())


def held_over_time(result: RunRecord, bins: int = BINS) -> list[TierUse]:
    """Give the use of what is not recorded, the busiest first, as `use_over_time` does."""
    return [use for use in use_over_time(result, bins)[1] if use.held]


def use_of_wires(series: Series, end: int, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give edges of stretches up to `end` in ps, and the use of each recorded wire in each, shape ``(wires, bins)``."""
    edges = np.linspace(0.0, max(end, 1), max(1, min(bins, -(-end // max(series.interval, 1)))) + 1)
    times = np.arange(series.rate.shape[1] + 1) * float(series.interval)
    use = np.zeros((len(series.names), len(edges) - 1))
    for mine, name, rate, capacity in zip(use, series.names, series.rate, series.capacity, strict=True):
        if capacity > 0 and rate.any():
            carried = np.interp(edges, times, np.concatenate([[0.0], np.cumsum(rate)]) * series.interval)
            mine[:] = np.minimum(np.diff(carried) / (capacity * _worth(series, name, edges)), 1.0)
    return edges, use


def _worth(series: Series, name: str, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time at the rate as built that would carry as much as a wire can between edges, ps."""
    if name in series.left:
        return series.left[name].worth(edges[:-1], edges[1:])
    return np.asarray(np.diff(edges), np.float64)


def peaks(series: Series) -> NDArray[np.float64]:
    """Give the most that each recorded wire was used in an interval, as a share of what it could carry then."""
    peak: NDArray[np.float64] = series.rate.max(axis=1, initial=0) / np.where(
        series.capacity > 0, series.capacity, np.inf
    )
    edges = np.arange(series.rate.shape[1] + 1) * float(series.interval)
    for place, name in enumerate(series.names):
        if name in series.left and series.capacity[place] > 0:
            worth = _worth(series, name, edges) / series.interval
            peak[place] = (series.rate[place] / worth).max(initial=0) / series.capacity[place]
    return peak


def of_series(series: Series, end: int, bins: int = BINS) -> tuple[NDArray[np.float64], list[TierUse]]:
    """Give the use of recorded wires up to `end` (ps), as `use_over_time` does."""
    edges, use = use_of_wires(series, end, bins)
    tiers: dict[str, list[int]] = {}
    for place, name in enumerate(series.names):
        tiers.setdefault(tier(name), []).append(place)
    found = []
    for name, places in tiers.items():
        mine = use[places]
        if mine.any():
            busiest = series.names[places[int(np.argmax(mine.mean(axis=1).round(9)))]]
            bands = (mine.min(axis=0), mine.mean(axis=0), mine.max(axis=0))
            found.append(TierUse(name, "wire", len(places), busiest, *bands))
    return edges, sorted(found, key=lambda use: -use.most.mean())


def _held(result: RunRecord, edges: NDArray[np.float64], recorded: set[str]) -> list[TierUse]:
    """Give the use of what limited calls and is not recorded."""
    limit = result.calls.limits.limit
    names = [tier(link.name) for link in result.links]
    tiers: dict[str, list[int]] = {}
    for link in np.unique(limit[limit != NONE]).tolist():
        if names[link] not in recorded:
            tiers.setdefault(names[link], []).append(link)
    found = []
    for name, links in tiers.items():
        by_link = _of_links(result, np.array(links), edges)
        most = by_link.max(axis=0)
        if not most.any():
            continue
        busiest = result.links[links[int(np.argmax(by_link.mean(axis=1)))]]
        count = sum(link.copies for link, its in zip(result.links, names, strict=True) if its == name)
        found.append(TierUse(name, busiest.kind, count, busiest.name, most, most, most, held=True))
    return found


def _of_links(result: RunRecord, links: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean use of each link by calls over each stretch, shape ``(links, stretches)``; `links` in rising order."""
    calls = result.calls
    some = np.flatnonzero(np.isin(calls.limits.limit, links) & (calls.end > calls.start))
    link = np.searchsorted(links, calls.limits.limit[some])
    # links follow one another on one axis of time, as many as it has whole numbers for
    span = int(max(calls.end[some].max(initial=0), edges[-1])) + 1
    at_once = max(1, _WHOLE // span)
    use = np.zeros((len(links), len(edges) - 1))
    for begin in range(0, len(links), at_once):
        mine = use[begin : begin + at_once]
        chosen = (link >= begin) & (link < begin + at_once)
        here, offset = some[chosen], span * (link[chosen] - begin)
        times, total = _of_calls(calls.start[here] + offset, calls.end[here] + offset, calls.limits.used[here])
        carried = np.interp(edges + span * np.arange(len(mine))[:, None], times, total)
        mine[:] = np.diff(carried) / np.diff(edges)
    return use


def _of_calls(
    start: NDArray[np.int64], end: NDArray[np.int64], used: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give times and the use up to them; each call has that of all, so while several run the greatest counts."""
    times = np.sort(np.concatenate([[0], start, end]))
    times = times[np.diff(times, prepend=-1) > 0]  # np.unique takes five times as long
    first, beyond = np.searchsorted(times, start), np.searchsorted(times, end)
    # two stretches of 2^k gaps between times cover a call; what holds of one holds of both its halves
    power = np.frexp(beyond - first)[1] - 1
    level = np.zeros((power.max(initial=0) + 1, len(times)))
    np.maximum.at(level, (power, first), used)
    np.maximum.at(level, (power, beyond - 2**power), used)
    for k in range(len(level) - 1, 0, -1):
        half = 2 ** (k - 1)
        np.maximum(level[k - 1], level[k], out=level[k - 1])
        np.maximum(level[k - 1, half:], level[k, :-half], out=level[k - 1, half:])
    return times, np.concatenate([[0.0], np.cumsum(level[0, :-1] * np.diff(times))])
