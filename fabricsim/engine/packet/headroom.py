"""Whether the headroom of PFC holds what is still on its way when a link is paused."""

import warnings

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import FabricsimWarning
from fabricsim.records.packet import CONTROL_BYTES, READ_AHEAD
from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.wires import Wires


def needed(links: NDArray[np.void], packet: int, taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes that still come over each link once a PAUSE is sent against it.

    What the link carries in the time that the PAUSE takes to its sender, and after it the last packet to its receiver,
    and that packet, which is being sent when the PAUSE comes: the terms of IEEE 802.1Qbb, but for those that a PAUSE
    does not have here, which waits for no packet before it and is obeyed when it comes. What an adapter has taken from
    memory it sends all the same.

    `links`: ``LINK`` records with delay, rate and reverse.
    `packet`: wire bytes of a full packet.
    `taken`: packets that the sender of each link may have taken already, that being sent included.
    Returns: bytes, shape ``(links,)``.
    """
    back = links[links["reverse"]]
    time = links["delay"] + back["delay"] + CONTROL_BYTES * back["ps_per_byte"]
    carried: NDArray[np.int64] = np.ceil(time / links["ps_per_byte"]).astype(np.int64)
    return carried + packet * taken


def warn_of_loss(scenario: Scenario, wires: Wires, links: NDArray[np.void], law: NDArray[np.void], hosts: int) -> None:
    """Warn where a link into a switch may bring more than the headroom, which loses packets of a lossless class.

    `scenario`: its switch has the headroom.
    `wires`, `links`: names, and ``LINK`` records.
    `hosts`: how many of the nodes are those of hosts, which lose nothing.
    """
    pfc, lane = scenario.switch.pfc, int(law["data_class"][0])
    if pfc is None or lane not in pfc.classes:
        return
    taken = np.where((links["source"] < hosts) & _reads_ahead(scenario), READ_AHEAD, 1)
    packet = int(law["payload"][0] + law["overhead"][0])
    wanted = np.where(links["target"] >= hosts, needed(links, packet, taken), 0)
    worst = int(wanted.argmax())
    if wanted[worst] <= pfc.headroom:
        return
    table = "transport" if scenario.fabric.switch is None else "fabric"
    short = np.count_nonzero(wanted > pfc.headroom)
    problem = f"{pfc.headroom} B are too few on {short} of {len(links)} links"
    outcome = f"packets of the lossless class {lane} may be lost"
    reason = f"after a PAUSE {wires.names[worst]} still brings {wanted[worst]} B, that is the delay of both directions"
    packets = "a full packet" if taken[worst] == 1 else f"{READ_AHEAD} full packets that the adapter has taken"
    formula = f"times its rate, the PAUSE and {packets} (IEEE 802.1Qbb)"
    way_out = f"raise it to {wanted[worst]}B, or shorten the cables"
    text = f"{table}.switch.pfc.headroom: {problem}, and {outcome}: {reason} {formula}; {way_out}"
    warnings.warn(text, FabricsimWarning, stacklevel=2)


def _reads_ahead(scenario: Scenario) -> bool:
    """Whether packets pass PCIe or a thread before the wire, ahead of which adapters take them."""
    return scenario.cluster.join != "ideal" or scenario.transport.send_copy > 0
