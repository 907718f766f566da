"""The network between the hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.spec.base import Spec
from fabricsim.spec.quantity import Duration, Length, Rate


class Switch(Spec):
    """A switch type.

    ``latency`` is port to port, without serialisation. ``forwarding`` decides how often a packet is
    serialised: ``"cut-through"`` once on the path, ``"store-and-forward"`` at every hop.
    """

    name: str
    latency: Duration
    forwarding: Literal["cut-through", "store-and-forward"]


class Fabric(Spec):
    """Topology, link rates and cables.

    ``link_rate`` and ``switch`` default to those of the transport preset. In ``leaf-spine``,
    ``hosts_per_leaf`` hosts hang on each leaf and each leaf has one uplink to each spine.
    In ``fat-tree``, ``k`` is the port count of a switch; the smallest that holds the hosts is taken
    where it is left out.
    """

    topology: Literal["single-switch", "leaf-spine", "fat-tree"]
    link_rate: Rate | None = None
    switch: Switch | None = None
    host_cable: Length = 5.0
    switch_cable: Length = 30.0
    hosts_per_leaf: Annotated[int, Field(ge=1)] | None = None
    spines: Annotated[int, Field(ge=1)] | None = None
    uplink_rate: Rate | None = None
    k: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
