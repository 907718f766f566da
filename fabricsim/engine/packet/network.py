"""From a platform and a scenario to the packet engine's links, ports, queues and nodes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.failures import failing
from fabricsim.engine.flow.state import table
from fabricsim.engine.packet.state import PacketState, network_of
from fabricsim.errors import SimulationError
from fabricsim.records.packet import CLASSES, CREDIT_BYTES, HEADER_BYTES, HOST, INGRESS, LINK, NODE, PORT, QUEUE, SWITCH
from fabricsim.records.program import NEVER, NONE
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.size_checks import MOST_PACKET_PORTS
from fabricsim.scenario.switch import SwitchSpec
from fabricsim.topology.platform import Platform
from fabricsim.topology.wires import Wires
from fabricsim.transports.dispatch import dispatch
from fabricsim.units import PS_PER_S

_HOST_RESUME = 0.75
"""A host sends RESUME when this share of the bytes at which it sent PAUSE is left."""


def build(platform: Platform, scenario: Scenario) -> PacketState:
    """Make the tables of a network."""
    wires, hosts, switch = platform.wires, platform.nics, scenario.switch  # to the packets each NIC is a host
    _check_ports(wires)
    links = _links(wires, hosts, scenario)
    managed = _managed(links, hosts, switch, failing(platform, scenario))
    ports, queues = _ports(links, managed, hosts, switch)
    nodes = table(len(wires.nodes), NODE)
    nodes["kind"] = np.where(np.arange(len(nodes)) < hosts, HOST, SWITCH)
    nodes["number"] = np.where(nodes["kind"] == HOST, np.arange(len(nodes)), np.arange(len(nodes)) - hosts)
    nodes["port"] = NONE
    nics: NDArray[np.int64] = ports["link"][-hosts:]
    nodes["port"][links["source"][nics]] = np.arange(len(ports) - hosts, len(ports))
    if switch.buffer is not None and switch.buffer.shared is not None:
        nodes["buffer"][hosts:] = switch.buffer.shared
    nodes["accounts"] = switch.pfc is not None or switch.credits is not None
    ingress = _ingress(links, hosts, switch)
    seed = (scenario.seed ^ scenario.seed >> 31) % 2**31
    return network_of(dispatch(scenario.transport))(nodes, links, ports, queues, ingress, seed=seed)


def _check_ports(wires: Wires) -> None:
    """Refuse a switch of too many ports; only that of a fabric from a file comes here."""
    ports = np.diff(wires.first)
    if ports.max() > MOST_PACKET_PORTS:
        node = wires.nodes[int(ports.argmax())]
        way_out = 'share its cables among several switches, or set engine = "flow"'
        raise SimulationError(f"{node} has {ports.max()} ports; the packet engine takes {MOST_PACKET_PORTS}: {way_out}")


def _links(wires: Wires, hosts: int, scenario: Scenario) -> NDArray[np.void]:
    switch = scenario.switch
    links = table(len(wires.source), LINK)
    links["source"], links["target"], links["reverse"] = wires.source, wires.target, wires.reverse
    links["ps_per_byte"] = PS_PER_S / wires.rate
    from_host = wires.source < hosts
    links["ps_per_byte"][from_host] /= scenario.transport.efficiency
    links["delay"] = wires.propagation + np.where(wires.target >= hosts, switch.latency, 0)
    fastest = np.zeros(len(wires.nodes))
    np.maximum.at(fastest, wires.source, wires.rate)
    if switch.forwarding == "cut-through":
        links["cut_through"] = (wires.target >= hosts) & (wires.rate >= fastest[wires.target])
    links["port"] = links["tap"] = NONE
    links["loss"] = wires.loss
    for name in ("limit", "mark_low", "mark_high"):
        links[name] = NEVER
    _set_thresholds(links, ~from_host, switch)
    mark = None if scenario.transport.packet is None else scenario.transport.packet.device_mark
    if mark is not None:
        drain = np.floor(mark * links["ps_per_byte"][from_host] + 0.5).astype(np.int64)
        links["mark_low"][from_host] = links["mark_high"][from_host] = drain
    return links


def _set_thresholds(links: NDArray[np.void], of_switch: NDArray[np.bool_], switch: SwitchSpec) -> None:
    """Turn thresholds in bytes into drain times."""

    def drain(size: int) -> NDArray[np.int64]:
        return np.floor(size * links["ps_per_byte"][of_switch] + 0.5).astype(np.int64)

    if switch.buffer is not None and switch.buffer.per_port is not None:
        links["limit"][of_switch] = drain(switch.buffer.per_port)
    if switch.ecn is not None:
        links["mark_low"][of_switch], links["mark_high"][of_switch] = drain(switch.ecn.low), drain(switch.ecn.high)
        links["mark_most"][of_switch] = switch.ecn.probability


def _managed(links: NDArray[np.void], hosts: int, switch: SwitchSpec, changing: Sequence[int]) -> NDArray[np.bool_]:
    """Tell which links need a port that decides at each departure: those `changing`, as what waits there feels it."""
    controlled = switch.pfc is not None or switch.credits is not None
    shared = switch.buffer is not None and switch.buffer.shared is not None
    late = switch.ecn is not None and switch.ecn.at == "dequeue"
    managed = np.full(len(links), controlled or shared or switch.trimming or switch.classes > 1 or late)
    managed[changing] = True
    if not controlled:
        managed[links["source"] < hosts] = False
    return managed


def _ports(
    links: NDArray[np.void], managed: NDArray[np.bool_], hosts: int, switch: SwitchSpec
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Make a port for each managed link of a switch, and one for each host, the NIC: these come last."""
    from_host = links["source"] < hosts
    of_switches = np.flatnonzero(managed & ~from_host)
    nics = np.flatnonzero(from_host)
    nics = nics[np.argsort(links["source"][nics], kind="stable")]
    if len(nics) != hosts or len(set(links["source"][nics].tolist())) != hosts:
        msg = 'the packet engine wants one cable per host; give each host exactly one, or use engine = "flow"'
        raise SimulationError(msg)
    ports = table(len(of_switches) + hosts, PORT)
    ports["link"] = np.concatenate([of_switches, nics])
    ports["classes"] = switch.classes
    ports["trimming"][: len(of_switches)] = switch.trimming
    ports["mark_late"][: len(of_switches)] = switch.ecn is not None and switch.ecn.at == "dequeue"
    link: NDArray[np.int64] = ports["link"]
    own = managed[link]
    links["port"][link[own]] = np.flatnonzero(own)
    queues = table(len(ports) * CLASSES, QUEUE)
    queues["alpha"] = np.inf
    if switch.buffer is not None and switch.buffer.shared is not None:
        queues["alpha"] = 1.0 if switch.buffer.alpha is None else switch.buffer.alpha
    by_class = queues.reshape(-1, CLASSES)
    if switch.pfc is not None:
        by_class["lossless"][:, list(switch.pfc.classes)] = 1
    if switch.credits is not None:
        ports["credit_bytes"] = queues["credits"] = switch.credits.per_class // CREDIT_BYTES * CREDIT_BYTES
        queues["lossless"] = 1
    if switch.scheduler is not None and switch.scheduler.kind == "dwrr":
        ports["weighted"] = 1
        by_class["weight"][:, : switch.classes] = switch.scheduler.weights
    return ports, queues


def _ingress(links: NDArray[np.void], hosts: int, switch: SwitchSpec) -> NDArray[np.void]:
    """Say when what an incoming link brings makes a node send PAUSE, and whether it gives credits back."""
    ingress = table(len(links) * CLASSES, INGRESS)
    ingress["above"] = NEVER
    ingress["credits"] = switch.credits is not None
    if switch.pfc is None:
        return ingress
    pfc = switch.pfc
    rows = ingress.reshape(-1, CLASSES)
    to_switch = links["target"] >= hosts
    for lane in pfc.classes:
        # A host's adapter has a buffer of its own and no share of a switch's.
        rows["above"][:, lane] = np.where(to_switch, pfc.above or 0, pfc.headroom)
        rows["below"][:, lane] = np.where(to_switch, pfc.below, int(_HOST_RESUME * pfc.headroom))
        rows["headroom"][:, lane] = pfc.headroom
        rows["alpha"][:, lane] = np.where(to_switch, pfc.alpha or 0.0, 0.0)
    return ingress


def smallest_packet(law: NDArray[np.void], switch: SwitchSpec) -> int:
    """Bytes of the shortest packet that may be on a wire as long as messages fill their packets."""
    candidates = [int(law["ack_wire"][0]), int(law["overhead"][0]) + int(law["payload"][0])]
    if switch.trimming or switch.forwarding == "cut-through":
        candidates.append(HEADER_BYTES)
    return min(candidates)
