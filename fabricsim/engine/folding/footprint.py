"""What the groups of a plan put on a platform: members, connections, and the routes that these take."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives import template
from fabricsim.collectives.base import Template
from fabricsim.collectives.choice import Choice, Choose
from fabricsim.engine.folding.turning import turns, used_by
from fabricsim.engine.ways import Connection, Stripes, Ways
from fabricsim.workload.program import Call, GroupSet

Indices = NDArray[np.int64]


_PORTS = 2**10  # more than a collective has channels


class Shape(NamedTuple):
    """The connections of a template.

    `switches`: as of `fabricsim.collectives.base.Template`.
    `owner`: member of each lane, or beyond those its switch, shape ``(lanes,)``.
    `connections`, `inboxes`: receiving lane and its inbox, shape ``(lanes, c)``.
    `used`: which of them carry something, shape ``(lanes, c)``.
    `cyclic`: whether all members do the same, each counted from itself.
    `shards`: equal parts of a round's buffer.
    """

    members: int
    switches: tuple[int, ...]
    owner: NDArray[np.int64]
    connections: NDArray[np.int64]
    inboxes: NDArray[np.int64]
    used: NDArray[np.bool_]
    cyclic: bool
    shards: int

    @property
    def between(self) -> tuple[Indices, Indices]:
        """Lane and number of all connections that carry messages: lanes of one member hand over without."""
        lane, number = np.nonzero(self.used)
        between = self.owner[lane] != self.owner[self.connections[lane, number]]
        return lane[between], number[between]

    @property
    def labels(self) -> Indices:
        """What tells these connections of a member, or of a switch, apart; a switch's by the member's end if it can."""
        lane, number = self.between
        label: Indices = (lane - self.owner[lane]) // self.members * self.used.shape[1] + number
        if not self.cyclic:
            return label
        strand = self.connections[lane, number] // self.members
        there = strand * (self.inboxes.max() + 1) + self.inboxes[lane, number]
        return np.asarray(np.where(self.owner[lane] < self.members, label, there))

    @property
    def key(self) -> tuple[object, ...]:
        """What collectives over the same connections have in common."""
        return (
            self.cyclic,
            self.shards,
            self.switches,
            *(column.tobytes() for column in (self.connections, self.inboxes, self.used)),
        )


def shape_of(made: Template) -> Shape:
    """Describe the connections of a template."""
    receivers, inboxes = (made.connections[:, :, column].astype(np.int64) for column in (0, 1))
    owner = np.array([made.owner(lane) for lane in range(made.lanes)], np.int64)
    return Shape(made.members, made.switches, owner, receivers, inboxes, used_by(made), turns(made), made.shards)


def _sorted_rows(rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Sort rows and drop what comes again, as ``np.unique(rows, axis=0)`` does in 14 times the time."""
    rows = rows[np.lexsort(rows.T[::-1])]
    return rows[np.any(np.diff(rows, axis=0, prepend=rows[:1] - 1), axis=1)]


class AlikeGroups(NamedTuple):
    """Groups over connections of one shape, and the numbers of the first of each.

    Memberships are numbered by group, then by member, and then come the group's switches. ``choice`` is what the first
    call that has this layout runs with; ``ends`` numbers the endpoint of each membership, shape
    ``(groups, memberships)``.
    """

    shape: Shape
    choice: Choice
    ends: Indices
    members: NDArray[np.int32]
    first_group: int
    first_membership: int


class Connections(NamedTuple):
    """All connections: memberships at both ends, what tells those of a member apart, route."""

    source: Indices
    target: Indices
    label: Indices
    route: Indices


class Routes(NamedTuple):
    """The routes between pairs by ports, in the order of `code`, and all their hops.

    ``code`` is that of `Footprint.code`; ``latency`` is that of cables and switches, ps, and ``network`` says whether
    the route leaves the host. ``hop_place`` counts a route's hops; ``hop_share`` is what of a payload byte crosses one.
    """

    code: Indices
    latency: Indices
    network: NDArray[np.bool_]
    hop_route: Indices
    hop_place: Indices
    hop_resource: Indices
    hop_share: NDArray[np.float64]
    hop_cost: NDArray[np.float64]


class Footprint:
    """All groups, connections and routes of a plan.

    `groups`: of the plan.
    `warm`: whether a route remembers its last message, as TCP's does. If not, what one layout sends over it is nothing
        to another, so that each has routes of its own: a ring within a host is alike all around though it shares some
        pairs of GPUs with the all-to-alls of half of the host.
    """

    def __init__(self, groups: Iterable[GroupSet], choose: Choose, ways: Ways, *, warm: bool) -> None:
        self._endpoints, self._choose, self._ways, self._warm = ways.endpoints, choose, ways, warm
        self._used: list[tuple[int, Stripes]] = []  # by layouts
        self._number: dict[tuple[int, Stripes], int] = {}
        self.layouts: list[AlikeGroups] = []
        self._of_set: dict[tuple[str, str, Choice], list[int]] = {}
        self._rows: list[dict[bytes, int]] = []
        self._shapes: dict[int, tuple[Template, Shape]] = {}  # by the identity of a template, which lives as long
        known: dict[tuple[object, ...], int] = {}
        for group_set in groups:
            self._enter(group_set, known)
        self.memberships = sum(layout.ends.size for layout in self.layouts)
        self.groups = sum(len(layout.members) for layout in self.layouts)
        self.connections, codes = self._connect()
        self.routes = self._find_routes(codes)

    def _enter(self, group_set: GroupSet, known: dict[tuple[object, ...], int]) -> None:
        members = _sorted_rows(np.ascontiguousarray(group_set.members, np.int32))
        choices: dict[Choice, list[int]] = {}
        for row, group in enumerate(members.tolist()):
            choice = self._choose(group_set.collective, tuple(group), group_set.size).wiring
            choices.setdefault(choice, []).append(row)
        for choice, rows in choices.items():
            self._enter_alike(group_set, choice, np.ascontiguousarray(members[rows]), known)

    def _enter_alike(
        self, group_set: GroupSet, choice: Choice, members: NDArray[np.int32], known: dict[tuple[object, ...], int]
    ) -> None:
        """Enter groups whose calls run with the same."""
        shape = self._shape(self._template(group_set.collective, members[0], choice))
        key = (group_set.dimension, choice.channels, members.shape, members.tobytes(), *shape.key)
        if key not in known:
            known[key] = len(self.layouts)
            last = self.layouts[-1] if self.layouts else None
            first = (
                (0, 0)
                if last is None
                else (last.first_group + len(last.members), last.first_membership + last.ends.size)
            )
            self.layouts.append(AlikeGroups(shape, choice, self._ends(members, shape), members, *first))
            self._rows.append({row.tobytes(): number for number, row in enumerate(members)})
        layouts = self._of_set.setdefault((group_set.collective, group_set.dimension, choice), [])
        if known[key] not in layouts:
            layouts.append(known[key])

    def _shape(self, made: Template) -> Shape:
        """Describe a template's connections, once: templates are made once, too."""
        if id(made) not in self._shapes:
            self._shapes[id(made)] = made, shape_of(made)
        return self._shapes[id(made)][1]

    def _template(self, collective: str, members: NDArray[np.int32], choice: Choice) -> Template:
        switches = self._ways.switches
        group = switches.group_for(collective, choice.algorithm, members.tolist())
        return template(collective, len(members), choice.algorithm, group)

    def _ends(self, members: NDArray[np.int32], shape: Shape) -> Indices:
        """Return the numbers of the endpoints of all members and switches, shape ``(groups, memberships)``."""
        if not shape.switches:
            return members.astype(np.int64)
        switches = [
            [self._ways.number(end) for end in self._ways.switches.endpoints(group, shape.switches)]
            for group in members.tolist()
        ]
        return np.concatenate([members.astype(np.int64), np.array(switches, np.int64)], axis=1)

    def find(self, call: Call) -> tuple[int, int] | None:
        """Layout of the group of a call, and its place there; None if the plan does not have it."""
        row = np.array(call.ranks, np.int32).tobytes()
        for layout in self._of_set.get((call.collective, call.dimension, self.choice(call)), ()):
            if row in self._rows[layout]:
                return layout, self._rows[layout][row]
        return None

    def choice(self, call: Call) -> Choice:
        """Return what a call runs with, its chunk apart."""
        return self._choose(call.collective, call.ranks, call.size).wiring

    def carried(self, collective: str, layout: int, group: int) -> tuple[Indices, NDArray[np.float64]]:
        """Find the routes of a group's connections, and the share of a collective's buffer that goes over each."""
        seated = self.layouts[layout]
        (_, seats), connections = seated.ends.shape, self.connections
        first = seated.first_membership + group * seats
        mine = np.flatnonzero((connections.source >= first) & (connections.source < first + seats))
        lane, number = (np.tile(column, seated.choice.channels) for column in seated.shape.between)
        shares = self._template(collective, seated.members[group], seated.choice).shares()
        return connections.route[mine], shares[lane, number] / seated.choice.channels

    def code(self, key: Connection) -> int:
        """Give what tells routes apart a number; -1 if no group uses such stripes."""
        number = self._number.get((0 if self._warm else key.layout, key.stripes), -1)
        ends = self._ways.number(key.source), self._ways.number(key.target)
        return (
            -1 if number < 0 else ((number * _PORTS + key.port) * self._endpoints + ends[0]) * self._endpoints + ends[1]
        )

    def ends_of(self, code: int) -> tuple[int, int, int, Stripes]:
        """Source, target, port and stripes of a `code`."""
        pair, target = divmod(code, self._endpoints)
        rest, source = divmod(pair, self._endpoints)
        number, port = divmod(rest, _PORTS)
        return self._ways.endpoint(source), self._ways.endpoint(target), port, self._used[number][1]

    def slowest_to_wire(self, capacities: NDArray[np.float64], wires: int) -> NDArray[np.float64]:
        """Find what the slowest resource up to the first wire of each route takes for a byte, seconds.

        `capacities`: of all resources, of which the first are `wires`.
        Returns: shape ``(routes,)``; 0 if nothing comes before the wire, or messages go in parts by several adapters.
        """
        routes = self.routes
        first = np.full(len(routes.code), np.iinfo(np.int64).max)
        of_wires = routes.hop_resource < wires
        np.minimum.at(first, routes.hop_route[of_wires], routes.hop_place[of_wires])
        before = routes.hop_place <= first[routes.hop_route]
        slowest = np.zeros(len(first))
        np.maximum.at(slowest, routes.hop_route[before], (routes.hop_cost / capacities[routes.hop_resource])[before])
        in_parts = np.array([len(stripes) > 1 for _, stripes in self._used], bool)
        slowest[~routes.network | (first == 0) | in_parts[routes.code // self._endpoints**2 // _PORTS]] = 0
        return slowest

    def _numbered(self, layout: int, stripes: Stripes) -> int:
        """Give stripes that a layout uses a number."""
        use = 0 if self._warm else layout, stripes
        if use not in self._number:
            self._number[use] = len(self._used)
            self._used.append(use)
        return self._number[use]

    def _striped(self, number: int, sources: Indices, targets: Indices, channel: int) -> Indices:
        """Return the number of the stripes of each connection of a channel, shape ``(groups, connections)``."""
        layout = self.layouts[number]
        if not layout.choice.is_striped:
            return np.full(sources.shape, self._numbered(number, ()))
        numbers = np.zeros(sources.shape, np.int64)
        for group, ranks in enumerate(layout.members.tolist()):
            for place, ends in enumerate(zip(sources[group].tolist(), targets[group].tolist(), strict=True)):
                source, target = map(self._ways.endpoint, ends)
                stripes = self._ways.stripes(source, target, tuple(ranks), layout.choice, channel)
                numbers[group, place] = self._numbered(number, stripes)
        return numbers

    def _connect(self) -> tuple[Connections, Indices]:
        columns: list[tuple[NDArray[np.generic], ...]] = [(np.zeros(0, np.int64),) * 4]
        for layout_number, layout in enumerate(self.layouts):
            shape = layout.shape
            lane, number = shape.between
            member, receiver = shape.owner[lane], shape.owner[shape.connections[lane, number]]
            firsts = layout.first_membership + layout.ends.shape[1] * np.arange(len(layout.ends))[:, None]
            sources, targets = layout.ends[:, member], layout.ends[:, receiver]
            for channel in range(layout.choice.channels):
                striped = self._striped(layout_number, sources, targets, channel)
                label = shape.labels * layout.choice.channels + channel
                code = ((striped * _PORTS + channel) * self._endpoints + sources) * self._endpoints + targets
                rows = (firsts + member, firsts + receiver, label, code)
                columns.append(tuple(np.broadcast_to(row, sources.shape).ravel() for row in rows))
        source, target, label, code = (np.concatenate(column) for column in zip(*columns, strict=True))
        codes, route = np.unique(code, return_inverse=True)
        return Connections(source, target, label, route), codes

    def _find_routes(self, codes: Indices) -> Routes:
        """Find the routes: those between GPUs together if they may be, others one by one."""
        sources, targets = codes // self._endpoints % self._endpoints, codes % self._endpoints
        numbers, ports = np.divmod(codes // self._endpoints**2, _PORTS)
        whole = np.array([not stripes for _, stripes in self._used], bool)[numbers]
        between, within = (np.flatnonzero(whole & pairs) for pairs in self._ways.pairs_of_gpus(sources, targets))
        platform = self._ways.platform
        found = (
            (between, platform.paths(sources[between], targets[between], ports[between])),
            (within, platform.paths_within(sources[within], targets[within])),
        )
        one_by_one = np.ones(len(codes), bool)
        columns: list[tuple[NDArray[np.generic], ...]] = []
        latency, network, count = (np.zeros(len(codes), np.int64) for _ in range(3))
        network[between] = 1
        for together, paths in found:
            if paths is not None:
                one_by_one[together] = False
                latency[together], count[together] = paths.latency, paths.length
                whole_share = np.ones(len(paths.resource))
                columns.append((np.repeat(together, paths.length), paths.resource, whole_share, paths.cost))
        rest, hops = np.flatnonzero(one_by_one), list[tuple[int, float, float]]()
        for at in rest.tolist():
            way = self._ways.path(*self.ends_of(int(codes[at])))
            latency[at], network[at], count[at] = way.latency, way.network, len(way.hops)
            hops += way.shared_hops()
        resources = np.array([resource for resource, _, _ in hops], np.int64)
        shares, costs = (np.array([hop[place] for hop in hops], np.float64) for place in (1, 2))
        columns.append((np.repeat(rest, count[rest]), resources, shares, costs))
        route, resource, share, cost = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.argsort(route, kind="stable")
        place = np.arange(len(route)) - np.repeat(np.cumsum(count) - count, count)
        hop = route[order], place, resource[order], share[order], cost[order]
        return Routes(codes, latency, network > 0, *hop)
