"""Ring all-reduce, reduce-scatter and all-gather.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
2009. On ``n`` ranks with ``B`` bytes/s and ``a`` seconds per message, for a buffer of ``S`` bytes::

    all-reduce                  2 (n - 1) (a + S / n / B)
    reduce-scatter, all-gather    (n - 1) (a + S / n / B)
"""

from __future__ import annotations

from fabricsim.collectives.base import Template, ring_neighbours, script


def _ring(members: int, turns: int) -> Template:
    """Each member passes on, ``turns`` times round the ring, the shard that it just received."""
    sends = turns * (members - 1)
    rows: list[tuple[bool, int | None]] = [(step > 0, -step % members) for step in range(sends)]
    if sends:
        rows.append((True, None))
    connections, sources = ring_neighbours(members)
    return Template(
        (script(rows),), relative=True, members=members, shards=members, connections=connections, sources=sources
    )


def all_reduce(members: int) -> Template:
    """Reduce-scatter, then all-gather: ``2 (n - 1)`` messages of a shard from each member."""
    return _ring(members, 2)


def reduce_scatter(members: int) -> Template:
    """``n - 1`` messages of a shard from each member."""
    return _ring(members, 1)


def all_gather(members: int) -> Template:
    """``n - 1`` messages of a shard from each member."""
    return _ring(members, 1)


def all_reduce_seconds(members: int, size: float, rate: float, latency: float) -> float:
    """Compute the closed form of the ring all-reduce, s: bytes, bytes/s, seconds per message."""
    return 2 * (members - 1) * (latency + size / members / rate)


def half_ring_seconds(members: int, size: float, rate: float, latency: float) -> float:
    """Compute the closed form of the ring reduce-scatter and all-gather, s; units as in `all_reduce_seconds`."""
    return (members - 1) * (latency + size / members / rate)
