"""Puts the packet engine together: network, world and wiring of one scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.engine.packet_network import build, smallest_packet
from fabricsim.engine.packet_wiring import PacketWiring
from fabricsim.engine.packet_world import PacketWorld
from fabricsim.transports.parameters import law_row

if TYPE_CHECKING:
    from fabricsim.spec.scenario import Scenario
    from fabricsim.topology.platform import Platform
    from fabricsim.transports.base import FlowModel


def make(platform: Platform, model: FlowModel, scenario: Scenario) -> tuple[PacketWorld, PacketWiring]:
    """Make the packet engine's world for a platform.

    Raises
    ------
    SimulationError
        Where the scenario asks for what this engine does not have.
    """
    law = law_row(scenario.transport)
    network = build(platform, scenario)
    world = PacketWorld(platform.resources.capacities, network, smallest_packet(law, scenario.switch))
    moderation = scenario.nic.interrupt_moderation
    return world, PacketWiring(world, platform, model, scenario.collectives, moderation, law)
