"""Folding: one rank is simulated for all that are alike, exactly.

In the flow engine, ranks, connections and resources that nothing can tell apart (`fabricsim.engine.symmetry`) have one
trajectory: max-min fair rates are unique, so a symmetry of what asks for them is one of the rates. One of each class is
simulated, its lowest. A resource of a class is then shared by the images of a flow as it was by the flows themselves:
where ``k`` of them cross it, the flow costs ``k`` times as much there. A ring over ``n`` ranks whose classes repeat
after ``p`` members becomes one with ``p`` lanes, each of which sends as many and as large messages as before.

What is not exact is not folded:

- a ring whose buffer does not divide: shards differ by a byte, so its members are told apart;
- algorithms in which members do different things: so are theirs;
- connections of one class that meet where an adapter reads ahead, such as those of two GPUs with one NIC: it takes
  messages one after the other, so that of two that come at one instant one waits. No rank is like another then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.engine.footprint import Footprint
from fabricsim.engine.in_network import Switches
from fabricsim.engine.symmetry import Structure, hashed
from fabricsim.engine.ways import Ways
from fabricsim.errors import SimulationError
from fabricsim.kernels.lane import cut
from fabricsim.tables import COLLECTIVE
from fabricsim.workload.program import Call, Program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fabricsim.collectives.choice import Choice
    from fabricsim.engine.fabric import Fabric
    from fabricsim.engine.footprint import Layout
    from fabricsim.engine.ways import Stripes
    from fabricsim.topology.resources import Resources
    from fabricsim.workload.program import Plan

    Indices = NDArray[np.int64]

_ALIKE, _BY_PLACE, _APART = range(3)
"""How the members of a layout are told apart: not, by their place in the group, or each from all others."""


class Seats(NamedTuple):
    """The groups of a layout by class: of each the group that stands for it, and the lane of each membership.

    Shapes ``(groups,)``, ``(groups, members)``, ``(groups,)``.
    """

    stand_in: Indices
    lane: Indices
    lanes: Indices


def _seats(layout: Layout, groups: Indices, memberships: Indices) -> Seats | None:
    """Seat the members of all groups in those that stand for them; None where a class does not repeat as it must."""
    count, size = layout.members.shape
    _, first, which = np.unique(groups, return_index=True, return_inverse=True)
    lane, lanes = np.zeros((count, size), np.int64), np.zeros(count, np.int64)
    for number, group in enumerate(first.tolist()):
        row = memberships[group]
        period = len(np.unique(row))
        once = row[:period]
        repeats = size % period == 0 and np.array_equal(np.tile(once, size // period), row)
        if not repeats or (period < size and not layout.shape.cyclic):
            return None
        mine = which == number
        order = np.argsort(once)
        lane[mine] = order[np.searchsorted(once[order], memberships[mine])]
        lanes[mine] = period
    return Seats(first[which], lane, lanes)


@dataclass(frozen=True)
class Quotient:
    """One of each class.

    Attributes
    ----------
    ranks, resources, routes
        Lowest of the class of each rank, resource and route, shape ``(n,)`` each.
    seats
        Of each layout.
    """

    ranks: Indices
    resources: Indices
    routes: Indices
    seats: tuple[Seats, ...]


def _lowest(classes: Indices) -> Indices:
    """Give the lowest node of the class of each; classes are in the order of their lowest nodes."""
    _, first = np.unique(classes, return_index=True)
    return first[classes]


def _structure(plan: Plan, resources: Resources, footprint: Footprint, apart: Mapping[int, int]) -> Structure:
    """Put what decides about trajectories into nodes and relations."""
    connections, routes = footprint.connections, footprint.routes
    kinds = np.unique(resources.kinds, return_inverse=True)[1]
    layout_of, ranks, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    of_rank, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, layout in enumerate(footprint.layouts):
        (count, size), seats = layout.members.shape, layout.ends.shape[1]
        layout_of.append(np.full(count, number))
        ranks.append(layout.members.ravel().astype(np.int64))
        memberships = np.arange(count * seats).reshape(count, seats)
        of_rank.append(layout.first_membership + memberships[:, :size].ravel())
        ways = np.zeros(seats, np.int64), np.arange(seats), memberships.ravel()
        place = np.resize(ways[apart.get(number, _ALIKE if layout.shape.cyclic else _BY_PLACE)], (count, seats))
        place[:, size:] = place[:, size:] + count * seats  # switches
        places.append(place.ravel())
        sizes.append(np.full(count, seats))
    structure = Structure(
        {
            "rank": hashed(plan.colours),
            "group": hashed(np.concatenate(layout_of)),
            "membership": hashed(np.concatenate(places)),
            "connection": hashed(connections.label),
            "route": hashed(routes.latency, routes.network),
            "resource": hashed(kinds, np.array(resources.capacities, np.float64)),
        }
    )
    membership = np.arange(footprint.memberships)
    connection = np.arange(len(connections.route))
    structure.relate(("rank", np.concatenate(ranks)), ("membership", np.concatenate(of_rank)), 0)
    structure.relate(
        ("group", np.repeat(np.arange(footprint.groups), np.concatenate(sizes))), ("membership", membership), 0
    )
    structure.relate(("membership", connections.source), ("connection", connection), 0)
    structure.relate(("membership", connections.target), ("connection", connection), 0)
    structure.relate(("connection", connection), ("route", connections.route), 0)
    hops = hashed(routes.hop_place, routes.hop_cost)
    structure.relate(("route", routes.hop_route), ("resource", routes.hop_resource), hops)
    return structure


def _ambiguous(layout: Layout, memberships: Indices) -> bool:
    """Whether a rank is in two groups of a layout that nothing tells apart: which call is meant would be open."""
    pairs = np.stack([layout.members.ravel().astype(np.int64), memberships.ravel()])
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])


def _doubled(footprint: Footprint, connections: Indices) -> bool:
    """Whether a route carries two connections of one class: it would have to count twice."""
    pairs = np.stack([footprint.connections.route, connections])
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])


def _take_turns(footprint: Footprint, wires: Indices, connections: Indices) -> bool:
    """Whether two connections of one class meet at an adapter that reads ahead: it would serve one before the other."""
    wire = wires[footprint.connections.route]
    pairs = np.stack([wire, connections])[:, wire >= 0]
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])


def _quotient(
    plan: Plan, resources: Resources, footprint: Footprint, wires: Indices, apart: dict[int, int]
) -> Quotient:
    """Find the classes; what does not repeat as it must is told apart, and noted in `apart`.

    ``wires`` are those before which adapters read ahead, of each route.
    """
    while True:
        classes = _structure(plan, resources, footprint, apart).refine()
        seats = []
        for number, layout in enumerate(footprint.layouts):
            groups = classes["group"][layout.first_group :][: len(layout.members)]
            memberships = classes["membership"][layout.first_membership :][: layout.ends.size]
            memberships = memberships.reshape(layout.ends.shape)[:, : layout.members.shape[1]]
            found = _seats(layout, groups, memberships)
            if found is None or _ambiguous(layout, memberships):
                apart[number] = min(apart.get(number, _ALIKE) + 1, _APART)
            else:
                seats.append(found)
        if len(seats) < len(footprint.layouts):
            continue
        connections = classes["connection"]
        if not (_doubled(footprint, connections) or _take_turns(footprint, wires, connections)):
            lowest = [_lowest(classes[kind]) for kind in ("rank", "resource", "route")]
            return Quotient(lowest[0], lowest[1], lowest[2], tuple(seats))
        apart.update(dict.fromkeys(range(len(footprint.layouts)), _APART))


def _folded_program(program: Program, footprint: Footprint, quotient: Quotient) -> Program:
    """Let the calls of groups that are alike be one, over the lanes of the group that stands for them.

    The calls of a rank over groups of one class, with one collective and size, are counted in the order of its ops:
    calls with one number are images of one another.
    """
    kinds: dict[Call, int] = {}
    kind_of = np.array([kinds.setdefault(call, len(kinds)) for call in program.calls], np.int64)
    images: dict[Call, int] = {}
    image_of, lane_of = np.zeros(len(kinds), np.int64), []
    for call, kind in kinds.items():
        place = footprint.find(call)
        if place is None:
            msg = f"the plan has no {call.dimension} group {call.ranks} for {call.collective}: ranks cannot be folded"
            raise SimulationError(msg)
        layout, group = place
        seats = quotient.seats[layout]
        stand_in = footprint.layouts[layout].members[seats.stand_in[group]]
        image = Call(call.collective, tuple(stand_in.tolist()), call.size, call.dimension)
        image_of[kind] = images.setdefault(image, len(images))
        lane_of.append(seats.lane[group])
    ops = program.ops.copy()
    joined = np.flatnonzero(ops["kind"] == COLLECTIVE)
    kind = kind_of[ops["call"][joined]]
    first = np.cumsum([0, *map(len, lane_of)])[:-1]
    lane = np.concatenate(lane_of)[first[kind] + ops["member"][joined]] if len(joined) else np.zeros(0, np.int64)
    number = _counted(image_of[kind], lane)
    pairs, call_of = np.unique(np.stack([image_of[kind], number]), axis=1, return_inverse=True)
    ops["call"][joined], ops["member"][joined] = call_of.ravel(), lane
    known = list(images)
    calls = tuple(known[image] for image in pairs[0].tolist())
    return Program(ops, program.successors, calls, program.timers, program.ranks, program.representatives)


def _counted(image: Indices, lane: Indices) -> Indices:
    """Count the ops of each lane of each image in their order, from 0."""
    order = np.lexsort((lane, image))
    begins = np.flatnonzero(np.diff(image[order], prepend=-1) | np.diff(lane[order], prepend=-1))
    count = np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))
    number = np.empty_like(count)
    number[order] = count
    return number


def _uneven(program: Program, footprint: Footprint, quotient: Quotient) -> set[int]:
    """Layouts of folded rings with a call whose shards are not equal."""
    found = set()
    for call in set(program.calls):
        place = footprint.find(call)
        if place is None:
            continue
        layout = footprint.layouts[place[0]]
        if quotient.seats[place[0]].lanes[place[1]] == layout.members.shape[1]:
            continue
        channels = layout.choice.channels
        parts = {cut(call.size, channels, channel) for channel in range(channels)}
        if any(part % layout.shape.shards for part in parts):
            found.add(place[0])
    return found


class Folding:
    """What stands for what in a fabric.

    Parameters
    ----------
    footprint, quotient
        What there is, and its classes.
    program
        That of the representatives, its calls already folded.

    Attributes
    ----------
    rank_of
        The rank that stands for each, shape ``(ranks,)``.
    resource_of
        The resource that stands for each, shape ``(resources,)``.
    copies
        How many each of these stands for, shape ``(resources,)``.
    """

    def __init__(self, footprint: Footprint, quotient: Quotient, program: Program) -> None:
        self._footprint, self._quotient = footprint, quotient
        self.rank_of, self.resource_of = quotient.ranks, quotient.resources
        self.copies = np.bincount(quotient.resources, minlength=len(quotient.resources))
        self._hops = self._shared_hops()
        self._seated: dict[tuple[str, tuple[int, ...], Choice], tuple[int, int, int]] = {}
        for call in dict.fromkeys(program.calls):
            layout, group = footprint.find(call) or (0, 0)
            lanes = int(quotient.seats[layout].lanes[group])
            self._seated[call.collective, call.ranks, footprint.choice(call)] = (layout, group, lanes)

    def lanes(self, collective: str, ranks: tuple[int, ...], choice: Choice) -> int:
        """How many members of a group have lanes: its first ones. `choice` is what its calls run with."""
        if (collective, ranks, choice) not in self._seated:
            msg = f"the folded program has no {collective} over ranks {ranks}"
            raise SimulationError(msg)
        return self._seated[collective, ranks, choice][2]

    def stand_in(self, source: int, target: int, port: int, stripes: Stripes) -> tuple[int, int, int, Stripes]:
        """Source, target, port and stripes of the connection that stands for another."""
        return self._footprint.ends_of(int(self._footprint.routes.code[self._route(source, target, port, stripes)]))

    def hops(self, source: int, target: int, port: int, stripes: Stripes) -> list[tuple[int, int, float]]:
        """Rows of ``HOP`` of a connection that stands for others."""
        return self._hops[self._route(source, target, port, stripes)]

    def _route(self, source: int, target: int, port: int, stripes: Stripes) -> int:
        codes = self._footprint.routes.code
        code = self._footprint.code(source, target, port, stripes)
        route = int(np.searchsorted(codes, code))
        if route == len(codes) or codes[route] != code:
            msg = f"no call of the folded program sends from rank {source} to {target} on channel {port}"
            raise SimulationError(msg)
        return int(self._quotient.routes[route])

    def _shared_hops(self) -> dict[int, list[tuple[int, int, float]]]:
        """Hops of the routes that stand for others, with all images that cross each resource."""
        routes, lowest = self._footprint.routes, self._quotient
        here = lowest.resources[routes.hop_resource] == routes.hop_resource
        pairs = np.stack([lowest.routes[routes.hop_route[here]], routes.hop_resource[here]])
        found, which = np.unique(pairs, axis=1, return_inverse=True)
        copies, costs = np.bincount(which.ravel()), np.bincount(which.ravel(), routes.hop_cost[here])
        shared = dict(
            zip(zip(*found.tolist(), strict=True), zip(copies.tolist(), costs.tolist(), strict=True), strict=True)
        )
        hops: dict[int, list[tuple[int, int, float]]] = {}
        mine = np.flatnonzero(lowest.routes[routes.hop_route] == routes.hop_route)
        for route, resource in zip(
            routes.hop_route[mine].tolist(), lowest.resources[routes.hop_resource[mine]].tolist(), strict=True
        ):
            row = (resource, *shared[route, resource])
            if row not in hops.setdefault(route, []):
                hops[route].append(row)
        return hops

    def demand(self, collective: str, ranks: tuple[int, ...], choice: Choice) -> dict[int, float]:
        """Units of each resource that a byte of the buffer takes in one group, its images left out."""
        number, group, _ = self._seated[collective, ranks, choice]
        layout = self._footprint.layouts[number]
        size = layout.ends.shape[1]
        first = layout.first_membership + group * size
        connections, routes = self._footprint.connections, self._footprint.routes
        mine = (connections.source >= first) & (connections.source < first + size)
        share = np.bincount(connections.route[mine], connections.carried[mine], minlength=len(routes.code))
        crossed = share[routes.hop_route] > 0
        units = share[routes.hop_route[crossed]] * routes.hop_cost[crossed] / layout.choice.channels
        total = np.bincount(routes.hop_resource[crossed], units)
        return {resource: float(total[resource]) for resource in np.flatnonzero(total).tolist()}


def _read_ahead(fabric: Fabric, footprint: Footprint) -> Indices:
    """Wire before which an adapter reads ahead of each route's messages, shape ``(routes,)``; -1 without one."""
    routes = footprint.routes
    wires = np.full(len(routes.code), -1)
    if fabric.model.read_ahead:
        ends = [footprint.ends_of(code) for code in routes.code.tolist()]
        before = [
            0 if stripes else len(fabric.platform.way_out(source, target=target)) for source, target, _, stripes in ends
        ]
        out = np.array(before, np.int64)[routes.hop_route]
        first = routes.network[routes.hop_route] & (out > 0) & (routes.hop_place == out)
        wires[routes.hop_route[first]] = routes.hop_resource[first]
    return wires


def fold(fabric: Fabric, plan: Plan) -> tuple[Program, Folding] | None:
    """Fold a plan on a fabric that nothing runs on yet.

    Parameters
    ----------
    fabric
        Of the flow engine.
    plan
        The job.

    Returns
    -------
    tuple of Program and Folding, or None
        The program of the ranks that stand for all, for `Fabric.replay` after `Fabric.fold`; None where no rank is like
        another.

    Raises
    ------
    SimulationError
        Where the cluster has too few ranks, or the program calls groups that the plan does not have.
    """
    platform, wiring = fabric.platform, fabric.wiring
    fabric.require_ranks(plan.ranks)
    footprint = Footprint(plan.groups, wiring.choose, Ways(platform, Switches(platform)))
    wires = _read_ahead(fabric, footprint)
    apart: dict[int, int] = {}
    while True:
        quotient = _quotient(plan, platform.resources, footprint, wires, apart)
        representatives = np.unique(quotient.ranks).tolist()
        if len(representatives) == plan.ranks:
            return None
        program = plan.program(representatives)
        uneven = _uneven(program, footprint, quotient)
        if not uneven:
            folded = _folded_program(program, footprint, quotient)
            return folded, Folding(footprint, quotient, folded)
        apart.update({layout: max(apart.get(layout, _ALIKE), _BY_PLACE) for layout in uneven})
