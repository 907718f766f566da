"""Runs a case of `packet_cases` on the compiled packet engine, and on the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.packet.kernels.main_loop import ROOM, advance
from fabricsim.engine.packet.state import network_of
from fabricsim.engine.packet.world import PacketWorld
from fabricsim.engine.program.dispatch import COMPLETIONS
from fabricsim.engine.reference import Reference
from fabricsim.records.packet import HEADER_BYTES, LOG
from fabricsim.records.program import NEVER, NONE, ROUTE
from fabricsim.records.transport import SELECTIVE, TELEMETRY

if TYPE_CHECKING:
    from packet_cases import Case


COUNTERS = ("packets", "bytes", "marks", "drops", "errors", "trims", "pauses")
_GROWING = ("servers", "stages", "endpoints", "flows", "receivers")


@dataclass(frozen=True)
class Trace:
    """What happened: packets by (time, link), deliveries by (time, flow), and counters per link."""

    log: list[tuple[int, ...]]
    deliveries: list[tuple[int, int, int]]
    counters: list[tuple[int, ...]]


def reference(case: Case) -> Trace:
    """Run a case on the reference."""
    run = Reference(case.net)
    for post in case.posts:
        run.post(post.time, post.flow, post.size, post.owner)
    run.run(case.until)
    log = sorted(tuple(entry) for entry in run.log if entry.time < case.until)
    deliveries = [tuple(delivery) for delivery in run.deliveries]
    counters = [tuple(link[name] for name in COUNTERS) for link in run.counters]
    return Trace(log, deliveries, counters)


class Compiled:
    """A case on the compiled engine, without hosts' programs and SimPy: its kernels are those of every run.

    Parameters
    ----------
    case
        What to run.
    window
        Longest window, ps.
    calendar
        Whether nodes are found by the calendar rather than by a scan.
    many
        Whether more is fetched ahead, as in fabrics of many hosts.
    logged
        Whether links tell of each packet; if not, the log of `run` is empty.
    """

    def __init__(
        self, case: Case, *, window: int = NEVER, calendar: bool = False, many: bool = False, logged: bool = True
    ) -> None:
        self._case = case
        tables = case.tables
        tables["links"]["log"] = logged
        records = (tables[name] for name in ("nodes", "links", "ports", "queues", "ingress"))
        self.state = network_of(case.dispatch)(*records, seed=int(tables["world"][0].seed))
        self.state.add_law(tables["laws"])
        for name in _GROWING:
            self.state.extend(name, tables[name])
        laws, flows = tables["laws"], tables["flows"]
        self._add_scores(laws, flows)
        self.state.extend("paths", tables["paths"])
        self.state.group_of, self.state.group_links = tables["group_of"], tables["group_links"]
        self.state.groups = tables["groups"]
        self.state.world["logging"] = logged
        self.state.world["many"] = many
        self.state.world["peers"] = tables["world"]["peers"]
        smallest = min(HEADER_BYTES, *laws["ack_wire"].tolist(), *(laws["overhead"] + 1).tolist())
        self._world = PacketWorld([1.0], self.state, smallest, names=(), calendar=calendar)
        self._world.react_within(window)
        self._add_routes(len(flows))
        if laws["device_queue"].any():
            self.state.expect_burst(len(flows) * int(laws["maximum_window"].max()))

    def _add_routes(self, flows: int) -> None:
        """Give each flow a route, which adds no time."""
        self._world.reserve("routes", flows)
        routes = np.zeros(flows, ROUTE)
        routes["flow"], routes["moderation"], routes["peak"] = np.arange(flows), NONE, 1.0
        self._world.routes[:flows] = routes
        self.state.flows["route"][:flows] = np.arange(flows)

    def _add_scores(self, laws: NDArray[np.void], flows: NDArray[np.void]) -> None:
        spans = laws["span"][flows["law"]]
        selective = laws["recovery"][flows["law"]] == SELECTIVE
        self.state.add("scoreboard", int(2 * spans[selective].sum()))
        told = flows["first_telemetry"] != NONE
        if told.any():
            self.state.world["telemetry"] = 1
            self.state.watch()
        rows = int(((spans[told] + 1) * flows["hops"][told]).sum())
        self.state.extend("telemetry", np.zeros(rows, TELEMETRY))

    def run(self) -> Trace:
        """Run until the end of the case."""
        world, deliveries = self._world, []
        posts = sorted(self._case.posts, key=lambda post: post.time)
        messages = {world.post_message(0, post.flow, post.size, 1.0, post.time): post for post in posts}
        while True:
            world.reserve_outbox()
            code = advance(self._case.until - 1, NEVER // 2, world, self.state)
            if code == ROOM:
                self.state.make_room()
            elif code == COMPLETIONS:
                done = [messages[number] for _, number in world.fetch()]
                deliveries += [(int(world.world["now"][0]), post.flow, post.owner) for post in done]
            else:
                return self._trace(deliveries)

    def _trace(self, deliveries: list[tuple[int, int, int]]) -> Trace:
        entries = self.state.log[: int(self.state.world[0].logged)]
        log = sorted(entry for entry in entries[list(LOG.names)].tolist() if entry[0] < self._case.until)
        links = self.state.links
        counters = list(zip(*(links[name].tolist() for name in COUNTERS), strict=True))
        return Trace(log, sorted(deliveries, key=lambda delivery: delivery[:2]), counters)
