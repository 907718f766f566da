"""Runs a case of `packet_cases` on the compiled packet engine, and on the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.packet.kernels.net import Net
from fabricsim.engine.packet.kernels.sender import send_message
from fabricsim.engine.packet.kernels.window import has_room, next_times, open_window, run_window
from fabricsim.engine.packet.state import network_of
from fabricsim.engine.reference import Reference
from fabricsim.jit.compile import kernel
from fabricsim.records.packet import HEADER_BYTES, LOG
from fabricsim.records.program import NEVER, NONE
from fabricsim.records.transport import SELECTIVE, TELEMETRY

if TYPE_CHECKING:
    from packet_cases import Case


@kernel
def _post(net: Net, flow: int, size: int, owner: int, now: int) -> None:
    send_message(net, flow, size, owner, now)


@kernel
def _lacks_room(net: Net) -> bool:
    return not has_room(net)


@kernel
def _begin(net: Net, limit: int) -> None:
    zero, one = next_times(net)
    open_window(net, zero, one, limit)


@kernel
def _run(net: Net) -> bool:
    return run_window(net)


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
    """A case on the compiled network, without hosts' programs and SimPy.

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
        self.state.set_window(window, smallest, calendar=calendar)
        if laws["device_queue"].any():
            self.state.expect_burst(len(flows) * int(laws["maximum_window"].max()))
        self._deliveries: list[tuple[int, int, int]] = []

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
        posts = sorted(self._case.posts, key=lambda post: post.time)
        net = self.state
        while True:
            first = min(int(time) for time in next_times(net))
            post = posts[0].time if posts else NEVER
            if min(first, post) >= self._case.until:
                return self._trace()
            if _lacks_room(net):
                self._take_deliveries()
                self.state.make_room()
            if post <= first:
                message = posts.pop(0)
                numbers = (message.flow, message.size, message.owner, post)
                _post(net, *(np.int64(number) for number in numbers))
                continue
            _begin(net, np.int64(min(post, self._case.until)))
            while not _run(net):
                self._take_deliveries()
                self.state.make_room()
            self._take_deliveries()

    def _take_deliveries(self) -> None:
        count = int(self.state.world[0].deliveries)
        rows = self.state.deliveries[:count]
        self._deliveries += zip(*(rows[name].tolist() for name in ("time", "flow", "owner")), strict=True)
        self.state.world["deliveries"] = 0

    def _trace(self) -> Trace:
        entries = self.state.log[: int(self.state.world[0].logged)]
        log = sorted(entry for entry in entries[list(LOG.names)].tolist() if entry[0] < self._case.until)
        links = self.state.links
        counters = list(zip(*(links[name].tolist() for name in COUNTERS), strict=True))
        return Trace(log, sorted(self._deliveries, key=lambda delivery: delivery[:2]), counters)
