"""Who sends how much to whom: bytes by pair of ranks and by parallel dimension."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

SHARES_OF_PAIRS = (0.0025, 0.01, 0.1)
"""Shares of all pairs whose bytes a summary tells; the first is that of Wang et al., arXiv 2307.12169v1."""
DISTANCES = ("scale-up domain", "same rail", "other rail")
"""Where the two ranks of a pair are to each other."""


@dataclass(frozen=True)
class Pairs:
    """Bytes of one iteration between pairs of ranks, those without traffic left out.

    `ranks`: of the job.
    `domain`: ranks of a scale-up domain (one host, or the hosts that share NVLink): rank ``r`` is in domain ``r //
        domain`` and on rail ``r % domain``.
    `dimensions`: names of parallel dimensions.
    `source`, `target`: ranks, shape ``(n,)``.
    `dimension`: index into `dimensions`, shape ``(n,)``; a pair has one row for each dimension in which it exchanges
        data.
    `bytes`: payload, shape ``(n,)``.
    `in_network`: payload that ranks exchange with switches that reduce, which no pair has.
    """

    ranks: int
    domain: int
    dimensions: tuple[str, ...]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    dimension: NDArray[np.int8]
    bytes: NDArray[np.int64]
    in_network: int = 0

    @property
    def distance(self) -> NDArray[np.int64]:
        """Index into `DISTANCES`, shape ``(n,)``."""
        inside = self.source // self.domain == self.target // self.domain
        aligned = self.source % self.domain == self.target % self.domain
        return np.where(inside, 0, np.where(aligned, 1, 2))

    def merged(self, ranks_per_node: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Add up dimensions, and the ranks of nodes (such as hosts) of so many ranks.

        Returns: sources, targets and bytes of all pairs of nodes with traffic, sorted; what stays in a node is left
            out.
        """
        nodes = -(-self.ranks // ranks_per_node)
        source, target = self.source // ranks_per_node, self.target // ranks_per_node
        apart = source != target
        keys, place = np.unique(source[apart].astype(np.int64) * nodes + target[apart], return_inverse=True)
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, place, self.bytes[apart])
        return keys // nodes, keys % nodes, total


class BusiestPairs(TypedDict):
    """Which share of the bytes the busiest pairs carry."""

    share_of_pairs: float
    share_of_bytes: float


class PairsSummary(TypedDict):
    """Traffic between pairs of ranks (ordered: there and back are two).

    ``pairs_for_90_percent`` is the share of all pairs that carries 90 % of the bytes. ``bytes`` has them by dimension
    and distance, in ``DISTANCES``. ``busiest`` leaves out shares of less than one pair.
    """

    ranks: int
    ranks_per_domain: int
    pairs: int
    pairs_without_traffic: float
    busiest: list[BusiestPairs]
    pairs_for_90_percent: float
    total_bytes: int
    in_network_bytes: int
    bytes: dict[str, dict[str, int]]


def summarise_pairs(pairs: Pairs) -> PairsSummary:
    """Say how few pairs carry how much, and how far it goes."""
    _, _, carried = pairs.merged()
    count = pairs.ranks * (pairs.ranks - 1)
    ordered = np.cumsum(np.sort(carried)[::-1])
    total = int(ordered[-1]) if len(ordered) else 0
    needed = int(np.searchsorted(ordered, 0.9 * total)) + 1 if total else 0
    table = np.zeros((len(pairs.dimensions), len(DISTANCES)), np.int64)
    np.add.at(table, (pairs.dimension, pairs.distance), pairs.bytes)
    return {
        "ranks": pairs.ranks,
        "ranks_per_domain": pairs.domain,
        "pairs": count,
        "pairs_without_traffic": 1 - len(carried) / count if count else 1.0,
        "busiest": [_busiest(share, ordered, count) for share in SHARES_OF_PAIRS if int(share * count)],
        "pairs_for_90_percent": needed / count if count else 0.0,
        "total_bytes": total,
        "in_network_bytes": pairs.in_network,
        "bytes": {
            name: dict(zip(DISTANCES, row, strict=True))
            for name, row in zip(pairs.dimensions, table.tolist(), strict=True)
        },
    }


def _busiest(share: float, ordered: NDArray[np.int64], count: int) -> BusiestPairs:
    few = min(int(share * count), len(ordered))  # there is one pair at least
    return {"share_of_pairs": share, "share_of_bytes": float(ordered[few - 1] / ordered[-1]) if few else 0.0}
