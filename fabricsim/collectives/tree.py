"""Double binary tree all-reduce, as NCCL builds it over hosts.

P. Sanders, J. Speck and J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 35 (2009). Each of two trees carries half of the data; who has children in one has none in the
other (with an odd number of hosts: but for one host), so that every host sends and receives at most twice the data.
Trees are those of NCCL (src/graph/trees.cc, ``ncclGetDtree``): over hosts, with a chain of the members inside each
host, and up and down at once (``runTreeSplit`` of src/device/all_reduce.h).

With ``a`` seconds per message, depth ``d`` of the deeper tree and ``c`` chunks, on ``n`` ranks: at least ``2 d a``,
and ``2 S / B`` where the ``c`` are many; Jeaugey, "Massively scale your deep learning training with NCCL 2.4" (2019)
gives ``2 log2(n) a + 2 S / B``.

A call with one channel has one of the two trees alone: each of NCCL's channels has one. All data goes up and down it,
so that a host with two below it sends and receives three times the data: at least ``2 d a``, and ``3 S / B``.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from fabricsim.collectives.base import Group, Template
from fabricsim.collectives.builder import Builder
from fabricsim.scenario.collectives import Algorithm

Parents = list[int | None]
"""Parent of each node of a tree; None of the root."""


def binary_parents(nodes: int) -> Parents:
    """Parents in NCCL's binary tree (``ncclGetBtree``): node 0 is the root, leaves are the odd nodes."""
    parents: Parents = [None]
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | (bit << 1)
        parents.append(up if up < nodes else node ^ bit)
    return parents


def double_parents(nodes: int, *, mirrored_when_even: bool = True) -> tuple[Parents, Parents]:
    """Parents in both trees: the second is the first mirrored, or shifted by one.

    `mirrored_when_even`: which of the two holds for an even number of nodes; the other holds for an odd one.
    """
    first = binary_parents(nodes)
    second: Parents = [None] * nodes
    for node, parent in enumerate(first):
        if parent is not None and (nodes % 2 == 0) == mirrored_when_even:
            second[nodes - 1 - node] = nodes - 1 - parent
        elif parent is not None:
            second[(node + 1) % nodes] = (parent + 1) % nodes
    return first, second


def over_hosts(on_hosts: Sequence[Sequence[int]], parents: Parents, *, split: bool = False) -> Parents:
    """Hang the members of each host in a chain below its first one, and these in the tree of hosts.

    `split`: whether the hosts below hang on the second member of the chain: the first talks to the parent alone.
    """
    members: Parents = [None] * sum(map(len, on_hosts))
    heads = [on_host[min(int(split), len(on_host) - 1)] for on_host in on_hosts]
    for host, on_host in enumerate(on_hosts):
        for above, below in pairwise(on_host):
            members[below] = above
        parent = parents[host]
        members[on_host[0]] = None if parent is None else heads[parent]
    return members


def add_tree(builder: Builder, parents: Mapping[int, int | None], shard: int, up: int, down: int) -> None:
    """Reduce a shard up a tree of members, given by their parents, in one strand, and broadcast it down in another."""
    n = builder.members
    below: dict[int, list[int]] = {member: [] for member in parents}
    for member, parent in parents.items():
        if parent is not None:
            below[parent].append(member)
    for member, parent in parents.items():
        here_up, here_down = up * n + member, down * n + member
        for child in below[member]:
            builder.receive(here_up, up * n + child, shard, reduce=True)
        if parent is None:
            builder.send(here_up, here_down, shard)
            builder.receive(here_down, here_up, shard)
        else:
            builder.send(here_up, up * n + parent, shard)
            builder.receive(here_down, down * n + parent, shard)
        for child in below[member]:
            builder.send(here_down, down * n + child, shard)


def _all_reduce(parents_of: Callable[[int], Sequence[Parents]], *, split: bool = False) -> Callable[[Group], Template]:
    """Send an equal part of the data up and down each of some trees.

    `split`: whether one member of a host talks to the parent and another to the children.
    """

    def all_reduce(group: Group) -> Template:
        trees = parents_of(len(group.on_host))
        builder = Builder(len(group.hosts), shards=len(trees), strands=2 * len(trees))
        for number, parents in enumerate(trees):
            hung = dict(enumerate(over_hosts(group.on_host, parents, split=split)))
            add_tree(builder, hung, number, 2 * number, 2 * number + 1)
        return builder.build()

    return all_reduce


def _single(nodes: int) -> tuple[Parents]:
    return (binary_parents(nodes),)


ALGORITHM = (
    Algorithm("tree", {"all_reduce": _all_reduce(double_parents)}, by_host=True, striped=True),
    Algorithm("split_tree", {"all_reduce": _all_reduce(double_parents, split=True)}, by_host=True, striped=True),
    Algorithm("single_tree", {"all_reduce": _all_reduce(_single)}, by_host=True, striped=True),
    Algorithm("split_single_tree", {"all_reduce": _all_reduce(_single, split=True)}, by_host=True, striped=True),
)
