"""Laws of congestion control, by number, for plain Python."""

from __future__ import annotations

from typing import Any

from fabricsim.records.transport import CUBIC, DCQCN, DCTCP, HPCC, NDP, NEW_RENO, NSCC, SWIFT, TIMELY
from fabricsim.transports.laws import cubic, dcqcn, dctcp, hpcc, ndp, new_reno, nscc, swift, timely

_LAWS = {
    NEW_RENO: new_reno,
    CUBIC: cubic,
    DCTCP: dctcp,
    DCQCN: dcqcn,
    TIMELY: timely,
    SWIFT: swift,
    HPCC: hpcc,
    NSCC: nscc,
    NDP: ndp,
}

Record = Any
"""A FLOW or LAW record."""


def start(flow: Record, law: Record) -> None:
    """Set window and rate before the first message."""
    flow.threshold = law.initial_threshold
    flow.window = law.initial_window
    _call(law, "start", flow, law)


def acknowledge(  # noqa: PLR0913, PLR0917  what an ACK tells
    telemetry: Any,  # noqa: ANN401  a table of TELEMETRY
    flow: Record,
    law: Record,
    now: int,
    packets: int,
    marked: int,
    rtt: int,
    echo: int,
    slot: int,
) -> None:
    """Tell the law of an ACK, for HPCC with the telemetry of its packet."""
    if law.law == HPCC:
        hpcc.acknowledge(flow, law, now, packets, telemetry, echo, slot)
    else:
        _call(law, "acknowledge", flow, law, now, packets, marked, rtt)


def lose(flow: Record, law: Record, now: int) -> None:
    """Tell the law of a loss."""
    _call(law, "lose", flow, law, now)


def time_out(flow: Record, law: Record, now: int) -> None:
    """Tell the law of a timeout."""
    _call(law, "time_out", flow, law, now)


def restart(flow: Record, law: Record) -> None:
    """Tell the laws of TCP of a message after an idle time."""
    if law.law in {NEW_RENO, CUBIC, DCTCP}:
        _call(law, "restart", flow, law)


def notify(flow: Record, law: Record, now: int) -> None:
    """Tell DCQCN of a CNP."""
    if law.law == DCQCN:
        dcqcn.notify(flow, law, now)


def pull(flow: Record, law: Record, number: int) -> None:
    """Tell NDP how many pulls there were."""
    if law.law == NDP:
        ndp.pull(flow, law, number)


def ride(flow: Record, law: Record) -> None:
    """Tell NDP of a pull that came with an ACK or NACK."""
    ndp.ride(flow, law)


def before_send(flow: Record, law: Record, now: int) -> None:
    """Let DCQCN's timers act."""
    if law.law == DCQCN:
        dcqcn.advance(flow, law, now)


def after_send(flow: Record, law: Record, wire: int) -> None:
    """Let DCQCN's byte counter count, and NDP the packet."""
    if law.law == DCQCN:
        dcqcn.sent(flow, law, wire)
    elif law.law == NDP:
        ndp.sent(flow)


def _call(law: Record, what: str, *arguments: Any) -> None:  # noqa: ANN401  those of the laws
    module = _LAWS.get(int(law.law))
    if module is not None:
        getattr(module, what)(*arguments)
