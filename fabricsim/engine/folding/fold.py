"""Folding: one rank is simulated for all that are alike, exactly.

In the flow engine, ranks, connections and resources that nothing can tell apart (`fabricsim.engine.folding.symmetry`)
have one trajectory: max-min fair rates are unique, so a symmetry of what asks for them is one of the rates. One of each
class is simulated, its lowest. A resource of a class is then shared by the images of a flow as it was by the flows
themselves: if ``k`` of them cross it, the flow costs ``k`` times as much there. A ring over ``n`` ranks whose classes
repeat after ``p`` members becomes one with ``p`` lanes, each of which sends as many and as large messages as before.

What is not exact is not folded:

- a ring whose buffer does not divide: shards differ by a byte, so its members are told apart;
- algorithms in which members do different things: so are theirs;
- adapters that read ahead of the wire: they take messages one after the other, so that of two that come at one
  instant one waits. Nothing is folded then, unless what is close will do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.folding.folding import Folding, Inexact
from fabricsim.engine.folding.footprint import Footprint
from fabricsim.engine.folding.quotient import ALIKE, APART, BY_PLACE, Quotient, pairs, quotient_of
from fabricsim.engine.in_network import Switches
from fabricsim.engine.program.lane import cut
from fabricsim.engine.ways import Ways
from fabricsim.errors import SimulationError
from fabricsim.records.program import COLLECTIVE
from fabricsim.units import PS_PER_S
from fabricsim.workload.program import Call, CallList, Plan, Program

Indices = NDArray[np.int64]


def _places(program: Program, footprint: Footprint) -> dict[Call, tuple[int, int]]:
    """Find layout and group of each kind of call."""
    places = {}
    for call in program.calls.kinds:
        place = footprint.find(call)
        if place is None:
            msg = f"the plan has no {call.dimension} group {call.ranks} for {call.collective}: ranks cannot be folded"
            raise SimulationError(msg)
        places[call] = place
    return places


class _Joins(NamedTuple):
    """Collective ops of a program: which, each one's kind of call, its lane, and its number among those alike."""

    ops: Indices
    image: Indices
    lane: Indices
    number: Indices


def _joins(
    program: Program, footprint: Footprint, quotient: Quotient, places: Mapping[Call, tuple[int, int]]
) -> tuple[_Joins, list[Call]]:
    """Seat all collective ops; besides, the kinds of call that stand for others."""
    images: dict[Call, int] = {}
    image_of, lane_of = np.zeros(len(program.calls.kinds), np.int64), []
    for kind, call in enumerate(program.calls.kinds):
        layout, group = places[call]
        seats = quotient.seats[layout]
        stand_in = footprint.layouts[layout].members[seats.stand_in[group]]
        image = Call(call.collective, tuple(stand_in.tolist()), call.size, call.dimension)
        image_of[kind] = images.setdefault(image, len(images))
        lane_of.append(seats.lane[group])
    ops = np.flatnonzero(program.ops["kind"] == COLLECTIVE)
    kinds = program.calls.kind[program.ops["call"][ops]]
    first = np.cumsum([0, *map(len, lane_of)])[:-1]
    lanes = np.concatenate([np.zeros(0, np.int64), *lane_of])
    lane = lanes[first[kinds] + program.ops["member"][ops]]
    return _Joins(ops, image_of[kinds], lane, _counted(image_of[kinds], lane)), list(images)


def _folded_program(program: Program, joins: _Joins, images: Sequence[Call]) -> Program:
    """Let the calls of groups that are alike be one, over the lanes of the group that stands for them.

    The calls of a rank over groups of one class, with one collective and size, are counted in the order of its ops:
    calls with one number are images of one another.
    """
    ops = program.ops.copy()
    image, _, call_of = pairs(joins.image, joins.number)
    ops["call"][joins.ops], ops["member"][joins.ops] = call_of, joins.lane
    calls = CallList(tuple(images), image)
    return Program(ops, program.successors, calls, program.timers, program.ranks, program.representatives)


def _counted(image: Indices, lane: Indices) -> Indices:
    """Count the ops of each lane of each image in their order, from 0."""
    order = np.lexsort((lane, image))
    begins = np.flatnonzero(np.diff(image[order], prepend=-1) | np.diff(lane[order], prepend=-1))
    count = np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))
    number = np.empty_like(count)
    number[order] = count
    return number


def _uneven(footprint: Footprint, quotient: Quotient, places: Mapping[Call, tuple[int, int]]) -> dict[int, int]:
    """Find rings with a call whose shards are not equal, of whose members some stand for those in other places."""
    found = {}
    for call, (number, _) in places.items():
        layout, lane = footprint.layouts[number], quotient.seats[number].lane
        channels = layout.choice.channels
        parts = {cut(call.size, channels, channel) for channel in range(channels)}
        if any(part % layout.shape.shards for part in parts) and np.any(lane != np.arange(lane.shape[1])):
            found[number] = BY_PLACE
    return found


def _out_of_order(
    program: Program, joins: _Joins, places: Mapping[Call, tuple[int, int]], apart: Mapping[int, int]
) -> dict[int, int]:
    """Find layouts over whose groups ranks issue calls of one size in different orders.

    Which are images of one another is then open, unless each group stands for itself.
    """
    calls, _, _ = pairs(program.ops["call"][joins.ops], joins.number)
    doubled: NDArray[np.int64] = calls[1:][calls[1:] == calls[:-1]]
    odd = np.unique(program.calls.kind[doubled])
    layouts = {places[program.calls.kinds[kind]][0] for kind in odd.tolist()}
    return {layout: APART for layout in layouts if apart.get(layout) != APART}


def read_ahead(fabric: Fabric, footprint: Footprint, routes: Indices) -> int:
    """Longest time for which an adapter on some routes of a footprint reads ahead of its wire, ps; 0: none does."""
    if not fabric.model.read_ahead:
        return 0
    wiring, platform, found = fabric.wiring, fabric.platform, 0
    most = max(model.read_ahead for model in (wiring.models or (fabric.model,)))
    pace = footprint.slowest_to_wire(np.array(platform.resources.capacities), len(platform.wires.names))
    for route in routes[np.argsort(-pace[routes], kind="stable")].tolist():
        if int(pace[route] * most * PS_PER_S) <= found:  # what follows is quicker
            break
        found = max(found, wiring.read_ahead(*footprint.ends_of(int(footprint.routes.code[route]))))
    return found


def footprint_of(fabric: Fabric, plan: Plan, ranks: Sequence[int] | None = None) -> Footprint:
    """Find what the groups of a plan put on a fabric, if `ranks` of the cluster have its own."""
    ways, groups = Ways(fabric.platform, Switches(fabric.platform)), plan.groups
    if ranks is not None:
        places = np.asarray(ranks, np.int32)
        groups = tuple(replace(each, members=places[each.members]) for each in groups)
    return Footprint(groups, fabric.wiring.choose, ways, warm=fabric.model.window > 0)


def fold(fabric: Fabric, plan: Plan, *, closely: bool = False) -> tuple[Program, Folding] | None:
    """Fold a plan on a fabric that nothing runs on yet.

    `fabric`: of the flow engine.
    `closely`: fold also if the order of two messages that reach an adapter at one instant, or one byte of a shard, is
        not the same for all that are alike: messages of ranks that are alike share an adapter instead of taking turns.
    Returns: the program of the ranks that stand for all, for `Fabric.replay` after `Fabric.fold`; None if no rank is
        like another.
    Raises SimulationError if the cluster has too few ranks, or the program calls groups that the plan does not have.
    """
    fabric.require_ranks(plan.ranks)
    footprint = footprint_of(fabric, plan)
    if not closely and read_ahead(fabric, footprint, np.arange(len(footprint.routes.code))):
        return None
    apart: dict[int, int] = {}
    while True:
        quotient = quotient_of(plan, fabric.platform.resources, footprint, apart)
        if quotient is None:
            return None
        program = plan.program(np.unique(quotient.ranks).tolist())
        places = _places(program, footprint)
        joins, images = _joins(program, footprint, quotient, places)
        more, uneven = _out_of_order(program, joins, places, apart), _uneven(footprint, quotient, places)
        if not closely:
            more |= uneven
        if not more:
            folded = _folded_program(program, joins, images)
            ahead = read_ahead(fabric, footprint, np.unique(quotient.routes))
            return folded, Folding(footprint, quotient, folded, Inexact(ahead, bool(uneven)))
        apart.update({layout: max(apart.get(layout, ALIKE), how) for layout, how in more.items()})
