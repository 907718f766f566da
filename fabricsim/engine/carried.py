"""What links and other resources have carried."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.engine.assembly import Assembly
    from fabricsim.engine.flow.world import World
    from fabricsim.engine.packet.state import PacketState
    from fabricsim.engine.packet.world import PacketWorld


class LinkUse(NamedTuple):
    """What a link or another resource has carried.

    `payload`: bytes, without headers.
    `busy`: time that all it carried took of it at its full capacity, in units of the environment.
    `capacity`: bytes per second, headers included.
    """

    payload: float
    busy: float
    capacity: float


def link_use(parts: Assembly, now: int, unit: int) -> dict[str, LinkUse]:
    """Tell what each resource has carried up to `now` (ps), by name.

    `unit`: picoseconds per unit of the environment's time.
    """
    load, payload = carried(parts, now)
    names, _, capacities = parts.platform.resources
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
    np.add.at(payload, rows["resource"], rows["share"] * bytes_of)


def _places(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count from 0 within each of some ranges."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def carried(parts: Assembly, now: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give load and payload of every resource, as in `LinkRecord`, two of shape ``(resources,)``.

    Of flows in transfer, what they have carried up to `now` (ps) counts if that is given.
    """
    if parts.recorder is None:
        table = parts.world.resources
        load, payload = table["load"].copy(), table["payload"].copy()
        if now is not None:
            _add_on_the_way(parts.world, now, load, payload)
        return load, payload
    return _carried_by_packets(cast("PacketWorld", parts.world), np.array(parts.platform.resources.capacities))


def _carried_by_packets(
    world: PacketWorld, capacity: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load is time in use at the capacity as built, so that what an adapter's efficiency takes from a wire counts."""
    network = world.network
    links, servers = network.links, network.servers[: len(capacity)]
    busy, payload = servers["busy"].astype(np.float64), servers["bytes"].astype(np.float64)
    busy[: len(links)] = links["bytes"] * world.as_built["ps_per_byte"]
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
