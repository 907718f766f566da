"""NVLS and NVLSTree: the NVSwitch of a host reduces what its GPUs send, and copies what one sends to all.

NCCL 2.17 on (src/device/all_reduce.h, ``NCCL_ALGO_NVLS`` and ``NCCL_ALGO_NVLS_TREE``): each GPU reads its shard of
all buffers through the switch, which adds them up on the way (``multimem.ld_reduce``), and stores the sum through the
switch, which writes it to all (``multimem.st``). So ``g`` GPUs each send ``S`` and then ``S / g``, and receive
``S / g`` and then ``S``: ``(g + 1) / g S`` each way in place of the ring's ``2 (g - 1) / g S``. NVLSTree puts NCCL's
two trees over hosts between the two, each for half of every GPU's shard: of its channels every other one
(``treeUp[c%2]``, ``connectNvls`` of src/graph/connect.cc).

The switch is a lane of its own that has nothing but its ports: it passes a round on when all of it has come.
With ``a`` seconds per message to or from it, one round in one host takes ``4 a + 2 (g + 1) / g S / B``; many rounds, in
which sending and receiving overlap, come to ``(g + 1) / g S / B``. A reduce-scatter or all-gather is one half of it:
``2 a + (g + 1) / g S / B``.
"""

from collections.abc import Sequence

from fabricsim.collectives.base import Group, Template, alone
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.hierarchical import same_on_each
from fabricsim.collectives.tree import add_tree, double_parents
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import Algorithm

_UP, _DOWN, _MIDDLE, _TREE_DOWN = range(4)
"""Strands: to the reducing switch; from the copying one; from the former, and up a tree; down it, and to the latter.

The last two come once for each tree."""


def all_reduce(group: Group) -> Template:
    """Reduce and copy in the switch of one host."""
    _one_host(group, "all_reduce")
    return tree_all_reduce(group)


def reduce_scatter(group: Group) -> Template:
    """Reduce in the switch of one host."""
    _one_host(group, "reduce_scatter")
    n = len(group.hosts)
    if n == 1:
        return alone()
    builder = Builder(n, shards=n, strands=2, switches=(0,))
    _reduce(builder, list(range(n)), 2 * n, to=(1,))
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
    _copy(builder, list(range(n)), 2 * n, source=(0,), to=1)
    return builder.build()


def _one_host(group: Group, collective: str) -> None:
    if len(group.on_host) > 1:
        way_out = 'choose "nvls_tree"' if collective == "all_reduce" else 'choose "ring"'
        raise SimulationError(f"nvls {collective} works within one host, not over {len(group.on_host)}: {way_out}")


def tree_all_reduce(group: Group) -> Template:
    """Reduce and copy in the switch of each host, with trees between."""
    n, local, hosts = len(group.hosts), same_on_each(group, "nvls_tree all_reduce"), len(group.on_host)
    if local == 1:
        raise SimulationError('nvls needs several ranks on a host, whose switch reduces: choose "tree" or "ring"')
    trees = double_parents(hosts)[: 2 if hosts > 1 else 1]
    ups, downs = ([strand + 2 * tree for tree in range(len(trees))] for strand in (_MIDDLE, _TREE_DOWN))
    switches = tuple(host for host in range(hosts) for _ in range(2))
    builder = Builder(n, shards=len(trees) * local, strands=2 + 2 * len(trees), switches=switches)
    first_switch = builder.strands * n
    for host, on_host in enumerate(group.on_host):
        _reduce(builder, on_host, first_switch + 2 * host, to=ups)
    for shard in range(builder.shards):
        tree, place = divmod(shard, local)
        column = [on_host[place] for on_host in group.on_host]
        edges = {column[host]: None if parent is None else column[parent] for host, parent in enumerate(trees[tree])}
        add_tree(builder, edges, shard, ups[tree], downs[tree])
        for host, member in enumerate(column):
            builder.send(downs[tree] * n + member, first_switch + 2 * host + 1, shard)
    for host, on_host in enumerate(group.on_host):
        _copy(builder, on_host, first_switch + 2 * host + 1, source=downs, to=_DOWN)
    return builder.build()


def _reduce(builder: Builder, on_host: list[int], switch: int, *, to: Sequence[int]) -> None:
    """Let all send their buffers to a switch, and each receive its shard of the sum, a part in each strand `to`."""
    n = builder.members
    for member in on_host:
        builder.send(_UP * n + member, switch, 0, builder.shards)
        builder.receive(switch, _UP * n + member, 0, builder.shards, reduce=True)
    for shard in range(builder.shards):
        tree, place = divmod(shard, len(on_host))
        receiver = to[tree] * n + on_host[place]
        builder.send(switch, receiver, shard)
        builder.receive(receiver, switch, shard)


def _copy(builder: Builder, on_host: list[int], switch: int, *, source: Sequence[int], to: int) -> None:
    """Let a switch collect each one's shard, a part from each strand `source`, and send the whole to all."""
    n = builder.members
    for shard in range(builder.shards):
        tree, place = divmod(shard, len(on_host))
        builder.receive(switch, source[tree] * n + on_host[place], shard)
    for member in on_host:
        builder.send(switch, to * n + member, 0, builder.shards)
        builder.receive(to * n + member, switch, 0, builder.shards)


ALGORITHM = (
    Algorithm(
        "nvls",
        {"all_reduce": all_reduce, "reduce_scatter": reduce_scatter, "all_gather": all_gather},
        by_host=True,
        switches="host",
    ),
    Algorithm("nvls_tree", {"all_reduce": tree_all_reduce}, by_host=True, switches="host"),
)
