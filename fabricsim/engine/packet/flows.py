"""Flows of the packet engine that are cut short between two calls of its kernels."""

from collections.abc import Iterator
from typing import Any

from fabricsim.engine.packet.kernels.nic import withdraw
from fabricsim.engine.packet.state import PacketState
from fabricsim.records.program import NEVER


def owners(network: PacketState, flow: int) -> list[int]:
    """List whose messages a flow still has to deliver, as in ``TRANSFER``."""
    row, receiver = network.flows[flow], network.receivers[flow]
    if row["posted"] == 0:
        return []
    return [
        int(each["owner"]) for each in _from(network, int(receiver["transfer"])) if each["last"] >= receiver["expected"]
    ]


def abandon(network: PacketState, flow: int) -> None:
    """Have a flow send nothing any more: what it was given counts as acknowledged."""
    row = network.flows[flow]
    row["acknowledged"] = row["next_number"] = row["posted"]
    row["lost"] = row["in_flight"] = 0
    row["timeout_at"] = row["forget_at"] = NEVER  # its receiver may yet stand on any of its messages
    if row["ready"]:
        withdraw(network, flow)


def truncate(network: PacketState, flow: int, owner: int) -> None:
    """Take back what was never sent of a message; the packets of later messages are numbered on from there.

    One packet remains at least, so that no message is empty.
    """
    row, receiver = network.flows[flow], network.receivers[flow]
    if row["posted"] == 0:
        return
    every = list(_from(network, int(row["first_transfer"])))
    places = [place for place, each in enumerate(every) if each["owner"] == owner]
    if not places:
        return
    place = places[-1]  # those before it are delivered: their number has been given again
    cut = every[place]
    sent = max(int(row["next_number"]), int(row["highest"]))
    last = max(sent - 1, int(cut["first"]))
    fewer = int(cut["last"]) - last
    if fewer <= 0:
        return
    cut["last"], cut["tail"] = last, network.laws[row["law"]]["payload"]
    for later in every[place + 1 :]:
        later["first"] -= fewer
        later["last"] -= fewer
    row["posted"] -= fewer
    row["send_last"] = network.transfers[row["send_transfer"]]["last"]
    row["forget_at"] = every[1]["last"] if len(every) > 1 else NEVER
    receiver["last"] = min(int(receiver["last"]), last)
    if row["ready"] and row["lost"] == 0 and row["next_number"] >= row["posted"]:
        withdraw(network, flow)


def _from(network: PacketState, place: int) -> Iterator[Any]:
    """Yield a message of a flow and those after it."""
    while place >= 0:
        yield network.transfers[place]
        place = int(network.transfers[place]["next"])
