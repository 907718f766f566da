"""Failures of one part that overlap: each ends by itself, and what processes do by hand outlasts the schedule."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy

from fabricsim import SimulationError, load
from fabricsim.engine.fabric import Fabric

Process = Generator[simpy.Event, Any, None]

ENGINES = ("flow", "packet", "reference")
MS = 1e-3
FULL = 12.5e9  # bytes/s: 100 Gb/s, as built
SIZE = 1_250_000  # 0.1 ms at the full rate
MTU = 16_384  # bytes: few packets say as much as many
ON_THE_WIRE = MTU / (FULL / 10)  # s: what is being sent goes on at the rate at which it began


def _fabric(engine: str, *failures: str, more: str = f"transport.mtu={MTU}") -> Fabric:
    given = [f"engine={engine}", "cluster.hosts=3", "transport=ideal-100g", more]
    return Fabric(simpy.Environment(), load("ideal-16", [*given, f"fabric.failures=[{','.join(failures)}]"]))


def _run(fabric: Fabric, script: dict[float, Callable[[], object]], begin: float, size: int = SIZE) -> float:
    """Do what a script says by time, and tell when a message that is sent at `begin` is there."""

    def process() -> Process:
        for time, deed in script.items():
            yield fabric.env.timeout(time - fabric.env.now)
            deed()

    fabric.env.process(process())
    if begin > fabric.env.now:
        fabric.env.run(until=begin)
    fabric.env.run(fabric.send(0, 1, size))
    return float(fabric.env.now)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_scheduled_end_leaves_what_a_process_took_down_later(engine: str) -> None:
    fabric = _fabric(engine, '{link="host0-switch0",from="1ms",until="10ms"}')
    script = {5 * MS: lambda: fabric.restore("host0-switch0"), 7 * MS: lambda: fabric.fail("host0-switch0")}
    script[50 * MS] = lambda: fabric.restore("host0-switch0")
    assert _run(fabric, script, begin=12 * MS) == pytest.approx(112 * MS + SIZE / FULL, rel=1e-3)  # a timeout of 100 ms


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_cable_that_failed_twice_is_up_when_the_last_failure_ends(engine: str) -> None:
    fabric = _fabric(
        engine, '{link="host0-switch0",from="1ms",until="30ms"}', '{link="host0-*",from="2ms",until="4ms"}'
    )
    assert _run(fabric, {}, begin=5 * MS) == pytest.approx(105 * MS + SIZE / FULL, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("second", ['{gpu="gpu0",from="2ms",until="5ms"}', '{host="host0",from="2ms",until="5ms"}'])
def test_a_gpu_that_two_failures_hold_down_comes_back_with_the_last(engine: str, second: str) -> None:
    fabric = _fabric(engine, '{host="host0",from="1ms",until="50ms"}', second)
    fabric.env.run(until=12 * MS)
    with pytest.raises(SimulationError, match=r"rank 0 \(host0\) cannot take part: host0 is down"):
        fabric.send(0, 1, SIZE)
    assert _run(fabric, {}, begin=51 * MS) == pytest.approx(51 * MS + SIZE / FULL, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_without_end_is_for_good_though_another_one_ends(engine: str) -> None:
    fabric = _fabric(engine, '{link="host0-switch0"}', '{link="host0-switch0",from="1s",until="90s"}')
    with pytest.raises(SimulationError, match="host0->switch0 is down for good since 0 s"):
        _run(fabric, {}, begin=2.0)
    assert fabric.env.now == pytest.approx(2.7, rel=0.02)  # timeouts of 100, 200 and 400 ms


# ---- rates and bit errors ----------------------------------------------------------------------------


def _rate(fabric: Fabric, at: float) -> float:
    """Measure the rate of host0's cable while nothing else is sent, bytes/s."""
    return SIZE / (_run(fabric, {}, begin=at) - at)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_of_overlapping_slowdowns_the_slowest_holds(engine: str) -> None:
    slow = '{link="host0-switch0",from="1ms",until="20ms",rate="25Gbps"}'
    fabric = _fabric(engine, slow, '{link="host0-*",from="2ms",until="3ms",rate="50Gbps"}')
    size = 20_000_000  # 1 ms at 12.5 GB/s, then the rest at a quarter of it
    expected = MS + (size - FULL * MS) / (FULL / 4)
    assert _run(fabric, {}, begin=0, size=size) == pytest.approx(expected, abs=ON_THE_WIRE)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_slowdowns_end_one_by_one(engine: str) -> None:
    fabric = _fabric(
        engine,
        '{link="host0-switch0",from="1ms",until="20ms",rate="50Gbps"}',
        '{nic="host0/nic0",from="2ms",until="10ms",rate="25Gbps"}',
    )
    rates = [_rate(fabric, at) for at in (0.5 * MS, 1.2 * MS, 5 * MS, 15 * MS, 30 * MS)]
    assert [rate / FULL for rate in rates] == pytest.approx([1, 1 / 2, 1 / 4, 1 / 2, 1], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_makes_no_cable_faster_than_built(engine: str) -> None:
    fabric = _fabric(engine, '{link="host*",from="1ms",rate="400Gbps"}')
    assert _rate(fabric, 2 * MS) == pytest.approx(FULL, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_may_have_a_cable_faster_than_built(engine: str) -> None:
    fabric = _fabric(engine)
    fabric.set_rate("host?-switch0", "400Gbps")
    assert _rate(fabric, 0) == pytest.approx(4 * FULL, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rate_that_a_process_sets_stands_for_all_before_and_no_scheduled_end_ends_it(engine: str) -> None:
    fabric = _fabric(
        engine,
        '{link="host0-switch0",from="1ms",until="10ms",rate="25Gbps"}',
        '{link="host0-switch0",from="20ms",until="30ms",rate="10Gbps"}',
    )
    _run(fabric, {3 * MS: lambda: fabric.set_rate("host0-switch0", "50Gbps")}, begin=2 * MS, size=1)
    rates = [_rate(fabric, at) for at in (5 * MS, 12 * MS, 22 * MS, 32 * MS)]
    assert [rate / FULL for rate in rates] == pytest.approx([0.5, 0.5, 0.1, 0.5], rel=0.01)
    fabric.restore("host0-switch0")
    assert _rate(fabric, 40 * MS) == pytest.approx(FULL, rel=0.01)


def test_of_overlapping_bit_errors_the_most_hold() -> None:
    fabric = _fabric(
        "flow",
        '{link="host0-switch0",from="1ms",until="20ms",bit_error_rate=1e-6}',
        '{link="host0-*",from="2ms",until="10ms",bit_error_rate=4e-6}',
        '{link="host0-*",from="3ms",until="4ms",bit_error_rate=1e-9}',
    )
    bits = 8 * fabric.world.packet
    rates = [_rate(fabric, at) for at in (1.2 * MS, 3.2 * MS, 5 * MS, 15 * MS, 30 * MS)]
    arriving = [(1 - wrong) ** bits for wrong in (1e-6, 4e-6, 4e-6, 1e-6, 0)]
    assert [rate / FULL for rate in rates] == pytest.approx(arriving, rel=1e-3)


@pytest.mark.parametrize("engine", ["packet", "reference"])
def test_links_of_packets_have_the_bit_errors_of_the_worst_failure_and_no_less_than_built(engine: str) -> None:
    fabric = _fabric(
        engine,
        '{link="host0->switch0",from="1ms",until="20ms",bit_error_rate=1e-6}',
        '{link="host0->*",from="2ms",until="10ms",bit_error_rate=1e-9}',
        more="fabric.bit_error_rate=1e-8",
    )
    wire, seen = fabric.platform.wires.names.index("host0->switch0"), []
    for at in (0.5, 1.5, 5, 15, 30):
        fabric.env.run(until=at * MS)
        fabric.world.act(round(at * 1e9))
        seen.append(float(fabric.world.network.links["loss"][wire]))
    assert seen == [1e-8, 1e-6, 1e-6, 1e-6, 1e-8]


# ---- timers of what stands still -------------------------------------------------------------------

TIMEOUTS = [0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5, 5.5]  # s: 100 ms, doubling up to a second


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("until", [1.2, 2.0, 5.0])
def test_a_timer_runs_on_while_routing_finds_no_way_that_is_up(engine: str, until: float) -> None:
    leaves = 'fabric={topology="leaf-spine",hosts_per_leaf=1,spines=2}'
    fabric = _fabric(engine, f'{{link="leaf0-spine*",from="500us",until="{until}s"}}', more=leaves)
    size = 20_000_000
    timeout = 0.5 * MS + next(time for time in TIMEOUTS if time > until)
    rest = size / FULL - 0.5 * MS
    assert _run(fabric, {}, begin=0, size=size) == pytest.approx(timeout + rest, abs=0.1 * MS)


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_timer_runs_on_when_something_else_befalls_the_way(engine: str) -> None:
    fabric = _fabric(
        engine,
        '{link="host0-switch0",from="500us",until="2s"}',
        '{link="switch0->host1",from="1.2s",until="1.3s",rate="50Gbps"}',
    )
    size = 20_000_000
    expected = 0.5 * MS + 2.5 + size / FULL - 0.5 * MS
    assert _run(fabric, {}, begin=0, size=size) == pytest.approx(expected, abs=0.1 * MS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_senders_on_slow_cables_send_on_for_longer(engine: str) -> None:
    fabric = _fabric(
        engine,
        '{link="host0-switch0",from="1ms",until="20ms",rate="25Gbps"}',
        '{link="host0-switch0",from="2ms",until="3ms"}',
    )
    size = 20_000_000  # in the millisecond for which the cable is down, less is lost than is left
    left = size - FULL * MS - FULL / 4 * MS
    assert FULL / 4 * MS < left < FULL * MS
    assert _run(fabric, {}, begin=0, size=size) == pytest.approx(3 * MS + left / (FULL / 4), rel=1e-3)


# ---- what waits before a cable -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_what_waits_before_a_slow_cable_leaves_faster_when_it_is_as_built(engine: str) -> None:
    fabric = _fabric(engine, '{link="switch0->host1",rate="10Gbps",until="2ms"}')
    size = 20_000_000
    expected = 2 * MS + (size - 2 * MS * FULL / 10) / FULL
    assert _run(fabric, {}, begin=0, size=size) == pytest.approx(expected, abs=ON_THE_WIRE)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["packet", "reference"])
@pytest.mark.parametrize("transport", ["ideal-100g", "rdma-100g", "uec-100g"])
def test_what_waits_before_a_cable_that_fails_is_lost(engine: str, transport: str) -> None:
    slow = '{link="switch0-host1",rate="10Gbps"}'
    fabric = _fabric(engine, slow, '{link="switch0-host1",from="1ms",until="40ms"}', more=f"transport={transport}")
    sent = fabric.send(0, 1, 4_000_000)
    fabric.env.run(until=39 * MS)
    assert not sent.triggered
    wire = fabric.platform.wires.names.index("switch0->host1")
    carried = float(fabric.world.network.links["bytes"][wire])
    assert carried == pytest.approx(MS * FULL / 10, rel=0.02)  # in a millisecond at 10 Gb/s


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["packet", "reference"])
def test_what_waits_before_a_cable_that_a_scenario_names_feels_what_a_process_does(engine: str) -> None:
    fabric = _fabric(engine, '{link="switch0-host1",from="1s",rate="100Gbps"}')
    fabric.set_rate("switch0->host1", "10Gbps")
    size = 20_000_000
    script = {2 * MS: lambda: fabric.restore("switch0->host1")}
    expected = 2 * MS + (size - 2 * MS * FULL / 10) / FULL
    assert _run(fabric, script, begin=0, size=size) == pytest.approx(expected, abs=ON_THE_WIRE)
