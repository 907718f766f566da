"""Connections: routes over the platform, and groups of ranks wired for a collective."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.collectives import template
from fabricsim.engine.folding.turning import fewer, kept, used_by
from fabricsim.engine.in_network import Switches
from fabricsim.engine.ways import Connection, Stripes, Ways
from fabricsim.errors import SimulationError
from fabricsim.records.program import CLOCK_END, CONNECTION, MODERATION, NEVER, NONE, ROUTE, SCRIPT
from fabricsim.results.summary import bus_factor
from fabricsim.scenario.collectives import PAIRED
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from fabricsim.collectives.base import Template
    from fabricsim.collectives.choice import Choice, Choose
    from fabricsim.engine.flow.world import World
    from fabricsim.engine.folding.folding import Folding
    from fabricsim.scenario.cluster import InterruptStep
    from fabricsim.topology.platform import Path, Platform
    from fabricsim.transports.base import FlowModel


_LONGEST_DELAY = 10**15
"""ps (17 minutes): a sum of dozens of them stays within the clock."""
_MOST_MESSAGES = 2**31 - 1
_COLUMNS = ROUTE.names or ()


def connections(matrix: NDArray[np.void], ports: Sequence[int]) -> list[Connection]:
    """Give the connections of messages with ``source`` and ``target``, and their ports."""
    ends = zip(matrix["source"].tolist(), matrix["target"].tolist(), ports, strict=True)
    return [Connection(source, target, port) for source, target, port in ends]


def _check_delay(delay: int, key: Connection) -> None:
    if delay > _LONGEST_DELAY:
        way = f"from endpoint {key.source} to {key.target}"
        raise SimulationError(f"a delay of {delay / 1e12:.3g} s {way} is too long: 17 minutes at most")


def _chunk(made: Template, most: int, collective: str, ranks: tuple[int, ...], size: int) -> int:
    """Never more than cuts the buffer into its shards, so that products of it stay small."""
    chunk = min(most, -(-size // made.shards))
    steps = max(len(steps) for steps in made.scripts)
    if -(-size // (made.shards * chunk)) * steps > _MOST_MESSAGES:
        key = "send_chunk" if collective in PAIRED else "chunk"
        msg = (
            f"{collective} of {size} bytes over {len(ranks)} ranks in chunks of {chunk} bytes is more than "
            f"{_MOST_MESSAGES} messages per rank: raise collectives.{key}"
        )
        raise SimulationError(msg)
    return chunk


class Wiring:
    """Makes routes and communicators in a world's tables, each once.

    `world`: whose tables are filled.
    `choose`: what each collective call runs with.
    `moderation`: interrupt moderation of the NIC, in force where the transport uses interrupts.

    `connections`: route of each connection so far.
    `ends`: source and target of each route.
    `switches`: that are ends of messages.
    """

    def __init__(
        self, world: World, platform: Platform, model: FlowModel, choose: Choose, moderation: Sequence[InterruptStep]
    ) -> None:
        self._world = world
        self._platform = platform
        self.switches = Switches(platform)
        self._ways = Ways(platform, self.switches)
        self._model = model
        self.models: tuple[FlowModel, ...] = ()  # of each kind of hosts, if they have transports of their own
        self.choose = choose
        self.repairs = False
        self.connections: dict[Connection, int] = {}
        self._templates: dict[tuple[int, int], tuple[Template, int]] = {}
        self._communicators: dict[tuple[str, tuple[int, ...], Choice], int] = {}
        self._groups: list[tuple[str, tuple[int, ...], Choice]] = []
        self._calls: dict[tuple[str, tuple[int, ...], int], tuple[int, int]] = {}
        self._kept: list[Template] = []
        self._made: dict[int, tuple[str, Template]] = {}
        self.route_hops: list[tuple[int, ...]] = []
        self.ends: list[tuple[int, int]] = []
        self._moved: set[int] = set()
        self.folding: Folding | None = None
        self._moderation_steps = len(moderation) if model.interrupts else 0
        rows = sorted((step.above, step.interval) for step in moderation)
        world.extend("moderation", np.array(rows, MODERATION))

    def route(
        self, source: int, target: int, *, port: int = 0, latency: int | None = None, byte_latency: float = 0.0
    ) -> int:
        """Index of a connection's route; all else of the `Connection` is left out."""
        return self.routes([Connection(source, target, port, latency=latency, byte_latency=byte_latency)])[0]

    def routes(self, keys: Sequence[Connection]) -> list[int]:
        """Index of the route of each connection.

        Raises SimulationError if there is no way for one of them, or it takes too long; none is made then.
        """
        if self.folding is not None:
            keys = [self.folding.stand_in(key) for key in keys]
        known = self.connections
        new = [key for key in dict.fromkeys(keys) if key not in known]
        if new:
            first = self._add_routes(new, [self._path(key) for key in new])
            known.update(zip(new, range(first, first + len(new)), strict=True))
        return [known[key] for key in keys]

    def _path(self, key: Connection) -> Path:
        return self._ways.path(key.source, key.target, key.port, key.stripes)

    def _add_routes(self, keys: Sequence[Connection], paths: Sequence[Path]) -> int:
        """Enter the routes of new connections; returns the index of the first."""
        pairs = list(zip(keys, paths, strict=True))
        crossed = [self._hops(key, path) for key, path in pairs]
        first_hop, rows = self._world.used["hops"], []
        for (key, path), hops in zip(pairs, crossed, strict=True):
            rows.append(self._row(key, path, first_hop, len(hops)))
            first_hop += len(hops)
        self._world.extend("hops", [*chain.from_iterable(crossed)])
        self._world.widen(max(map(len, crossed)))
        self.route_hops += [tuple([resource for resource, _, _ in hops]) for hops in crossed]
        self.ends += [(key.source, key.target) for key in keys]
        first = self._world.extend("routes", rows)
        if self._platform.withdrawn:
            self._moved.update(range(first, first + len(rows)))
        return first

    # ---- ways that fail ---------------------------------------------------------------------------

    def routes_over(self, wires: Iterable[int]) -> dict[int, set[int]]:
        """Give the routes that cross each of some wires."""
        found: dict[int, set[int]] = {wire: set() for wire in wires}
        for route, hops in enumerate(self.route_hops):
            for wire in found.keys() & set(hops):
                found[wire].add(route)
        return found

    def reroute(self, withdrawn: Iterable[int]) -> list[int]:
        """Have connections avoid wires that are withdrawn, and go back to their ways where they are not any more.

        Returns: indices of the routes that have changed.
        """
        avoid = set(withdrawn)
        some = set().union(*self.routes_over(avoid).values(), self._moved)
        changed = [route for key, route in self.connections.items() if route in some and self._renew_route(key, route)]
        self._moved = {route for route in some if route in self._moved or route in changed} if avoid else set()
        return changed

    def repair(self, down: Iterable[int]) -> list[int]:
        """Have switches send what finds its way packet by packet around wires that are down, if they know another.

        In the flow engine, which knows one way of a connection, that is its whole traffic; returns its routes.
        """
        if not self.repairs:
            return []
        platform, known = self._platform, self._platform.withdrawn
        over = self.routes_over(down)
        some = set().union(*over.values(), self._moved)
        platform.withdraw(known | over.keys())
        changed = [
            route
            for key, route in self.connections.items()
            if route in some
            and (route in self._moved or self._is_local(route, self._path(key), over))
            and self._renew_route(key, route)
        ]
        platform.withdraw(known)
        self._moved |= set(changed)
        return changed

    def _is_local(self, route: int, path: Path, down: Iterable[int]) -> bool:
        """Whether a path parts from that of a route just before the wires that are down, and is as long."""
        before, after = self.route_hops[route], [resource for resource, _ in path.hops]
        lost = set(down)
        ways = zip(before, after, strict=False)
        parts = next((old for old, new in ways if old != new), NONE)
        return len(before) == len(after) and parts in lost

    def _renew_route(self, key: Connection, route: int) -> bool:
        """Give a connection its present way; returns whether it is another one."""
        path = self._path(key)
        hops = self._hops(key, path)
        crossed = tuple([resource for resource, _, _ in hops])
        if self._is_way(route, crossed, path):
            return False
        row, before = self._row(key, path, self._world.extend("hops", hops), len(hops)), self._world.routes[route]
        self._world.widen(len(hops))
        for column in ("first_hop", "hops", "peak"):
            before[column] = row[_COLUMNS.index(column)]
        self._change_way(key, route, path, row)
        self.route_hops[route] = crossed
        return True

    def _is_way(self, route: int, crossed: tuple[int, ...], path: Path) -> bool:
        """Whether a route has this way, over the resources `crossed`, already."""
        del path
        return crossed == self.route_hops[route]

    def _change_way(self, key: Connection, route: int, path: Path, row: tuple[float, ...]) -> None:
        """Enter what else has changed with the way of a route."""
        del key, path
        for column in ("latency", "round_trip", "out_hops", "read_ahead"):
            self._world.routes[route][column] = row[_COLUMNS.index(column)]

    # ---- groups -------------------------------------------------------------------------------------

    def _hops(self, key: Connection, path: Path) -> list[tuple[int, float, float]]:
        """Rows of ``HOP`` of a connection."""
        if self.folding is not None:
            return self.folding.hops(key)
        return list(path.shared_hops())

    def _row(self, key: Connection, path: Path, first_hop: int, hops: int) -> tuple[float, ...]:
        """Row of ``ROUTE`` of a connection."""
        model = self._spoken(key.source, key.target)
        latency, overhead, round_trip, window, idle_restart, moderation = key.intra_host_step, 0, 0, 0, 0, NONE
        if path.network:
            software = model.latency if key.latency is None else key.latency
            latency = path.latency + software + key.network_step
            overhead = model.overhead * key.posts if key.latency is None else 0
            round_trip = 2 * path.latency + model.stacks
            window, idle_restart = model.window, model.idle_restart
            moderation = 0 if self._moderation_steps and model.interrupts and not key.polled else NONE
        _check_delay(max(latency, overhead), key)
        capacities = self._platform.resources.capacities
        return (
            first_hop,
            hops,
            latency,
            key.byte_latency if path.network else 0.0,
            overhead,
            min([capacities[resource] / cost for resource, cost in path.hops]),
            round_trip,
            window,
            idle_restart if idle_restart == NEVER else min(idle_restart, NEVER - CLOCK_END),
            0,  # no connection is warm before its first message
            moderation,
            self._moderation_steps,
            NONE,
            0.0,
            0.0,
            0.0,
            0,
            0,
            path.out + path.network,
            self._read_ahead(path, key.stripes, model),
        )

    def read_ahead(self, source: int, target: int, port: int, stripes: Stripes) -> int:
        """Time for which the adapter of a connection reads ahead of its wire, ps."""
        return self._read_ahead(self._ways.path(source, target, port, stripes), stripes, self._spoken(source, target))

    def _spoken(self, source: int, target: int) -> FlowModel:
        """Give the transport that two endpoints speak."""
        return self.models[self._platform.spoken(source, target)] if self.models else self._model

    def _read_ahead(self, path: Path, stripes: Stripes, model: FlowModel) -> int:
        """Time that the wire, or what is narrower before it, needs for what an adapter reads ahead, ps.

        Without anything before the wire there is nothing to read ahead.
        """
        hops = path.hops[: path.out + 1]
        if not path.network or len(stripes) > 1 or len(hops) == 1:
            return 0
        capacities = self._platform.resources.capacities
        return int(max(cost / capacities[resource] for resource, cost in hops) * model.read_ahead * PS_PER_S)

    def _fewer(self, made: Template, members: int) -> tuple[Template, int]:
        """Give a template of which only the first members have lanes, and its index."""
        key = (id(made), members)
        if key not in self._templates:
            self._kept.append(made)
            those = made if members == made.members else fewer(made, members)
            self._templates[key] = those, self._add_template(those)
        return self._templates[key]

    def _add_template(self, made: Template) -> int:
        scripts = np.zeros(len(made.scripts), SCRIPT)
        first: dict[int, int] = {}
        for script, steps in zip(scripts, made.scripts, strict=True):
            if id(steps) not in first:
                first[id(steps)] = self._world.extend("steps", steps)
            script["first_step"], script["steps"] = first[id(steps)], len(steps)
        row = (
            self._world.extend("scripts", scripts),
            len(made.scripts) == 1,
            made.relative,
            made.members,
            made.shards,
            made.connections.shape[1],
            made.sources.shape[1],
            made.strands,
            len(made.switches),
        )
        return self._world.extend("templates", [row])

    def call(self, collective: str, ranks: tuple[int, ...], size: int) -> tuple[int, int]:
        """Wire a group of ranks for a call of `size` bytes.

        Returns: index of the communicator, and the most bytes of a shard in one round and channel.
        Raises SimulationError if the chunk cuts the buffer into more messages than a lane can count.
        """
        key = (collective, ranks, size)
        if key not in self._calls:
            choice = self.choose(collective, ranks, size)
            group = self.switches.group_for(collective, choice.algorithm, ranks)
            made = template(collective, len(ranks), choice.algorithm, group)
            chunk = _chunk(made, choice.chunk, collective, ranks, size)
            self._calls[key] = self._communicator(collective, ranks, choice.wiring, made), chunk
        return self._calls[key]

    def _communicator(self, collective: str, ranks: tuple[int, ...], choice: Choice, made: Template) -> int:
        key = (collective, ranks, choice)
        if key not in self._communicators:
            self._communicators[key] = self._add_communicator(collective, ranks, choice, made)
            self._groups.append(key)
        return self._communicators[key]

    def _add_communicator(self, collective: str, ranks: tuple[int, ...], choice: Choice, made: Template) -> int:
        members = made.members if self.folding is None else self.folding.lanes(collective, ranks, choice)
        those, number = self._fewer(made, members)
        lanes, connections = kept(made, members), those.connections
        rows = np.zeros((choice.channels, *connections.shape[:2]), CONNECTION)
        rows["member"] = connections[None, :, :, 0]
        rows["inbox"] = connections[None, :, :, 1]
        rows["route"] = rows["flow"] = NONE
        endpoints = [*ranks * made.strands, *self.switches.endpoints(ranks, made.switches)]
        places, ends = [], []
        for lane, i in np.argwhere(used_by(those)).tolist():
            source, target = endpoints[lanes[lane]], endpoints[made.connections[lanes[lane], i, 0]]
            if source != target:
                places.append((lane, i))
                ends.append((source, target))
        if ends:
            every = [self._key(*pair, ranks, choice, channel) for channel in range(choice.channels) for pair in ends]
            if self.folding is not None:
                layout = self.folding.layout(collective, ranks, choice)
                every = [key._replace(layout=layout) for key in every]
            routes = self.routes(every)
            lane, i = np.array(places).T
            rows["route"][:, lane, i] = np.reshape(routes, (choice.channels, -1))
            rows["flow"][:, lane, i] = np.reshape(self._connection_flows(routes), (choice.channels, -1))
        first_connection = self._world.extend("connections", rows.reshape(-1))
        first_source = self._world.extend("sources", those.sources.reshape(-1).astype(np.int64))
        per_byte = PS_PER_S / choice.reduction_rate if choice.reduction_rate else 0.0
        row = (
            number,
            choice.channels,
            first_connection,
            first_source,
            *choice.line,
            choice.lines_within,
            choice.window,
            choice.start,
            choice.channels * PS_PER_S / choice.copy_rate if choice.copy_rate else 0.0,
            per_byte,
            choice.ticking,
        )
        self._world.reserve_window(choice.window)
        index = self._world.extend("communicators", [row])
        self._made[index] = (collective, made)
        return index

    def _key(self, source: int, target: int, ranks: tuple[int, ...], choice: Choice, channel: int) -> Connection:
        """Give the connection of two members of a group on a channel."""
        return Connection(
            source,
            target,
            port=channel,
            network_step=choice.network_step,
            intra_host_step=choice.intra_host_step,
            latency=choice.latency,
            stripes=self._ways.stripes(source, target, ranks, choice, channel),
            byte_latency=choice.byte_latency,
            polled=choice.latency is not None,
            posts=choice.posts,
        )

    def prepare(self, routes: Sequence[int], *, awaited: bool) -> None:
        """Have what messages from outside need on routes; in the flow engine nothing more.

        `awaited` says whether somebody may react to the end of each.
        """

    def _connection_flows(self, routes: Sequence[int]) -> Sequence[int]:
        """Give each of a collective's connections a flow of its own; the flow engine has none."""
        return [NONE] * len(routes)

    def bus_bandwidth_bound(self, communicator: int) -> float:
        """Bus bandwidth that the narrowest resource of a communicator allows, bytes/s.

        That is the least of capacity over what it carries of each byte of the buffer, times the collective's factor.
        """
        collective, made = self._made[communicator]
        capacities = self._platform.resources.capacities
        bounds = [capacities[resource] / units for resource, units in self.demand(communicator).items() if units > 0]
        return min(bounds) * bus_factor(collective, made.members) if bounds else float("inf")

    def load(self, communicator: int) -> dict[int, float]:
        """Units of each resource that a byte of the buffer takes; of a folded run those of all groups alike."""
        if self.folding is None:
            return self.demand(communicator)
        return self.folding.load(*self._groups[communicator])

    def demand(self, communicator: int) -> dict[int, float]:
        """Units of each resource that a byte of the buffer takes in one call."""
        if self.folding is not None:
            return self.folding.demand(*self._groups[communicator])
        demand: dict[int, float] = {}
        self._add_demand(demand, communicator, self._made[communicator][1].shares())
        return demand

    def _add_demand(self, demand: dict[int, float], communicator: int, carried: NDArray[np.float64]) -> None:
        """Add the units of each resource that a byte of the buffer takes; `carried` is `Template.shares`."""
        world = self._world
        channels = int(world.communicators[communicator].channels)
        for number, route in enumerate(self.routes_of(communicator)):
            if route == NONE:
                continue
            row = world.routes[route]
            share = carried.flat[number % carried.size] / channels
            for hop in world.hops[row.first_hop : row.first_hop + row.hops]:
                resource = int(hop["resource"])
                demand[resource] = demand.get(resource, 0.0) + float(hop["cost"]) * share

    def resources_of(self, communicator: int) -> set[int]:
        """Resources that the messages of a communicator cross."""
        routes = set(self.routes_of(communicator)) - {NONE}
        return {resource for route in routes for resource in self.route_hops[route]}

    def flows_of(self, communicator: int) -> list[int]:
        """Flow of each connection in the packet engine, by channel and lane; NONE if there is none."""
        return self._column_of(communicator, "flow")

    def routes_of(self, communicator: int) -> list[int]:
        """Route of each connection, by channel and lane; NONE if there is none."""
        return self._column_of(communicator, "route")

    def _column_of(self, communicator: int, column: str) -> list[int]:
        world = self._world
        row = world.communicators[communicator]
        made = self._made[communicator][1]
        lanes = min(int(world.templates[row.template].members), made.members) - made.members + made.lanes
        first, count = int(row.first_connection), int(row.channels) * lanes * made.connections.shape[1]
        values: list[int] = world.connections[column][first : first + count].tolist()
        return values
