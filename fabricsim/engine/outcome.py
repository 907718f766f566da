"""What a fabric noted while it ran, in the types that a result holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from fabricsim.engine.carried import carried
from fabricsim.engine.limits import limits
from fabricsim.results.result import CallKind, CallRecords, LinkRecord, Series
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabricsim.engine.completions import Replay
    from fabricsim.engine.fabric import Fabric
    from fabricsim.engine.packet.world import PacketWorld
    from fabricsim.workload.program import Program


def call_records(
    fabric: Fabric, program: Program, replay: Replay, sent: Mapping[int, list[tuple[int, int]]] | None = None
) -> CallRecords:
    """List the collective calls of a replayed program, with the bound of each; `sent`: as of `limits`."""
    kinds = program.calls.kinds
    communicators = fabric.communicators(kinds)
    bounds = {index: float(fabric.wiring.bus_bandwidth_bound(index)) for index in set(communicators)}
    rows = [
        CallKind(call.collective, call.dimension, len(call.ranks), call.size, bounds[communicator])
        for call, communicator in zip(kinds, communicators, strict=True)
    ]
    numbers = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    kind = np.array([numbers[row] for row in rows], np.int64)[program.calls.kind]
    start, end = (replay.calls[name].copy() for name in ("started", "ended"))
    return CallRecords(tuple(numbers), kind, start, end, limits(fabric, program, replay, sent))


def mean_capacities(fabric: Fabric, begin: int, end: int) -> list[float]:
    """Give the capacity of each resource in the mean of a time (ps), which failures make less than that as built."""
    capacities = [*fabric.platform.resources.capacities]
    for wire, left in fabric.failures.rates_left(end).items():
        capacities[wire] *= left.mean(begin, end)
    return capacities


def link_records(
    fabric: Fabric, program: Program, end: int, others: Mapping[int, set[str]] | None = None
) -> tuple[LinkRecord, ...]:
    """Record every resource of the fabric that none stands for, with the kinds of calls and `others` that cross it.

    `end`: of the run, ps.
    """
    crossing = {resource: set(names) for resource, names in (others or {}).items()}
    kinds = program.calls.kinds
    for call, communicator in zip(kinds, fabric.communicators(kinds), strict=True):
        for resource in fabric.wiring.resources_of(communicator):
            crossing.setdefault(resource, set()).add(f"{call.dimension} {call.collective}")
    resources = fabric.platform.resources
    load, payload = carried(fabric.parts, int(fabric.world.world["now"][0]) if others else None)
    folding = fabric.wiring.folding
    copies = [1] * len(resources.names) if folding is None else folding.copies.tolist()
    capacities = mean_capacities(fabric, 0, end)
    return tuple(
        LinkRecord(
            name=name,
            kind=resources.kinds[index],
            capacity=capacities[index],
            load=float(load[index]),
            payload=float(payload[index]),
            calls=tuple(sorted(crossing.get(index, ()))),
            copies=copies[index],
        )
        for index, name in enumerate(resources.names)
        if copies[index]
    )


def rate_series(fabric: Fabric, end: int) -> Series:
    """Take the payload rates of the recorded wires from zero to `end` (ps)."""
    names = fabric.platform.resources.names
    left = {names[wire]: left for wire, left in fabric.failures.rates_left(end).items()}
    if fabric.recorder is not None:
        built = cast("PacketWorld", fabric.world).as_built["ps_per_byte"]
        return replace(fabric.recorder.series(end, built), left=left)
    width = int(fabric.world.world[0]["bin"])
    bins = max(1, -(-end // width))
    capacity = [fabric.platform.resources.capacities[tap] / fabric.model.costs.wire for tap in fabric.taps]
    return Series(
        interval=width,
        names=tuple(names[tap] for tap in fabric.taps),
        rate=fabric.world.series["bytes"][:, :bins] / (width / PS_PER_S),
        capacity=np.array(capacity),
        left=left,
    )


def counters(fabric: Fabric, *more: str) -> dict[str, int]:
    """Give what the engine counted of the network, and `more` of the counting columns of ``WORLD``."""
    world = fabric.world.world
    if fabric.recorder is None:
        return {name: int(world[name][0]) for name in ("messages", "events", "solves", "rate_updates", *more)}
    return {**{name: int(world[name][0]) for name in ("messages", "events", *more)}, **fabric.recorder.counters()}
