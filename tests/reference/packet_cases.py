"""Small networks of packets for tests: built by hand, or drawn from a seed.

`Builder` lays out the tables that the packet engines are given; `draw` makes a random case.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fabricsim.records import packet as types
from fabricsim.records import transport as transport_types
from fabricsim.records.program import NEVER, NONE
from fabricsim.scenario import balancing, congestion
from fabricsim.transports.dispatch import Dispatch, built_in

US = 1_000_000  # ps
MS = 1_000 * US
GBPS = 125_000_000.0  # bytes/s
PS_PER_S = 1e12


@dataclass(frozen=True)
class Pfc:
    """Thresholds of priority flow control, bytes; `alpha`: share of the free shared buffer, 0 for static ones."""

    above: int
    below: int
    headroom: int
    alpha: float = 0.0


@dataclass(frozen=True)
class Options:
    """What egress ports do, the same everywhere; sizes in bytes.

    Ports are managed where one of the options needs it, or `managed` says so; those of hosts if PFC or
    credits do, or `managed_hosts` says so. `limit`, marks and bit errors hold for the links of switches.
    """

    managed: bool = False
    managed_hosts: bool = False
    classes: int = 2
    limit: int | None = None
    mark_low: int | None = None
    mark_high: int | None = None
    mark_most: float = 1.0
    bit_error_rate: float = 0.0
    weights: tuple[int, ...] = ()
    trimming: bool = False
    mark_late: bool = False
    buffer: int = 0
    alpha: float = math.inf
    pfc: Pfc | None = None
    lossless: tuple[int, ...] = ()
    credits: int = 0
    cut_through: bool = False

    @property
    def backpressure(self) -> bool:
        return self.pfc is not None or self.credits > 0

    @property
    def manages_switches(self) -> bool:
        return self.managed or self.backpressure or bool(self.weights) or self.trimming or self.buffer > 0

    @property
    def manages_hosts(self) -> bool:
        return self.managed_hosts or self.backpressure


@dataclass(frozen=True)
class Cable:
    """Between two nodes: Gb/s, and propagation delay, ps."""

    ends: tuple[int, int]
    rate: float
    delay: int


@dataclass(frozen=True)
class Post:
    """A message: when (ps), in which flow, bytes, and the number by which its delivery is known."""

    time: int
    flow: int
    size: int
    owner: int


@dataclass(frozen=True)
class Case:
    """A network with what happens in it, up to `until` (ps)."""

    tables: dict[str, np.ndarray]
    posts: list[Post]
    until: int
    title: str

    dispatch: Dispatch

    @property
    def net(self) -> SimpleNamespace:
        """The tables by name, for engines that take them as attributes."""
        return SimpleNamespace(**self.tables, dispatch=self.dispatch)


@dataclass
class Builder:
    """Lays out the tables: hosts come first among the nodes, each cable has links 2i and 2i + 1."""

    hosts: int
    switches: int
    cables: list[Cable]
    options: Options = field(default_factory=Options)
    seed: int = 1
    way_out: tuple[float, ...] = ()  # GB/s of each server between memory and wire
    way_in: tuple[float, ...] = ()  # the same of each server between wire and memory
    shared_first: bool = False  # the first server of both ways is one and the same
    flows: list[dict[str, Any]] = field(default_factory=list)
    laws: list[dict[str, Any]] = field(default_factory=list)
    down: tuple[int, ...] = ()  # links that have failed
    dispatch: Dispatch = field(default_factory=built_in)

    def add_law(self, **columns: float) -> int:
        """Add a transport; returns its row. What is not said is a window of 1000 packets of 4096 + 64 bytes."""
        self.laws.append(LAW_DEFAULTS | columns)
        return len(self.laws) - 1

    def add_flow(self, source: int, target: int, law: int = 0) -> int:
        """Add a flow between two hosts; returns its row."""
        self.flows.append({"source": source, "target": target, "law": law})
        return len(self.flows) - 1

    def build(self) -> dict[str, np.ndarray]:
        """Make the tables."""
        links = self._links()
        ports, queues = self._ports(links)
        groups, group_links, group_of = self._groups()
        flows, paths = self._flows(links)
        nodes, ins = self._nodes()
        stages, servers = self._stages()
        return {
            "world": _rows(types.NETWORK, [{"seed": self.seed, "hosts": self.hosts}]),
            "nodes": nodes,
            "ins": ins,
            "links": links,
            "ports": ports,
            "queues": queues,
            "ingress": self._ingress(),
            "paths": np.array(paths, np.int32),
            "group_of": group_of,
            "groups": groups,
            "group_links": group_links,
            "flows": flows,
            "receivers": _rows(transport_types.RECEIVER, [RECEIVER_DEFAULTS] * len(self.flows)),
            "laws": self._laws(),
            "stages": stages,
            "servers": servers,
            "endpoints": _rows(transport_types.ENDPOINT, [{"head": NONE, "tail": NONE}] * self.hosts),
        }

    def _laws(self) -> np.ndarray:
        laws = _rows(self.dispatch.law, self.laws)
        self.dispatch.note(laws)
        return laws

    # Links, ports, nodes.

    def _links(self) -> np.ndarray:
        rows = []
        for index, cable in enumerate(self.cables):
            for side in (0, 1):
                source, target = cable.ends[side], cable.ends[1 - side]
                rows.append(self._link(2 * index + side, source, target, cable))
        return _rows(types.LINK, rows)

    def _link(self, index: int, source: int, target: int, cable: Cable) -> dict[str, Any]:
        options = self.options
        ps_per_byte = PS_PER_S / (cable.rate * GBPS)
        row = {
            "delay": cable.delay,
            "ps_per_byte": ps_per_byte,
            "head": NONE,
            "tail": NONE,
            "target": target,
            "source": source,
            "reverse": index ^ 1,
            "port": self._port_of(source, index),
            "cut_through": int(options.cut_through and self._feeds(target, cable.rate)),
            "mark_low": NEVER,
            "mark_high": NEVER,
            "limit": NEVER,
            "down": int(index in self.down),
            "tap": NONE,
            "log": 1,
            "control_head": NONE,
            "control_tail": NONE,
            "loss": options.bit_error_rate,
        }
        if source < self.hosts:
            return row
        if options.limit is not None:
            row["limit"] = _time(options.limit, ps_per_byte)
        if options.mark_low is not None and options.mark_high is not None:
            row["mark_low"] = _time(options.mark_low, ps_per_byte)
            row["mark_high"] = _time(options.mark_high, ps_per_byte)
            row["mark_most"] = options.mark_most
        return row

    def _feeds(self, node: int, rate: float) -> bool:
        """Whether a link of `rate` to a node keeps all links that lead on from it busy: it may cut through."""
        return node >= self.hosts and all(cable.rate <= rate for cable in self.cables if node in cable.ends)

    def _port_of(self, source: int, link: int) -> int:
        if source < self.hosts:
            return source if self.options.manages_hosts else NONE
        return self._switch_ports()[link] if self.options.manages_switches else NONE

    def _switch_ports(self) -> dict[int, int]:
        sources = [(2 * i + side, cable.ends[side]) for i, cable in enumerate(self.cables) for side in (0, 1)]
        links = [link for link, source in sources if source >= self.hosts]
        return {link: self.hosts + place for place, link in enumerate(links)}

    def _host_link(self, host: int) -> int:
        for i, cable in enumerate(self.cables):
            for side in (0, 1):
                if cable.ends[side] == host:
                    return 2 * i + side
        message = f"host {host} has no cable"
        raise ValueError(message)

    def _ports(self, links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_hosts = [self._host_link(host) for host in range(self.hosts)]
        of_switches = list(self._switch_ports()) if self.options.manages_switches else []
        ports, queues = [], []
        for link in [*of_hosts, *of_switches]:
            at_host = int(links[link]["source"]) < self.hosts
            ports.append(self._port(link, at_host=at_host))
            queues += [self._queue(traffic_class, at_host=at_host) for traffic_class in range(types.CLASSES)]
        return _rows(types.PORT, ports), _rows(types.QUEUE, queues)

    def _port(self, link: int, *, at_host: bool) -> dict[str, Any]:
        options = self.options
        return {
            "link": link,
            "classes": options.classes,
            "weighted": int(bool(options.weights) and not at_host),
            "trimming": int(options.trimming and not at_host),
            "mark_late": int(options.mark_late and not at_host),
            "credit_bytes": options.credits,
            "ready": NONE,
            "ready_last": NONE,
        }

    def _queue(self, traffic_class: int, *, at_host: bool) -> dict[str, Any]:
        options = self.options
        return {
            "head": NONE,
            "tail": NONE,
            "weight": options.weights[traffic_class] if traffic_class < len(options.weights) else 1,
            "credits": options.credits,
            "alpha": options.alpha,
            "lossless": int(traffic_class in options.lossless and not at_host),
        }

    def _ingress(self) -> np.ndarray:
        pfc = self.options.pfc
        rows = []
        for index in range(2 * len(self.cables)):
            target = self.cables[index // 2].ends[1 - index % 2]
            for traffic_class in range(types.CLASSES):
                row: dict[str, Any] = {"above": NEVER, "credits": int(self.options.credits > 0)}
                if pfc is not None and traffic_class in self.options.lossless:
                    alpha = pfc.alpha if target >= self.hosts else 0.0
                    row |= {"above": pfc.above, "below": pfc.below, "headroom": pfc.headroom, "alpha": alpha}
                rows.append(row)
        return _rows(types.INGRESS, rows)

    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        rows, ins = [], []
        for node in range(self.hosts + self.switches):
            mine = [2 * i + 1 - cable.ends.index(node) for i, cable in enumerate(self.cables) if node in cable.ends]
            is_host = node < self.hosts
            rows.append(
                {
                    "kind": types.HOST if is_host else types.SWITCH,
                    "number": node if is_host else node - self.hosts,
                    "first_in": len(ins),
                    "ins": len(mine),
                    "agenda": NONE,
                    "accounts": int(self.options.backpressure),
                    "port": node if is_host else NONE,
                    "buffer": 0 if is_host else self.options.buffer,
                }
            )
            ins += sorted(mine)
        return _rows(types.NODE, rows), np.array(ins, np.int32)

    # Routes.

    def _outgoing(self, node: int) -> list[tuple[int, int]]:
        return [
            (2 * i + side, cable.ends[1 - side])
            for i, cable in enumerate(self.cables)
            for side in (0, 1)
            if cable.ends[side] == node
        ]

    def _hops_to(self, host: int) -> list[int]:
        hops = [-1] * (self.hosts + self.switches)
        hops[host] = 0
        waiting = deque([host])
        while waiting:
            node = waiting.popleft()
            for _, other in self._outgoing(node):
                if hops[other] < 0:
                    hops[other] = hops[node] + 1
                    if other >= self.hosts:  # hosts do not forward
                        waiting.append(other)
        return hops

    def _closer(self, node: int, host: int) -> list[int]:
        hops = self._hops_to(host)
        return [link for link, other in self._outgoing(node) if 0 <= hops[other] == hops[node] - 1]

    def _groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        sets: dict[tuple[int, ...], int] = {}
        group_of = []
        for switch in range(self.switches):
            for host in range(self.hosts):
                chosen = tuple(self._closer(self.hosts + switch, host))
                group_of.append(sets.setdefault(chosen, len(sets)))
        groups = np.cumsum([0, *map(len, sets)])
        members = [link for chosen in sets for link in chosen]
        return groups.astype(np.int64), np.array(members, np.int32), np.array(group_of, np.int32)

    def _walk(self, source: int, target: int, key: int) -> list[int]:
        links = [self._host_link(source)]
        while (node := self.cables[links[-1] // 2].ends[1 - links[-1] % 2]) != target:
            choices = self._closer(node, target)
            links.append(choices[(key + node) % len(choices)])
        return links

    # Flows.

    def _flows(self, links: np.ndarray) -> tuple[np.ndarray, list[int]]:
        rows: list[dict[str, Any]] = []
        paths: list[int] = []
        slot = telemetry = 0
        for index, flow in enumerate(self.flows):
            law = self.laws[flow["law"]]
            key = 7 + 13 * index
            there = self._walk(flow["source"], flow["target"], key)
            back = self._walk(flow["target"], flow["source"], key)
            row = self._flow(flow, law, links, there, back)
            row |= {"key": key, "slot": slot, "first_telemetry": NONE}
            if self.dispatch.rules[law["balance"]].one_path:
                row |= {"path": len(paths), "reverse_path": len(paths) + len(there)}
                paths += [*there, *back]
            else:
                row |= {"path": ~flow["target"], "reverse_path": ~flow["source"]}
            if law["recovery"] == transport_types.SELECTIVE:
                slot += 2 * law["span"]
            if self.dispatch.laws[law["law"]].telemetry:
                row["first_telemetry"] = telemetry
                telemetry += (law["span"] + 1) * len(there)
            rows.append(row)
        return _rows(self.dispatch.flow, rows), paths

    def _flow(
        self, flow: dict[str, Any], law: dict[str, Any], links: np.ndarray, there: list[int], back: list[int]
    ) -> dict[str, Any]:
        wire = law["payload"] + law["overhead"]
        acknowledge = self._one_way(links, back, law["ack_wire"])
        per_host = len(self.way_out) + len(self.way_in)
        return FLOW_DEFAULTS | {
            "source": flow["source"],
            "target": flow["target"],
            "law": flow["law"],
            "first_link": there[0],
            "last_link": back[0],
            "first_stage": flow["source"] * per_host,
            "stages": len(self.way_out),
            "first_exit": flow["target"] * per_host + len(self.way_out),
            "exits": len(self.way_in),
            "endpoint": flow["target"],
            "hops": len(there),
            "wire": wire,
            "line_rate": PS_PER_S / float(links[there[0]]["ps_per_byte"]),
            "base_rtt": float(self._one_way(links, there, wire) + acknowledge),
            "connect": law["handshake"] * (self._one_way(links, there, law["ack_wire"]) + acknowledge),
        }

    def _one_way(self, links: np.ndarray, way: list[int], size: int) -> int:
        """Time of a packet over idle links, stored and forwarded at each switch, ps."""
        return sum(int(links[i]["delay"]) + _time(size, float(links[i]["ps_per_byte"])) for i in way)

    def _stages(self) -> tuple[np.ndarray, np.ndarray]:
        stages = []
        per_host = len(self.way_out) + len(self.way_in)
        for host in range(self.hosts):
            first = host * per_host
            for place, rate in enumerate([*self.way_out, *self.way_in]):
                shares = self.shared_first and place == len(self.way_out)
                stages.append({"server": first if shares else first + place, "ps_per_byte": 1000.0 / rate})
        return _rows(transport_types.STAGE, stages), _rows(transport_types.SERVER, [{}] * len(stages))


def law_number(name: str) -> int:
    """Number of a law of fabricsim in records."""
    return list(congestion.LAWS.own).index(name)


def rule_number(name: str) -> int:
    """Number of a load-balancing rule of fabricsim in records."""
    return list(balancing.RULES.own).index(name)


LAW_DEFAULTS: dict[str, Any] = {
    "law": law_number("none"),
    "recovery": transport_types.GO_BACK_N,
    "payload": 4096,
    "overhead": 64,
    "ack_wire": 64,
    "data_class": 1,
    "ack_class": 0,
    "balance": rule_number("ecmp"),
    "entropies": 64,
    "ecn": 1,
    "span": 1 << 40,
    "ack_every": 1,
    "handshake": 0,
    "sampled": 0,
    "reordering": 3,
    "nack_interval": 50 * US,
    "initial_timeout": 100 * MS,
    "minimum_timeout": 100 * MS,
    "maximum_timeout": 1000 * MS,
    "initial_window": 1000.0,
    "minimum_window": 1.0,
    "maximum_window": 1000.0,
    "initial_threshold": 1000.0,
    "idle_restart": NEVER,
}
FLOW_DEFAULTS: dict[str, Any] = {
    "tap": NONE,
    "route": NONE,
    "rate": math.inf,
    "timeout_at": NEVER,
    "alarm_at": NEVER,
    "next_ready": NONE,
    "first_transfer": NONE,
    "send_transfer": NONE,
    "last_transfer": NONE,
}
RECEIVER_DEFAULTS: dict[str, Any] = {"due": NEVER, "nacked": NONE, "transfer": NONE}


def _time(size: int, ps_per_byte: float) -> int:
    return math.floor(size * ps_per_byte + 0.5)


def _rows(record: np.dtype, rows: list[dict[str, Any]]) -> np.ndarray:
    table = np.zeros(len(rows), np.dtype((np.record, record)))
    for index, row in enumerate(rows):
        for name, value in row.items():
            table[index][name] = value
    return table


def two_hosts(rate: float = 100.0, delay: int = US, options: Options | None = None) -> Builder:
    """Hosts 0 and 1 on switch 2."""
    return star(2, rate, delay, options)


def star(hosts: int, rate: float = 100.0, delay: int = US, options: Options | None = None) -> Builder:
    """Build `hosts` hosts on one switch."""
    cables = [Cable((host, hosts), rate, delay) for host in range(hosts)]
    return Builder(hosts, 1, cables, options or Options())


def dumbbell(
    hosts: int, rate: float = 100.0, slow: float = 10.0, delay: int = US, options: Options | None = None
) -> Builder:
    """Spread `hosts` hosts over two switches, even ones left, odd ones right; the cable between them comes last."""
    cables = [Cable((host, hosts + host % 2), rate, delay) for host in range(hosts)]
    cables.append(Cable((hosts, hosts + 1), slow, delay))
    return Builder(hosts, 2, cables, options or Options())


def leaves_and_spine(hosts: int, rate: float, slow: float, delay: int, options: Options) -> Builder:
    """Spread `hosts` hosts over two leaves, each with two cables to a third switch."""
    leaves, spine = (hosts, hosts + 1), hosts + 2
    cables = [Cable((host, leaves[host % 2]), rate, delay) for host in range(hosts)]
    cables += [Cable((leaf, spine), slow, delay) for leaf in leaves for _ in range(2)]
    return Builder(hosts, 3, cables, options)


def fat_tree(hosts: int, rate: float, slow: float, delay: int, options: Options) -> Builder:
    """Two pods of a fat tree of four-port switches: 4 edges, 4 aggregations, 4 cores; hosts spread over the edges."""
    edge, aggregation, core = hosts, hosts + 4, hosts + 8
    cables = [Cable((host, edge + host % 4), rate, delay) for host in range(hosts)]
    for pod in (0, 1):
        for left in (0, 1):
            cables += [Cable((edge + 2 * pod + left, aggregation + 2 * pod + up), slow, delay) for up in (0, 1)]
            cables += [Cable((aggregation + 2 * pod + left, core + 2 * left + up), slow, delay) for up in (0, 1)]
    return Builder(hosts, 12, cables, options)


# Random cases.

LAWS = ("none", "new-reno", "cubic", "dctcp", "dcqcn", "timely", "swift", "hpcc", "nscc", "ndp")
RULES = ("ecmp", "spray", "flowlet", "adaptive")
SWITCHES = ("plain", "strict", "dwrr", "trimming", "shared", "pfc", "pfc-shared", "credits")
RATES = (10.0, 25.0, 100.0)  # Gb/s
MTUS = (1000, 1460, 4096)  # payload, bytes
OVERHEAD = 64
LAST_POST = 20 * US
END = 20 * MS


def draw(seed: int, packets: int = 60) -> Case:
    """Draw a small case, its messages of `packets` at most; seeds 0 to 79 have every law with every kind of switch."""
    rng = random.Random(seed)  # noqa: S311  not for secrets
    law = LAWS[seed % len(LAWS)]
    switch = SWITCHES[seed // len(LAWS) % len(SWITCHES)]
    payload = rng.choice(MTUS)
    options = replace(_draw_options(rng, switch, payload + OVERHEAD), mark_late=seed % 5 > 2)
    builder = _draw_fabric(rng, options, seed)
    builder.add_law(**draw_law(rng, law, payload))
    if rng.random() < 0.3:
        builder.add_law(**draw_law(rng, rng.choice(LAWS), rng.choice(MTUS)) | {"payload": payload})
    incast = rng.random() < 0.5
    for _ in range(rng.randint(1, 6)):
        source, target = (rng.randrange(1, builder.hosts), 0) if incast else rng.sample(range(builder.hosts), 2)
        builder.add_flow(source, target, rng.randrange(len(builder.laws)))
    posts = draw_posts(rng, len(builder.flows), payload, packets)
    title = f"seed {seed}: {law}, {switch} switches, {builder.switches} of them"
    return Case(builder.build(), posts, END, title, builder.dispatch)


def _draw_fabric(rng: random.Random, options: Options, seed: int) -> Builder:
    hosts, delay = rng.randint(2, 6), rng.choice((0, rng.randint(0, 2 * US)))
    rate, slow = rng.choice(RATES), rng.choice(RATES)
    shape = rng.choice(("star", "dumbbell", "leaves and spine", "fat tree"))
    if shape == "star":
        builder = star(hosts, rate, delay, options)
    elif shape == "dumbbell":
        builder = dumbbell(hosts, rate, slow, delay, options)
        builder.cables += builder.cables[-1:] * rng.randint(0, 2)
    elif shape == "leaves and spine":
        builder = leaves_and_spine(hosts, rate, slow, delay, options)
    else:
        builder = fat_tree(hosts, rate, slow, delay, options)
    builder.seed = seed
    if rng.random() < 0.3:
        builder.cables = [Cable(cable.ends, rng.choice(RATES), rng.randint(0, 2 * US)) for cable in builder.cables]
    if rng.random() < 0.4:
        builder.way_out = tuple(rng.uniform(1.0, 20.0) for _ in range(rng.randint(0, 2)))
        builder.way_in = tuple(rng.uniform(1.0, 20.0) for _ in range(rng.randint(0, 2)))
        builder.shared_first = bool(builder.way_out) and bool(builder.way_in) and rng.random() < 0.5
    if rng.random() < 0.05:
        builder.down = (rng.randrange(2 * len(builder.cables)),)
    return builder


def _draw_options(rng: random.Random, switch: str, wire: int) -> Options:
    low = rng.choice((None, rng.randint(0, 8) * wire))
    common: dict[str, Any] = {
        "mark_low": low,
        "mark_high": None if low is None else low + rng.choice((0, rng.randint(1, 8) * wire)),
        "mark_most": rng.uniform(0.1, 1.0),
        "bit_error_rate": rng.choice((0.0, 0.0, 0.0, 1e-7, 1e-6)),
        "cut_through": rng.random() < 0.3,
        "classes": rng.randint(2, types.CLASSES),
    }
    limit = rng.randint(2, 12) * wire
    special: dict[str, dict[str, Any]] = {
        "plain": {"limit": rng.choice((None, limit)), "managed_hosts": rng.random() < 0.2},
        "strict": {"limit": limit, "managed": True, "managed_hosts": rng.random() < 0.5},
        "dwrr": {"limit": limit, "weights": tuple(rng.randint(64, 2 * wire) for _ in range(types.CLASSES))},
        "trimming": {"limit": limit, "trimming": True, "managed_hosts": rng.random() < 0.5},
        "shared": {"buffer": rng.randint(3, 25) * wire, "alpha": rng.choice((0.5, 1.0, 8.0, math.inf))},
        "pfc": {"pfc": _draw_pfc(rng, wire, 0.0), "lossless": rng.choice(((1,), (0, 1)))},
        "pfc-shared": {
            "buffer": rng.randint(40, 200) * wire,
            "alpha": rng.choice((1.0, math.inf)),
            "pfc": _draw_pfc(rng, wire, rng.choice((1 / 16, 1 / 8, 1.0))),
            "lossless": (1,),
        },
        "credits": {"credits": rng.randint(1, 20) * (-(-wire // 64) * 64), "lossless": (0, 1)},
    }
    return Options(**common | special[switch])


def _draw_pfc(rng: random.Random, wire: int, alpha: float) -> Pfc:
    above = rng.randint(1, 10) * wire
    return Pfc(above, rng.randint(0, above // wire) * wire, rng.choice((2, 10, 100)) * wire, alpha)


def draw_law(rng: random.Random, kind: str, payload: int) -> dict[str, Any]:
    """Draw the columns of a law, with packets of `payload` bytes."""
    selective = rng.random() < 0.6
    maximum = float(rng.randint(4, 64))
    columns = {
        "law": law_number(kind),
        "recovery": transport_types.SELECTIVE if selective else transport_types.GO_BACK_N,
        "payload": payload,
        "overhead": OVERHEAD,
        "ack_wire": rng.choice((64, 84)),
        "data_class": 1,
        "ack_class": rng.choice((0, 0, 1)),
        # Telemetry is kept by link of a path, and for as many packets as may be outstanding.
        "balance": rule_number("ecmp" if kind == "hpcc" else RULES[rng.randint(0, 3)]),
        "span": rng.choice((64, 128)) if selective or kind == "hpcc" else 1 << 40,
        "ack_every": rng.choice((1, 1, 2, 4)),
        "ack_delay": rng.choice((0, 5 * US, 40 * US)),
        "flowlet_gap": rng.randint(0, 3 * US),
        "ecn": int(rng.random() < 0.9),
        "reordering": rng.choice((1, 3, 10)),
        "nack_interval": rng.choice((5 * US, 50 * US)),
        "initial_timeout": rng.choice((100 * US, 400 * US)),
        "minimum_timeout": rng.choice((20 * US, 100 * US)),
        "maximum_timeout": 1 * MS,
        "handshake": rng.choice((0, 0, 1)),
        "sampled": rng.choice((0, 1)),
        "device_queue": int(rng.random() < 0.15),
        "initial_window": min(maximum, rng.choice((2.0, 10.0, maximum))),
        "maximum_window": maximum,
        "initial_threshold": rng.choice((8.0, 1000.0)),
        "idle_restart": rng.choice((0, 5 * US, NEVER)),
    }
    return columns | LAW_COLUMNS[kind] | _draw_variant(rng, kind)


LAW_COLUMNS: dict[str, dict[str, Any]] = {
    "none": {},
    "new-reno": {},
    "cubic": {"scale": 0.4, "decrease": 0.7},
    "dctcp": {"gain": 1 / 16},
    "dcqcn": {
        "gain": 1 / 256,
        "additive": 40 * GBPS / 1000,
        "hyper": 400 * GBPS / 1000,
        "minimum_rate": 0.1 * GBPS,
        "alpha_interval": 1 * US,
        "cut_interval": 4 * US,
        "raise_interval": 10 * US,
        "cnp_interval": 4 * US,
        "stages": 1,
        "clamp": 1,
    },
    "timely": {
        "gain": 0.875,
        "decrease": 0.8,
        "additive": 40 * GBPS / 1000,
        "hyper": 200 * GBPS / 1000,
        "minimum_rate": 0.1 * GBPS,
        "stages": 5,
        "low": 5.0 * US,
        "high": 50.0 * US,
        "minimum_rtt": 4.0 * US,
    },
    "swift": {
        "minimum_window": 0.1,
        "additive": 1.0,
        "decrease": 0.8,
        "largest_cut": 0.5,
        "low": 5.0 * US,
        "per_hop": 1.0 * US,
        "flow_range": 10.0 * US,
        "flow_low": 0.1,
        "flow_high": 100.0,
        "stages": 3,
    },
    "ndp": {"initial_window": 8.0, "pull_interval": 340_000},
    "hpcc": {"eta": 0.95, "additive": 0.1, "stages": 5},
    "nscc": {
        "gain": 0.0125,
        "decrease": 0.8,
        "largest_cut": 0.5,
        "low": 4.0 * US,
        "eta": 0.15,
        "proportional": 1e-5,
        "fair": 0.25,
        "quick": 0.25,
        "adapt_delay": 4.0,
        "adapt_gate": 0.125,
        "bdp_limit": 1.5,
        "gather": 8.0,
        "no_delay": 0.8 * US,
    },
}
"""What each law needs besides, of the order of the published figures, but with timers as short as the cases."""


def _draw_variant(rng: random.Random, kind: str) -> dict[str, Any]:
    """Vary DCQCN, as published or as adapters do it, with and without CNPs; DCTCP; and NDP, which may be EQDS."""
    if kind == "ndp":
        return {"ahead": rng.choice((0, 8))}
    if kind == "dctcp":
        return {"initial_alpha": rng.choice((0.0, 1.0)), "cut": rng.randint(0, 2)}
    if kind != "dcqcn":
        return {}
    return {
        "cut_interval": rng.choice((0, 4 * US)),
        "raise_bytes": rng.choice((0.0, 30_000.0)),
        "cnp_interval": rng.choice((0, 4 * US)),
        "clamp": rng.randint(0, 1),
    }


def draw_posts(rng: random.Random, flows: int, payload: int, packets: int = 60) -> list[Post]:
    """Draw up to three messages for each flow, of `packets` at most."""
    posts = []
    for flow in range(flows):
        for _ in range(rng.randint(1, 3)):
            time = rng.choice((0, rng.randint(0, LAST_POST)))
            sizes = rng.randint(1, payload), rng.randint(1, packets) * payload, rng.randint(1, packets * payload)
            size = rng.choice(sizes)
            posts.append(Post(time, flow, size, len(posts)))
    return posts
