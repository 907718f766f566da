"""The network between the hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Duration, Length, Rate
from fabricsim.scenario.switch import Switch

__all__ = ["FABRIC_FILES", "SHAPE_KEYS", "TOPOLOGY_KEYS", "Fabric", "Failure", "Switch"]

FABRIC_FILES = ("links", "paths")
"""Keys of `Fabric` that name files."""

_TIERED = {"link_rate", "host_cable", "uplink_rate", "switch_cable", "routing", "paths"}

TOPOLOGY_KEYS = {
    "single-switch": {"link_rate", "host_cable", "rails"},
    "leaf-spine": {"hosts_per_leaf", "spines", "rails"} | _TIERED,
    "fat-tree": {"k"} | _TIERED,
    "file": {"links", "routing", "paths"},
}
"""Keys of `Fabric` that only some topologies have a use for."""

SHAPE_KEYS = {"hosts_per_leaf", "spines", "k", "rails", "uplink_rate", "links", "paths"}
"""Keys of `Fabric` that belong to one shape of it: they are given up if a topology is written over another."""


class Failure(Spec):
    """A cable that is down for a time; what is sent on it is lost, in both directions or in one.

    ``link`` names it: ``"host0-leaf0"`` for both directions, ``"host0->leaf0"`` for one. Without
    ``until`` it stays down.
    """

    link: str
    begin: Annotated[Duration, Field(alias="from")] = 0
    until: Duration | None = None


class Fabric(Spec):
    """Topology, link rates and cables.

    ``link_rate`` and ``switch`` default to those of the transport preset. In ``leaf-spine``,
    ``hosts_per_leaf`` hosts hang on each leaf and each leaf has one uplink to each spine.
    In ``fat-tree``, ``k`` is the port count of a switch; the smallest that holds the hosts is taken
    if it is left out. In ``file``, ``links`` is a CSV file of cables. With ``rails`` the NICs of one number
    have switches of their own: a single switch for each rail, or a leaf for each rail of ``hosts_per_leaf`` hosts.

    ``routing`` chooses among equally short ways: by the hash of the flow, or by its destination.
    ``paths`` is a CSV file of given paths. ``bit_error_rate`` and ``failures`` lose packets; they need
    the packet engine.
    """

    topology: Literal["single-switch", "leaf-spine", "fat-tree", "file"]
    link_rate: Rate | None = None
    switch: Switch | None = None
    host_cable: Length = 5.0
    switch_cable: Length = 30.0
    hosts_per_leaf: Annotated[int, Field(ge=1)] | None = None
    spines: Annotated[int, Field(ge=1)] | None = None
    uplink_rate: Rate | None = None
    k: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    rails: bool = False
    links: str | None = None
    routing: Literal["ecmp", "d-mod-k"] = "ecmp"
    paths: str | None = None
    bit_error_rate: Annotated[float, Field(ge=0, le=0.001)] = 0.0
    failures: Annotated[tuple[Failure, ...], Field(strict=False)] = ()
