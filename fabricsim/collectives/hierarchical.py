"""All-reduce in two dimensions: inside the hosts, and between members of the same place in each host.

A ring reduce-scatter inside each host, a ring all-reduce of every member's shard over the hosts, a ring
all-gather inside each host (X. Jia and others, "Highly scalable deep learning training system with mixed-precision",
arXiv 1807.11205; M. Cho and others, "BlueConnect", IBM J. R&D 63 (2019)). With ``g`` members on each of ``h`` hosts,
``a1`` and ``B1`` inside a host and ``a2`` and ``B2`` per member between hosts::

    2 (g - 1) (a1 + S / g / B1) + 2 (h - 1) (a2 + S / (g h) / B2)
"""

from collections.abc import Sequence

from fabricsim.collectives.base import Group, Template
from fabricsim.collectives.builder import Builder
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import Algorithm


def same_on_each(group: Group, name: str) -> int:
    """Members per host; refuses groups in which hosts have different numbers of them."""
    counts = {len(on_host) for on_host in group.on_host}
    if len(counts) > 1:
        msg = f'{name} needs the same number of ranks on each host, not {sorted(counts)}: choose "ring" or "tree"'
        raise SimulationError(msg)
    return counts.pop()


def all_reduce(group: Group) -> Template:
    """Over hosts, then over the places in them."""
    local, hosts = same_on_each(group, "hierarchical all_reduce"), len(group.on_host)
    builder = Builder(len(group.hosts), shards=local * hosts)
    columns = [[on_host[place] for on_host in group.on_host] for place in range(local)]
    for on_host in group.on_host:
        _ring(builder, on_host, 0, hosts, reduce=True)
    for place, column in enumerate(columns):
        _ring(builder, column, place * hosts, 1, reduce=True)
        _ring(builder, column, place * hosts, 1, reduce=False)
    for on_host in group.on_host:
        _ring(builder, on_host, 0, hosts, reduce=False)
    return builder.build()


def _ring(builder: Builder, ring: Sequence[int], first: int, unit: int, *, reduce: bool) -> None:
    """Reduce `unit` shards of as many pieces as a ring of lanes has to each of these, or pass these pieces on to all.

    The `i`-th piece ends with the `i`-th lane, and begins there.
    """
    n, ahead = len(ring), int(reduce)
    for turn in range(n - 1):
        for place, lane in enumerate(ring):
            piece = place - turn - ahead
            builder.send(lane, ring[(place + 1) % n], first + piece % n * unit, unit)
            builder.receive(lane, ring[place - 1], first + (piece - 1) % n * unit, unit, reduce=reduce)


ALGORITHM = Algorithm("hierarchical", {"all_reduce": all_reduce}, by_host=True, turned=True)
