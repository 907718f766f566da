"""Puts the packet engine together: network, world and wiring of one scenario."""

import warnings

import numpy as np

from fabricsim.collectives.choice import Choose
from fabricsim.engine.failures import require_arrivals
from fabricsim.engine.packet.delay_target import DelayTargets
from fabricsim.engine.packet.headroom import warn_of_loss
from fabricsim.engine.packet.lossless import require_no_circle
from fabricsim.engine.packet.network import build, smallest_packet
from fabricsim.engine.packet.recorder import Recorder, Watch
from fabricsim.engine.packet.wiring import PacketWiring
from fabricsim.engine.packet.world import PacketWorld
from fabricsim.errors import FabricsimWarning, SimulationError
from fabricsim.records.packet import CREDIT_BYTES
from fabricsim.records.transport import GO_BACK_N
from fabricsim.scenario.in_force import rule_in_force
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.switch import SwitchSpec
from fabricsim.topology.platform import Platform
from fabricsim.transports.base import FlowModel
from fabricsim.transports.parameters import law_row


def make(
    platform: Platform, model: FlowModel, scenario: Scenario, choose: Choose, watch: Watch | None
) -> tuple[PacketWorld, PacketWiring, Recorder]:
    """Make the packet engine's world for a platform, and what records it.

    Raises SimulationError if the scenario asks for what this engine does not have, or for what can never move;
        InputError if `watch` names a wire that is not there.
    """
    law = law_row(scenario.transport)
    law["stacks"] = model.stacks
    _require_credits(law, scenario.switch)
    packet = int(law["payload"][0] + law["overhead"][0])
    require_arrivals(packet, scenario.fabric.worst_bit_errors, "fabric.bit_error_rate")
    _warn_of_overtaking(law, scenario)
    require_no_circle(platform, scenario, law)
    network = build(platform, scenario)
    warn_of_loss(scenario, platform.wires, network.links, law, platform.nics)
    smallest = smallest_packet(law, scenario.switch)
    targets = DelayTargets(network, law, scenario.transport.name, platform.wires.nodes)
    names = platform.wires.names
    world = _world(scenario, watch)(platform.resources.capacities, network, smallest, names=names, check=targets.check)
    moderation = scenario.nic.interrupt_moderation
    wiring = PacketWiring(world, platform, model, choose, moderation, law)
    return world, wiring, Recorder(network, platform, wiring, scenario.transport, watch or Watch())


def _world(scenario: Scenario, watch: Watch | None) -> type[PacketWorld]:
    """Choose the world of an engine; refuse what the reference cannot do."""
    if scenario.engine == "packet":
        return PacketWorld
    if watch:
        raise SimulationError('engine = "reference" records no taps and captures: set engine = "packet"')
    from fabricsim.engine.reference.world import ReferenceWorld  # noqa: PLC0415  few runs need it

    return ReferenceWorld


def _require_credits(law: np.ndarray, switch: SwitchSpec) -> None:
    """Refuse a receive buffer that no full packet fits into: headers count, and credits come in blocks of 64 bytes."""
    packet = int(law["payload"][0] + law["overhead"][0])
    needed = -(-packet // CREDIT_BYTES) * CREDIT_BYTES
    if switch.credits is not None and switch.credits.per_class // CREDIT_BYTES * CREDIT_BYTES < needed:
        msg = (
            f"the switch {switch.name!r} gives credits for {switch.credits.per_class} B per class, and a full packet "
            f"takes {needed} B with its headers: raise credits.per_class, or lower transport.mtu"
        )
        raise SimulationError(msg)


def _warn_of_overtaking(law: np.ndarray, scenario: Scenario) -> None:
    """Warn where packets overtake one another and the transport takes that for a loss of all that follows."""
    overtaking = rule_in_force(scenario.transport).overtaking and not scenario.fabric.one_way
    if law["recovery"][0] != GO_BACK_N or not overtaking:
        return
    problem = "packets overtake one another, and go-back-N sends again whatever follows a gap"
    outcome = "or waits for a timeout if an ACK overtakes the NACK"
    way_out = 'write transport.packet.recovery = "selective" with a large transport.packet.reordering, or kind = "ecmp"'
    text = f"transport.load_balancing.kind: {problem}, {outcome}; {way_out}"
    warnings.warn(text, FabricsimWarning, stacklevel=2)
