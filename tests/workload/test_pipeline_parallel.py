"""Messages of a pipeline: who gets what from whom, in which groups, and without deadlock on the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
import simpy

from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.records.program import COLLECTIVE, MAIN_STREAM, OVERLAPPED_STREAM
from fabricsim.run.pipeline import load
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job_checks import job_problems
from fabricsim.scenario.schedule import Step
from fabricsim.workload.attention import Core, fused
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.passes import ordered
from fabricsim.workload.pipeline_parallel import TIMERS, Pipeline, held_by_receives, run_stage
from fabricsim.workload.placement import Placement
from fabricsim.workload.program import Call, Program
from fabricsim.workload.roofline import roofline_time
from fabricsim.workload.work import Operation
from tests.reference.jobs import make_job
from tests.reference.scenarios import ideal_scenario

US = 10**6  # ps
FORWARD, BACKWARD, WEIGHT = 300 * US, 400 * US, 200 * US  # without, and of the weights; forward longer than weight
GRID = [
    ("gpipe", 4, 6, 1),
    ("1f1b", 2, 1, 1),
    ("1f1b", 4, 6, 1),
    ("1f1b", 2, 2, 2),
    ("1f1b", 2, 4, 3),
    ("1f1b", 3, 3, 2),
    ("1f1b", 4, 8, 2),
    ("zb-h1", 3, 2, 1),
    ("zb-h1", 4, 7, 1),
]


def compiled(name: str, stages: int, micro_batches: int, chunks: int, *, overlap: bool = False) -> Program:
    """A pipeline with one byte per message."""
    builder = ProgramBuilder([*TIMERS, "forward", "backward", "weight"])
    pipeline = Pipeline(builder, range(stages), [1] * (stages * chunks), overlap=overlap)
    # Without weight passes the backward pass does both parts.
    durations = {"forward": FORWARD, "backward": BACKWARD + WEIGHT, "weight": WEIGHT}
    if name == "zb-h1":
        durations["backward"] = BACKWARD
    for stage in range(stages):

        def compute(step: Step, rank: int = stage) -> None:
            builder.compute(rank, durations[step.direction] // chunks, step.direction)

        steps = ordered(name, stage, stages, micro_batches, chunks)
        run_stage(builder, pipeline, stage, steps, [compute] * len(steps))
    return builder.build()


def bubble(name: str, stages: int, micro_batches: int, chunks: int) -> int:
    """In ps, as the module of schedules has it."""
    whole = FORWARD + BACKWARD + WEIGHT
    if name != "zb-h1":
        return (stages - 1) * whole // chunks
    return (stages - 1) * (whole - WEIGHT) - (min(stages, micro_batches) - 1) * WEIGHT


@pytest.mark.parametrize(
    ("name", "stages", "micro_batches", "chunks", "overlap"),
    [*((*case, False) for case in GRID), *((*case, True) for case in GRID if case[-1] > 1)],
)
def test_the_engine_takes_the_closed_form_and_its_messages(
    name: str, stages: int, micro_batches: int, chunks: int, *, overlap: bool
) -> None:
    program = compiled(name, stages, micro_batches, chunks, overlap=overlap)
    env = simpy.Environment()
    replay = cast("Replay", env.run(Fabric(env, ideal_scenario(stages, cable="0m")).replay(program)))
    end = replay.end
    ideal = micro_batches * (FORWARD + BACKWARD + WEIGHT) + bubble(name, stages, micro_batches, chunks)

    # A byte takes 80 ps; none of the messages on the critical path may wait for a pass that it could go beside.
    assert ideal < end < ideal + 100 * len(program.calls)


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), [(2, 4, 2), (3, 3, 3), (4, 8, 2)])
def test_each_virtual_stage_but_the_last_sends_each_micro_batch_on_and_gets_it_back(
    stages: int, micro_batches: int, chunks: int
) -> None:
    calls = Counter(call.ranks for call in compiled("1f1b", stages, micro_batches, chunks).calls)

    wanted: Counter[tuple[int, ...]] = Counter()
    for virtual in range(stages * chunks - 1):
        before, behind = virtual % stages, (virtual + 1) % stages
        wanted[before, behind] += micro_batches
        wanted[behind, before] += micro_batches
    assert calls == wanted


def timers_of(program: Program, rank: int) -> list[str]:
    """Timers of the ops of a rank in order, those of one group once."""
    names = [program.timers[op["timer"]] for op in program.ops[program.ops["rank"] == rank]]
    return [name for index, name in enumerate(names) if index == 0 or name != names[index - 1]]


def test_groups_of_the_interleaved_schedule_on_its_last_rank() -> None:
    both = "forward-backward-send-forward-backward-recv"
    warm_up = ["forward-recv", "forward", "forward-send-forward-recv", "forward"]
    steady = [both, "forward", "backward"] * 2
    cool_down = [both, "backward", "backward-send-backward-recv", "backward", "backward-send-backward-recv"]

    assert timers_of(compiled("1f1b", 2, 2, 2), 1) == [*warm_up, *steady, *cool_down]


def test_where_all_forward_passes_are_warm_up_the_rank_sends_the_last_before_it_turns() -> None:
    forward = ["forward", "forward-send-forward-recv"] * 4
    backward = ["backward-recv", *["backward", "backward-send-backward-recv"] * 3, "backward"]

    assert timers_of(compiled("1f1b", 2, 2, 2), 0) == [*forward, *backward]


@pytest.mark.parametrize(
    ("name", "stream"),
    [("1f1b", MAIN_STREAM), ("zb-h1", OVERLAPPED_STREAM)],
)
def test_stream_of_the_messages_of_a_first_stage(name: str, stream: int) -> None:
    ops = compiled(name, 3, 6, 1).ops
    messages = ops[(ops["kind"] == COLLECTIVE) & (ops["rank"] == 0)]

    assert set(messages["stream"].tolist()) == {stream}


class Recording(ProgramBuilder):
    """Keeps the calls in reach."""

    def __init__(self, timers: Sequence[str]) -> None:
        super().__init__(timers)
        self.made: list[Call] = []

    def call(self, call: Call) -> int:
        self.made.append(call)
        return super().call(call)


def test_sizes_are_those_behind_each_virtual_stage() -> None:
    builder = Recording(TIMERS)
    pipeline = Pipeline(builder, (5, 7), (10, 20, 30, 40))
    last = Step("backward", 1, 1, "steady")  # of virtual stage 3
    first = Step("forward", 0, 1, "steady")  # of virtual stage 2, behind the wrap

    assert pipeline.incoming(1, last) == []
    calls = [*pipeline.outgoing(1, last), *pipeline.incoming(0, first), *pipeline.outgoing(0, first)]
    found = [(builder.made[index].ranks, builder.made[index].size) for index in calls]
    assert found == [((7, 5), 30), ((7, 5), 20), ((5, 7), 30)]


def test_a_weight_pass_needs_no_message() -> None:
    split, whole = compiled("zb-h1", 3, 4, 1), compiled("1f1b", 3, 4, 1)

    assert Counter(call.ranks for call in split.calls) == Counter(call.ranks for call in whole.calls)


def test_a_job_says_whether_its_messages_go_beside_passes(gpu: Gpu) -> None:
    def messages(*, overlap: bool) -> tuple[set[int], Counter[tuple[tuple[int, ...], int]]]:
        job = make_job(pipeline=2, virtual_stages=2, micro_batches=4, pipeline_overlap=overlap)
        program = JobPlan(job, gpu).program()
        sent = [call for call in program.calls if call.collective == "send_recv"]
        ops = program.ops[program.ops["kind"] == COLLECTIVE]
        streams = {int(op["stream"]) for op in ops if program.calls[op["call"]].collective == "send_recv"}
        return streams, Counter((call.ranks, call.size) for call in sent)

    (blocking, all_sent), (beside, sent) = messages(overlap=False), messages(overlap=True)

    assert sent == all_sent
    assert MAIN_STREAM in blocking
    assert OVERLAPPED_STREAM not in blocking
    assert OVERLAPPED_STREAM in beside


@pytest.mark.parametrize("degrees", [{}, {"pipeline": 2}])
def test_messages_beside_passes_are_for_interleaved_schedules(degrees: dict[str, int]) -> None:
    (mistake,) = job_problems(make_job(**degrees, pipeline_overlap=True))

    assert mistake.key == "job.pipeline_overlap"


@pytest.mark.parametrize(
    ("hosts", "held"),
    [
        ((), 2),
        ((0, 1, 2, 3), 2),
        ((0, 0, 1, 1), 9),  # one neighbour over NVLink, one over the network
        ((0, 0, 0, 1), 16),  # the second stage has both
        ((0, 0, 0, 0), 16),
    ],
)
def test_a_receive_holds_a_processor_for_each_channel(hosts: tuple[int, ...], held: int) -> None:
    job = make_job(pipeline=4, virtual_stages=2, micro_batches=4, pipeline_overlap=True)

    assert held_by_receives(job, Placement(job.parallelism, hosts)) == held
    waits = job.model_copy(update={"pipeline_overlap": False})
    assert held_by_receives(waits, Placement(waits.parallelism, hosts)) == 0


def test_passes_have_the_processors_that_receives_leave() -> None:
    """Products and attention slow by what is held, if processors and not power bound them; copies do not."""
    gpu = load("recipes", ["cluster.gpu.include=h100-sxm"]).scenario.cluster.gpu.model_copy(
        update={"gemm_efficiency": 0.87, "tile_efficiency": 0.87, "tile_overhead": 0, "kernel_latency": 0}
    )
    whole = 132 * 12 * 128  # rows of tiles that 132 and 66 processors take in whole waves
    product = Operation("product", 2 * whole * 256 * 2**17, 0, kernel="product", shape=(1, whole, 2**17, 256))
    attention = fused(2, Core(64, 8, 8, 128, 4096, 4096, causal=True))
    copy = Operation("copy", 0, 10**9)

    times = [
        [roofline_time(replace(each, held=held), "bf16", gpu) for each in (product, attention, copy)]
        for held in (0, 66)
    ]

    assert times[1][0] == pytest.approx(2 * times[0][0], rel=0.01)
    assert times[1][1] == pytest.approx(2 * times[0][1], rel=0.01)
    assert times[1][2] == times[0][2]
