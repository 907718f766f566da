"""Parts of the flow engine, each alone: event queue, solver, replay of a program, and its face to SimPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.flow.kernels.maxmin import solve
from fabricsim.engine.flow.world import World
from fabricsim.engine.program.queue import close_bucket, has_event_at, next_time, post, take
from fabricsim.jit.compile import kernel
from fabricsim.records.program import NEVER
from fabricsim.workload.builder import ProgramBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from fabricsim.scenario.scenario import Scenario
    from fabricsim.workload.program import Program

HOSTS = 1024
B = 12.5e9
EVENTS = 100_000
HELD = 1000
CHAINS, LINKS = 1000, 1000
SENDS = 1000
FLOWS = 10_000
"""Of the solver: a thousand lie in a cache that the other thread of the core shares."""


@kernel
def _hold(sim, count, held):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  a kernel
    """Post `held` events at times of a fixed sequence, and another for each that is taken, `count` in all."""
    state = np.int64(1)
    for number in range(held):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        post(sim, state & 0xFFFFF, np.int64(0), np.int64(number), np.int64(0))
    taken, posted, total = 0, held, np.int64(0)
    while taken < count:
        now = next_time(sim)
        while has_event_at(sim, now):
            _, target, _ = take(sim)
            taken += 1
            total += target
            if posted < count:
                state = (state * 1103515245 + 12345) & 0x7FFFFFFF
                post(sim, now + (state & 0xFFFFF), np.int64(0), np.int64(posted), np.int64(0))
                posted += 1
        close_bucket(sim, now)
    return total


def test_event_queue(measured: Callable[..., Any]) -> None:
    """The hold model (Jones 1986): as many events are posted as are taken."""

    def make() -> World:
        world = World([1.0], ())
        world.reserve("messages", 2 * HELD)  # each may have an event
        world.reserve_events()
        return world

    def run(world: World) -> tuple[int, int]:
        return EVENTS, int(_hold(world, EVENTS, HELD))

    assert measured(run, make, "events") == EVENTS * (EVENTS - 1) // 2


@pytest.fixture(scope="module")
def fat_tree(ideal_scenario: Callable[..., Any]) -> Scenario:
    made: Scenario = ideal_scenario(HOSTS, "fat-tree", k=16, cable="0m")
    return made


def test_solver(fat_tree: Scenario, measured: Callable[..., Any], filling: ModuleType) -> None:
    """All rates of random flows, set-up aside."""
    env, generator = simpy.Environment(), np.random.default_rng(1)
    fabric = Fabric(env, fat_tree)
    for _ in range(FLOWS):
        source, target = generator.choice(HOSTS, 2, replace=False)
        fabric.send(int(source), int(target), 10**8)
    env.run(until=1e-9)  # before the first can finish
    world = fabric.world
    (numbers,) = np.nonzero(world.tree[len(world.tree) // 2 :] != NEVER)
    world.begun[:FLOWS] = numbers

    def make() -> World:
        world.world["arrived"] = FLOWS  # as if all had begun just now
        return world

    def run(world: World) -> tuple[int, int]:
        return FLOWS, int(solve(world))

    assert measured(run, make, "flows") == FLOWS
    active = world.flows[numbers]
    np.testing.assert_allclose(active["share"], active["rate"], rtol=1e-9)
    hops = fabric.wiring.route_hops
    model = [filling.Flow(1.0, dict.fromkeys(hops[flow.route], 1.0)) for flow in active]
    assert not filling.violations([B] * len(world.resources), model, active["share"].tolist(), tolerance=1e-9)


@pytest.fixture(scope="module")
def chains() -> Program:
    """Make a program of a million ops: a chain on each rank."""
    builder = ProgramBuilder(["forward"])
    for rank in range(CHAINS):
        for link in range(LINKS):
            builder.compute(rank, 1000 + rank + link % 7, "forward")
    return builder.build()


def test_dag_replay(ideal_scenario: Callable[..., Any], measured: Callable[..., Any], chains: Program) -> None:
    made = ideal_scenario(CHAINS)

    def run(fabric: Fabric) -> tuple[int, Any]:
        return CHAINS * LINKS, fabric.env.run(fabric.replay(chains))

    done = measured(run, lambda: Fabric(simpy.Environment(), made), "dag_nodes")
    last = sum(1000 + CHAINS - 1 + link % 7 for link in range(LINKS))
    assert done.spans["end"].max() == last
    assert len(done.spans) == CHAINS * LINKS


def test_simpy_event(ideal_scenario: Callable[..., Any], measured: Callable[..., Any]) -> None:
    """A process that sends one message after the other: the clock passes between SimPy and the engine each time."""
    made = ideal_scenario(2)

    def run(fabric: Fabric) -> tuple[int, float]:
        def sender() -> Any:  # noqa: ANN401  a SimPy process
            for _ in range(SENDS):
                yield fabric.send(0, 1, 125_000)

        fabric.env.run(fabric.env.process(sender()))
        return SENDS, float(fabric.env.now)

    took = measured(run, lambda: Fabric(simpy.Environment(), made), "messages")
    assert took == pytest.approx(SENDS * (125_000 / B + 1e-6), rel=1e-3)
