"""Runs of the packet engine on the fabric of the comparison with other packet simulators.

A three-tier fat tree of ``k``-port switches, every link 100 Gb/s and 1 us, store-and-forward, no
switch latency, destination-mod-k routes; all flows start at 0. The transports are the presets
``peers-...`` of the library.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.results.traffic import DEMAND, Matrix
from fabricsim.run import traffic
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from fabricsim.transports.parameters import packet_framing

RATE = 12.5e9
"""Of each link, bytes/s."""
DELAY = 1e-6
"""Of each link, s."""
FLOW = 10_240_000
"""Of each flow, bytes."""
_CABLE = "200m"  # 1 us at 5 ns/m
_PS = 1e12


@dataclass(frozen=True)
class PeerRun:
    """What one run gave.

    `received`: from the start of each flow until its last byte is received, s, shape ``(n,)``.
    `acknowledged`: until the sender has the acknowledgement of that byte, s, shape ``(n,)``: `received` and the way
        back of an acknowledgement on an idle network.
    `links`: from source to target of each flow, shape ``(n,)``.
    `cpu_seconds`: CPU time of the run, its tables and routes included.
    """

    received: NDArray[np.float64]
    acknowledged: NDArray[np.float64]
    links: NDArray[np.int64]
    cpu_seconds: float


def scenario(transport: str, k: int, settings: Sequence[str] = ()) -> Scenario:
    """Return ideal hosts on the fat tree of `k`-port switches with a transport of the library."""
    fabric = [
        "fabric=fat-tree-k8",
        f"fabric.k={k}",
        f"fabric.host_cable={_CABLE}",
        f"fabric.switch_cable={_CABLE}",
        "fabric.routing=d-mod-k",
    ]
    hosts = k**3 // 4
    return load(
        "ideal-16", ["engine=packet", f"cluster.hosts={hosts}", *fabric, f"transport={transport}", *settings]
    ).scenario


def matrix(pairs: Sequence[tuple[int, int]], size: int, endpoints: int) -> Matrix:
    """Return one flow of `size` bytes for each pair of source and target, all from time 0."""
    flows = np.zeros(len(pairs), DEMAND)
    flows["id"] = np.arange(1, len(pairs) + 1)
    flows["source"], flows["target"] = zip(*pairs, strict=True)
    flows["bytes"] = size
    return Matrix(flows, endpoints, "comparison")


def ring(hosts: int) -> list[tuple[int, int]]:
    """Return the pairs of a ring: each host sends to the next."""
    return [(host, (host + 1) % hosts) for host in range(hosts)]


def links_between(source: NDArray[np.int64], target: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Count the links of the shortest way between hosts of a three-tier fat tree of `k`-port switches."""
    below_edge, below_pod = k // 2, (k // 2) ** 2
    within_pod = np.where(source // below_edge == target // below_edge, 2, 4)
    return np.where(source // below_pod == target // below_pod, within_pod, 6)


def run(chosen: Scenario, demand: Matrix, k: int) -> PeerRun:
    """Send all flows and note when each was received."""
    began = time.process_time()
    result = traffic.simulate(chosen, demand)
    spent = time.process_time() - began
    links = links_between(demand.flows["source"], demand.flows["target"], k)
    received = result.completion / _PS
    back = links * (DELAY + packet_framing(chosen.transport).ack / RATE)
    return PeerRun(received, received + back, links, spent)


def alone(packets: int, links: int, wire: int, ack: int) -> float:
    """Return the closed form of one flow alone: until the sender has its last acknowledgement, s.

    The first packet is stored and forwarded `links` times, the others follow without a gap, and the
    last acknowledgement takes the same way back:
    ``h (d + W / C) + (n - 1) W / C + h (d + A / C)``.

    `packets`: n, all of them full.
    `links`: h, from sender to receiver.
    `wire`, `ack`: w and A, bytes on the wire of a packet and of an acknowledgement.
    """
    out = links * (DELAY + wire / RATE) + (packets - 1) * wire / RATE
    return out + links * (DELAY + ack / RATE)


def in_ring(packets: int, links: int, wire: int, ack: int, every: int = 1) -> float:
    """Return the closed form of a flow of a ring: each link carries one flow and the acknowledgements of another, s.

    ``n (W + A / m) / C + h (d + W / C) + h (d + A / C)``, with an acknowledgement for each `every` = m packets;
    those that come after the last packet do not delay it, so that it is too long by up to some packets.
    """
    return alone(1, links, wire, ack) + packets * (wire + ack / every) / RATE
