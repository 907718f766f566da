"""Full mesh: switches each of which is joined to every other one."""

from itertools import combinations

from fabricsim.scenario.fabric import Ports, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network


class FullMesh(Switched):
    """Switches with ``hosts_per_switch`` hosts, or NICs if a host has several, ``parallel`` cables between any two."""

    routings = ("ecmp", "d-mod-k", "valiant", "ugal")

    hosts_per_switch: Ports
    parallel: Ports = 1

    def _switches(self, ends: Ends) -> int:
        return -(-ends.count // self.hosts_per_switch)

    def network(self, ends: Ends) -> Network:
        """Join them; to detours each switch is a group."""
        network = Network.of(ends)
        for switch in range(self._switches(ends)):
            network.add(f"switch{switch}", switch)
        for end in range(ends.count):
            network.join(ends.name(end), f"switch{end // self.hosts_per_switch}", self.down)
        for a, b in combinations(range(self._switches(ends)), 2):
            network.join(f"switch{a}", f"switch{b}", self.up, self.parallel)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count ``n (n - 1) / 2`` pairs of switches."""
        n = self._switches(ends)
        ports = min(self.hosts_per_switch, ends.count) + (n - 1) * self.parallel
        return FabricSize(ends.count + n * (n - 1) // 2 * self.parallel, ports, n)


TOPOLOGY = FullMesh
