"""Ring all-reduce of 1 GiB, every message simulated: set-up, routes and all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import simpy

from fabricsim.engine.fabric import Fabric

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 2**30
B = 12.5e9


@pytest.mark.parametrize("n", [16, 128, pytest.param(1024, marks=pytest.mark.large)])
def test_ring_all_reduce(ideal_scenario: Callable[..., Any], measured: Callable[..., Any], n: int) -> None:
    made = ideal_scenario(n)

    def run(env: simpy.Environment) -> tuple[int, float]:
        fabric = Fabric(env, made)
        took = cast("float", env.run(fabric.all_reduce(range(n), SIZE)))
        messages = int(fabric.world.world[0].messages)
        assert messages == 2 * (n - 1) * n
        return messages, took

    took = measured(run, simpy.Environment, "messages")
    assert took == pytest.approx(2 * (n - 1) * (SIZE / n / B + 1e-6), rel=1e-3)
