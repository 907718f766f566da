"""Dragonfly: groups whose switches are all joined, and cables between all groups (Kim et al., ISCA 2008)."""

from collections.abc import Iterator
from itertools import combinations

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import Ports, Switched
from fabricsim.scenario.network import Cable, Ends, FabricSize, Network
from fabricsim.scenario.quantity import Length
from fabricsim.topology import groups


class Grouped(Switched):
    """Groups of switches: their global cables are of ``global_cable``, and ``global_cables`` are at each switch."""

    routings = ("ecmp", "d-mod-k", "valiant", "ugal")

    global_cables: Ports
    global_cable: Length = 100.0

    @property
    def far(self) -> Cable:
        """What joins two groups."""
        return self.up._replace(length=self.global_cable)


class Dragonfly(Grouped):
    """Groups of ``switches_per_group`` switches with ``hosts_per_switch`` hosts, or NICs if a host has several, each.

    ``p``, ``a`` and ``h`` of Kim, Dally, Scott and Abts (ISCA 2008) are hosts and ``global_cables`` of a switch and
    switches of a group. There are as many groups as the hosts need; if these are fewer than ``a h + 1``, two groups
    have several cables, as many between all pairs, and some ports stay empty. ``local_cables`` join two of a group.
    """

    hosts_per_switch: Ports
    switches_per_group: Ports
    local_cables: Ports = 1

    def _groups(self, ends: Ends) -> int:
        return -(-ends.count // (self.hosts_per_switch * self.switches_per_group))

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, each = Network.of(ends), self.switches_per_group
        names = [[f"switch{group * each + i}" for i in range(each)] for group in range(self._groups(ends))]
        for group, switches in enumerate(names):
            for switch in switches:
                network.add(switch, group)
        for end in range(ends.count):
            network.join(ends.name(end), f"switch{end // self.hosts_per_switch}", self.down)
        for switches in names:
            for pair in combinations(switches, 2):
                network.join(*pair, self.up, self.local_cables)
        groups.join_groups(network, names, self.global_cables, self.far)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count ``a (a - 1) / 2`` pairs in a group, and as many cables between all pairs of groups."""
        a, count = self.switches_per_group, self._groups(ends)
        pairs, far = count * a * (a - 1) // 2 * self.local_cables, groups.between_groups(count, a * self.global_cables)
        ports = min(ends.count, self.hosts_per_switch) + (a - 1) * self.local_cables
        ports += groups.most_global_ports(count, self.global_cables, a)
        return FabricSize(ends.count + pairs + far * count * (count - 1) // 2, ports, count * a)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse more groups than there are ports."""
        ports = self.switches_per_group * self.global_cables
        yield from groups.too_few_ports(self._groups(ends), ports, f"the cluster of {ends.count} {ends.kind}s")


TOPOLOGY = Dragonfly
