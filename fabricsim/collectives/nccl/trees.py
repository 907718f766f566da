"""NCCL's rings and double binary trees: who follows whom, as its log prints it.

Over hosts each tree is a binary tree, two of them so that the leaves of one are the inner nodes of the other; within
a host the GPUs form a chain below the one that talks to the parent's host (``src/graph/trees.cc``, ``connect.cc``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fabricsim.collectives.nccl.load import SOCKETS, socket_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.scenario.cluster import Cluster


@dataclass(frozen=True)
class TreePlace:
    """A rank's parent and children in a tree; no parent is None."""

    parent: int | None
    children: tuple[int, ...]


def binary_tree(hosts: int) -> list[TreePlace]:
    """Host 0 above a binary tree whose leaves are the odd hosts.

    A host whose lowest set bit is ``b`` is the child of the host without ``b`` and with the next higher bit, or just
    without it if that is out of range.
    """
    parents: list[int | None] = [None]
    for host in range(1, hosts):
        bit = host & -host
        up = (host ^ bit) | bit << 1
        parents.append(up if up < hosts else host ^ bit)
    return [TreePlace(parents[host], _children(host, hosts)) for host in range(hosts)]


def _children(host: int, hosts: int) -> tuple[int, ...]:
    if host == 0:
        return () if hosts == 1 else (1 << (hosts - 1).bit_length() - 1,)
    low = (host & -host) >> 1
    if low == 0:
        return ()
    right = low
    while right and host + right >= hosts:
        right >>= 1
    return (host - low, host + right) if right else (host - low,)


def double_tree(hosts: int, *, mirrored_when_even: bool) -> tuple[list[TreePlace], list[TreePlace]]:
    """Two trees over the hosts; the second mirrors the first, or is shifted by one host.

    `hosts`: their number.
    `mirrored_when_even`: which of the two holds for an even number; the other holds for an odd one.
    """
    first = binary_tree(hosts)
    mirrored = (hosts % 2 == 0) == mirrored_when_even

    def there(host: int) -> int:
        return hosts - 1 - host if mirrored else (host + 1) % hosts

    second: list[TreePlace] = list(first)
    for host, place in enumerate(first):
        parent = None if place.parent is None else there(place.parent)
        second[there(host)] = TreePlace(parent, tuple(there(child) for child in place.children))
    return first, second


def chain(cluster: Cluster, rate: float) -> tuple[int, ...]:
    """GPUs of a host in the order of its chain: as on the bus, where the sockets' link carries that both ways.

    Otherwise the GPUs at the NIC's socket come first.

    `rate`: of the tree's channels together, GB/s.
    """
    order = tuple(range(cluster.gpus_per_host))
    if cluster.join == "ideal" or cluster.intra_host == "nvlink":
        return order
    sockets = [socket_of(cluster, gpu) for gpu in order]
    head = sockets[: 2 if splits(cluster) else 1]
    crossed = sum(socket != cluster.nic.socket for socket in head)
    crossed += sum(here != there for here, there in pairwise(sockets))
    if crossed * rate <= SOCKETS:
        return order
    return tuple(sorted(order, key=lambda gpu: (sockets[gpu] != cluster.nic.socket, gpu)))


def splits(cluster: Cluster) -> bool:
    """Whether one GPU talks to the parent and the next to the children: where both are as near to the NIC."""
    return cluster.gpus_per_host > 1 and cluster.intra_host != "nvlink"


def one_after_the_other(hosts: int) -> float:
    """Give how much longer a single tree takes that reduces all before it broadcasts, if hosts are the bottleneck.

    One after the other, the host with most children receives all of them and then sends to all of them; at once, it
    does so beside what goes to its parent and comes from it.
    """
    tree = binary_tree(hosts)
    most = max(len(place.children) for place in tree)
    return 2 * most / max(len(place.children) + (place.parent is not None) for place in tree) if hosts > 1 else 1.0


def rank_tree(tree: Sequence[TreePlace], order: Sequence[int], *, split: bool) -> list[TreePlace]:
    """Tree over all ranks.

    `tree`: over the hosts.
    `order`: GPUs of a host in their chain.
    `split`: whether the second GPU of the chain talks to the hosts below, or the first.
    """
    size = len(order)
    head, below = order[0], order[1] if split else order[0]
    places: list[TreePlace] = [TreePlace(None, ())] * (len(tree) * size)
    for host, place in enumerate(tree):
        for at, gpu in enumerate(order):
            children = [host * size + order[at + 1]] if at + 1 < size else []
            if gpu == below:
                children += [child * size + head for child in place.children]
            parent: int | None = host * size + order[at - 1]
            if at == 0:
                parent = None if place.parent is None else place.parent * size + below
            places[host * size + gpu] = TreePlace(parent, tuple(children))
    return places


def ring(cluster: Cluster) -> tuple[int, ...]:
    """All ranks in the order of a ring: host after host, GPUs in PCI order (from 2.5 on)."""
    return tuple(range(cluster.ranks))
