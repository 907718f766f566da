"""Rail-only: a network of its own for the NICs of each number, and none between these (Wang et al., 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from fabricsim.scenario.fabric import MOST_PORTS, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.clos import Clos
from fabricsim.topology.rails import needless_rails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.errors import Mistake


class RailOnly(Switched):
    """A non-blocking network per rail: one switch if ``radix`` allows, or leaves with spines, or also cores.

    Source: Wang et al., "Rail-only: a low-cost high-performance network for training LLMs with trillion parameters",
    arXiv 2307.12169. What goes to another rail has to be forwarded inside the host: ``cluster.pxn``.
    """

    radix: Annotated[int, Field(ge=2, le=MOST_PORTS, multiple_of=2)] = 64
    tiers: Literal[1, 2, 3] | None = None

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
            network.join(ends.name(end), f"leaf{rail * clos.leaves + host // down}", self.down)
        for rail in range(ends.nics_per_host):
            clos.join(network, self.up, rail)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count those of a rail, as often as there are rails."""
        clos, down = self._rail(ends)
        one, rails = clos.size(ends.hosts, min(down, ends.hosts)), ends.nics_per_host
        return FabricSize(one.cables * rails, one.ports, one.switches * rails)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse hosts with one NIC, and more than the ports hold."""
        yield from needless_rails(ends, "topology")
        yield from self._rail(ends)[0].problems("radix", ends.hosts)


TOPOLOGY = RailOnly
