"""All-reduce, reduce-scatter and all-gather in which each member sends to all others at once.

ASTRA-sim's ``direct``, and what libraries do within a host whose GPUs all reach each other. With ``a`` seconds per
message, for a buffer of ``S`` bytes on ``n`` ranks whose links carry ``B`` bytes/s::

    reduce-scatter, all-gather      a + (n - 1) / n S / B
    all-reduce, the one then the other    2 (a + (n - 1) / n S / B)
"""

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives import all_to_all, chain
from fabricsim.collectives.base import Template, alone, steps
from fabricsim.scenario.collectives import Algorithm


def all_reduce(members: int) -> Template:
    """Reduce one's own shard of all others' buffers, then send it to all."""
    return _made(members, ("scatter", "gather"))


def reduce_scatter(members: int) -> Template:
    """Send each member its shard, and reduce those that come with one's own."""
    return _made(members, ("scatter",))


def all_gather(members: int) -> Template:
    """Send one's shard to all."""
    return _made(members, ("gather",))


def _made(members: int, parts: tuple[str, ...]) -> Template:
    """Connect each member to that at distance k by its connection ``k - 1``, and lay the parts one after the other."""
    if members == 1:
        return alone()
    own, distance = np.arange(members)[:, None], np.arange(1, members)
    connections = np.zeros((members, members - 1, 2), np.int32)
    connections[:, :, 0], connections[:, :, 1] = (own + distance) % members, distance - 1
    sources = ((own - distance) % members).astype(np.int32)
    table = np.concatenate([_part(members, part, number, len(parts)) for number, part in enumerate(parts, 1)])
    return Template((table,), relative=True, members=members, shards=members, connections=connections, sources=sources)


def _part(members: int, part: str, number: int, parts: int) -> NDArray[np.void]:
    """Send on all connections, then wait for the `number`-th message on each."""
    distance = np.arange(1, members)
    table = steps(2 * (members - 1))
    sends, receives = table[: members - 1], table[members - 1 :]
    sends["send"] = receives["wait"] = distance - 1
    receives["needed"], receives["per_turn"] = number, parts
    if part == "scatter":
        sends["shard"], receives["reduce"] = distance, 1
    else:
        receives["into"] = members - distance  # shards count from the member's own, which is 0
    return table


ALGORITHM = Algorithm(
    "direct",
    {
        "all_reduce": all_reduce,
        "reduce_scatter": reduce_scatter,
        "all_gather": all_gather,
        "all_to_all": all_to_all.direct,
        "send_recv": chain.send_recv,
    },
    ahead=True,
)
