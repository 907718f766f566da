"""All-to-all in which every block goes straight to its receiver.

With ``a`` seconds per message, for a buffer of ``S`` bytes per rank on ``n`` ranks::

    direct      a + (n - 1) / n S / B          all sends at once, as NCCL's grouped sends and receives
    pairwise    (n - 1) (a + S / n / B)        one peer after the other, as MPI's for long messages

(Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), section 4.)
"""

from __future__ import annotations

from fabricsim.collectives.base import Template, alone, steps
from fabricsim.collectives.bruck import Turn, shifted


def direct(members: int) -> Template:
    """Send all blocks, then receive all."""
    if members == 1:
        return alone()
    pairwise_made = pairwise(members)
    table = steps(2 * (members - 1))
    table[: members - 1], table[members - 1 :] = pairwise_made.scripts[0][::2], pairwise_made.scripts[0][1::2]
    return Template(
        (table,),
        relative=True,
        members=members,
        shards=members,
        connections=pairwise_made.connections,
        sources=pairwise_made.sources,
    )


def pairwise(members: int) -> Template:
    """In step k send to the member at distance k and receive from the one at distance -k."""
    # The block of the sender at distance -k comes to where that for the receiver at distance k has been: the place of
    # the member at distance -k still holds what goes to that one.
    return shifted(members, [Turn(k, k, k, 1) for k in range(1, members)])


def direct_seconds(members: int, size: float, rate: float, latency: float) -> float:
    """Compute the closed form of the direct all-to-all, s: bytes, bytes/s, seconds per message."""
    return latency + (members - 1) * size / members / rate


def pairwise_seconds(members: int, size: float, rate: float, latency: float) -> float:
    """Compute the closed form of the pairwise all-to-all, s; units as in `direct_seconds`."""
    return (members - 1) * (latency + size / members / rate)
