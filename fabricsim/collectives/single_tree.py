"""Single binary tree all-reduce, as NCCL runs it on a call with one channel: of its two trees each channel has one.

All data goes up and down the first tree of `fabricsim.collectives.tree`, so that a host with two below it sends and
receives three times the data: with ``c`` chunks at least ``2 d a`` and ``3 S / B``, instead of ``2 S / B``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.collectives.builder import Builder
from fabricsim.collectives.tree import add_tree, binary_parents, over_hosts
from fabricsim.scenario.collectives import Algorithm

if TYPE_CHECKING:
    from fabricsim.collectives.base import Group, Template


def split_all_reduce(group: Group) -> Template:
    """Take a tree in which one member of a host talks to the parent and another to the children."""
    return all_reduce(group, split=True)


def all_reduce(group: Group, *, split: bool = False) -> Template:
    """All of the data up and down one tree."""
    builder = Builder(len(group.hosts), shards=1, strands=2)
    hung = dict(enumerate(over_hosts(group.on_host, binary_parents(len(group.on_host)), split=split)))
    add_tree(builder, hung, 0, 0, 1)
    return builder.build()


ALGORITHM = (
    Algorithm("single_tree", {"all_reduce": all_reduce}, by_host=True, striped=True),
    Algorithm("split_single_tree", {"all_reduce": split_all_reduce}, by_host=True, striped=True),
)
