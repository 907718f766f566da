"""The network between the hosts: what all topologies have, and which topologies there are."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fabricsim.errors import Mistake, SimulationError
from fabricsim.extensions import Registry
from fabricsim.scenario.base import Spec
from fabricsim.scenario.failure import BitErrorRate, Failure
from fabricsim.scenario.network import Cable, Ends, FabricSize, Network
from fabricsim.scenario.quantity import Duration, Length, Rate
from fabricsim.scenario.switch import CLASSES, SwitchSpec

__all__ = ["TOPOLOGIES", "FabricSpec", "Failure", "Ports", "Routing", "SwitchSpec", "Switched"]

MOST_PORTS = 1024
"""Ports of a switch towards others; the largest sold have some hundred."""

Ports = Annotated[int, Field(ge=1, le=MOST_PORTS)]
Routing = Literal["ecmp", "d-mod-k", "dimension-order", "valiant", "ugal"]

_CARRIED = frozenset({"link_rate", "host_cable", "switch_cable", "routing"})


class CableChange(Spec):
    """What some cables are that others of their fabric are not; what is left out stays.

    ``length`` is the way that light takes, ``delay`` the time that it takes for it, of which one may be written.
    """

    rate: Rate | None = None
    length: Length | None = None
    delay: Duration | None = None
    bit_error_rate: BitErrorRate | None = None


class FabricSpec(Spec):
    """What all topologies have: link rate, host cables, routing, losses.

    ``link_rate`` and ``switch`` default to those of the transport preset. ``routing`` chooses among equally short ways:
    by the hash of the flow (``"ecmp"``), by its destination (``"d-mod-k"``), or by the order of the dimensions of a
    torus; ``"valiant"`` goes by way of another group, and ``"ugal"`` if that way is the emptier one. ``paths`` is a
    CSV file of given paths. ``radix`` is how many ports a switch has, if that is to be checked. Ways are shared out
    among ``virtual_lanes``, classes of the switch, so that no buffers wait for one another in a circle; if they may, a
    lossless network is refused, unless ``deadlocks`` are to be seen. ``bit_error_rate`` loses packets, and needs the
    packet engine. ``cables`` are changes of those whose names match a pattern: ``"leaf0-spine*"``, or
    ``"leaf0->spine*"`` for one direction; of changes that match one cable, the later ones count.
    Routing avoids ``failures`` after ``reconvergence``, traffic that finds its way packet by packet those that are next
    to it after ``local_repair``.
    """

    idle: ClassVar[frozenset[str]] = frozenset()
    """Keys that a topology has no use for."""
    files: ClassVar[tuple[str, ...]] = ("paths",)
    """Keys that name files."""
    routings: ClassVar[tuple[Routing, ...]] = ("ecmp", "d-mod-k")
    """Ways of routing that a topology has a use for; the first is its default."""
    one_way: ClassVar[bool] = False
    """Whether there is one way only between two NICs, so that packets cannot overtake each other."""

    topology: str
    link_rate: Rate | None = None
    switch: SwitchSpec | None = None
    host_cable: Length = 5.0
    routing: Routing = "ecmp"
    paths: str | None = None
    radix: Ports | None = None
    virtual_lanes: Annotated[int, Field(ge=1, le=CLASSES)] = 1
    deadlocks: Literal["refuse", "allow"] = "refuse"
    bit_error_rate: BitErrorRate = 0.0
    failures: Annotated[tuple[Failure, ...], Field(strict=False)] = ()
    reconvergence: Duration | None = None
    local_repair: Duration = 1_000_000_000
    cables: dict[str, CableChange] = Field(default_factory=dict)

    def network(self, ends: Ends) -> Network:
        """Join hosts or NICs to switches, and these to each other.

        Raises
        ------
        SimulationError
            If the topology cannot be built of these.
        TraceError
            If a file that describes it has a mistake.
        """
        del ends
        file = getattr(sys.modules.get(type(self).__module__), "__file__", None)
        msg = f"{file or self.topology}: {type(self).__name__} has no network; define network(self, ends) in it"
        raise SimulationError(f"{msg}, which gives a fabricsim.scenario.network.Network")

    def size(self, ends: Ends) -> FabricSize | None:
        """Count cables and ports without building anything; None if only the network tells."""
        del ends
        return None

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Find what does not go together with these hosts; keys are those of this table, such as ``"k"``."""
        del ends
        return iter(())

    @property
    def worst_bit_errors(self) -> float:
        """Bit error rate of the worst cable."""
        return max(self.bit_error_rate, *(change.bit_error_rate or 0.0 for change in self.cables.values()), 0.0)

    @property
    def down(self) -> Cable:
        """What joins a NIC to its switch."""
        return Cable(length=self.host_cable)


class Switched(FabricSpec):
    """A fabric in which switches are joined to others: by cables of ``switch_cable``, at ``uplink_rate`` if given."""

    uplink_rate: Rate | None = None
    switch_cable: Length = 30.0

    @property
    def up(self) -> Cable:
        """What joins two switches."""
        return Cable(self.uplink_rate, self.switch_cable)


TOPOLOGIES: Registry[type[FabricSpec]] = Registry("topologies", "fabricsim.topology.networks", "TOPOLOGY", FabricSpec)
"""All topologies: a subclass of `FabricSpec` each."""


def keys_of(topology: type[FabricSpec]) -> frozenset[str]:
    """Return the keys that have an effect in fabrics of a topology."""
    return frozenset(topology.model_fields) - topology.idle


def own_keys() -> frozenset[str]:
    """Return the keys that only some topologies have a use for."""
    every = [keys_of(topology) for topology in TOPOLOGIES.all().values()]
    return frozenset().union(*every) - frozenset.intersection(*every)


def given_up(topology: str, routing: object) -> frozenset[str]:
    """Return the keys that a fabric loses if this topology is written over another one, which had this routing."""
    known = TOPOLOGIES.find(topology)
    carried = _CARRIED & keys_of(known) if known else _CARRIED
    if known and routing not in known.routings:
        carried -= {"routing"}
    return own_keys() - carried | {"radix"}


def file_keys() -> frozenset[str]:
    """Return all keys that name files."""
    return frozenset(key for topology in TOPOLOGIES.all().values() for key in topology.files)


def fabric_of(tables: Mapping[str, Any]) -> FabricSpec:
    """Make a fabric of a table, such as ``{"topology": "fat-tree", "k": 4}``."""
    return TOPOLOGIES.all()[tables["topology"]].model_validate(tables)
