"""Broadcast along a chain, and its two-member case, the pipeline's send and receive.

NCCL's ring broadcast: each member passes every chunk on as soon as it has it. On ``n`` ranks with
``c`` chunks of ``s`` bytes: ``(n - 2 + c) (a + s / B)`` where the latency ``a`` cannot be hidden, and
``(n - 1) a + (n - 2 + c) s / B`` where it is.
"""

from __future__ import annotations

from fabricsim.collectives.base import Template, ring_neighbours, script


def broadcast(members: int) -> Template:
    """From member 0 along the order of the group, one chunk a round."""
    connections, sources = ring_neighbours(members)
    sources[0, 0] = -1
    if members == 1:
        return Template((script([]),), relative=False, members=1, shards=1, connections=connections, sources=sources)
    first, between, last = script([(False, 0)]), script([(True, 0)]), script([(True, None)])
    scripts = (first, *[between] * (members - 2), last)
    return Template(scripts, relative=False, members=members, shards=1, connections=connections, sources=sources)


def send_recv(members: int) -> Template:
    """From member 0 to member 1."""
    if members != 2:  # noqa: PLR2004  a pair
        msg = f"a send has one sender and one receiver, not {members} ranks"
        raise ValueError(msg)
    return broadcast(2)


def broadcast_seconds(members: int, size: float, rate: float, latency: float, chunks: int) -> float:
    """Compute the closed form of the chain broadcast with the latency hidden behind the other chunks.

    Parameters
    ----------
    members, chunks
        Ranks, and pieces of the buffer.
    size
        Bytes.
    rate
        Bytes per second.
    latency
        Seconds per message.

    Returns
    -------
    float
        Seconds.
    """
    return (members - 1) * latency + (members - 2 + chunks) * (size / chunks) / rate
