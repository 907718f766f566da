"""Traffic patterns: who sends how much to whom, drawn from a seed.

Every random choice has a stream of its own, named after what it decides, so that another number of flows or another
size leaves the other choices as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError
from fabricsim.results.traffic import DEMAND, LATEST_START, MOST_FLOWS, Matrix
from fabricsim.scenario.traffic import FlowSizes
from fabricsim.scenario.variation import stream
from fabricsim.units import PS_PER_S

Pairs = NDArray[np.int64]

MOST_LOAD = 10.0
"""Beyond it a slip of the pen, such as per cent, is likelier than a wish."""
POISSON_FLOWS = 1000
"""Arrivals if none are asked for."""
POISSON_LOAD = 0.5
"""Load if none is asked for."""

_LEAST_RANKS = 2


@dataclass(frozen=True)
class Request:
    """What is wanted of a pattern.

    `pattern`: one of `PATTERNS`.
    `ranks`: of the cluster.
    `sizes`: bytes of every flow, or the distribution that they are drawn from.
    `seed`: of all random choices.
    `rate`: payload that a rank can send over its share of the host's link, bytes/s: load 1 of ``poisson``.
    `flows`: number of senders, or of arrivals; what the pattern has by itself if None.
    `load`: of ``poisson``, relative to `rate`.
    """

    pattern: str
    ranks: int
    sizes: int | FlowSizes
    seed: int
    rate: float
    flows: int | None = None
    load: float | None = None


def generate(request: Request) -> Matrix:
    """Draw the flows of a pattern.

    The same request gives the same flows on every machine. All start at 0, but for those of ``poisson``.

    Raises InputError if the pattern is unknown, or cannot be had with that number of ranks or flows, or that load.
    """
    _check(request)
    pairs = PATTERNS[request.pattern](request)
    if len(pairs) > MOST_FLOWS:
        raise InputError(f"{request.pattern} over {request.ranks} ranks is {len(pairs)} flows; at most {MOST_FLOWS}")
    flows = np.zeros(len(pairs), DEMAND)
    flows["id"] = np.arange(1, len(pairs) + 1)
    flows["source"], flows["target"] = pairs[:, 0], pairs[:, 1]
    flows["bytes"] = _sizes(request, len(pairs))
    if request.pattern == "poisson":
        flows["start"] = _arrivals(request, len(pairs))
    return Matrix(flows, request.ranks, request.pattern)


def mean_size(sizes: int | FlowSizes) -> float:
    """Mean flow size, bytes: that of a distribution is the area beside its cumulative curve."""
    if isinstance(sizes, int):
        return float(sizes)
    points, shares = _curve(sizes)
    return float(np.sum((points[1:] + points[:-1]) / 2 * np.diff(shares)))


def draw_sizes(sizes: FlowSizes, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Turn uniform numbers into flow sizes by the inverse of the cumulative curve.

    `sizes`: the distribution.
    `uniform`: in [0, 1), shape ``(n,)``.
    Returns: bytes, rounded to whole ones and at least 1, shape ``(n,)``.
    """
    points, shares = _curve(sizes)
    return np.maximum(np.rint(np.interp(uniform, shares, points)), 1).astype(np.int64)


def _curve(sizes: FlowSizes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    points = np.array([0, *(point.size for point in sizes.points)], np.float64)
    return points, np.array([0.0, *(point.share for point in sizes.points)])


def _check(request: Request) -> None:
    pattern, ranks, flows = request.pattern, request.ranks, request.flows
    if pattern not in PATTERNS:
        raise InputError(f"there is no pattern {pattern!r}; there are {', '.join(PATTERNS)}")
    if ranks < _LEAST_RANKS:
        raise InputError(f"{pattern} needs at least 2 ranks, and the cluster has {ranks}; raise cluster.hosts")
    if flows is not None and pattern in {"ring", "all-to-all"}:
        msg = f"the number of flows of {pattern} is that of the ranks and cannot be chosen; set cluster.hosts"
        raise InputError(msg)
    most = {"permutation": ranks, "incast": ranks - 1}.get(pattern, MOST_FLOWS)
    if flows is not None and not 1 <= flows <= most:
        raise InputError(f"{flows} flows: {pattern} over {ranks} ranks has 1 to {most}")
    _check_load(request)


def _check_load(request: Request) -> None:
    if request.load is None:
        return
    if request.pattern != "poisson":
        msg = f"a load has no effect on {request.pattern}, whose flows all start at once; take it out, or use poisson"
        raise InputError(msg)
    if not 0 < request.load <= MOST_LOAD:
        msg = f"a load of {request.load} is not above 0 and at most {MOST_LOAD:g}; 0.5 fills half of each host's link"
        raise InputError(msg)


def _permutation(request: Request) -> Pairs:
    """Each rank sends to another one and receives from one; all such permutations are equally likely."""
    random = stream(request.seed, "traffic/permutation")
    sources = np.arange(request.ranks)
    targets = sources
    while (targets == sources).any():  # one try in e succeeds, whatever the number of ranks
        targets = np.argsort(random.random(request.ranks), kind="stable")
    if request.flows is not None:
        order = np.argsort(stream(request.seed, "traffic/senders").random(request.ranks), kind="stable")
        sources = np.sort(order[: request.flows])
    return np.stack([sources, targets[sources]], axis=1)


def _incast(request: Request) -> Pairs:
    """Ranks 1, 2, ... all send to rank 0."""
    senders = np.arange(1, 1 + (request.flows or request.ranks - 1))
    return np.stack([senders, np.zeros_like(senders)], axis=1)


def _all_to_all(request: Request) -> Pairs:
    """Each rank sends to every other, beginning with the next one."""
    ranks = request.ranks
    if ranks * (ranks - 1) > MOST_FLOWS:
        msg = f"all-to-all over {ranks} ranks is {ranks * (ranks - 1)} flows; at most {MOST_FLOWS}: set cluster.hosts"
        raise InputError(msg)
    sources = np.repeat(np.arange(ranks), ranks - 1)
    return np.stack([sources, (sources + np.tile(np.arange(1, ranks), ranks)) % ranks], axis=1)


def _ring(request: Request) -> Pairs:
    """Each rank sends to the next one, the last to the first."""
    sources = np.arange(request.ranks)
    return np.stack([sources, (sources + 1) % request.ranks], axis=1)


def _poisson(request: Request) -> Pairs:
    """Each flow goes from a random rank to a random other one."""
    count = POISSON_FLOWS if request.flows is None else request.flows
    random = stream(request.seed, "traffic/pairs").random((count, 2))
    sources = (random[:, 0] * request.ranks).astype(np.int64)
    others = 1 + (random[:, 1] * (request.ranks - 1)).astype(np.int64)
    return np.stack([sources, (sources + others) % request.ranks], axis=1)


PATTERNS: dict[str, Callable[[Request], Pairs]] = {
    "permutation": _permutation,
    "incast": _incast,
    "all-to-all": _all_to_all,
    "ring": _ring,
    "poisson": _poisson,
}
"""Patterns by name; each gives source and target of its flows, shape ``(n, 2)``."""


def _sizes(request: Request, count: int) -> NDArray[np.int64]:
    if isinstance(request.sizes, int):
        if request.sizes < 1:
            raise InputError("a flow of 0 bytes moves nothing; it has at least 1 byte")
        return np.full(count, request.sizes, np.int64)
    return draw_sizes(request.sizes, stream(request.seed, "traffic/sizes").random(count))


def _arrivals(request: Request, count: int) -> NDArray[np.int64]:
    """Draw a Poisson process, ps: gaps are exponential, and all ranks together offer the load."""
    load = POISSON_LOAD if request.load is None else request.load
    gap = mean_size(request.sizes) / (load * request.rate * request.ranks) * PS_PER_S
    # log1p(-u) is finite: u is below 1
    times = np.cumsum(-np.log1p(-stream(request.seed, "traffic/arrivals").random(count)) * gap)
    if times[-1] > LATEST_START:
        span = times[-1] / PS_PER_S
        msg = f"{count} flows at a load of {load:g} arrive over {span:.3g} s; at most an hour: raise the load"
        raise InputError(msg)
    return np.rint(times).astype(np.int64)
