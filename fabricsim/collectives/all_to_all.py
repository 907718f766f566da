"""All-to-all in which every block goes straight to its receiver.

With ``a`` seconds per message, for a buffer of ``S`` bytes per rank on ``n`` ranks::

    direct      a + (n - 1) / n S / B          all sends at once, as NCCL's grouped sends and receives
    pairwise    (n - 1) (a + S / n / B)        one peer after the other, as MPI's for long messages

(Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), section 4.)
"""

from fabricsim.collectives.base import Template, alone, sending_ahead
from fabricsim.collectives.bruck import Turn, shifted
from fabricsim.scenario.collectives import Algorithm


def direct(members: int) -> Template:
    """Send all blocks and receive all, side by side."""
    if members == 1:
        return alone()
    made = pairwise(members)
    return sending_ahead(made.scripts[0], made.connections, made.sources, relative=True, shards=members)


def pairwise(members: int) -> Template:
    """In step k send to the member at distance k and receive from the one at distance -k."""
    # The block of the sender at distance -k comes to where that for the receiver at distance k has been: the place of
    # the member at distance -k still holds what goes to that one.
    return shifted(members, [Turn(k, k, k, 1) for k in range(1, members)])


ALGORITHM = Algorithm("pairwise", {"all_to_all": pairwise})
