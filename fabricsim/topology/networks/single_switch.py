"""One non-blocking switch for all hosts, or one for each rail."""

from collections.abc import Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import FabricSpec
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.rails import needless_rails


class SingleSwitch(FabricSpec):
    """All hosts on one switch; with ``rails`` a switch for the NICs of each number, and no way between these."""

    idle = frozenset({"routing", "paths"})
    one_way = True

    rails: bool = False

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network = Network.of(ends)
        for end in range(ends.count):
            switch = end % ends.nics_per_host if self.rails else 0
            network.join(ends.name(end), f"switch{switch}", self.down)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count a cable for each NIC."""
        switches = ends.nics_per_host if self.rails else 1
        return FabricSize(ends.count, ends.count // switches, switches)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse rails of hosts with one NIC."""
        if self.rails:
            yield from needless_rails(ends, "rails")


TOPOLOGY = SingleSwitch
