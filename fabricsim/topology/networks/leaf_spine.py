"""Two tiers: leaves, and spines that join them; with rails, the rail-optimised network of a SuperPOD."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import Ports, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.rails import needless_rails


class LeafSpine(Switched):
    """Hosts on leaves, each of which has cables to every spine.

    ``hosts_per_leaf`` hosts hang on each leaf with all their NICs, or with ``rails`` those of one number: a leaf for
    each rail of these hosts. ``cables_per_spine`` cables join each leaf to each of the ``spines``.
    """

    hosts_per_leaf: Annotated[int, Field(ge=1)]
    spines: Ports
    cables_per_spine: Ports = 1
    rails: bool = False

    def _leaf(self, ends: Ends, end: int) -> int:
        """Give the number of a NIC's leaf."""
        rails = ends.nics_per_host if self.rails else 1
        return end // ends.nics_per_host // self.hosts_per_leaf * rails + end % rails

    def _leaves(self, ends: Ends) -> int:
        return -(-ends.hosts // self.hosts_per_leaf) * (ends.nics_per_host if self.rails else 1)

    def _join_leaves(self, network: Network, leaves: int, plane: int = 0) -> None:
        for leaf in range(plane * leaves, (plane + 1) * leaves):
            for spine in range(plane * self.spines, (plane + 1) * self.spines):
                network.join(f"leaf{leaf}", f"spine{spine}", self.up, self.cables_per_spine)

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network = Network.of(ends)
        for end in range(ends.count):
            network.join(ends.name(end), f"leaf{self._leaf(ends, end)}", self.down)
        self._join_leaves(network, self._leaves(ends))
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count a cable for each NIC, and those of each leaf to each spine."""
        leaves, up = self._leaves(ends), self.spines * self.cables_per_spine
        down = min(self.hosts_per_leaf, ends.hosts) * (1 if self.rails else ends.nics_per_host)
        return FabricSize(
            ends.count + leaves * up, max(leaves * self.cables_per_spine, down + up), leaves + self.spines
        )

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse rails of hosts with one NIC."""
        if self.rails:
            yield from needless_rails(ends, "rails")


TOPOLOGY = LeafSpine
