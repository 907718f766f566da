"""Bytes between pairs of ranks, from the calls of a job and the templates that they run with."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.collectives import by_host, template
from fabricsim.collectives.base import Group, Template, counted
from fabricsim.records.program import NONE
from fabricsim.results.pairs import Pairs
from fabricsim.workload.tally import plan_kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fabricsim.collectives.choice import Choose
    from fabricsim.workload.compile import JobPlan
    from fabricsim.workload.program import Call


class _Shares(NamedTuple):
    """Of a template: pairs of members, the share of the buffer that goes from one to the other, and to switches."""

    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    share: NDArray[np.float64]
    in_network: float


def plan_pairs(plan: JobPlan, choose: Choose, ranks_per_host: int, domain: int) -> Pairs:
    """Add up what the ranks of a job send to each other in an iteration.

    `plan`: the job; one rank of each stage is written out, and its groups stand for all that do the same.
    `choose`: what each call runs with, as `fabricsim.collectives.nccl.plan.chooser` gives it.
    `ranks_per_host`: of the cluster.
    `domain`: ranks of a scale-up domain.
    """
    calls = ((call, times, plan.placement.images(call.dimension, call.ranks)) for call, times in plan_kinds(plan))
    return _added(calls, plan.ranks, choose, ranks_per_host, domain)


def _added(
    calls: Iterable[tuple[Call, int, NDArray[np.int32]]], ranks: int, choose: Choose, ranks_per_host: int, domain: int
) -> Pairs:
    bytes_of: Counter[tuple[str, tuple[int, ...], str, str]] = Counter()
    groups: dict[tuple[str, tuple[int, ...], str, str], NDArray[np.int32]] = {}
    for call, times, images in calls:
        if len(call.ranks) > 1 and call.size > 0:
            algorithm = choose(call.collective, call.ranks, call.size).algorithm
            key = (call.dimension, call.ranks, call.collective, algorithm)
            bytes_of[key] += call.size * times
            groups[key] = images
    dimensions = list(dict.fromkeys(key[0] for key in bytes_of))
    parts: dict[int, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {}
    in_network = 0.0
    for (dimension, members, collective, algorithm), size in bytes_of.items():
        images = groups[dimension, members, collective, algorithm]
        shares = _shares(_template(collective, algorithm, members, ranks_per_host))
        in_network += shares.in_network * size * len(images)
        keys = images[:, shares.sender].astype(np.int64) * ranks + images[:, shares.receiver]
        carried = np.broadcast_to(shares.share * size, keys.shape)
        parts.setdefault(dimensions.index(dimension), []).append((keys.ravel(), carried.ravel()))
    rows = [_summed(number, part) for number, part in parts.items()]
    keys, number, carried = (np.concatenate(column) for column in zip(*rows, strict=True)) if rows else _nothing()
    return Pairs(
        ranks,
        domain,
        tuple(dimensions),
        (keys // ranks).astype(np.int32),
        (keys % ranks).astype(np.int32),
        number.astype(np.int8),
        np.rint(carried).astype(np.int64),
        round(in_network),
    )


def _nothing() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)


def _summed(
    number: int, parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Add up equal pairs of one dimension, sorted."""
    every, carried = (np.concatenate(column) for column in zip(*parts, strict=True))
    keys, place = np.unique(every, return_inverse=True)
    return keys, np.full(len(keys), number, np.int64), np.bincount(place, carried, len(keys)).astype(np.float64)


def _template(collective: str, algorithm: str, members: tuple[int, ...], ranks_per_host: int) -> Template:
    hosts = counted([rank // ranks_per_host for rank in members])
    group = Group(hosts, (0,) * len(hosts)) if by_host(collective, algorithm) else None
    return template(collective, len(members), algorithm, group)


def _shares(made: Template) -> _Shares:
    """Add up the connections of a template by members."""
    lane, out = np.nonzero(made.connections[:, :, 0] != NONE)
    owner = np.array([made.owner(each) for each in range(made.lanes)])
    sender, receiver = owner[lane], owner[made.connections[lane, out, 0]]
    share = made.shares()[lane, out]
    between = (sender < made.members) & (receiver < made.members) & (sender != receiver) & (share > 0)
    within = (sender == receiver) | between
    return _Shares(sender[between], receiver[between], share[between], float(share[~within].sum()))
