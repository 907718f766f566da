from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.errors import InputError, ScenarioError
from fabricsim.records.program import COLLECTIVE, COMPUTE, OVERLAPPED_STREAM
from fabricsim.scenario.cluster import Gpu
from fabricsim.workload.compile import TIMERS, JobPlan
from fabricsim.workload.issue import Span, row
from fabricsim.workload.program import Program
from fabricsim.workload.shapes import embedding_stages, parameters
from fabricsim.workload.stages import Timed, plan_stages
from tests.reference.jobs import make_job, make_model, replay


def volumes(program: Program) -> dict[str, int]:
    totals: dict[str, int] = {}
    for call in program.calls:
        totals[call.dimension] = totals.get(call.dimension, 0) + call.size
    return totals


def timers_of(program: Program, rank: int) -> list[str]:
    """Timers of a rank's ops in program order."""
    return [program.timers[op["timer"]] for op in program.ops if op["rank"] == rank]


JOBS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["gpt2-medium", "bert-base", "t5-base"]),
        "data": st.integers(1, 4),
        "pipeline": st.sampled_from([1, 2, 3, 4, 6]),  # divisors of the numbers of layers
        "micro_batches": st.integers(1, 6),
        "schedule": st.sampled_from(["1f1b", "gpipe"]),
        "overlap": st.sampled_from(["none", "ddp"]),
        "gradient_precision": st.sampled_from([None, "fp32"]),
    }
)


@pytest.mark.slow
@settings(max_examples=60)
@given(changes=JOBS)
def test_any_job_runs_to_its_end_and_moves_what_it_must(changes: dict[str, Any], gpu: Gpu) -> None:
    job = make_job(**changes)
    d, p, m = job.parallelism.data, job.parallelism.pipeline, job.global_batch // (2 * job.parallelism.data)
    program = JobPlan(job, gpu).program()

    replay(program)

    width = 4 if job.gradient_precision == "fp32" else 2
    word = job.model.vocabulary * job.model.hidden
    copies = len(embedding_stages(job.model, p)) - 1
    expected = {
        "data": (parameters(job.model) + copies * word) * width if d > 1 else 0,
        "embedding": word * width * d if copies else 0,
        "pipeline": 2 * m * d * sum(stage.message for stage in plan_stages(job, gpu)),
    }
    assert volumes(program) == {dimension: size for dimension, size in expected.items() if size}
    assert program.timers == TIMERS
    assert program.ranks == d * p


@pytest.mark.parametrize("overlap", ["none", "ddp"])
def test_a_single_rank_only_computes(overlap: str, gpu: Gpu) -> None:
    job = make_job(micro_batches=3, overlap=overlap)
    program = JobPlan(job, gpu).program()
    (stage,) = plan_stages(job, gpu)

    _, end = replay(program)

    assert len(program.calls) == 0
    assert (program.ops["kind"] == COMPUTE).all()
    assert timers_of(program, 0) == ["forward-compute", "backward-compute"] * 3 + ["optimizer"]
    assert end.max() == 3 * (stage.forward + stage.backward) + JobPlan(job, gpu).optimizer[0]


def test_data_parallel_alone_reduces_all_gradients_once_after_the_backward_pass(gpu: Gpu) -> None:
    program = JobPlan(make_job("bert-large", data=4, micro_batches=2, gradient_precision="fp32"), gpu).program()

    (call,) = program.calls
    assert (call.collective, call.ranks, call.dimension) == ("all_reduce", (0, 1, 2, 3), "data")
    assert call.size == 4 * 336_226_108
    for rank in range(4):
        passes = ["forward-compute", "backward-compute"] * 2
        assert timers_of(program, rank) == [*passes, "params-all-reduce", "optimizer"]


def test_ranks_lie_as_megatron_lays_them(gpu: Gpu) -> None:
    program = JobPlan(make_job(data=3, pipeline=2), gpu).program()
    groups = {(call.dimension, call.ranks) for call in program.calls}

    assert {ranks for dimension, ranks in groups if dimension == "data"} == {(0, 1, 2), (3, 4, 5)}
    assert {ranks for dimension, ranks in groups if dimension == "embedding"} == {(0, 3), (1, 4), (2, 5)}
    assert {tuple(sorted(ranks)) for name, ranks in groups if name == "pipeline"} == {(0, 3), (1, 4), (2, 5)}


def test_one_micro_batch_on_eight_stages_keeps_one_stage_busy_at_a_time(gpu: Gpu) -> None:
    job = make_job(pipeline=8)
    program, stages = JobPlan(job, gpu).program(), plan_stages(job, gpu)
    start, end = replay(program)

    computing = [TIMERS.index("forward-compute"), TIMERS.index("backward-compute")]
    passes = np.flatnonzero(np.isin(program.ops["timer"], computing))
    spans = sorted((int(start[op]), int(end[op])) for op in passes)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == sum(stage.forward + stage.backward for stage in stages)
    # The bubble shows where Megatron-LM's timers show it: waiting to receive, and for the embedding's partner.
    last = np.flatnonzero(program.ops["rank"] == 7)
    booked = {program.timers[program.ops["timer"][op]]: int(end[op] - start[op]) for op in last}
    assert booked["forward-recv"] == sum(stage.forward for stage in stages[:-1])
    assert booked["embedding-all-reduce"] == sum(stage.backward for stage in stages[:-1])


def test_timers_of_1f1b_are_those_of_megatron(gpu: Gpu) -> None:
    program = JobPlan(make_job(pipeline=3, micro_batches=4), gpu).program()
    f, b = "forward-compute", "backward-compute"
    to_next, to_previous = ["forward-send-backward-recv"] * 2, ["backward-send-forward-recv"] * 2

    assert timers_of(program, 0)[:-2] == [
        *[f, "forward-send", f, "forward-send"],
        *[f, *to_next, b, f, *to_next, b],
        *["backward-recv", b, "backward-recv", b],
    ]
    assert timers_of(program, 1)[:-1] == [
        *["forward-recv", f, "forward-send", "forward-recv"],
        *[f, *to_next, b, *to_previous] * 2,
        *[f, *to_next, b, "backward-send", "backward-recv", b, "backward-send"],
    ]
    assert timers_of(program, 2)[:-2] == ["forward-recv", *[f, b, *to_previous] * 3, f, b, "backward-send"]
    assert timers_of(program, 0)[-2:] == timers_of(program, 2)[-2:] == ["embedding-all-reduce", "optimizer"]


@pytest.mark.parametrize(("boundary", "tokens"), [(0, 512), (1, 512), (2, 512 + 128)])
def test_decoder_stages_of_t5_send_the_encoder_output_along(boundary: int, tokens: int, gpu: Gpu) -> None:
    program = JobPlan(make_job("t5-base", pipeline=4, micro_batch=2, sequence=512, decoder_sequence=128), gpu).program()

    sizes = {call.size for call in program.calls if sorted(call.ranks) == [boundary, boundary + 1]}

    assert sizes == {2 * tokens * 768 * 2}


def test_embedding_group_of_t5_has_three_members(gpu: Gpu) -> None:
    program = JobPlan(make_job("t5-base", pipeline=4), gpu).program()

    assert [call.ranks for call in program.calls if call.dimension == "embedding"] == [(0, 2, 3)]


def _computing(items: tuple[Timed, ...]) -> int:
    return row(item for item in items if isinstance(item, Span)).alone


def test_buckets_go_one_after_another_beside_the_last_backward_pass(gpu: Gpu) -> None:
    job = make_job(data=2, micro_batches=2, overlap="ddp", bucket="25MiB")
    program = JobPlan(job, gpu).program()
    (stage,) = plan_stages(job, gpu)
    start, end = replay(program)
    mine = program.ops["rank"] == 0

    buckets = np.flatnonzero(mine & (program.ops["kind"] == COLLECTIVE))
    assert (program.ops["stream"][buckets] == OVERLAPPED_STREAM).all()
    assert (np.diff(start[buckets]) >= 0).all()
    # The first bucket closes with the first matrix of the last layer, so behind the head and that layer.
    ready = 2 * stage.forward + stage.backward + _computing(stage.blocks[-1].backward + stage.blocks[-2].backward)
    assert start[buckets[0]] == ready
    assert start[buckets[-1]] == 2 * (stage.forward + stage.backward)
    assert end.max() == 2 * (stage.forward + stage.backward) + JobPlan(job, gpu).optimizer[0]
    for earlier, later in pairwise(buckets):
        first = program.ops["first_successor"][earlier]
        assert later in program.successors[first : first + program.ops["successors"][earlier]]


def test_a_micro_batch_is_fetched_before_each_forward_pass(gpu: Gpu) -> None:
    def iteration(**changes: object) -> int:
        return int(replay(JobPlan(make_job(pipeline=4, micro_batches=3, **changes), gpu).program())[1].max())

    # All stages fetch it, one after the other: p of them before the last stage starts, and m - 1 more there.
    assert iteration(batch_time="1ms") - iteration() == (4 + 3 - 1) * 10**9


def test_gradients_are_copied_for_their_reduction_even_without_replicas(gpu: Gpu) -> None:
    job = make_job(flatten_gradients=True)
    program = JobPlan(job, gpu).program()
    start, end = replay(program)

    copies = timers_of(program, 0).index("params-all-reduce")

    assert end[copies] - start[copies] == sum(JobPlan(job, gpu).gradient_copies[0]) > 0
    assert timers_of(program, 0)[copies + 1] == "optimizer"


def test_optimizer_and_embedding_wait_for_the_last_bucket(gpu: Gpu) -> None:
    program = JobPlan(make_job(data=2, pipeline=2, overlap="ddp"), gpu).program()
    overlapped = np.flatnonzero((program.ops["rank"] == 0) & (program.ops["stream"] == OVERLAPPED_STREAM))

    first = program.ops["first_successor"][overlapped[-1]]
    successors = program.successors[first : first + program.ops["successors"][overlapped[-1]]]

    names = {program.timers[program.ops["timer"][op]] for op in successors}
    assert names == {"embedding-all-reduce", "optimizer"}


@pytest.mark.slow
def test_a_large_job_is_compiled_from_one_op_per_pass_and_message(gpu: Gpu) -> None:
    d, p, m = 8, 8, 64
    program = JobPlan(make_job(data=d, pipeline=p, micro_batches=m), gpu).program()

    assert len(program.calls) == 2 * (p - 1) * m * d + p + d
    assert len(program.ops) == d * (2 * p * m + 4 * (p - 1) * m) + d * p + 2 * d + d * p
    assert len(program.successors) == program.ops["successors"].sum() == program.ops["predecessors"].sum()


def test_compiling_twice_gives_the_same_program(gpu: Gpu) -> None:
    job = make_job("t5-base", data=2, pipeline=4, micro_batches=4, overlap="ddp")
    one, two = JobPlan(job, gpu).program(), JobPlan(job, gpu).program()

    assert one.ops.tobytes() == two.ops.tobytes()
    assert one.successors.tobytes() == two.successors.tobytes()
    assert one.calls == two.calls


def test_a_job_that_does_not_fit_together_is_refused_with_all_its_mistakes(gpu: Gpu) -> None:
    model = make_model("gpt2-medium", heads=15, positions=256)
    job = make_job(model, data=3, pipeline=25, global_batch=16, precision="fp32")

    with pytest.raises(ScenarioError) as caught:
        JobPlan(job, gpu).program()

    assert [mistake.key for mistake in caught.value.mistakes] == [
        "job.global_batch",
        "job.parallelism.pipeline",
        "job.sequence",
        "job.model.heads",
        "job.precision",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"vocabulary": 10**9, "hidden": 2**20}, r"would send \d+ TiB at once, more than 1024 TiB"),
        ({"hidden": 2**30}, r"would compute for \S+ s on test, more than 1e\+06 s; look for a slip"),
    ],
)
def test_jobs_beyond_64_bits_are_refused(changes: dict[str, int], problem: str, gpu: Gpu) -> None:
    job = make_job(make_model("gpt2-medium", **changes), micro_batch=1, sequence=1)

    with pytest.raises(InputError, match=problem):
        JobPlan(job, gpu).program()
