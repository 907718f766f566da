"""What a packet run knows beyond a flow run: counts of each wire, taps over time, and the packet log."""

from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from fabricsim.results import columns
from fabricsim.units import seconds

WIRE = columns.WIRES.record
"""What happened at one direction of a cable and the egress queue before it."""

ENTRY = columns.LOG.record
"""One packet on one wire; ``kind``, ``state`` and ``fate`` as in `fabricsim.records.packet`."""

MOST_CONGESTED = 10
"""Wires that a summary names at most."""

_FEW = 2  # packets of the mean size that make no congestion

PROTOCOLS = ("tcp", "roce", "infiniband", "uet")
"""What the headers of a capture can be made for."""


@dataclass(frozen=True, eq=False)
class Tap:
    """Something recorded over time.

    `kind`: ``queue``: what waits before a wire and is being sent, bytes; between two points it falls, and it rises
        where two points have one time. ``window``: congestion window of a flow, packets. ``pace``: rate at which a flow
        may send, wire bytes per second. Both begin with the flow's first message, and hold until the next point.
    `of`: name of the wire, or of the flow.
    `time`: ps, rising, shape ``(n,)``.
    `value`: shape ``(n,)``.
    """

    kind: Literal["queue", "window", "pace"]
    of: str
    time: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PacketLog:
    """The packets of some wires.

    `entries`: ``ENTRY`` records in order of time.
    `wires`: names of the logged wires.
    `source`, `target`: endpoints of the flows, shape ``(flows,)``.
    `payload`, `overhead`: of a full packet, bytes.
    `protocol`: what the headers of a capture are made for.
    `ecn`: whether packets may be marked.
    """

    entries: NDArray[np.void]
    wires: tuple[str, ...]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    payload: int
    overhead: int
    protocol: Literal["tcp", "roce", "infiniband", "uet"]
    ecn: bool


@dataclass(frozen=True, eq=False)
class Packets:
    """What a packet run recorded.

    `names`: of all wires.
    `wires`: ``WIRE`` records, shape ``(wires,)``.
    `taps`: what was asked for with ``--tap``, but for rates, which are the `Series` of the run.
    `log`: none if no packets were logged.
    """

    names: tuple[str, ...]
    wires: NDArray[np.void]
    taps: tuple[Tap, ...] = ()
    log: PacketLog | None = None


class QueueSummary(TypedDict):
    """One wire with its queue; ``marks`` to ``pauses`` are counts."""

    name: str
    packets: int
    deepest_queue_bytes: int
    marks: int
    drops: int
    errors: int
    trims: int
    pauses: int
    paused_s: float


def congested(packets: Packets) -> list[QueueSummary]:
    """Name the wires where packets suffered, the worst first, at most `MOST_CONGESTED`.

    Worse is what lost or trimmed more packets; of equal ones what marked more, then what had the deeper queue, then
    what was paused for longer: a pause comes from a queue further on. A wire at which nothing of this happened, and no
    more than a packet or two ever waited, is left out.
    """
    table = packets.wires
    lost = table["drops"] + table["errors"] + table["trims"]
    # the last key is the first to count
    order = np.lexsort((-table["paused"], -table["deepest"], -table["marks"], -lost))
    waited = table["deepest"] > _FEW * table["bytes"] / np.maximum(table["packets"], 1)
    suffered = waited | (lost > 0) | (table["marks"] > 0) | (table["pauses"] > 0)
    return [_queue(packets, index) for index in order[suffered[order]][:MOST_CONGESTED].tolist()]


def _queue(packets: Packets, index: int) -> QueueSummary:
    row = packets.wires[index]
    return {
        "name": packets.names[index],
        "packets": int(row["packets"]),
        "deepest_queue_bytes": int(row["deepest"]),
        "marks": int(row["marks"]),
        "drops": int(row["drops"]),
        "errors": int(row["errors"]),
        "trims": int(row["trims"]),
        "pauses": int(row["pauses"]),
        "paused_s": seconds(int(row["paused"])),
    }
