"""Bruck's all-gather and all-to-all: every step doubles the distance.

J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, "Efficient algorithms for all-to-all communications in
multiport message-passing systems", IEEE TPDS 8 (1997). With ``k = ceil(log2 n)``, ``a`` seconds per message::

    all-gather    k a + (n - 1) / n S / B
    all-to-all    k a + (sum over steps of blocks whose distance has the step's bit) S / n / B, about k (a + S / 2 / B)

Turning the blocks round within a rank's memory, before and after, takes no time here.
"""

from typing import NamedTuple

import numpy as np

from fabricsim.collectives.base import Template, alone, steps
from fabricsim.scenario.collectives import Algorithm


class Turn(NamedTuple):
    """One step of all members: to whom they send, and shards relative to their own number."""

    distance: int  # to the receiver
    shard: int
    into: int
    shards: int
    run: int = 0
    every: int = 0


def all_gather(members: int) -> Template:
    """Send all shards that one has to the member at distance -1, -2, -4, ...; the rest in the last step."""
    turns, distance = [], 1
    while distance < members:
        turns.append(Turn(-distance, 0, distance, min(distance, members - distance)))
        distance *= 2
    return shifted(members, turns)


def all_to_all(members: int) -> Template:
    """Send the blocks whose distance to go has a bit to the member at that distance."""
    turns, distance = [], 1
    while distance < members:
        blocks = blocks_of_bit(members, distance)
        turns.append(Turn(distance, distance, distance, blocks, distance, 2 * distance))
        distance *= 2
    return shifted(members, turns)


def blocks_of_bit(members: int, bit: int) -> int:
    """Count the distances below `members` that have a bit."""
    return sum(1 for distance in range(members) if distance & bit)


def shifted(members: int, turns: list[Turn], *, reduce: bool = False) -> Template:
    """Make a template in which all members do the same, each in a step of its own connection."""
    if members == 1:
        return alone()
    own = np.arange(members)
    table = steps(2 * len(turns))
    connections = np.zeros((members, len(turns), 2), np.int32)
    sources = np.zeros((members, len(turns)), np.int32)
    for number, turn in enumerate(turns):
        send, receive = table[2 * number], table[2 * number + 1]
        send["send"], send["shard"], send["shards"] = number, turn.shard % members, turn.shards
        receive["wait"], receive["needed"], receive["per_turn"] = number, 1, 1
        receive["into"], receive["reduce"] = turn.into % members, turn.shards if reduce else 0
        for step in (send, receive):
            step["run"], step["every"] = turn.run, turn.every
        connections[:, number, 0], connections[:, number, 1] = (own + turn.distance) % members, number
        sources[:, number] = (own - turn.distance) % members
    return Template((table,), relative=True, members=members, shards=members, connections=connections, sources=sources)


ALGORITHM = Algorithm("bruck", {"all_gather": all_gather, "all_to_all": all_to_all})
