"""Random flows on a k=16 fat tree of 1024 hosts, run to completion; building the fabric, routing and posting count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import simpy

from fabricsim.engine.fabric import Fabric

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.scenario.scenario import Scenario

HOSTS = 1024
B = 12.5e9
Flows = list[tuple[int, int, int]]


def _flows(count: int) -> Flows:
    generator = np.random.default_rng(1)
    pairs = [generator.choice(HOSTS, 2, replace=False) for _ in range(count)]
    return [(int(a), int(b), int(generator.integers(10**6, 10**8))) for a, b in pairs]


def _posted(made: Scenario, flows: Flows) -> tuple[simpy.Environment, Fabric, list[simpy.Event]]:
    env = simpy.Environment()
    fabric = Fabric(env, made)
    return env, fabric, [fabric.send(*flow) for flow in flows]


@pytest.fixture(scope="module")
def fat_tree(ideal_scenario: Callable[..., Any]) -> Scenario:
    made: Scenario = ideal_scenario(HOSTS, "fat-tree", k=16, cable="0m")
    return made


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.large)])
def test_run_to_completion(fat_tree: Scenario, measured: Callable[..., Any], count: int) -> None:
    flows = _flows(count)

    def run(_nothing: None) -> tuple[int, Any]:
        env, fabric, sends = _posted(fat_tree, flows)
        env.run(env.all_of(sends))
        return count, (fabric, [send.value for send in sends])

    fabric, took = measured(run, lambda: None, "flows")
    assert all(seconds >= size / B for seconds, (_, _, size) in zip(took, flows, strict=True))
    crossed = [len(fabric.platform.path(source, target).hops) * size for source, target, size in flows]
    assert fabric.world.resources["payload"].sum() == pytest.approx(sum(crossed), rel=1e-12)
    # No link can have carried more than its rate allows until the last flow ended.
    assert fabric.world.resources["payload"].max() <= B * max(took) * (1 + 1e-9)
