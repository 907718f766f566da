"""What a program sends equals the closed formulas, for random shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.spec.job import Job
from fabricsim.workload.compile import compile_job
from fabricsim.workload.shapes import parameters
from fabricsim.workload.tally import program_calls, tally
from fabricsim.workload.volumes import closed_forms

if TYPE_CHECKING:
    from conftest import MakeJob, MakeModel

    from fabricsim.spec.cluster import Gpu
    from fabricsim.workload.tally import Volumes

SHAPES = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def models(draw: st.DrawFn, layers: int = 1, families: tuple[str, ...] = ("gpt", "bert", "t5")) -> dict[str, Any]:
    """Small transformers whose layers `layers` divides."""
    family = draw(st.sampled_from(families))
    width, heads = draw(st.sampled_from([8, 16])), 4 * draw(st.integers(1, 2))
    table = {
        "name": "small",
        "family": family,
        "layers": layers * draw(st.integers(1, 3)),
        "hidden": width * heads,
        "heads": heads,
        "vocabulary": 128 * draw(st.integers(1, 4)),
        "positions": 256,
    }
    if family == "t5":
        return {**table, "decoder_layers": table["layers"]}
    return {**table, "tied_embedding": draw(st.booleans())}


@st.composite
def jobs(draw: st.DrawFn, **degrees: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Jobs with drawn degrees of parallelism; batches and sequences follow."""
    drawn = {name: draw(strategy) for name, strategy in degrees.items() if strategy is not None}
    stages = drawn.get("pipeline", 1) * drawn.get("virtual_stages", 1)
    model = draw(models(stages))
    batch, batches = draw(st.integers(1, 3)), draw(st.integers(1, 4)) * drawn.get("pipeline", 1)
    table = {
        "model": model,
        "parallelism": drawn,
        "micro_batch": batch,
        "global_batch": batch * batches * drawn.get("data", 1),
        "sequence": 32 * draw(st.integers(1, 3)),
        "precision": draw(st.sampled_from(["fp16", "bf16"])),
        "gradient_precision": draw(st.sampled_from([None, "fp32"])),
        "recompute": draw(st.sampled_from(["none", "full"])),
    }
    return {**table, "decoder_sequence": 32} if model["family"] == "t5" else table


def both(table: dict[str, Any], gpu: Gpu) -> tuple[Volumes, Volumes]:
    """Volumes of a job as its program has them, and by the formulas."""
    job = Job.model_validate(table)
    return tally(program_calls(compile_job(job, gpu))), tally(closed_forms(job))


@SHAPES
@given(table=jobs(data=st.integers(1, 6), pipeline=st.integers(1, 4)), overlap=st.sampled_from(["none", "ddp"]))
def test_data_and_pipeline_parallelism(table: dict[str, Any], overlap: str, gpu: Gpu) -> None:
    program, formula = both({**table, "overlap": overlap}, gpu)

    assert program == formula


def test_data_parallelism_sends_twice_the_gradients(make_job: MakeJob, make_model: MakeModel, gpu: Gpu) -> None:
    size = parameters(make_model("gpt2-medium")) * 2
    volumes = tally(program_calls(compile_job(make_job(data=8), gpu)))

    assert volumes["data", "all_reduce"].wire == 2 * size * (8 - 1)
    assert volumes["data", "all_reduce"].sizes == {(8, size): 1}


def test_pipeline_sends_two_messages_per_micro_batch_and_boundary(make_job: MakeJob, gpu: Gpu) -> None:
    volumes = tally(program_calls(compile_job(make_job(pipeline=4, micro_batches=5), gpu)))

    # b s h W of the fixture's micro-batch of 2 and sequence of 512
    assert volumes["pipeline", "send_recv"].sizes == {(2, 2 * 512 * 1024 * 2): 2 * 5 * (4 - 1)}
