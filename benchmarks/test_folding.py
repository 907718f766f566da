"""Folding: which of 16,384 ranks are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.folding.fold import fold
from fabricsim.run.pipeline import build_plan
from fabricsim.scenario.load import load

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = 16_384
SETTINGS = (
    "cluster.hosts=2048",
    "cluster.gpus_per_host=8",
    "fabric.topology=single-switch",
    "job.parallelism.tensor=8",
    "job.parallelism.pipeline=16",
    "job.parallelism.data=128",
    "job.global_batch=2048",
)


def test_fold(measured: Callable[..., Any]) -> None:
    loaded = load("gpt3-175b", SETTINGS)
    plan = build_plan(loaded)

    def run(fabric: Fabric) -> tuple[int, Any]:
        return RANKS, fold(fabric, plan, closely=True)

    program, _ = measured(run, lambda: Fabric(simpy.Environment(), loaded.scenario), "ranks")
    assert plan.ranks == RANKS
    assert len(program.representatives) == 16
