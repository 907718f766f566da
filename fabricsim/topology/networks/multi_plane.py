"""Several planes: networks side by side, each with a port of every adapter (Alibaba HPN has two)."""

from typing import Annotated

from pydantic import Field

from fabricsim.scenario.fabric import Ports
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.networks.leaf_spine import LeafSpine


class MultiPlane(LeafSpine):
    """Planes that are leaf-spine networks each: the adapter has one port of ``link_rate`` in each of them.

    Source: Qian et al., "Alibaba HPN: a data center network for large language model training", SIGCOMM 2024. The
    adapter's ports are joined by a switch inside of it, which chooses as others do: by the flow with ECMP, by the
    packet if the transport sprays. It takes the latency of a switch.
    """

    planes: Annotated[int, Field(ge=2, le=16)] = 2
    spines: Ports

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, leaves = Network.of(ends), self._leaves(ends)
        for end in range(ends.count):
            adapter = network.embed(ends.name(end), f"adapter{end}", self.planes)
            for plane in range(self.planes):
                network.join(adapter, f"leaf{plane * leaves + self._leaf(ends, end)}", self.down)
        for plane in range(self.planes):
            self._join_leaves(network, leaves, plane)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count those of each plane, and the switch of each adapter."""
        one = super().size(ends)
        ports = max(one.ports, 1 + self.planes)
        return FabricSize(one.cables * self.planes + ends.count, ports, one.switches * self.planes + ends.count)


TOPOLOGY = MultiPlane
