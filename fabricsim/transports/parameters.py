"""From a transport preset to its row in the packet engine's table of laws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records import transport as tt
from fabricsim.records.program import NEVER
from fabricsim.scenario.congestion import Dcqcn, Dctcp, Eqds, Hpcc, Ndp, Nscc, Swift, Timely
from fabricsim.scenario.in_force import law_in_force, setting
from fabricsim.scenario.packet import MAXIMUM_PACKETS, SOCKET_KINDS, LoadBalancing
from fabricsim.transports.framing import FRAMINGS, Framing
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from fabricsim.scenario.congestion import Law
    from fabricsim.scenario.transport import Transport

LAWS = {
    "none": tt.NONE_LAW,
    "new-reno": tt.NEW_RENO,
    "cubic": tt.CUBIC,
    "dctcp": tt.DCTCP,
    "dcqcn": tt.DCQCN,
    "timely": tt.TIMELY,
    "swift": tt.SWIFT,
    "hpcc": tt.HPCC,
    "nscc": tt.NSCC,
    "ndp": tt.NDP,
    "eqds": tt.NDP,
}
"""Numbers of the laws by their names in a scenario."""

BALANCES = {
    "ecmp": tt.BY_FLOW,
    "spray": tt.BY_PACKET,
    "flowlet": tt.BY_FLOWLET,
    "adaptive": tt.LEAST_LOADED,
}
"""Numbers of the ways to balance load by their names in a scenario."""

RECOVERIES = {"go-back-n": tt.GO_BACK_N, "selective": tt.SELECTIVE}
"""Numbers of the ways to recover from loss by their names in a scenario."""

CUTS = {"marked": tt.AT_MARKS, "every-window": tt.EVERY_WINDOW, "proportional": tt.PROPORTIONAL}
"""Numbers of the times when DCTCP cuts, by their names in a scenario."""

INITIAL_WINDOW = 10
"""Segments with which TCP starts where the preset does not say (RFC 6928)."""
ENTROPIES = 256
"""That a sprayer draws from where the preset does not say."""
FLOWLET_GAP = 100_000_000
"""Idle time that begins a new flowlet where the preset does not say, ps."""
HPCC_WINDOW = 2**20
"""Most that an HPCC flow has in flight where the preset does not say, bytes: each packet has its telemetry."""

LEAST_SPAN, MOST_SPAN = 64, 2**16
"""Bounds of the span of flows that keep something for each packet, packets."""
MOST_TELEMETRY = 2**15
"""Packets of an HPCC flow whose telemetry is kept: a packet carries its place in 16 bits."""
ENDLESS_SPAN = 2**40
"""Span of flows that keep nothing: never reached."""

_NAMED = ("law", "cut")  # parameters that are names in a scenario and numbers in the table
_TCP = ("new-reno", "cubic", "dctcp")
_MARKED = ("dctcp", "dcqcn", "nscc")  # laws that answer to marks, so that switches may mark their packets


def packet_framing(transport: Transport) -> Framing:
    """Return payload, overhead and acknowledgement of the packets, bytes: by standard, or as overridden."""
    by_kind = FRAMINGS[transport.kind](transport.mtu)
    written = (setting(transport, key) for key in ("payload", "header", "ack_wire"))
    standard = (by_kind.payload, by_kind.overhead, by_kind.ack)
    return Framing(*(there if own is None else own for own, there in zip(written, standard, strict=True)))


def law_row(transport: Transport) -> np.ndarray:
    """Return the parameters of a transport.

    The transport's ``efficiency`` is not in it: it slows the host's link.

    Returns
    -------
    numpy.ndarray
        One row of `fabricsim.records.transport.LAW`; times ps, rates bytes/s, windows packets. Parameters
        that its law has no use for are zero.
    """
    law = law_in_force(transport)
    table = np.zeros(1, tt.LAW)
    row = table[0]
    framing = packet_framing(transport)
    _set_packets(row, transport, framing)
    _set_balancing(row, transport.load_balancing or LoadBalancing())
    window = _window(transport, law, framing.payload)
    row["law"] = LAWS[law.law]
    row["ecn"] = law.law in _MARKED
    row["maximum_window"] = row["initial_window"] = window
    row["initial_threshold"] = math.inf
    row["span"] = _span(window, bounded=row["recovery"] == tt.SELECTIVE or isinstance(law, Hpcc))
    if isinstance(law, Hpcc):
        row["span"] = min(row["span"], MOST_TELEMETRY)
    if isinstance(law, Dctcp):
        row["cut"] = CUTS[law.cut]
    if law.law in _TCP:
        row["initial_window"] = min(transport.initial_window or INITIAL_WINDOW, window)
        row["idle_restart"] = NEVER if transport.idle_restart is None else transport.idle_restart
    columns = {key: value for key, value in law if key in (tt.LAW.names or ()) and key not in _NAMED}
    for key, value in {**columns, **_derived(law, transport.line_rate, framing)}.items():
        if value is not None:
            row[key] = value
    return table


def _set_packets(row: np.void, transport: Transport, framing: Framing) -> None:
    row["payload"], row["overhead"], row["ack_wire"] = framing.payload, framing.overhead, framing.ack
    row["recovery"] = RECOVERIES[setting(transport, "recovery")]
    for key in ("ack_every", "ack_delay", "quick_acks", "reordering", "nack_interval", "handshake"):
        row[key] = setting(transport, key)
    for key in ("data_class", "ack_class", "device_queue"):
        row[key] = setting(transport, key)
    for key in ("initial_timeout", "minimum_timeout", "maximum_timeout"):
        row[key] = setting(transport, key)
    row["sampled"] = transport.kind in SOCKET_KINDS


def _set_balancing(row: np.void, balancing: LoadBalancing) -> None:
    row["balance"] = BALANCES[balancing.kind]
    row["entropies"] = balancing.entropies or ENTROPIES
    row["flowlet_gap"] = balancing.flowlet_gap or FLOWLET_GAP


def _window(transport: Transport, law: Law, payload: int) -> int:
    """Most packets in flight."""
    window = setting(transport, "maximum_window")
    if window is None and isinstance(law, Hpcc):
        window = HPCC_WINDOW
    return MAXIMUM_PACKETS if window is None else max(int(window) // payload, 1)


def _span(window: int, *, bounded: bool) -> int:
    """Return the least power of two that holds two windows, or no bound."""
    if not bounded:
        return ENDLESS_SPAN
    return min(max(1 << (2 * window - 1).bit_length(), LEAST_SPAN), MOST_SPAN)


def _derived(law: Law, line_rate: float, framing: Framing) -> dict[str, float | None]:
    """Work out what was left out, and what is written in other units than the table's."""
    derived: dict[str, float | None] = {}
    match law:
        case Dcqcn():  # 5 and 50 Mb/s per 25 Gb/s, at least 1 Gb/s of 100: HPCC authors' ns-3
            derived = _rates(law, line_rate, additive=1 / 5000, hyper=1 / 500)
        case Timely():  # 10 and 50 Mb/s per 10 Gb/s: as above
            derived = _rates(law, line_rate, additive=1 / 1000, hyper=1 / 200)
        case Swift():  # uet-htsim
            per_hop = law.low / 6.55 if law.per_hop is None else law.per_hop
            derived = {"per_hop": per_hop, "flow_range": 5 * law.low if law.flow_range is None else law.flow_range}
        case Hpcc():  # 10 Mb/s per 25 Gb/s over a base round trip of 13 us: HPCC authors' ns-3
            additive = line_rate / 2500 * 13e-6 if law.additive is None else law.additive
            derived = {"additive": additive / framing.packet}
        case Nscc():
            derived = _nscc(law, line_rate)
        case Ndp() | Eqds():
            ahead = law.initial_window if isinstance(law, Eqds) else 0
            derived = {"pull_interval": PS_PER_S * framing.packet / (line_rate * law.pull_rate), "ahead": ahead}
    return derived


def _rates(law: Dcqcn | Timely, line_rate: float, additive: float, hyper: float) -> dict[str, float | None]:
    shares = {"additive": additive, "hyper": hyper, "minimum_rate": 1 / 100}
    return {key: line_rate * share for key, share in shares.items() if getattr(law, key) is None}


def _nscc(law: Nscc, line_rate: float) -> dict[str, float | None]:
    """Scale NSCC from its reference network of 100 Gb/s and 12 us (uet-htsim)."""
    low = 0.75 * law.rtt if law.low is None else law.low
    size = line_rate * law.rtt / PS_PER_S / 150_000
    proportional = 4 * size * low / 12_000_000 if law.proportional is None else law.proportional
    scaled = {"fair": 5 * size, "eta": 0.15 * size, "quick": 0.25 * size}
    left_out = {key: value for key, value in scaled.items() if getattr(law, key) is None}
    return {"low": low, "proportional": proportional / low, **left_out}
