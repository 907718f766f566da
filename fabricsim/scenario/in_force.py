"""What holds of a transport if its user left it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabricsim.scenario.balancing import RULES, LoadBalancing
from fabricsim.scenario.congestion import DEFAULT_LAWS, LAWS, Law
from fabricsim.scenario.packet import DEFAULTS, MOST_JOINED

if TYPE_CHECKING:
    from fabricsim.scenario.transport import Transport


def law_in_force(transport: Transport) -> Law:
    """Return the law written, or that of the transport's kind."""
    name = DEFAULT_LAWS[transport.kind]
    return transport.congestion_control or LAWS.own[name](law=name)


def rule_in_force(transport: Transport) -> LoadBalancing:
    """Return the load-balancing rule written, or ECMP."""
    return transport.load_balancing or RULES.own["ecmp"](kind="ecmp")


def setting(transport: Transport, key: str) -> Any:  # noqa: ANN401  settings are of many types
    """Return a packet setting in force: as written, or the default of the transport's kind.

    Only ``payload``, ``header`` and ``ack_wire``, which follow from the framing, and a
    ``maximum_window`` without bound may be None.
    """
    written = None if transport.packet is None else getattr(transport.packet, key)
    if written is not None:
        return written
    if key == "ack_every" and transport.kind == "infiniband":
        return _joined_acknowledgements(transport)
    return getattr(DEFAULTS[transport.kind], key)


def longest_payload(transport: Transport) -> int:
    """Return no less than the payload of a full packet, bytes."""
    return setting(transport, "payload") or transport.mtu


def _joined_acknowledgements(transport: Transport) -> int:
    """Packets that an InfiniBand adapter acknowledges at once: half a window at most, 1 if that may be any."""
    if not law_in_force(transport).fixed_window:
        return 1
    payload = longest_payload(transport)
    window = setting(transport, "maximum_window")
    return MOST_JOINED if window is None else max(min(window // (2 * payload), MOST_JOINED), 1)
