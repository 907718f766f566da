"""Hops of many ways at once, in arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.topology.host import Hop


class Paths(NamedTuple):
    """Ways of many connections: of each its latency, ps, and how many hops it has; then all hops, way by way."""

    latency: NDArray[np.int64]
    length: NDArray[np.int64]
    resource: NDArray[np.int64]
    cost: NDArray[np.float64]


HopLists = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]
"""How many hops each way has, and resources and costs of all."""


def in_hosts(ways: Sequence[Sequence[Hop]], which: NDArray[np.int64], first: NDArray[np.int64]) -> HopLists:
    """Give how many hops each of some hosts' ways has, and resources, counted from the `first` of each, and costs."""
    sizes = np.array([len(way) for way in ways])
    resource, cost = (np.array([hop[column] for way in ways for hop in way]) for column in (0, 1))
    count = sizes[which]
    place = np.repeat((np.cumsum(sizes) - sizes)[which] - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return count, resource[place].astype(np.int64) + np.repeat(first, count), cost[place]


def joined(parts: Sequence[HopLists]) -> HopLists:
    """Put parts of the same ways behind one another, way by way."""
    count = np.sum([part[0] for part in parts], axis=0)
    resource, cost = np.empty(int(count.sum()), np.int64), np.empty(int(count.sum()))
    begin = np.cumsum(count) - count
    for sizes, resources, costs in parts:
        place = np.repeat(begin - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(resources))
        resource[place], cost[place] = resources, costs
        begin = begin + sizes
    return count, resource, cost
