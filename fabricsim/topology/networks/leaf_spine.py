"""Two tiers: leaves, and spines that join them; with rails, the rail-optimised network of a SuperPOD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fabricsim.scenario.fabric import Ports, Switched
from fabricsim.scenario.network import Ends, Network, Size
from fabricsim.topology.rails import needless_rails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.errors import Mistake


class LeafSpine(Switched):
    """Hosts on leaves, each of which has cables to every spine.

    ``hosts_per_leaf`` hosts hang on each leaf with all their NICs, or with ``rails`` those of one number: a leaf for
    each rail of these hosts. ``cables_per_spine`` cables join each leaf to each of the ``spines``.
    """

    hosts_per_leaf: Annotated[int, Field(ge=1)]
    spines: Ports
    cables_per_spine: Ports = 1
    rails: bool = False

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network = Network.of(ends)
        rails = ends.nics_per_host if self.rails else 1
        for end in range(ends.count):
            leaf = end // ends.nics_per_host // self.hosts_per_leaf * rails + end % rails
            network.join(ends.name(end), f"leaf{leaf}", self.down)
        for leaf in range(-(-ends.hosts // self.hosts_per_leaf) * rails):
            for spine in range(self.spines):
                network.join(f"leaf{leaf}", f"spine{spine}", self.up, self.cables_per_spine)
        return network

    def size(self, ends: Ends) -> Size:
        """Count a cable for each NIC, and those of each leaf to each spine."""
        rails = ends.nics_per_host if self.rails else 1
        leaves = -(-ends.hosts // self.hosts_per_leaf) * rails
        down, up = min(self.hosts_per_leaf, ends.hosts) * ends.nics_per_host // rails, self.spines
        times = self.cables_per_spine
        return Size(ends.count + leaves * up * times, max(leaves * times, down + up * times))

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse rails of hosts with one NIC."""
        yield from needless_rails(ends, rails=self.rails)


TOPOLOGY = LeafSpine
