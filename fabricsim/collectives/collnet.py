"""CollNet: the switches of the network reduce what hosts send and copy the sum back, as SHARP does.

R. L. Graham and others, "Scalable Hierarchical Aggregation Protocol (SHARP)", COMHPC 2016. Between hosts each byte
goes once up and once down, whatever the number of hosts. What is modelled: hosts send to their own first switch, which
waits for a round of all hosts below it and sends the sum on to one root; the root sends the sum back the same way. A
switch has nothing but its ports, has room for any number of reductions, and takes no time to add. Switches between
the first and the root only forward. A round is passed on when all of it has come, where hardware does so packet by
packet: take small chunks. The flow engine only.

Inside a host, as in NCCL (src/device/all_reduce.h): ``direct`` reduces the shard of each GPU at that GPU, which
sends it out through the switches and then gives the sum to the others; ``chain`` reduces along the GPUs to the first,
and that one goes out.

One round of ``h`` hosts below one switch, with one GPU each: ``2 (a + S / B)``; many rounds come to ``S / B``.
"""

from itertools import pairwise

from fabricsim.collectives.base import NETWORK, Group, Template
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.hierarchical import same_on_each
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import Algorithm

_SCATTER, _OUT, _BACK, _GATHER = range(4)
"""Strands of `direct`: shards to their GPUs; sum out; sum back, and to the others; from the others."""


def direct(group: Group) -> Template:
    """Every GPU reduces a shard of its host and sends it through the switches."""
    n, local = len(group.hosts), same_on_each(group, "collnet_direct")
    columns = [[on_host[place] for on_host in group.on_host] for place in range(local)]
    builder = Builder(n, shards=local, strands=4, switches=_switches(group, columns))
    for on_host in group.on_host:
        _spread(builder, on_host)
    first_switch = 4 * n
    for place, column in enumerate(columns):
        first_switch += _through_switches(builder, group, column, place, first_switch, (_OUT, _BACK))
    for on_host in group.on_host:
        _collect(builder, on_host)
    return builder.build()


def chain(group: Group) -> Template:
    """Send the sum of each host through the switches from its first GPU."""
    n = len(group.hosts)
    column = [on_host[0] for on_host in group.on_host]
    builder = Builder(n, shards=1, strands=2, switches=_switches(group, [column]))
    for on_host in group.on_host:
        for above, below in reversed(list(pairwise(on_host))):
            builder.send(below, above, 0)
            builder.receive(above, below, 0, reduce=True)
    _through_switches(builder, group, column, 0, 2 * n, (0, 1))
    for on_host in group.on_host:
        for above, below in pairwise(on_host):
            builder.send(n + above, n + below, 0)
            builder.receive(n + below, n + above, 0)
    return builder.build()


def _spread(builder: Builder, on_host: list[int]) -> None:
    n = builder.members
    for place, member in enumerate(on_host):
        for other in on_host:
            if other != member:
                builder.send(_SCATTER * n + other, _OUT * n + member, place)
                builder.receive(_OUT * n + member, _SCATTER * n + other, place, reduce=True)


def _collect(builder: Builder, on_host: list[int]) -> None:
    n = builder.members
    for place, member in enumerate(on_host):
        for other in on_host:
            if other != member:
                builder.send(_BACK * n + member, _GATHER * n + other, place)
                builder.receive(_GATHER * n + other, _BACK * n + member, place)


def _leaves(group: Group, column: list[int]) -> dict[int, list[int]]:
    """Members of a column by the number of their first switch."""
    below: dict[int, list[int]] = {}
    for member in column:
        below.setdefault(group.leaves[member], []).append(member)
    return below


def _switches(group: Group, columns: list[list[int]]) -> tuple[int, ...]:
    """Switches of all columns: first switches on the way up, the same on the way down, the root."""
    if len(group.on_host) == 1:
        raise SimulationError('collnet needs several hosts, between which switches reduce: choose "nvls" or "ring"')
    root = NETWORK - max(group.leaves) - 1
    switches: list[int] = []
    for column in columns:
        leaves = [NETWORK - leaf for leaf in _leaves(group, column)]
        switches += leaves if len(leaves) == 1 else [*leaves, *leaves, root]
    return tuple(switches)


def _through_switches(  # noqa: PLR0913, PLR0917  where, what and by whom
    builder: Builder, group: Group, column: list[int], shard: int, first: int, strands: tuple[int, int]
) -> int:
    """Reduce a shard of a column in the switches and bring it back; returns the lanes of switches that it takes."""
    n = builder.members
    out, back = strands
    below = list(_leaves(group, column).values())
    alone = len(below) == 1
    root = first + 2 * len(below)
    for leaf, members in enumerate(below):
        for member in members:
            builder.send(out * n + member, first + leaf, shard)
            builder.receive(first + leaf, out * n + member, shard, reduce=True)
        if not alone:
            builder.send(first + leaf, root, shard)
            builder.receive(root, first + leaf, shard, reduce=True)
    for leaf, members in enumerate(below):
        down = first if alone else first + len(below) + leaf
        if not alone:
            builder.send(root, down, shard)
            builder.receive(down, root, shard)
        for member in members:
            builder.send(down, back * n + member, shard)
            builder.receive(back * n + member, down, shard)
    return 1 if alone else 2 * len(below) + 1


ALGORITHM = (
    Algorithm("collnet_direct", {"all_reduce": direct}, by_host=True, switches="network"),
    Algorithm("collnet_chain", {"all_reduce": chain}, by_host=True, switches="network", turned=True),
)
