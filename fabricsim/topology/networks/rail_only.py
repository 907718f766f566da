"""Rail-only: a network of its own for the NICs of each number, and none between these (Wang et al., 2023)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import MOST_PORTS, Ports, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.clos import Clos
from fabricsim.topology.rails import needless_rails


class RailOnly(Switched):
    """A non-blocking network per rail: one switch if ``radix`` allows, or leaves with spines, or also cores.

    Source: Wang et al., "Rail-only: a low-cost high-performance network for training LLMs with trillion parameters",
    arXiv 2307.12169. What goes to another rail has to be forwarded inside the host: ``cluster.pxn``. If rails need one
    switch and leave ports of it free, ``rails_per_switch`` of them may share one, and then reach each other.
    """

    radix: Annotated[int, Field(ge=2, le=MOST_PORTS, multiple_of=2)] = 64
    tiers: Literal[1, 2, 3] | None = None
    rails_per_switch: Ports = 1

    def _rail(self, ends: Ends) -> tuple[Clos, int]:
        """Give the network of one rail, and how many NICs are on a leaf of it."""
        one = self.tiers == 1 or (self.tiers is None and ends.hosts <= self.radix)
        down = self.radix if one else self.radix // 2
        return Clos(-(-ends.hosts // down), self.radix // 2, self.radix, 1 if one else self.tiers), down

    def network(self, ends: Ends) -> Network:
        """Join them, rail by rail."""
        network, (clos, down) = Network.of(ends), self._rail(ends)
        for end in range(ends.count):
            host, rail = divmod(end, ends.nics_per_host)
            leaf = rail // self.rails_per_switch * clos.leaves + host // down
            network.join(ends.name(end), f"leaf{leaf}", self.down)
        for rail in range(ends.nics_per_host if self.rails_per_switch == 1 else 0):
            clos.join(network, self.up, rail)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count those of a rail, as often as there are rails."""
        clos, down = self._rail(ends)
        one, rails = clos.size(ends.hosts, min(down, ends.hosts)), ends.nics_per_host
        switches = one.switches * -(-rails // self.rails_per_switch)
        return FabricSize(one.cables * rails, one.ports * min(rails, self.rails_per_switch), switches)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse hosts with one NIC, and more than the ports hold."""
        yield from needless_rails(ends, "topology")
        yield from self._rail(ends)[0].problems("radix", ends.hosts)
        if self.rails_per_switch > 1 and ends.hosts * self.rails_per_switch > self.radix:
            problem = f"{self.rails_per_switch} rails of {ends.hosts} hosts do not fit into {self.radix} ports"
            yield Mistake("rails_per_switch", problem, f"at most {max(1, self.radix // ends.hosts)}")


TOPOLOGY = RailOnly
