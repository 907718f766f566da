"""NVLS and NVLSTree: the NVSwitch of a host reduces what its GPUs send, and copies what one sends to all.

NCCL 2.17 on (src/device/all_reduce.h, ``NCCL_ALGO_NVLS`` and ``NCCL_ALGO_NVLS_TREE``): each GPU reads its shard of
all buffers through the switch, which adds them up on the way (``multimem.ld_reduce``), and stores the sum through the
switch, which writes it to all (``multimem.st``). So ``g`` GPUs each send ``S`` and then ``S / g``, and receive
``S / g`` and then ``S``: ``(g + 1) / g S`` each way in place of the ring's ``2 (g - 1) / g S``. NVLSTree puts a tree
over hosts between the two for each GPU's shard, every other one that of NCCL's two trees.

The switch is a lane of its own that has nothing but its ports: it passes a round on when all of it has come.
With ``a`` seconds per message to or from it, one round in one host takes ``4 a + 2 (g + 1) / g S / B``; many rounds, in
which sending and receiving overlap, come to ``(g + 1) / g S / B``. A reduce-scatter or all-gather is one half of it:
``2 a + (g + 1) / g S / B``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.collectives.base import alone
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.hierarchical import same_on_each
from fabricsim.collectives.tree import add_tree, double_parents
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import Algorithm

if TYPE_CHECKING:
    from fabricsim.collectives.base import Group, Template

_UP, _MIDDLE, _TREE_DOWN, _DOWN = range(4)
"""Strands: to the reducing switch; from it, and up the tree; down the tree, and to the copying switch; from that."""


def all_reduce(group: Group) -> Template:
    """Reduce and copy in the switch of one host."""
    _one_host(group, "all_reduce")
    return _over_hosts(group)


def tree_all_reduce(group: Group) -> Template:
    """Reduce and copy in the switch of each host, with trees between."""
    return _over_hosts(group)


def reduce_scatter(group: Group) -> Template:
    """Reduce in the switch of one host."""
    _one_host(group, "reduce_scatter")
    n = len(group.hosts)
    if n == 1:
        return alone()
    builder = Builder(n, shards=n, strands=2, switches=(0,))
    _reduce(builder, list(range(n)), 2 * n, to=1)
    return builder.build()


def all_gather(group: Group) -> Template:
    """Copy in the switch of one host."""
    _one_host(group, "all_gather")
    n = len(group.hosts)
    if n == 1:
        return alone()
    builder = Builder(n, shards=n, strands=2, switches=(0,))
    for member in range(n):
        builder.send(member, 2 * n, member)
    _copy(builder, list(range(n)), 2 * n, source=0, to=1)
    return builder.build()


def _one_host(group: Group, collective: str) -> None:
    if len(group.on_host) > 1:
        way_out = 'choose "nvls_tree"' if collective == "all_reduce" else 'choose "ring"'
        msg = f"nvls {collective} works within one host, not over {len(group.on_host)}: {way_out}"
        raise SimulationError(msg)


def _over_hosts(group: Group) -> Template:
    n, local, hosts = len(group.hosts), same_on_each(group, "nvls_tree all_reduce"), len(group.on_host)
    if local == 1:
        msg = 'nvls needs several ranks on a host, whose switch reduces: choose "tree" or "ring"'
        raise SimulationError(msg)
    switches = [host for host in range(hosts) for _ in range(2)]
    builder = Builder(n, shards=local, strands=4, switches=tuple(switches))
    first_switch = 4 * n
    for host, on_host in enumerate(group.on_host):
        _reduce(builder, on_host, first_switch + 2 * host, to=_MIDDLE)
    for place in range(local):
        column = [on_host[place] for on_host in group.on_host]
        parents = double_parents(hosts)[place % 2]
        edges = {column[host]: None if parent is None else column[parent] for host, parent in enumerate(parents)}
        add_tree(builder, edges, place, _MIDDLE, _TREE_DOWN)
        for host, member in enumerate(column):
            builder.send(_TREE_DOWN * n + member, first_switch + 2 * host + 1, place)
    for host, on_host in enumerate(group.on_host):
        _copy(builder, on_host, first_switch + 2 * host + 1, source=_TREE_DOWN, to=_DOWN)
    return builder.build()


def _reduce(builder: Builder, on_host: list[int], switch: int, *, to: int) -> None:
    """Let all send their buffers to a switch, and each receive its shard of the sum in another strand."""
    n, whole = builder.members, len(on_host)
    for member in on_host:
        builder.send(_UP * n + member, switch, 0, whole)
        builder.receive(switch, _UP * n + member, 0, whole, reduce=True)
    for place, member in enumerate(on_host):
        builder.send(switch, to * n + member, place)
        builder.receive(to * n + member, switch, place)


def _copy(builder: Builder, on_host: list[int], switch: int, *, source: int, to: int) -> None:
    """Let a switch collect the shard that each sends it, and send the whole to all."""
    n = builder.members
    for place, member in enumerate(on_host):
        builder.receive(switch, source * n + member, place)
    for member in on_host:
        builder.send(switch, to * n + member, 0, len(on_host))
        builder.receive(to * n + member, switch, 0, len(on_host))


ALGORITHM = (
    Algorithm(
        "nvls",
        {"all_reduce": all_reduce, "reduce_scatter": reduce_scatter, "all_gather": all_gather},
        by_host=True,
        switches="host",
    ),
    Algorithm("nvls_tree", {"all_reduce": tree_all_reduce}, by_host=True, switches="host"),
)
