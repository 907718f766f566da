"""A traffic matrix, what came of it on a fabric, and the summary of that."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from fabricsim.results import columns
from fabricsim.results.packets import Packets, QueueSummary, congested
from fabricsim.results.resources import ResourceSummary, by_tier, by_use, utilisation
from fabricsim.results.result import LinkRecord, Series
from fabricsim.results.slowed import none_failed
from fabricsim.units import PS_PER_S, seconds

DEMAND = np.dtype([(column.name, column.kind) for column in columns.ASKED])
"""A flow that a traffic matrix asks for; ids are those of the file, from 1."""

MOST_FLOWS = 1_000_000
"""Flows of the largest matrix."""
MOST_ENDPOINTS = 2**20
"""Endpoints of the largest matrix: as many as GPUs of the largest cluster."""
LARGEST_FLOW = 2**50
"""Bytes (1 PiB), as everywhere that a size is written."""
LATEST_START = 3600 * PS_PER_S
"""ps (an hour), as everywhere that a time is written."""
HOTTEST = 10
"""Links that a summary names at most."""


@dataclass(frozen=True)
class Matrix:
    """Who sends how much to whom, and when.

    `flows`: ``DEMAND`` records in the order of the file, shape ``(n,)``, at least one; their ids differ, none sends to
        itself, each has at least a byte.
    `endpoints`: ranks are below this number.
    `name`: file or pattern.
    `line`: of the file, from 1, that says how many endpoints there are; 0 for a pattern.
    """

    flows: NDArray[np.void]
    endpoints: int
    name: str
    line: int = 0


class ResourceUse(NamedTuple):
    """A resource, and how many flows crossed it.

    In a packet run 0 where only acknowledgements did, and between switches where packets find their own ways.
    """

    link: LinkRecord
    flows: int


@dataclass(frozen=True)
class TrafficRecord:
    """One traffic matrix on one fabric.

    `name`: of the scenario.
    `matrix`: what was asked for.
    `completion`: from the start of each flow until its last byte is handed over, ps, shape ``(n,)``.
    `alone`: time that each flow takes at least: send overhead, its bytes at the rate of the narrowest resource of its
        route, and the latency, ps, shape ``(n,)``.
    `links`: resources that carried something, in the order of the fabric.
    `counters`: what the engine counted.
    `wall_seconds`: time the simulation itself took.
    `packets`: what the packet engine recorded besides; None in a flow run.
    `series`: payload rates of the wires that were tapped; None in a flow run.
    `source`, `resolved`, `failures`, `notes`, `asked`: the scenario as it was written, and with everything included,
        what failed, what a reader has to know, and what was set, as of `fabricsim.results.result.RunRecord`.
    """

    name: str
    matrix: Matrix
    transport: str
    engine: str
    seed: int
    version: str
    completion: NDArray[np.int64]
    alone: NDArray[np.int64]
    links: tuple[ResourceUse, ...]
    counters: dict[str, int]
    wall_seconds: float
    packets: Packets | None = None
    series: Series | None = None
    source: str = ""
    resolved: dict[str, Any] = field(default_factory=dict)
    failures: NDArray[np.void] = field(default_factory=none_failed)
    notes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    @property
    def slowdown(self) -> NDArray[np.float64]:
        """Completion time over the time alone, shape ``(n,)``."""
        return self.completion / self.alone

    @property
    def makespan(self) -> int:
        """From the first start to the last delivery, ps."""
        starts = self.matrix.flows["start"]
        return int((starts + self.completion).max() - starts.min())


class Spread(TypedDict):
    """Where the values of all flows lie; percentiles are interpolated linearly between flows."""

    min: float
    mean: float
    p50: float
    p99: float
    max: float


class LinkUseSummary(TypedDict):
    """One resource; ``utilisation`` is its load over what it could have carried in the makespan."""

    name: str
    kind: str
    utilisation: float
    payload_bytes: float
    flows: int


class FlowSummary(TypedDict):
    """One flow."""

    id: int
    source: int
    target: int
    size_bytes: int
    start_s: float
    completion_time_s: float
    slowdown: float


class TrafficSummary(TypedDict):
    """What ``fabricsim traffic`` prints.

    ``wall_seconds`` is the only field that depends on the clock; it is null for a result read from a file.
    ``queues`` is there in packet runs: the most congested wires (`fabricsim.results.packets.congested`).
    """

    name: str
    matrix: str
    transport: str
    engine: str
    seed: int
    version: str
    flow_count: int
    total_bytes: int
    makespan_s: float
    completion_time_s: Spread
    slowdown: Spread
    resources: list[ResourceSummary]
    links: list[LinkUseSummary]
    flows: list[FlowSummary]
    counters: dict[str, int]
    notes: list[str]
    wall_seconds: float | None
    queues: NotRequired[list[QueueSummary]]


def summarise_traffic(result: TrafficRecord) -> TrafficSummary:
    """Summarise a run.

    Returns: a plain dict of strings, integers and finite floats; ``links`` are the `HOTTEST` by utilisation.
    """
    flows = result.matrix.flows
    summary: TrafficSummary = {
        "name": result.name,
        "matrix": result.matrix.name,
        "transport": result.transport,
        "engine": result.engine,
        "seed": result.seed,
        "version": result.version,
        "flow_count": len(flows),
        "total_bytes": sum(flows["bytes"].tolist()),
        "makespan_s": seconds(result.makespan),
        "completion_time_s": _spread(result.completion / PS_PER_S),
        "slowdown": _spread(result.slowdown),
        "resources": by_tier((use.link for use in result.links), seconds(result.makespan)),
        "links": _hottest(result),
        "flows": _flows(result),
        "counters": dict(result.counters),
        "notes": list(result.notes),
        "wall_seconds": result.wall_seconds or None,
    }
    if result.packets is not None:
        summary["queues"] = congested(result.packets)
    return summary


def _spread(values: NDArray[np.float64]) -> Spread:
    middle, tail = np.percentile(values, [50, 99])
    return {
        "min": float(values.min()),
        "mean": float(values.mean()),
        "p50": float(middle),
        "p99": float(tail),
        "max": float(values.max()),
    }


def _hottest(result: TrafficRecord) -> list[LinkUseSummary]:
    time = seconds(result.makespan)
    # sorted keeps the fabric's order among equals
    busiest = sorted(result.links, key=lambda use: by_use(utilisation(use.link, time)))[:HOTTEST]
    return [
        {
            "name": use.link.name,
            "kind": use.link.kind,
            "utilisation": utilisation(use.link, time),
            "payload_bytes": use.link.payload,
            "flows": use.flows,
        }
        for use in busiest
    ]


def _flows(result: TrafficRecord) -> list[FlowSummary]:
    rows = zip(result.matrix.flows.tolist(), result.completion.tolist(), result.slowdown.tolist(), strict=True)
    return [
        {
            "id": number,
            "source": source,
            "target": target,
            "size_bytes": size,
            "start_s": seconds(start),
            "completion_time_s": seconds(completion),
            "slowdown": slowdown,
        }
        for (number, source, target, size, start), completion, slowdown in rows
    ]
