from __future__ import annotations

import pytest

from fabricsim.scenario.transport import Transport
from fabricsim.transports import TRANSPORTS, flow_model
from fabricsim.transports.base import FlowModel

SOCKETS = ["tcp", "ipoib"]
VERBS = ["infiniband", "roce"]


def _model(kind: str, **keys: object) -> FlowModel:
    switch = {"name": "round", "latency": "0ns", "forwarding": "cut-through"}
    defaults = {"name": "round", "kind": kind, "line_rate": "100Gbps", "switch": switch, "mtu": 2044, "latency": "5us"}
    return flow_model(Transport.model_validate({**defaults, **keys}))


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_efficiency_adds_to_what_the_wire_carries(kind: str) -> None:
    assert _model(kind, efficiency=0.8).costs.wire == pytest.approx(_model(kind).costs.wire / 0.8)
    assert _model(kind, efficiency=0.8).costs.packet == _model(kind).costs.packet


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_latency_and_overhead_pass_through(kind: str) -> None:
    model = _model(kind, send_overhead="300ns")
    assert (model.latency, model.overhead) == (5_000_000, 300_000)


@pytest.mark.parametrize("kind", SOCKETS)
def test_sockets_copy_start_slowly_and_wait_for_interrupts(kind: str) -> None:
    model = _model(kind, initial_window=10, idle_restart="200ms", send_copy="0.2ns/B", receive_copy="0.3ns/B")
    assert model.costs.staged
    assert model.interrupts
    assert model.window == 10 * (2044 - 52)
    assert model.idle_restart == 200 * 10**9
    assert (model.costs.send_copy, model.costs.receive_copy) == pytest.approx((0.2e-9, 0.3e-9))


@pytest.mark.parametrize("kind", VERBS)
def test_verbs_leave_the_data_to_the_adapter(kind: str) -> None:
    model = _model(kind)
    assert not model.costs.staged
    assert not model.interrupts
    assert model.window == 0


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_written_packets_take_the_place_of_the_framing(kind: str) -> None:
    model = _model(kind, packet={"payload": "1000B", "header": "60B"})
    assert model.costs.wire == pytest.approx(1.06)
    assert model.costs.packet == 1060
