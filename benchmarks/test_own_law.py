"""A law of congestion control in a user's file, against the same law as fabricsim has it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

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
LEAST = 0.9
"""Share of the speed of a built-in law."""
ROUNDS = 6


class Sending:
    """A run under new-reno, as fabricsim has it or in a user's file."""

    def __init__(self, law: str) -> None:
        self._scenario = load("ideal-16", [*SETTINGS, f"transport.congestion_control.law={law}"]).scenario
        self._matrix = request("permutation", self._scenario, size="8MB")

    def make(self) -> tuple[Fabric, simpy.Event]:
        """Post the messages."""
        fabric = Fabric(simpy.Environment(), self._scenario, time_unit=1)
        return fabric, fabric.send_all(self._matrix.flows, [0] * len(self._matrix.flows))

    @staticmethod
    def run(made: tuple[Fabric, simpy.Event]) -> tuple[int, float]:
        """Run until all are there; returns what packets crossed, and when that was."""
        fabric, done = made
        fabric.env.run(done)
        return int(fabric.world.network.world[0].data_hops), float(fabric.env.now)

    def timed(self) -> tuple[float, float]:
        """CPU seconds of a run, and when it ended."""
        made, began = self.make(), time.process_time()
        _, ended = self.run(made)
        return time.process_time() - began, ended


@pytest.fixture
def own(tmp_path: Path) -> Sending:
    file = tmp_path / "mine.py"
    file.write_text(Path(new_reno.__file__).read_text("utf-8"), encoding="utf-8")
    return Sending(str(file))


@pytest.mark.parametrize("whose", ["built-in", "own"])
def test_law(measured: Callable[..., float], own: Sending, whose: str) -> None:
    law = own if whose == "own" else Sending("new-reno")
    ended = measured(law.run, law.make, "data_hops")
    assert ended > 8e6 / 12.5e9 * 1e12  # ps of 8 MB over 100 Gb/s


def test_an_own_law_runs_as_fast_as_a_built_in_one(own: Sending, pytestconfig: pytest.Config) -> None:
    built_in = Sending("new-reno")
    own.timed()  # compiles
    rounds = [(built_in.timed(), own.timed()) for _ in range(ROUNDS)]  # by turns

    assert {ended for pair in rounds for _, ended in pair} == {rounds[0][0][1]}
    theirs, ours = (min(took for took, _ in some) for some in zip(*rounds, strict=True))
    assert ours * LEAST < theirs or pytestconfig.getoption("benchmark_disable")
