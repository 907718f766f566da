"""Whole training iterations: scenario in, result out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fabricsim.run.pipeline import build_plan, load, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.results.result import RunRecord
    from fabricsim.scenario.load import LoadedScenario
    from fabricsim.workload.compile import JobPlan
    from fabricsim.workload.program import Program


@pytest.mark.parametrize("name", ["gpt2-medium-dp", "gpt2-medium-pp", "gpt2-xl-dp-16"])
def test_iteration(measured: Callable[..., Any], name: str) -> None:
    def run(loaded: LoadedScenario) -> tuple[int, RunRecord]:
        result = simulate(loaded)
        return result.counters["dag_nodes"], result

    result: RunRecord = measured(run, lambda: load(name), "dag_nodes")
    assert result.counters["dag_nodes"] == len(result.ops) > 0
    assert result.iteration == result.spans["end"].max() > 0
    assert (result.spans["end"] >= result.spans["start"]).all()
    sent = [link.payload for link in result.links if link.kind == "wire" and link.name.startswith("host")]
    received = [link.payload for link in result.links if link.kind == "wire" and "->host" in link.name]
    assert sum(sent) == pytest.approx(sum(received), rel=1e-12)
    assert sum(sent) > 0


def test_program_of_all_ranks(measured: Callable[..., Program]) -> None:
    """Ops written out per CPU second: 256 ranks, which are alike."""

    def write(plan: JobPlan) -> tuple[int, Program]:
        program = plan.program()
        return len(program.ops), program

    program = measured(write, lambda: build_plan(load("megatron-vtrain")), "ops")
    assert set(program.ops["rank"].tolist()) == set(range(256))
