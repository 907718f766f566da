"""From a transport preset to its row in the packet engine's table of laws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.errors import InputError
from fabricsim.extensions import answer, is_ours
from fabricsim.records import transport as tt
from fabricsim.records.program import NEVER
from fabricsim.scenario.in_force import law_in_force, rule_in_force, setting
from fabricsim.scenario.packet import MAXIMUM_PACKETS, SOCKET_KINDS
from fabricsim.transports.dispatch import dispatch, file_of
from fabricsim.transports.framing import FRAMINGS, Framing

if TYPE_CHECKING:
    from fabricsim.scenario.balancing import LoadBalancing
    from fabricsim.scenario.congestion import Law
    from fabricsim.scenario.transport import Transport

RECOVERIES = {"go-back-n": tt.GO_BACK_N, "selective": tt.SELECTIVE}
"""Numbers of the ways to recover from loss by their names in a scenario."""

INITIAL_WINDOW = 10
"""Segments with which TCP starts if the preset does not say (RFC 6928)."""
ENTROPIES = 256
"""That a sprayer draws from if the preset does not say."""
LEAST_SPAN, MOST_SPAN = 64, 2**16
"""Bounds of the span of flows that keep something for each packet, packets."""
MOST_TELEMETRY = 2**15
"""Packets of a flow whose telemetry is kept: a packet carries its place in 16 bits."""
ENDLESS_SPAN = 2**40
"""Span of flows that keep nothing: never reached."""

_COMMON = {"initial_window", "minimum_window", "initial_threshold", "cnp_interval", "network_rtt"}
"""Columns that keys of any law fill."""


def packet_framing(transport: Transport) -> Framing:
    """Return payload, overhead and acknowledgement of the packets, bytes: by standard, or as overridden."""
    by_kind = FRAMINGS[transport.kind](transport.mtu)
    written = (setting(transport, key) for key in ("payload", "header", "ack_wire"))
    standard = (by_kind.payload, by_kind.overhead, by_kind.ack)
    return Framing(*(there if own is None else own for own, there in zip(written, standard, strict=True)))


def law_row(transport: Transport) -> np.ndarray:
    """Return the parameters of a transport.

    The transport's ``efficiency`` is not in it: it slows the host's link.

    Returns: one row of the record of `dispatch`; times ps, rates bytes/s, windows packets. Parameters that its law has
        no use for are zero.
    """
    law, rule, known = law_in_force(transport), rule_in_force(transport), dispatch(transport)
    table = np.zeros(1, known.law)
    row = table[0]
    framing = packet_framing(transport)
    _set_packets(row, transport, framing)
    row["law"], row["balance"] = known.laws.index(type(law)), known.rules.index(type(rule))
    row["entropies"] = getattr(rule, "entropies", ENTROPIES)
    window = _window(transport, law, framing.payload)
    row["ecn"] = law.ecn
    row["maximum_window"] = row["initial_window"] = window
    row["initial_threshold"] = math.inf
    row["span"] = _span(window, bounded=row["recovery"] == tt.SELECTIVE or law.telemetry)
    if law.telemetry:
        row["span"] = min(row["span"], MOST_TELEMETRY)
    if law.slow_start:
        row["initial_window"] = min(transport.initial_window or INITIAL_WINDOW, window)
        row["idle_restart"] = NEVER if transport.idle_restart is None else transport.idle_restart
    for choice in (law, rule):
        filled = {key: value for key, value in choice if key in choice.parameters or key in _COMMON}
        filled |= answer(choice.columns, dict, transport.line_rate, framing.packet)
        if missing := choice.parameters.keys() - filled:
            what = f"no key fills the parameter {min(missing)!r}, nor does `columns`"
            raise InputError(f"{file_of(type(choice))}: {what}; mend its name, or take it out")
        for key, value in filled.items():
            if value is not None:
                _fill(row, choice, key, value)
    known.note(table)
    return table


def _fill(row: np.void, choice: Law | LoadBalancing, key: str, value: float) -> None:
    """Set a column of a row; `columns` of a user may give anything for anything."""
    if is_ours(type(choice)):
        row[key] = value
        return
    own = sorted(choice.parameters.keys() | _COMMON)
    if key not in own:
        msg = f"{file_of(type(choice))}: `columns` gives {key!r}, which is no parameter; it may give {', '.join(own)}"
        raise InputError(msg)
    try:
        row[key] = value
        fits = bool(row[key] == value)
    except (ValueError, TypeError, OverflowError):
        fits = False
    if not fits:
        kind = row.dtype[key].name
        msg = f"{file_of(type(choice))}: the parameter {key!r}, {kind}, is given {value!r}; give a number of that type"
        raise InputError(msg)


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


def _window(transport: Transport, law: Law, payload: int) -> int:
    """Most packets in flight."""
    window = setting(transport, "maximum_window")
    if window is None:
        window = law.most_outstanding
    return MAXIMUM_PACKETS if window is None else max(int(window) // payload, 1)


def _span(window: int, *, bounded: bool) -> int:
    """Return the least power of two that holds two windows, or no bound."""
    if not bounded:
        return ENDLESS_SPAN
    return min(max(1 << (2 * window - 1).bit_length(), LEAST_SPAN), MOST_SPAN)
