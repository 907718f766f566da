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


def _fabric(engine: str, *failures: str, transport: str = "ideal-100g") -> Fabric:
    given = [f"engine={engine}", "cluster.hosts=3", f"transport={transport}"]
    return Fabric(simpy.Environment(), load("ideal-16", [*given, f"fabric.failures=[{','.join(failures)}]"]))


def _run(fabric: Fabric, script: dict[float, Callable[[], object]], begin: float, size: int = SIZE) -> float:
    """Do what a script says by time, and tell when a message that is sent at `begin` is there."""

    def process() -> Process:
        for time, deed in script.items():
            yield fabric.env.timeout(time - fabric.env.now)
            deed()

    fabric.env.process(process())
    fabric.env.run(until=begin)
    fabric.env.run(fabric.send(0, 1, size))
    return float(fabric.env.now)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scheduled_end_leaves_what_a_process_took_down_later(engine: str) -> None:
    fabric = _fabric(engine, '{link="host0-switch0",from="1ms",until="10ms"}')
    script = {5 * MS: lambda: fabric.restore("host0-switch0"), 7 * MS: lambda: fabric.fail("host0-switch0")}
    script[50 * MS] = lambda: fabric.restore("host0-switch0")
    assert _run(fabric, script, begin=12 * MS) == pytest.approx(112 * MS + SIZE / FULL, rel=1e-3)  # a timeout of 100 ms


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cable_that_failed_twice_is_up_when_the_last_failure_ends(engine: str) -> None:
    fabric = _fabric(
        engine, '{link="host0-switch0",from="1ms",until="30ms"}', '{link="host0-*",from="2ms",until="4ms"}'
    )
    assert _run(fabric, {}, begin=5 * MS) == pytest.approx(105 * MS + SIZE / FULL, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("second", ['{gpu="gpu0",from="2ms",until="5ms"}', '{host="host0",from="2ms",until="5ms"}'])
def test_a_gpu_that_two_failures_hold_down_comes_back_with_the_last(engine: str, second: str) -> None:
    fabric = _fabric(engine, '{host="host0",from="1ms",until="50ms"}', second)
    fabric.env.run(until=12 * MS)
    with pytest.raises(SimulationError, match=r"rank 0 \(host0\) cannot take part: host0 is down"):
        fabric.send(0, 1, SIZE)
    assert _run(fabric, {}, begin=51 * MS) == pytest.approx(51 * MS + SIZE / FULL, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_without_end_is_for_good_though_another_one_ends(engine: str) -> None:
    fabric = _fabric(engine, '{link="host0-switch0"}', '{link="host0-switch0",from="1s",until="90s"}')
    with pytest.raises(SimulationError, match="host0->switch0 is down for good since 0 s"):
        _run(fabric, {}, begin=2.0)
    assert fabric.env.now == pytest.approx(2.7, rel=0.02)  # timeouts of 100, 200 and 400 ms
