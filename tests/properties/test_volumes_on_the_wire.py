"""What the links carry is what the calls of the program have to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.engine.fabric import Fabric
from fabricsim.spec.job import Job
from fabricsim.workload.compile import compile_job
from fabricsim.workload.tally import program_calls
from fabricsim.workload.volumes import closed_forms

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.spec.scenario import Scenario

    Make = Callable[..., Scenario]

BOTH_ENDS = 2
"""On a single switch every byte crosses the link of the host that sends and of the one that receives."""


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Small GPTs over at most 12 ranks."""
    data, stages = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    heads = draw(st.integers(1, 3))
    model: dict[str, Any] = {
        "name": "small",
        "family": "gpt",
        "layers": stages * draw(st.integers(1, 2)),
        "hidden": 8 * heads,
        "heads": heads,
        "vocabulary": draw(st.integers(8, 2000)),
        "positions": 64,
        "tied_embedding": draw(st.booleans()),
    }
    batch = draw(st.integers(1, 3))
    table = {
        "model": model,
        "parallelism": {"data": data, "pipeline": stages},
        "micro_batch": batch,
        "global_batch": batch * data * draw(st.integers(1, 4)),
        "sequence": draw(st.integers(1, 64)),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe"])),
        "overlap": draw(st.sampled_from(["none", "ddp"])),
        "bucket": draw(st.sampled_from(["1KiB", "25MiB"])),
    }
    return Job.model_validate(table)


@settings(max_examples=25)
@given(job=jobs(), channels=st.integers(1, 3), chunk=st.sampled_from(["4KiB", "2MiB"]))
def test_links_carry_what_the_calls_send(ideal_scenario: Make, job: Job, channels: int, chunk: str) -> None:
    made = ideal_scenario(job.parallelism.ranks, channels=channels, chunk=chunk)
    program = compile_job(job, made.cluster.gpu)
    env = simpy.Environment()
    fabric = Fabric(env, made, taps=True)
    env.run(fabric.replay(program))
    carried = fabric.world.resources["payload"][list(fabric.taps)].sum()

    counted = sum(each.wire for each in program_calls(program))
    assert carried == pytest.approx(BOTH_ENDS * counted, rel=1e-9)
    assert counted == sum(each.wire for each in closed_forms(job))
