"""Puts the packet engine together: network, world and wiring of one scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.engine.packet_network import build, smallest_packet
from fabricsim.engine.packet_wiring import PacketWiring
from fabricsim.engine.packet_world import PacketWorld
from fabricsim.engine.recorder import Recorder, Watch
from fabricsim.transports.parameters import law_row

if TYPE_CHECKING:
    from fabricsim.spec.scenario import Scenario
    from fabricsim.topology.platform import Platform
    from fabricsim.transports.base import FlowModel


def make(
    platform: Platform, model: FlowModel, scenario: Scenario, watch: Watch | None = None
) -> tuple[PacketWorld, PacketWiring, Recorder]:
    """Make the packet engine's world for a platform, and what records it.

    Raises
    ------
    SimulationError
        Where the scenario asks for what this engine does not have.
    InputError
        Where `watch` names a wire that is not there.
    """
    law = law_row(scenario.transport)
    network = build(platform, scenario)
    smallest = smallest_packet(law, scenario.switch)
    world = PacketWorld(platform.resources.capacities, network, smallest, names=platform.wires.names)
    moderation = scenario.nic.interrupt_moderation
    wiring = PacketWiring(world, platform, model, scenario.collectives, moderation, law)
    return world, wiring, Recorder(network, platform, wiring, scenario.transport, watch or Watch())
