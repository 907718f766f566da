"""Before a run: whether buffers of a lossless network may wait for one another in a circle."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import SimulationError
from fabricsim.scenario.fabric import Routing
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.switch import CLASSES
from fabricsim.topology.dependencies import Dependencies, VirtualLanes
from fabricsim.topology.platform import Platform

_LANED: frozenset[Routing] = frozenset({"ecmp", "dimension-order", "valiant"})
"""Ways of routing that do not depend on more than the two ends of a way."""
_MOST_GATES = 128  # edge switches up to which it is counted how many lanes would do


def require_no_circle(platform: Platform, scenario: Scenario, law: NDArray[np.void]) -> None:
    """Refuse a network without loss whose routes may deadlock; share out ways among virtual lanes if there are several.

    Raises SimulationError: it names the wires of a circle of buffer dependencies, and what would break it.
    """
    if platform.lanes is not None:
        _share_out(platform, platform.lanes, scenario)
        return
    held, answers = (_is_lossless(scenario, int(law[key][0])) for key in ("data_class", "ack_class"))
    if scenario.fabric.deadlocks == "allow" or not (held or answers):
        return
    circle = _circle(platform, law, both=held and answers)
    if circle:
        names = [platform.wires.names[wire] for wire in circle]
        kind = "credits" if scenario.switch.credits is not None else "PFC"
        msg = f"a deadlock is possible: cyclic buffer dependency over {_told(names)}, and {kind} drops no packet"
        raise SimulationError(f"{msg}; {_remedy(platform, scenario)}")


def _is_lossless(scenario: Scenario, number: int) -> bool:
    pfc = scenario.switch.pfc
    return scenario.switch.credits is not None or (pfc is not None and number in pfc.classes)


def _circle(platform: Platform, law: NDArray[np.void], *, both: bool) -> Sequence[int]:
    """Find a circle; with `both`, answers on their way back count if they share the class of data."""
    router, by_flow = platform.router, bool(law["one_path"][0])
    found = router.dependencies()
    mixed = both and by_flow and law["data_class"][0] == law["ack_class"][0] and not router.answers_alike
    if mixed:
        found.add_reversed()
    circle = found.circle()
    if circle and router.routing == "d-mod-k" and by_flow:  # takes few of the shortest ways
        found = Dependencies(platform.wires, platform.nics)
        for way in router.ways(every=True):
            found.add(way)
        if mixed:
            found.add_reversed()
        circle = found.circle()
    return circle


def _told(names: Sequence[str]) -> str:
    most = 8
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _remedy(platform: Platform, scenario: Scenario) -> str:
    rest = (
        'or choose a routing without circles, or a switch that drops; fabric.deadlocks = "allow" runs it all the same'
    )
    if platform.router.routing not in _LANED:
        return f"choose routing {' or '.join(sorted(_LANED & set(scenario.fabric.routings)))}, {rest}"
    few = len(platform.router.gates()) <= _MOST_GATES
    lanes = _lanes_needed(platform, platform.router.fixed().ways()) if few else CLASSES
    if lanes is None:
        return f"{CLASSES} virtual lanes do not break all circles: {rest.removeprefix('or ')}"
    lanes = max(2, lanes)
    several = f"fabric.virtual_lanes = {lanes} and fabric.switch.classes = {lanes}"
    if scenario.switch.pfc is not None:
        several += f", fabric.switch.pfc.classes = {list(range(lanes))}"
    return f"set {several}, {rest}"


def _lanes_needed(platform: Platform, ways: Iterable[Sequence[int]]) -> int | None:
    lanes = VirtualLanes(platform.wires, platform.nics, CLASSES)
    used = [lanes.lane_of(way) for way in ways]
    return None if None in used else 1 + max(lane for lane in used if lane is not None)


def _share_out(platform: Platform, lanes: VirtualLanes, scenario: Scenario) -> None:
    """Give each way between edge switches its lane before any connection takes it, so that all will have one."""
    for way in platform.router.ways():
        if lanes.lane_of(way) is None and scenario.fabric.deadlocks == "refuse":
            ends = [platform.nodes[node] for node in (platform.wires.source[way[0]], platform.wires.target[way[-1]])]
            names = [platform.wires.names[wire] for wire in way]
            msg = f"a deadlock is possible: in each of {scenario.fabric.virtual_lanes} virtual lanes the way from"
            msg = f"{msg} {ends[0]} to {ends[1]}, over {_told(names)}, closes a cyclic buffer dependency"
            msg = f"{msg}; raise fabric.virtual_lanes and the classes of the switch, or choose another routing"
            raise SimulationError(msg)
