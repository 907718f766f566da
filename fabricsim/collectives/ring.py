"""Ring all-reduce, reduce-scatter and all-gather, and the exchange with the next member.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
2009. On ``n`` ranks with ``B`` bytes/s and ``a`` seconds per message, for a buffer of ``S`` bytes::

    all-reduce                  2 (n - 1) (a + S / n / B)
    reduce-scatter, all-gather    (n - 1) (a + S / n / B)
    exchange with the next        a + S / B
"""

from fabricsim.collectives import chain
from fabricsim.collectives.base import Template, alone, ring_neighbours, script, sending_ahead
from fabricsim.scenario.collectives import Algorithm


def _ring(members: int, turns: int, *, reducing: bool) -> Template:
    """Each member passes on, ``turns`` times round the ring, the shard that it just received.

    In the first turn it reduces what it received with its own, if `reducing`.
    """
    if members == 1:
        return alone()
    sends = turns * (members - 1)
    rows: list[tuple[bool, int | None]] = [(step > 0, -step % members) for step in range(sends)]
    rows.append((True, None))
    into = [-step % members for step in range(sends + 1)]
    connections, sources = ring_neighbours(members)
    return Template(
        (script(rows, into, members if reducing else 0),),
        relative=True,
        members=members,
        shards=members,
        connections=connections,
        sources=sources,
    )


def all_reduce(members: int) -> Template:
    """Reduce-scatter, then all-gather: ``2 (n - 1)`` messages of a shard from each member."""
    return _ring(members, 2, reducing=True)


def reduce_scatter(members: int) -> Template:
    """``n - 1`` messages of a shard from each member."""
    return _ring(members, 1, reducing=True)


def all_gather(members: int) -> Template:
    """``n - 1`` messages of a shard from each member."""
    return _ring(members, 1, reducing=False)


def exchange(members: int) -> Template:
    """Each member sends its whole buffer to the next, as ring attention does with keys and values."""
    if members == 1:
        return alone()
    connections, sources = ring_neighbours(members)
    rows: list[tuple[bool, int | None]] = [(False, 0), (True, None)]
    return sending_ahead(script(rows), connections, sources, relative=False, shards=1)


ALGORITHM = Algorithm(
    "ring",
    {
        "all_reduce": all_reduce,
        "reduce_scatter": reduce_scatter,
        "all_gather": all_gather,
        "broadcast": chain.broadcast,
        "reduce": chain.reduce,
        "ring_exchange": exchange,
    },
    ahead=True,
    striped=True,
)
