"""Rail-optimised Clos of a DGX SuperPOD: NIC ``i`` of all hosts of a scalable unit on the unit's leaf ``i``."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import MOST_PORTS, Ports, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.clos import Clos
from fabricsim.topology.rails import needless_rails


class RailOptimised(Switched):
    """Units of ``hosts_per_unit`` hosts with a leaf per rail; spines, and with ``tiers = 3`` cores, join all leaves.

    Source: NVIDIA, DGX SuperPOD reference architectures (A100, H100): 20 hosts in a unit and switches of 40 ports, or
    32 and 64. A leaf has one uplink for every ``oversubscription`` hosts of a full unit.
    """

    radix: Annotated[int, Field(ge=2, le=MOST_PORTS, multiple_of=2)] = 64
    hosts_per_unit: Ports = 32
    tiers: Literal[2, 3] | None = None
    oversubscription: Annotated[int, Field(ge=1)] = 1

    def _clos(self, ends: Ends) -> Clos:
        leaves = -(-ends.hosts // self.hosts_per_unit) * ends.nics_per_host
        return Clos(leaves, self.hosts_per_unit // self.oversubscription, self.radix, self.tiers)

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, rails = Network.of(ends), ends.nics_per_host
        for end in range(ends.count):
            leaf = end // rails // self.hosts_per_unit * rails + end % rails
            network.join(ends.name(end), f"leaf{leaf}", self.down)
        self._clos(ends).join(network, self.up)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count a cable for each NIC, and what joins the leaves."""
        return self._clos(ends).size(ends.count, min(self.hosts_per_unit, ends.hosts))

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse hosts with one NIC, and more than the ports hold."""
        yield from needless_rails(ends, "topology")
        yield from self._clos(ends).problems("radix", ends.count)


TOPOLOGY = RailOptimised
