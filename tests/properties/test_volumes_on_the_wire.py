"""What the links carry is what the calls of the program have to send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.job import Job
from fabricsim.scenario.scenario import Scenario
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.volumes import closed_forms
from tests.reference.program_calls import program_calls
from tests.reference.scenarios import ideal_scenario

Make = Callable[..., Scenario]

BOTH_ENDS = 2
"""On a single switch every byte crosses the link of the host that sends and of the one that receives."""


def _job(draw: st.DrawFn, degrees: dict[str, Any], **model: Any) -> Job:  # noqa: ANN401  any field
    """Make a small job of drawn shape and batch."""
    heads = 4 * draw(st.integers(1, 2))
    stages = degrees.get("pipeline", 1)
    batch = draw(st.integers(1, 2))
    table: dict[str, Any] = {
        "model": {
            "name": "small",
            "family": "gpt",
            "layers": stages * draw(st.integers(1, 2)),
            "hidden": 8 * heads,
            "heads": heads,
            "vocabulary": 4 * draw(st.integers(2, 500)),
            "positions": 64,
            "tied_embedding": draw(st.booleans()),
            **model,
        },
        "parallelism": degrees,
        "micro_batch": batch,
        "global_batch": batch * degrees.get("data", 1) * draw(st.integers(1, 3)),
        "sequence": 8 * draw(st.integers(1, 8)),
        "recompute": draw(st.sampled_from(["none", "full"])),
        "attention": "fused" if "context" in degrees else "unfused",
    }
    return Job.model_validate(table)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """GPTs over at most 12 ranks in data (with ZeRO), tensor (with sequence) and pipeline parallel."""
    tensor, stages = draw(st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (4, 1)]))
    data = draw(st.integers(1, 12 // (tensor * stages)))
    degrees = {"data": data, "tensor": tensor, "pipeline": stages}
    degrees["sequence_parallel"] = tensor > 1 and draw(st.booleans())
    degrees["zero"] = draw(st.integers(0, 3)) if data > 1 else 0
    return _job(draw, degrees)


@st.composite
def spread(draw: st.DrawFn) -> Job:
    """GPTs in context parallel, with experts spread over replicas, or over tensor- and context-parallel ranks, too."""
    context, data = draw(st.sampled_from([(2, 1), (4, 1), (2, 2), (1, 4), (2, 4)]))
    degrees = {"context": context, "data": data, "expert": data}
    if draw(st.booleans()):
        tensor = draw(st.sampled_from([1, 2])) if context * data < 8 and context < 4 else 1  # two heads are left then
        degrees |= {"tensor": tensor, "sequence_parallel": tensor > 1}
        degrees |= {"expert": min(4, tensor * context * data), "expert_tensor": 1}
    if context > 1:
        degrees["context_method"] = draw(st.sampled_from(["ring", "ulysses"]))
    return _job(draw, degrees, experts={"count": 4, "per_token": draw(st.integers(1, 2))})


def _check(make: Make, job: Job, channels: int, chunk: str) -> None:
    made = make(job.parallelism.ranks, channels=channels, chunk=chunk)
    program = JobPlan(job, made.cluster.gpu).program()
    env = simpy.Environment()
    fabric = Fabric(env, made, taps=True)
    env.run(fabric.replay(program))
    carried = fabric.world.resources["payload"][list(fabric.taps)].sum()

    counted = sum(each.wire for each in program_calls(program))
    assert carried == pytest.approx(BOTH_ENDS * counted, rel=1e-9)
    assert counted == sum(each.wire for each in closed_forms(job))


@pytest.mark.slow
@settings(max_examples=25)
@given(job=jobs(), channels=st.integers(1, 3), chunk=st.sampled_from(["4KiB", "2MiB"]))
def test_links_carry_what_the_calls_send(job: Job, channels: int, chunk: str) -> None:
    _check(ideal_scenario, job, channels, chunk)


@pytest.mark.slow
@settings(max_examples=25)
@given(job=spread(), channels=st.integers(1, 3))
def test_links_carry_what_exchanges_of_context_and_experts_send(job: Job, channels: int) -> None:
    _check(ideal_scenario, job, channels, "2MiB")
