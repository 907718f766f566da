"""Deadlocks: buffers that wait for one another in a circle, so that no packet in them ever moves again.

PAUSE and credits make a port wait until packets that it has sent leave the next switch. If those packets wait at
ports that wait in their turn, and so on round to the first, nothing frees any of them (Dally and Seitz, IEEE
Transactions on Computers 1987, for routes that may lead there).

What is found is proven, not guessed: of all ports and classes that are held up, those are left out, again and again,
that anything may still free, which is a control frame or packets on their way, or packets beyond that stand at a port
that is not held up. Of what remains, each waits for others that remain.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.packet.state import PacketState
from fabricsim.records.packet import CLASS_SHIFT, CLASSES, CREDIT_BYTES, HOST


class _Lane(NamedTuple):
    """One class of one link, with the queue before it."""

    link: int
    number: int


def explain(network: PacketState, names: Sequence[str]) -> str | None:
    """Say which links are deadlocked.

    `network`: between two windows.
    Returns: none if nothing is.
    """
    circle = find(network)
    if not circle:
        return None
    ways = ", ".join(names[lane.link] for lane in circle)
    kind = "credits" if network.ports["credit_bytes"].any() else "RESUME"
    return (
        f"deadlock: cyclic buffer dependency over {ways} (class {circle[0].number}): each waits for {kind} from the "
        "next; give paths without a circle, such as up and then down a tree, or more classes"
    )


def find(network: PacketState) -> list[_Lane]:
    """Return a circle of lanes each of which waits for the next; empty if there is none."""
    waits: dict[_Lane, set[_Lane]] = {}
    for lane in _held_up(network):
        beyond = None if _may_be_freed(network, lane) else _beyond(network, lane)
        if beyond:
            waits[lane] = beyond
    while True:
        stuck = {lane: beyond for lane, beyond in waits.items() if beyond <= waits.keys()}
        if len(stuck) == len(waits):
            return _circle(stuck)
        waits = stuck


def _circle(waits: dict[_Lane, set[_Lane]]) -> list[_Lane]:
    """Follow what waits for what until it comes round."""
    way: list[_Lane] = []
    lane = min(waits, default=None)
    while lane is not None and lane not in way:
        way.append(lane)
        lane = min(waits[lane])
    return way[way.index(lane) :] if lane is not None else []


def _held_up(network: PacketState) -> Iterator[_Lane]:
    """Yield the lanes of switches whose first packet is paused or short of credits."""
    ports, queues = network.ports, network.queues.reshape(-1, CLASSES)
    source: NDArray[np.int64] = network.links["source"][ports["link"]]
    at_switches = network.nodes["kind"][source] != HOST
    waiting = (queues["count"] > 0) & at_switches[:, None]
    for port, number in np.argwhere(waiting).tolist():
        paused = int(ports["paused"][port]) >> number & 1
        wire = int(network.pool["wire"][queues["head"][port, number]])
        needed = -(-wire // CREDIT_BYTES) * CREDIT_BYTES if ports["credit_bytes"][port] else 0
        if paused or queues["credits"][port, number] < needed:
            yield _Lane(int(ports["link"][port]), number)


def _may_be_freed(network: PacketState, lane: _Lane) -> bool:
    """Whether control frames or packets on their way may change what a lane waits for."""
    link = network.links[lane.link]
    if network.nodes["kind"][link["target"]] == HOST:
        return True  # a host takes what arrives, sooner or later
    if any(number == lane.number for number in _frames(network, int(link["reverse"]))):
        return True
    states = (int(network.pool["state"][place]) for place in network.places(link))
    return any((state >> CLASS_SHIFT) % CLASSES == lane.number for state in states)


def _beyond(network: PacketState, lane: _Lane) -> set[_Lane]:
    """Where the packets wait that came over a lane and hold its buffer at the next switch."""
    target = network.links["target"][lane.link]
    found = set()
    for port in np.flatnonzero(network.links["source"][network.ports["link"]] == target).tolist():
        places = network.places(network.queues[port * CLASSES + lane.number])
        if any(network.pool["time"][place] == lane.link for place in places):  # in a queue: where it came from
            found.add(_Lane(int(network.ports["link"][port]), lane.number))
    return found


def _frames(network: PacketState, link: int) -> Iterator[int]:
    """Yield the classes of the control frames on a link."""
    entry = int(network.links["control_head"][link])
    for _ in range(int(network.links["control_count"][link])):
        yield int(network.controls["traffic_class"][entry])
        entry = int(network.controls["next"][entry])
