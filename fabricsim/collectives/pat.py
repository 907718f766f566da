"""PAT, parallel aggregated trees: NCCL's all-gather and reduce-scatter in a logarithmic number of steps.

S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale" (arXiv 2506.20252). Each
shard goes down a binomial tree of its own, the trees are shifted from rank to rank, and messages of one step are
aggregated. Unlike Bruck's, the farthest distance comes first, with one shard, and the nearest last, with half of the
buffer: long ways carry little. What is modelled are full trees, as NCCL has them where its intermediate buffer
holds all that a step sends; it cuts larger calls into rounds, as ``chunk`` does here.

With ``k = ceil(log2 n)`` both take ``k a + (n - 1) / n S / B``.
"""

from fabricsim.collectives.base import Template
from fabricsim.collectives.bruck import Turn, shifted
from fabricsim.scenario.collectives import Algorithm


def _distances(members: int) -> list[int]:
    """Powers of two below `members`, the largest first."""
    return [1 << k for k in reversed(range((members - 1).bit_length()))]


def _shards(members: int, distance: int) -> int:
    """Count the shards that go over a distance: those of members at even multiples behind that reach no further."""
    return -(-(members - distance) // (2 * distance))


def all_gather(members: int) -> Template:
    """Send to the member at distance d what has come over multiples of 2 d."""
    turns = []
    for distance in _distances(members):
        count = _shards(members, distance)
        first = -2 * distance * (count - 1)
        turns.append(Turn(distance, first, first - distance, count, 1, 2 * distance))
    return shifted(members, turns)


def reduce_scatter(members: int) -> Template:
    """Go the way of the all-gather backwards: what went from i to i + d comes back, reduced."""
    turns = []
    for distance in reversed(_distances(members)):
        count = _shards(members, distance)
        first = -2 * distance * (count - 1)
        turns.append(Turn(-distance, first - distance, first, count, 1, 2 * distance))
    return shifted(members, turns, reduce=True)


ALGORITHM = Algorithm("pat", {"reduce_scatter": reduce_scatter, "all_gather": all_gather})
