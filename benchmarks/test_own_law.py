"""A law of congestion control in a user's file, against the same law as fabricsim has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import simpy

from fabricsim import load
from fabricsim.engine.fabric import Fabric
from fabricsim.run.traffic import request
from fabricsim.transports.laws import new_reno

if TYPE_CHECKING:
    from collections.abc import Callable

FABRIC = ("fabric.topology=leaf-spine", "fabric.hosts_per_leaf=8", "fabric.spines=2")
SETTINGS = ("cluster.hosts=16", "engine=packet", "transport=new-reno-100g", *FABRIC)
_FOUND: dict[str, tuple[float, float]] = {}
LEAST = 0.9
"""Share of the speed of a built-in law."""


@pytest.mark.parametrize("whose", ["built-in", "own"])
def test_law(measured: Callable[..., Any], benchmark: Any, tmp_path: Path, whose: str) -> None:  # noqa: ANN401  untyped
    file = tmp_path / "mine.py"
    file.write_text(Path(new_reno.__file__).read_text("utf-8"), encoding="utf-8")
    law = [f"transport.congestion_control.law={file if whose == 'own' else 'new-reno'}"]
    scenario = load("ideal-16", [*SETTINGS, *law]).scenario
    matrix = request("permutation", scenario, size="8MB")

    def make() -> tuple[Fabric, simpy.Event]:
        fabric = Fabric(simpy.Environment(), scenario, time_unit=1)
        return fabric, fabric.send_all(matrix.flows, [0] * len(matrix.flows))

    def run(made: tuple[Fabric, simpy.Event]) -> tuple[int, float]:
        fabric, done = made
        fabric.env.run(done)
        return int(fabric.world.network.world[0].data_hops), float(fabric.env.now)

    took = measured(run, make, "data_hops")
    if benchmark.disabled:
        return
    _FOUND[whose] = took, benchmark.stats.stats.min
    if len(_FOUND) > 1:
        (same, built_in), (again, own) = _FOUND["built-in"], _FOUND["own"]
        assert same == again
        assert own * LEAST < built_in
