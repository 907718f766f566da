"""Classes of ranks, resources and routes that nothing can tell apart, and one of each: what folding simulates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.folding.footprint import AlikeGroups, Footprint
from fabricsim.engine.folding.symmetry import Structure, hashed
from fabricsim.topology.resources import Resources
from fabricsim.workload.program import Plan

Indices = NDArray[np.int64]

ALIKE, BY_PLACE, APART = range(3)
"""How the members of a layout are told apart: not, by their place in the group, or each from all others."""


class Seats(NamedTuple):
    """The groups of a layout by class: of each the group that stands for it, and the lane of each membership.

    Shapes ``(groups,)``, ``(groups, members)``, ``(groups,)``.
    """

    stand_in: Indices
    lane: Indices
    lanes: Indices


def _seats(layout: AlikeGroups, groups: Indices, memberships: Indices) -> Seats | None:
    """Seat the members of all groups in those that stand for them; None if a class does not repeat as it must."""
    size = layout.members.shape[1]
    _, first, which = np.unique(groups, return_index=True, return_inverse=True)
    periods = []
    for row in memberships[first]:
        period = len(np.unique(row))
        repeats = size % period == 0 and np.array_equal(np.tile(row[:period], size // period), row)
        if not repeats or (period < size and not layout.shape.cyclic):
            return None
        periods.append(period)
    # Classes of memberships belong to one class of groups; each is found in the group that stands for it.
    known, place = np.unique(memberships[first], return_index=True)
    lane = (place % size)[np.searchsorted(known, memberships)]
    return Seats(first[which], lane, np.array(periods, np.int64)[which])


@dataclass(frozen=True)
class Quotient:
    """One of each class.

    `ranks`, `resources`, `routes`: lowest of the class of each rank, resource and route, shape ``(n,)`` each.
    """

    ranks: Indices
    resources: Indices
    routes: Indices
    seats: tuple[Seats, ...]


def pairs(one: Indices, other: Indices) -> tuple[Indices, Indices, Indices]:
    """Sort out pairs of numbers that are not negative: both of each pair that differs, in order, and which each is."""
    width = int(other.max(initial=0)) + 1
    found, which = np.unique(one * np.int64(width) + other, return_inverse=True)
    return *np.divmod(found, width), which


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
        by_place = np.arange(seats)
        ways = np.where(by_place < size, 0, by_place), by_place, memberships.ravel()
        place = np.resize(ways[apart.get(number, ALIKE if layout.shape.cyclic else BY_PLACE)], (count, seats))
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


def _ambiguous(layout: AlikeGroups, memberships: Indices) -> bool:
    """Whether a rank is in two groups of a layout that nothing tells apart: which call is meant would be open."""
    ranks = layout.members.ravel().astype(np.int64)
    return len(pairs(ranks, memberships.ravel())[0]) < len(ranks)


def _doubled(footprint: Footprint, connections: Indices) -> bool:
    """Whether a route carries two connections of one class: it would have to count twice."""
    return len(pairs(footprint.connections.route, connections)[0]) < len(connections)


def quotient_of(plan: Plan, resources: Resources, footprint: Footprint, apart: dict[int, int]) -> Quotient | None:
    """Find the classes; what does not repeat as it must is told apart, and noted in `apart`.

    None if no two ranks are alike.
    """
    while True:
        classes = _structure(plan, resources, footprint, apart).refine()
        if classes["rank"].max() + 1 == plan.ranks:
            return None
        seats = []
        for number, layout in enumerate(footprint.layouts):
            groups = classes["group"][layout.first_group :][: len(layout.members)]
            memberships = classes["membership"][layout.first_membership :][: layout.ends.size]
            memberships = memberships.reshape(layout.ends.shape)[:, : layout.members.shape[1]]
            found = _seats(layout, groups, memberships)
            if found is None or _ambiguous(layout, memberships):
                apart[number] = min(apart.get(number, ALIKE) + 1, APART)
            else:
                seats.append(found)
        if len(seats) < len(footprint.layouts):
            continue
        if not _doubled(footprint, classes["connection"]):
            lowest = [_lowest(classes[kind]) for kind in ("rank", "resource", "route")]
            return Quotient(lowest[0], lowest[1], lowest[2], tuple(seats))
        apart.update(dict.fromkeys(range(len(footprint.layouts)), APART))
