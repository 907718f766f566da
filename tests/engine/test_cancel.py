"""Transfers that are cancelled: others have their bandwidth from then on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError
from fabricsim.scenario.scenario import Scenario
from tests.reference.scenarios import ideal_scenario

Process = Generator[simpy.Event, Any, None]

SECOND = 12_500_000_000  # bytes that a link carries in a second
FAST = {"cable": "0m"}  # no latency: times are bytes over rate


def _fabric(made: Scenario, engine: str = "flow") -> tuple[simpy.Environment, Fabric]:
    env = simpy.Environment()
    return env, Fabric(env, made.model_copy(update={"engine": engine}))


def _at(env: simpy.Environment, time: float, action: Callable[[], None]) -> None:
    env.timeout(time).callbacks.append(lambda _: action())


def test_a_cancelled_transfer_gives_its_half_of_the_link_to_the_other() -> None:
    env, fabric = _fabric(ideal_scenario(3, **FAST))
    one, other = fabric.send(0, 1, SECOND), fabric.send(0, 2, SECOND)
    _at(env, 0.5, one.cancel)

    # a quarter has gone at half of the rate by then, and three quarters are left for all of it
    assert env.run(other) == pytest.approx(0.5 + 0.75, rel=1e-9)
    carried = fabric.world.resources["payload"].tolist()
    wires = dict(zip(fabric.platform.resources.names, carried, strict=True))
    assert wires["host0->switch0"] == pytest.approx(1.25 * SECOND)
    assert wires["switch0->host1"] == pytest.approx(0.25 * SECOND)


@pytest.mark.slow
def test_a_cancelled_transfer_of_packets_gives_its_bandwidth_back() -> None:
    env, fabric = _fabric(ideal_scenario(3, **FAST), "packet")
    size = SECOND // 1000  # 3052 packets
    one, other = fabric.send(0, 1, size), fabric.send(0, 2, size)
    _at(env, 0.5e-3, one.cancel)

    alone = _alone(size)
    # half of the wire by then, but for the packets of both that were on their way
    assert env.run(other) == pytest.approx(1.25 * alone, rel=0.02)
    env.run()
    taken = fabric.world.network.links["payload"][fabric.platform.wires.names.index("host0->switch0")]
    assert taken == pytest.approx(1.25 * size, rel=0.02)


def _alone(size: int) -> float:
    env, fabric = _fabric(ideal_scenario(3, **FAST), "packet")
    return float(env.run(fabric.send(0, 2, size)))


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_messages_behind_a_cancelled_one_arrive_sooner(engine: str) -> None:
    size = SECOND // 1000

    def end(*, cancel: bool) -> float:
        env, fabric = _fabric(ideal_scenario(2, **FAST), engine)
        sends = [fabric.send(0, 1, size) for _ in range(4)]
        if cancel:
            _at(env, 0.4e-3, sends[0].cancel)
            _at(env, 0.4e-3, sends[2].cancel)  # of packets, one that has not begun
        env.run(sends[3])
        return float(env.now)

    # flows share: a tenth of each has gone at 0.4 ms; packets of one connection go one message after the other
    expected = {"flow": 0.4e-3 + 2 * 0.9e-3, "packet": (0.4 + 2) / 4 * end(cancel=False)}
    assert end(cancel=True) == pytest.approx(expected[engine], rel=0.02)


def test_who_waits_for_a_cancelled_transfer_is_told() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST))
    told = []

    def waiting(sent: simpy.Event) -> Process:
        try:
            yield sent
        except SimulationError as error:
            told.append((env.now, str(error)))

    sent = fabric.send(0, 1, SECOND)
    env.process(waiting(sent))
    _at(env, 0.25, sent.cancel)
    env.run()
    assert told == [(0.25, "the transfer was cancelled")]


def test_a_cancelled_transfer_that_nobody_waits_for_stops_nothing() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST))
    sent = fabric.send(0, 1, SECOND)
    sent.cancel()
    sent.cancel()
    env.run()
    assert env.now == pytest.approx(0.0, abs=1e-9)
    assert env.run(fabric.send(0, 1, SECOND)) == pytest.approx(1.0)


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_cancelling_what_is_delivered_is_harmless(engine: str) -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST), engine)
    sent = fabric.send(0, 1, 1_000_000)
    took = env.run(sent)
    sent.cancel()
    assert sent.value == took
    assert env.run(fabric.send(0, 1, 1_000_000)) == pytest.approx(took)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("overhead", ["0us", "20us"])
def test_a_transfer_may_be_cancelled_at_any_time(engine: str, overhead: str) -> None:
    """Each time, the numbers of messages and flows are free again, and what follows takes as long as alone."""
    made = ideal_scenario(2, **FAST)
    transport = made.transport.model_copy(update={"send_overhead": int(float(overhead[:-2]) * 1e6)})
    env, fabric = _fabric(made.model_copy(update={"transport": transport}), engine)
    alone = env.run(fabric.send(0, 1, 1_000_000))
    rows = []

    def user() -> Process:
        for step in range(60):
            sent = fabric.send(0, 1, 1_000_000)
            yield env.timeout(step * 2e-6)
            sent.cancel()
            yield env.timeout(1e-3)
            took = yield fabric.send(0, 1, 1_000_000)
            assert took == pytest.approx(alone, rel=1e-6)
            rows.append(fabric.world.used["messages"])

    env.run(env.process(user()))
    assert set(rows) == {1}
