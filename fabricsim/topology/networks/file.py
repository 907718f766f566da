"""Whatever a file of cables says."""

from fabricsim.scenario.fabric import FabricSpec
from fabricsim.scenario.network import Cable, Ends, Network
from fabricsim.topology import cable_file


class File(FabricSpec):
    """The cables that the file ``links`` lists; switches in the order of their names and numbers."""

    idle = frozenset({"link_rate", "host_cable"})
    files = ("links", "paths")

    links: str

    def network(self, ends: Ends) -> Network:
        """Read them."""
        cables = cable_file.read(self.links, ends.hosts, ends.nics_per_host)
        network = Network.of(ends)
        switches = {node for cable in cables for node in (cable.a, cable.b)}.difference(network.nodes)
        for node in sorted(switches, key=_natural):
            network.add(node)
        for cable in cables:
            network.join(cable.a, cable.b, Cable(cable.rate, delay=cable.delay))
        return network


def _natural(node: str) -> tuple[str, int, str]:
    """Sort key that puts ``leaf2`` before ``leaf10``."""
    name = node.rstrip("0123456789")
    return name, int(node[len(name) :] or -1), node


TOPOLOGY = File
