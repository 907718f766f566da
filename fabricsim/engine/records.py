"""What a fabric noted while it ran, in the types that a result holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.results.result import CallRecord, LinkRecord, Series
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from fabricsim.engine.fabric import Fabric, Replay
    from fabricsim.workload.program import Program


def call_records(fabric: Fabric, program: Program, replay: Replay) -> tuple[CallRecord, ...]:
    """List the collective calls of a replayed program, with the bound of each."""
    communicators = fabric.communicators(program.calls)
    bounds = {index: fabric.wiring.bus_bandwidth_bound(index) for index in set(communicators)}
    return tuple(
        CallRecord(
            collective=call.collective,
            dimension=call.dimension,
            ranks=len(call.ranks),
            size=call.size,
            start=int(row["started"]),
            end=int(row["ended"]),
            bound=bounds[communicator],
        )
        for call, row, communicator in zip(program.calls, replay.calls, communicators, strict=True)
    )


def link_records(fabric: Fabric, program: Program) -> tuple[LinkRecord, ...]:
    """Record every resource of the fabric, with the kinds of calls that cross it."""
    crossing: dict[int, set[str]] = {}
    for call, communicator in zip(program.calls, fabric.communicators(program.calls), strict=True):
        for resource in fabric.wiring.resources_of(communicator):
            crossing.setdefault(resource, set()).add(f"{call.dimension} {call.collective}")
    resources, table = fabric.platform.resources, fabric.world.resources
    return tuple(
        LinkRecord(
            name=name,
            kind=resources.kinds[index],
            capacity=resources.capacities[index],
            load=float(table["load"][index]),
            payload=float(table["payload"][index]),
            calls=tuple(sorted(crossing.get(index, ()))),
        )
        for index, name in enumerate(resources.names)
    )


def rate_series(fabric: Fabric, end: int) -> Series:
    """Take the payload rates of the recorded wires from zero to `end` (ps)."""
    width = int(fabric.world.world[0]["bin"])
    bins = max(1, -(-end // width))
    names = fabric.platform.resources.names
    capacity = [fabric.platform.resources.capacities[tap] / fabric.model.costs.wire for tap in fabric.taps]
    return Series(
        interval=width,
        names=tuple(names[tap] for tap in fabric.taps),
        rate=fabric.world.series[:, :bins] / (width / PS_PER_S),
        capacity=np.array(capacity),
    )


def counters(fabric: Fabric, *more: str) -> dict[str, int]:
    """Give what the engine counted of the network, and `more` of the counting columns of ``WORLD``."""
    world = fabric.world.world
    return {name: int(world[name][0]) for name in ("messages", "events", "solves", "rate_updates", *more)}
