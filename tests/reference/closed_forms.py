"""Closed forms of collectives on an idle star, s, from bytes, payload bytes/s of every link and seconds per message."""

from __future__ import annotations

from fabricsim.collectives.bruck import blocks_of_bit
from fabricsim.collectives.tree import Parents, double_parents


def all_to_all_direct(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the direct all-to-all, s: bytes, bytes/s, seconds per message."""
    return latency + (members - 1) * size / members / rate


def all_to_all_pairwise(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the pairwise all-to-all, s; units as in `all_to_all_direct`."""
    return (members - 1) * (latency + size / members / rate)


def bruck_all_gather(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the all-gather, s: bytes, bytes/s, seconds per message."""
    return (members - 1).bit_length() * latency + (members - 1) / members * size / rate


def bruck_all_to_all(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the all-to-all, s; units as in `bruck_all_gather`."""
    bits = [1 << k for k in range((members - 1).bit_length())]
    return sum(latency + blocks_of_bit(members, bit) * size / members / rate for bit in bits)


def chain(members: int, size: float, rate: float, latency: float, chunks: int) -> float:
    """Closed form of the chain with the latency hidden behind the other chunks.

    `members`, `chunks`: ranks, and pieces of the buffer.
    `size`: bytes.
    `rate`: bytes per second.
    `latency`: seconds per message.
    """
    return (members - 1) * latency + (members - 2 + chunks) * (size / chunks) / rate


def collnet_one_switch(size: float, rate: float, latency: float) -> float:
    """Closed form of one round of single GPUs below one switch, s: bytes, bytes/s, seconds per message."""
    return 2 * (latency + size / rate)


def direct_half(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the reduce-scatter and the all-gather, s: bytes, bytes/s, seconds per message."""
    return latency + (members - 1) * size / members / rate


def direct_all_reduce(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the all-reduce, s; units as in `direct_half`."""
    return 2 * direct_half(members, size, rate, latency)


def halving_doubling(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of `halving_doubling`, s: bytes, bytes/s, seconds per message."""
    core = power_below(members)
    spare = 2 * (latency + size / rate) if members > core else 0.0
    return 2 * halving_half(core, size, rate, latency) + spare


def rabenseifner(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of `rabenseifner`, s; units as in `halving_doubling`."""
    core = power_below(members)
    spare = 3 * latency + 2 * size / rate if members > core else 0.0
    return 2 * halving_half(core, size, rate, latency) + spare


def recursive_doubling(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of `recursive_doubling`, s; units as in `halving_doubling`."""
    core = power_below(members)
    return (core.bit_length() - 1 + 2 * (members > core)) * (latency + size / rate)


def halving_half(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the reduce-scatter and all-gather, s; units as in `halving_doubling`."""
    return (members.bit_length() - 1) * latency + (members - 1) / members * size / rate


def hierarchical_all_reduce(  # noqa: PLR0913, PLR0917  two dimensions
    local: int, hosts: int, size: float, local_rate: float, rate: float, local_latency: float, latency: float
) -> float:
    """Closed form, s: members per host, hosts, bytes, bytes/s and seconds per message of either kind."""
    inside = 2 * (local - 1) * (local_latency + size / local / local_rate)
    return inside + 2 * (hosts - 1) * (latency + size / (local * hosts) / rate)


def nvls_all_reduce(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of one round in one host, s: bytes, bytes/s, seconds per message."""
    return 4 * latency + 2 * (members + 1) / members * size / rate


def nvls_half(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of one round of the reduce-scatter and all-gather, s; units as above."""
    return 2 * latency + (members + 1) / members * size / rate


def ring_all_reduce(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the ring all-reduce, s: bytes, bytes/s, seconds per message."""
    return 2 * (members - 1) * (latency + size / members / rate)


def ring_half(members: int, size: float, rate: float, latency: float) -> float:
    """Closed form of the ring reduce-scatter and all-gather, s; units as in `ring_all_reduce`."""
    return (members - 1) * (latency + size / members / rate)


def ring_exchange(size: float, rate: float, latency: float) -> float:
    """Closed form of the exchange with the next member, s; units as in `ring_all_reduce`."""
    return latency + size / rate


def depth(parents: Parents) -> int:
    """Edges from the root of a tree to its deepest node."""

    def above(node: int) -> int:
        parent = parents[node]
        return 0 if parent is None else 1 + above(parent)

    return max(above(node) for node in range(len(parents)))


def tree_all_reduce(members: int, size: float, rate: float, latency: float) -> float:
    """Model of Jeaugey (2019) for members with a host each, s: bytes, bytes/s, seconds per message."""
    levels = max(depth(parents) for parents in double_parents(members))
    return 2 * levels * latency + 2 * size / rate


def power_below(members: int) -> int:
    """The largest power of two of at most `members`."""
    return 1 << (members.bit_length() - 1)
