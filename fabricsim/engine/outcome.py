"""What a fabric noted while it ran, in the types that a result holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.engine.limits import limits
from fabricsim.records.program import NONE
from fabricsim.results.result import CallKind, CallRecords, LinkRecord, Series
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.engine.completions import Replay
    from fabricsim.engine.fabric import Fabric
    from fabricsim.engine.flow.world import World
    from fabricsim.engine.packet.state import PacketState
    from fabricsim.workload.program import Program


def call_records(fabric: Fabric, program: Program, replay: Replay) -> CallRecords:
    """List the collective calls of a replayed program, with the bound of each."""
    kinds = program.calls.kinds
    communicators = fabric.communicators(kinds)
    bounds = {index: fabric.wiring.bus_bandwidth_bound(index) for index in set(communicators)}
    rows = [
        CallKind(call.collective, call.dimension, len(call.ranks), call.size, bounds[communicator])
        for call, communicator in zip(kinds, communicators, strict=True)
    ]
    numbers = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    kind = np.array([numbers[row] for row in rows], np.int64)[program.calls.kind]
    start, end = (replay.calls[name].copy() for name in ("started", "ended"))
    return CallRecords(tuple(numbers), kind, start, end, limits(fabric, program, replay))


def link_records(fabric: Fabric, program: Program) -> tuple[LinkRecord, ...]:
    """Record every resource of the fabric that none stands for, with the kinds of calls that cross it."""
    crossing: dict[int, set[str]] = {}
    kinds = program.calls.kinds
    for call, communicator in zip(kinds, fabric.communicators(kinds), strict=True):
        for resource in fabric.wiring.resources_of(communicator):
            crossing.setdefault(resource, set()).add(f"{call.dimension} {call.collective}")
    resources = fabric.platform.resources
    load, payload = carried(fabric)
    folding = fabric.wiring.folding
    copies = [1] * len(resources.names) if folding is None else folding.copies.tolist()
    return tuple(
        LinkRecord(
            name=name,
            kind=resources.kinds[index],
            capacity=resources.capacities[index],
            load=float(load[index]),
            payload=float(payload[index]),
            calls=tuple(sorted(crossing.get(index, ()))),
            copies=copies[index],
        )
        for index, name in enumerate(resources.names)
        if copies[index]
    )


class LinkUse(NamedTuple):
    """What a link or another resource has carried.

    Attributes
    ----------
    payload
        Bytes, without headers.
    busy
        Time that all it carried took of it at its full capacity, in units of the environment.
    capacity
        Bytes per second, headers included.
    """

    payload: float
    busy: float
    capacity: float


def link_use(fabric: Fabric, now: int, unit: int) -> dict[str, LinkUse]:
    """Tell what each resource has carried up to `now` (ps), by name.

    Parameters
    ----------
    fabric, now
        The fabric, and the present time.
    unit
        Picoseconds per unit of the environment's time.
    """
    load, payload = carried(fabric)
    if fabric.recorder is None:
        _add_on_the_way(fabric.world, now, load, payload)
    names, _, capacities = fabric.platform.resources
    busy = load / np.array(capacities) * (PS_PER_S / unit)
    return dict(zip(names, map(LinkUse, payload.tolist(), busy.tolist(), capacities), strict=True))


def _add_on_the_way(world: World, now: int, load: NDArray[np.float64], payload: NDArray[np.float64]) -> None:
    """Add what flows in transfer have carried so far to what ended ones have."""
    table = world.flows
    some = np.flatnonzero(table["owner"] != NONE)
    flows = table[some]
    left = np.maximum(flows["remaining"] - flows["rate"] * (now - flows["updated"]) / PS_PER_S, 0.0)
    legs = np.repeat(flows["first_leg"], flows["legs"]) + _places(flows["legs"])
    bytes_of = np.repeat(flows["bytes"] - left, flows["legs"])
    rows = world.legs[legs]
    np.add.at(load, rows["resource"], rows["cost"] * bytes_of)
    np.add.at(payload, rows["resource"], rows["copies"] * bytes_of)


def _places(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count from 0 within each of some ranges."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def carried(fabric: Fabric) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give load and payload of every resource, as in `LinkRecord`, two of shape ``(resources,)``."""
    if fabric.recorder is None:
        table = fabric.world.resources
        return table["load"].copy(), table["payload"].copy()
    return _carried_by_packets(fabric.recorder.network, np.array(fabric.platform.resources.capacities))


def _carried_by_packets(
    network: PacketState, capacity: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load is time in use at the capacity, so that what an adapter's efficiency takes from a wire counts."""
    links, servers = network.links, network.servers[: len(capacity)]
    busy, payload = servers["busy"].astype(np.float64), servers["bytes"].astype(np.float64)
    busy[: len(links)] = links["bytes"] * links["ps_per_byte"]
    payload[: len(links)] = _payload_of_wires(network)
    return busy / PS_PER_S * capacity, payload


def _payload_of_wires(network: PacketState) -> NDArray[np.float64]:
    """Carry what each host's link sent on along the ways of its flows, shape ``(wires,)``.

    Flows of one host share what it sent by their packets, which all but the last of a message are of one size. Where
    each packet finds its own way, only the wires at the hosts are known; the others have 0.
    """
    links = network.links
    flows = network.flows[: network.used["flows"]]
    flows = flows[flows["first_link"] >= 0]
    first = flows["first_link"]
    posted = np.bincount(first, flows["posted"], minlength=len(links))
    sent = flows["posted"] * (links["payload"] / np.maximum(posted, 1))[first]
    beyond = np.where(flows["path"] < 0, 1, flows["hops"] - 1)  # wires after the first
    of_flow = np.repeat(np.arange(len(flows)), beyond)
    place = _places(beyond)
    last = links["reverse"][flows["last_link"]]
    on_path = network.paths[np.maximum(flows["path"][of_flow], 0) + 1 + place]
    wires = np.where(flows["path"][of_flow] < 0, last[of_flow], on_path)
    return links["payload"] + np.bincount(wires, sent[of_flow], minlength=len(links))


def rate_series(fabric: Fabric, end: int) -> Series:
    """Take the payload rates of the recorded wires from zero to `end` (ps)."""
    if fabric.recorder is not None:
        return fabric.recorder.series(end)
    width = int(fabric.world.world[0]["bin"])
    bins = max(1, -(-end // width))
    names = fabric.platform.resources.names
    capacity = [fabric.platform.resources.capacities[tap] / fabric.model.costs.wire for tap in fabric.taps]
    return Series(
        interval=width,
        names=tuple(names[tap] for tap in fabric.taps),
        rate=fabric.world.series["bytes"][:, :bins] / (width / PS_PER_S),
        capacity=np.array(capacity),
    )


def counters(fabric: Fabric, *more: str) -> dict[str, int]:
    """Give what the engine counted of the network, and `more` of the counting columns of ``WORLD``."""
    world = fabric.world.world
    if fabric.recorder is None:
        return {name: int(world[name][0]) for name in ("messages", "events", "solves", "rate_updates", *more)}
    return {**{name: int(world[name][0]) for name in ("messages", "events", *more)}, **fabric.recorder.counters()}
