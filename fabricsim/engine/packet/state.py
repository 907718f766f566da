"""All tables of the packet engine and their growth."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.flow.state import power_of_two, table
from fabricsim.engine.packet.kernels.fast.order import INDEX_BITS, MOST_BUCKETS
from fabricsim.engine.packet.kernels.fast.simd import BLOCK
from fabricsim.engine.packet.kernels.net import Net
from fabricsim.engine.packet.kernels.node import LONGEST_WINDOW
from fabricsim.engine.packet.kernels.window import MESSAGES_PER_EVENT, SAMPLES_PER_EVENT
from fabricsim.records import packet as t
from fabricsim.records.packet import CHUNK, CLASSES, CONTROL_BYTES, HOST, MANAGED, READ_AHEAD, WATCHED
from fabricsim.records.program import NEVER, NONE
from fabricsim.records.transport import ANSWER, TRANSFER
from fabricsim.transports.dispatch import Dispatch

_BLANK: dict[str, dict[str, float]] = {
    "flows": {
        "rate": np.inf,
        **dict.fromkeys(("timeout_at", "alarm_at"), NEVER),
        **dict.fromkeys(
            ("tap", "first_telemetry", "path", "reverse_path", "first_link", "last_link", "next_ready"), NONE
        ),
    },
    "receivers": {"due": NEVER, "nacked": NONE, "transfer": NONE},
    "endpoints": {"head": NONE, "tail": NONE},
}
"""What a new record of a table holds if that is not zero."""
_MANY_HOSTS = 512
"""Hosts beyond which records do not fit into a second cache of 1 MiB, by far: those of 1024 take 5 MB."""
_BUSY_NODES_PER_SCAN = 0.2
"""Share of the nodes that must have something to do in a window for a scan of all to be the faster way."""


def _shallow(links: NDArray[np.void]) -> NDArray[np.int64]:
    """Up to which drain time (ps) packets are just sent."""
    watched = (links["loss"] > 0) | (links["down"] > 0) | (links["tap"] != NONE) | (links["log"] > 0)
    shallow = np.where(links["port"] != NONE, MANAGED, np.minimum(links["limit"], links["mark_low"]))
    return np.where(watched, WATCHED, shallow)


class PacketState(Net):
    """Tables of one simulated network.

    Those that it is given are from `fabricsim.engine.flow.state.table`, and its own from then on. `network_of` has the
    class for some laws and load-balancing rules.

    `nodes`: ``NODE`` records; incoming links and agendas are filled in here.
    `links`: ``LINK`` records with source, target and reverse; FIFOs are made here.
    `ports`, `queues`, `ingress`: ``PORT``, ``QUEUE`` (`CLASSES` per port) and ``INGRESS`` (`CLASSES` per link) records.
    `seed`: of all random choices.
    """

    dispatch: ClassVar[Dispatch]

    def __init__(  # noqa: PLR0913  the tables that differ from network to network
        self,
        nodes: NDArray[np.void],
        links: NDArray[np.void],
        ports: NDArray[np.void],
        queues: NDArray[np.void],
        ingress: NDArray[np.void],
        *,
        seed: int,
    ) -> None:
        super().__init__()
        self.world = table(1, t.NETWORK)
        self.world["seed"] = seed
        self.world["hosts"] = np.count_nonzero(nodes["kind"] == HOST)
        self.world["many"] = self.world["hosts"] > _MANY_HOSTS
        for name in ("free_chunk", "free_control", "free_agenda", "free_transfer"):
            self.world[name] = NONE
        self.nodes, self.links, self.ports, self.queues, self.ingress = nodes, links, ports, queues, ingress
        self.nodes["agenda"], self.nodes["agenda_due"] = NONE, NEVER
        self.pulls = table(len(nodes), t.PULLS_OF_HOST)
        self.pulls["first"] = NONE
        self.next_times = np.full(len(nodes), NEVER, np.int64)
        self.tree = np.full(2, NEVER, np.int64)
        self._place_links()
        self._part_sides()
        self.departures = np.zeros(len(self.ports) * READ_AHEAD, np.int64)
        self.queues["head"] = self.queues["tail"] = NONE
        self._share_buffers()
        self.ports["ready"] = NONE
        self._place_ports()
        self.flows, self.receivers, self.laws = (self._blank(name) for name in ("flows", "receivers", "laws"))
        self.stages, self.servers = self._blank("stages"), self._blank("servers")
        self.endpoints, self.telemetry = self._blank("endpoints"), self._blank("telemetry")
        self.used: Counter[str] = Counter()
        self.paths, self.scoreboard = self._blank("paths", 16), self._blank("scoreboard")
        self.group_of, self.groups, self.group_links = (
            np.zeros(1, np.int32),
            np.zeros(2, np.int64),
            np.zeros(1, np.int32),
        )
        self.wakes = bool((self.ingress["above"] < NEVER).any() or self.ingress["credits"].any())
        self.world["controls"] = self.wakes
        self.world["telemetry"] = 0
        self.burst = 0  # packets that a host may give to its device's queue at once
        self._make_pools()

    def _place_links(self) -> None:
        """List the incoming links node by node, with nothing on them."""
        order = np.argsort(self.links["target"], kind="stable").astype(np.int32)
        self.ins = order
        self.links["place"][order] = np.arange(len(order))
        self.arrivals, self.frames = np.full(len(order), NEVER, np.int64), np.full(len(order), NEVER, np.int64)
        counts = np.bincount(self.links["target"], minlength=len(self.nodes))
        self.nodes["ins"], self.nodes["first_in"] = counts, np.cumsum(counts) - counts
        self.links["head"] = self.links["tail"] = NONE
        self.links["control_head"] = self.links["control_tail"] = NONE
        self.links["count"] = self.links["control_count"] = 0
        self.links["shallow"] = _shallow(self.links)

    def _make_pools(self) -> None:
        """Make the tables that grow with what is on its way."""
        self.pool, self.chunk_next = table(0, t.PACKET), np.zeros(0, np.int32)
        self.controls, self.agenda, self.transfers = table(0, t.CONTROL), table(0, t.AGENDA), table(0, TRANSFER)
        self.answers = table(0, ANSWER)
        self.came, self.keys = table(1, t.ARRIVAL), np.zeros(2, np.int64)
        self.short_keys, self.buckets = np.zeros(1 + BLOCK, np.int32), table(MOST_BUCKETS, t.BUCKET)
        self.order = np.zeros(128, np.int32)
        self.deliveries, self.log, self.samples = table(64, t.DELIVERY), table(1, t.LOG), table(1, t.SAMPLE)
        self._grow_pool(64)
        self.world["free_chunk"] = self.chunk_next[0]  # the first is set aside: in its first place packets are made
        self.world["chunks"] -= 1

    def _part_sides(self) -> None:
        """List the nodes by side, so that each link joins two sides; all on one side if that cannot be."""
        side = sides(self.nodes["kind"] == HOST, self.links["source"], self.links["target"])
        first = np.flatnonzero(np.diff(side, prepend=-1))
        stretches = table(len(first), t.STRETCH)
        stretches["first"], stretches["end"] = first, np.append(first[1:], len(side))
        self.stretches = stretches[np.argsort(side[first], kind="stable")]
        self.world["sides"] = np.count_nonzero(side[first] == 0)
        self._alternates = bool(side.any())
        self._leads_back = side[self.links["source"]] == 1

    def _place_ports(self) -> None:
        """List the ports node by node."""
        sources = self.links["source"][self.ports["link"]]
        counts = np.bincount(sources, minlength=len(self.nodes))
        self.outs = order = np.argsort(sources, kind="stable").astype(np.int32)
        self.dues = np.full(len(order), NEVER, np.int64)
        self.ports["place"][order] = np.arange(len(order))
        self.nodes["ports"], self.nodes["first_port"] = counts, np.cumsum(counts) - counts
        self.nodes["port_due"] = NEVER
        self.nodes["strict"] = (self.nodes["kind"] == HOST) | self.ingress["credits"].any()
        self.watch(np.flatnonzero(self.links["shallow"] == WATCHED))

    def _share_buffers(self) -> None:
        """Bound what classes may take from the shared buffers of their nodes, but for lossless ones."""
        source: NDArray[np.int64] = self.links["source"][self.ports["link"]]
        buffers = self.nodes["buffer"][source]
        shared = (self.queues["lossless"] == 0) & (np.repeat(buffers, CLASSES) > 0)
        self.queues["shared"] = shared
        self.queues["alpha"][~shared] = np.inf

    def watch(self, links: Sequence[int] | NDArray[np.int64] | slice = slice(None)) -> None:
        """Have links tell of each packet: in a log, in a series, or in telemetry."""
        self.links["shallow"][links] = WATCHED
        self.nodes["strict"][self.links["source"][links]] = 1

    def measure_queues(self, links: Sequence[int]) -> None:
        """Work out anew how long what waits at links takes to leave, after their rate has changed."""
        rows = self.links[links]
        self.links["shallow"][links] = np.where(rows["shallow"] == WATCHED, WATCHED, _shallow(rows))
        for link, port in zip(rows, rows["port"].tolist(), strict=True):
            for queue in self.queues[port * CLASSES : (port + 1) * CLASSES] if port != NONE else ():
                sizes = [self.pool["wire"][place] for place in self.places(queue)]
                queue["waiting"] = np.floor(np.array(sizes) * link["ps_per_byte"] + 0.5).sum()

    def places(self, fifo: np.void) -> Iterator[int]:
        """Yield where the packets of a FIFO are, the first one first."""
        place = int(fifo["head"])
        for left in range(int(fifo["count"]), 0, -1):
            yield place
            if left > 1:
                place = place + 1 if (place + 1) % CHUNK else int(self.chunk_next[place // CHUNK]) * CHUNK

    # ---- growth ---------------------------------------------------------------------------------

    def _blank(self, name: str, length: int = 1) -> NDArray[Any]:
        """Return a table of blank records."""
        rows = table(length, self.TABLES[name])
        for column, value in _BLANK.get(name, {}).items():
            rows[column] = value
        return rows

    def _grow(self, name: str, length: int) -> None:
        """Make a table `length` long, keeping what is in it; the rest is zero."""
        rows = getattr(self, name)
        grown = table(length, self.TABLES[name])
        grown[: len(rows)] = rows
        setattr(self, name, grown)

    def add(self, name: str, count: int = 1) -> int:
        """Append blank records to a table; returns the index of the first."""
        first, end = self.used[name], self.used[name] + count
        rows = getattr(self, name)
        if end > len(rows):
            grown = self._blank(name, power_of_two(end))
            grown[:first] = rows[:first]
            setattr(self, name, grown)
        self.used[name] = end
        return first

    def extend(self, name: str, rows: Sequence[tuple[int, float] | int] | NDArray[np.void]) -> int:
        """Append records, tuples of all their columns, or integers to a table; returns the index of the first."""
        first = self.add(name, len(rows))
        getattr(self, name)[first : first + len(rows)] = rows
        return first

    def add_law(self, law: NDArray[np.void]) -> int:
        """Append ``LAW`` records; note which take short ways, and have places for ACKs that pass stacks.

        Returns the index of the first.
        """
        timed = (law["ack_delay"] > 0) | (law["quick_acks"] > 0) | (law["ecn"] > 0)
        first = self.extend("laws", law)
        added = self.laws[first : first + len(law)]
        added["counts"] = (law["stacks"] == 0) & ((law["ack_every"] == 1) | ~timed) & (law["pull_interval"] == 0)
        self.world["sprayed"] |= bool(law["renews"].any())
        self._fit_answers()
        return first

    def _fit_answers(self) -> None:
        """Have a place for an acknowledgement beside each entry of the agenda, where any pass stacks."""
        if self.laws["stacks"].any():
            self._grow("answers", len(self.agenda))

    def make_room(self) -> None:
        """Have in all pools what one node may need in a window, or one event of a program."""
        world = self.world[0]
        room = int(world["room"])
        if int(world["chunks"]) * CHUNK <= 4 * room:
            self._grow_pool(max(2 * len(self.chunk_next), room))
        if int(world["agenda_left"]) <= int(world["plans"]):
            before = len(self.agenda)
            self._grow("agenda", max(2 * before, power_of_two(2 * int(world["plans"]))))
            world["agenda_left"] += self._free(self.agenda, before, "free_agenda")
            self._fit_answers()
        if world["controls"] and int(world["controls_left"]) <= 2 * room:
            before = len(self.controls)
            self._grow("controls", max(2 * before, power_of_two(4 * room)))
            world["controls_left"] += self._free(self.controls, before, "free_control")
        if int(world["transfers_left"]) <= MESSAGES_PER_EVENT:
            before = len(self.transfers)
            self._grow("transfers", max(2 * before, 2 * MESSAGES_PER_EVENT))
            world["transfers_left"] += self._free(self.transfers, before, "free_transfer")
        if int(world["deliveries"]) + room >= len(self.deliveries):
            self._grow("deliveries", 2 * (len(self.deliveries) + room))
            self.order = np.zeros(2 * len(self.deliveries), np.int32)
        if world["logging"] and int(world["logged"]) + 2 * room >= len(self.log):
            self._grow("log", 2 * len(self.log) + 4 * room)
        if world["sampling"] and int(world["sampled"]) + 4 * room + SAMPLES_PER_EVENT >= len(self.samples):
            more = 2 * (4 * room + SAMPLES_PER_EVENT)
            self._grow("samples", 2 * len(self.samples) + more)

    def _free(self, entries: NDArray[np.void], before: int, head: str) -> int:
        """Put entries from `before` on at the head of a free list; returns how many."""
        added = len(entries) - before
        entries["next"][before:] = np.arange(before + 1, len(entries) + 1)
        entries["next"][-1] = self.world[head][0]
        self.world[head] = before
        return added

    def _grow_pool(self, chunks: int) -> None:
        before = len(self.chunk_next)
        self._grow("pool", chunks * CHUNK)
        self._grow("chunk_next", chunks)
        self.chunk_next[before:] = np.arange(before + 1, chunks + 1)
        self.chunk_next[-1] = self.world["free_chunk"][0]
        self.world["free_chunk"] = before
        self.world["chunks"] += chunks - before

    # ---- windows --------------------------------------------------------------------------------

    def expect_burst(self, packets: int) -> None:
        """Have room for as many packets that a host may give to its device's queue at once."""
        self.world["room"] += max(packets - self.burst, 0)
        self.burst = max(packets, self.burst)

    def lookahead(self, smallest: int) -> tuple[int, int]:
        """Least time from what a node of side 0 and of side 1 does to what another sees of it, ps.

        `smallest`: bytes of the smallest packet.
        """
        least = min(smallest, CONTROL_BYTES) if self.wakes else smallest
        serialisation = np.floor(least * self.links["ps_per_byte"] + 0.5).astype(np.int64)
        times = self.links["delay"] + serialisation
        there, back = ~self._leads_back, self._leads_back | (not self._alternates)
        out = int(times[there].min(initial=LONGEST_WINDOW))
        return out, int(times[back].min(initial=LONGEST_WINDOW))

    def set_window(self, longest: int, smallest: int, *, calendar: bool | None = None) -> None:
        """Fix the length of windows, and how nodes are found.

        `longest`: bound of the length beside the lookahead, ps.
        `smallest`: wire bytes of the smallest packet.
        `calendar`: whether nodes are found by the tournament; chosen if it is None.
        """
        world = self.world[0]
        busiest = int(self.nodes["ins"].max(initial=1))
        of_host = int(self.nodes["ins"][self.nodes["kind"] == HOST].max(initial=1))
        shortest = max(int(np.floor(smallest * self.links["ps_per_byte"].min(initial=1e3) + 0.5)), 1)
        most = (1 << INDEX_BITS) // (8 * busiest) - 2  # packets of one link in one window
        longest = max(1, min(longest, most * shortest, LONGEST_WINDOW))
        out, back = (max(1, min(time, longest)) for time in self.lookahead(smallest))
        window = min(out + back, longest) if self._alternates else out
        if calendar is None:
            calendar = self._few_are_busy(window)
        self.use_calendar(on=calendar)
        world["out"], world["back"], world["window"], world["smallest"] = out, back, window, smallest
        world["room"] = 4 * busiest * (window // shortest + 4) + self.burst
        world["plans"] = 16 * of_host * (window // shortest + 4) + 2 * MESSAGES_PER_EVENT  # switches plan nothing
        if len(self.came) < int(world["room"]):
            self.came = table(int(world["room"]), t.ARRIVAL)
            self.keys = np.zeros(2 * int(world["room"]), np.int64)
            self.short_keys = np.zeros(int(world["room"]) + BLOCK, np.int32)

    def _few_are_busy(self, window: int) -> bool:
        """Whether most nodes have nothing to do in most windows even if all links were busy with full packets."""
        full = 4096.0 * np.maximum(self.links["ps_per_byte"], 1.0)
        busy = np.bincount(self.links["target"], np.minimum(window / full, 1.0), minlength=len(self.nodes))
        return bool(np.minimum(busy, 1.0).mean() < _BUSY_NODES_PER_SCAN)

    def use_calendar(self, *, on: bool) -> None:
        """Switch the tournament over next times on or off."""
        self.world["calendar"] = on
        leaves = power_of_two(len(self.nodes)) if on else 1
        tree = np.full(2 * leaves, NEVER, np.int64)
        if on:
            tree[leaves : leaves + len(self.nodes)] = self.next_times
            for level in range(leaves.bit_length() - 1, 0, -1):
                low = 1 << (level - 1)
                tree[low : 2 * low] = tree[2 * low : 4 * low].reshape(-1, 2).min(axis=1)
        self.tree = tree


def sides(hosts: NDArray[np.bool_], source: NDArray[np.int32], target: NDArray[np.int32]) -> NDArray[np.int64]:
    """Part nodes so that each link joins a node of side 0, which hosts are on, and one of side 1.

    `hosts`: which nodes are hosts.
    `source`, `target`: nodes of each link.
    Returns: side of each node; 0 for all if there is no such parting, or hosts do not tell it.
    """
    side = np.where(hosts, 0, -1)
    ahead = (side[source] >= 0) & (side[target] < 0)
    while ahead.any():
        side[target[ahead]] = 1 - side[source[ahead]]
        ahead = (side[source] >= 0) & (side[target] < 0)
    side[side < 0] = 0  # where no packet ever gets to
    return side if (side[source] != side[target]).all() else np.zeros_like(side)


@cache
def network_of(dispatch: Dispatch) -> type[PacketState]:
    """Return the kind of networks with some laws and load-balancing rules."""
    tables = {**Net.TABLES, "flows": dispatch.flow, "laws": dispatch.law}
    return type("PacketState", (PacketState,), {"TABLES": tables, "KERNELS": dispatch.kernels, "dispatch": dispatch})
