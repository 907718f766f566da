"""Dragonfly+: groups that are leaf-spine networks, whose spines have cables to all groups (Shpiner et al., 2017)."""

from collections.abc import Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import Ports
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology import groups
from fabricsim.topology.networks.dragonfly import Grouped


class DragonflyPlus(Grouped):
    """Groups of leaves with hosts and of spines with ``global_cables`` each, every leaf being joined to every spine.

    Source: Shpiner et al., "Dragonfly+: low cost topology for scaling datacenters", HiPINEB 2017. A leaf has
    ``hosts_per_leaf`` hosts, or NICs if a host has several.
    """

    hosts_per_leaf: Ports
    leaves_per_group: Ports
    spines_per_group: Ports

    def _groups(self, ends: Ends) -> int:
        return -(-ends.count // (self.hosts_per_leaf * self.leaves_per_group))

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, count = Network.of(ends), self._groups(ends)
        leaves, spines = self.leaves_per_group, self.spines_per_group
        for leaf in range(count * leaves):
            network.add(f"leaf{leaf}", leaf // leaves)
        names = [[f"spine{group * spines + i}" for i in range(spines)] for group in range(count)]
        for end in range(ends.count):
            network.join(ends.name(end), f"leaf{end // self.hosts_per_leaf}", self.down)
        for group, above in enumerate(names):
            for spine in above:
                network.add(spine, group)
                for leaf in range(group * leaves, (group + 1) * leaves):
                    network.join(f"leaf{leaf}", spine, self.up)
        groups.join_groups(network, names, self.global_cables, self.far)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count those of each leaf to its spines, and as many cables between all pairs of groups."""
        count, leaves, spines = self._groups(ends), self.leaves_per_group, self.spines_per_group
        far = groups.between_groups(count, spines * self.global_cables) * count * (count - 1) // 2
        down = min(ends.count, self.hosts_per_leaf)
        ports = max(down + spines, leaves + groups.most_global_ports(count, self.global_cables, spines))
        return FabricSize(ends.count + count * leaves * spines + far, ports, count * (leaves + spines))

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse more groups than there are ports."""
        ports = self.spines_per_group * self.global_cables
        yield from groups.too_few_ports(self._groups(ends), ports, f"the cluster of {ends.count} {ends.kind}s")


TOPOLOGY = DragonflyPlus
