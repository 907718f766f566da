from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import SimulationError
from fabricsim.scenario.schedule import SCHEDULES, Schedule, Step
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.passes import in_flight, ordered, without_other_direction
from fabricsim.workload.pipeline_parallel import TIMERS, Pipeline, run_stage
from fabricsim.workload.waiting import require_end
from tests.reference.jobs import replay

NAMES = sorted(SCHEDULES.own)
durations = st.integers(1, 1000)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[str, int, int, int]:
    """Schedule, stages, micro-batches and chunks that fit together."""
    name = draw(st.sampled_from(NAMES))
    stages = draw(st.integers(1, 9))
    chunks = draw(st.integers(1, 4)) if name == "1f1b" and stages > 1 else 1
    groups = draw(st.integers(1, 20))
    return name, stages, groups * stages if chunks > 1 else groups, chunks


def makespan(pipeline: tuple[str, int, int, int], times: dict[str, int], *, overlap: bool = False) -> int:
    """Longest path with free messages that both ends wait for; each chunk takes its share of `times`."""
    name, p, m, v = pipeline
    builder = ProgramBuilder([*TIMERS, *times])
    chain = Pipeline(builder, range(p), [1] * (p * v), overlap=overlap)
    for stage in range(p):

        def compute(step: Step, rank: int = stage) -> None:
            builder.compute(rank, times[step.direction], step.direction)

        steps = ordered(name, stage, p, m, v)
        run_stage(builder, chain, stage, steps, [compute] * len(steps))
    return int(replay(builder.build())[1].max())


def free_makespan(pipeline: tuple[str, int, int, int], times: dict[str, int]) -> int:
    """The same where only data is waited for: what the order of the passes by itself takes."""
    name, p, m, v = pipeline
    steps = [ordered(name, stage, p, m, v) for stage in range(p)]
    done: dict[tuple[str, int, int], int] = {}
    clock, place = [0] * p, [0] * p
    while place != [len(each) for each in steps]:
        before = list(place)
        for stage in range(p):
            while place[stage] < len(steps[stage]):
                way, batch, chunk, _ = steps[stage][place[stage]]
                k = chunk * p + stage
                needed = {
                    "forward": [("forward", batch, k - 1)] if k else [],
                    "backward": [("forward", batch, k), *([("backward", batch, k + 1)] if k < p * v - 1 else [])],
                    "weight": [("backward", batch, k)],
                }[way]
                if any(each not in done for each in needed):
                    break
                clock[stage] = max([clock[stage], *(done[each] for each in needed)]) + times[way]
                done[way, batch, k] = clock[stage]
                place[stage] += 1
        assert place != before, "the order waits for itself"
    return max(clock)


@pytest.mark.slow
@given(pipeline=pipelines(), t_f=durations, t_b=durations, t_w=durations)
def test_bubble_is_the_closed_form(pipeline: tuple[str, int, int, int], t_f: int, t_b: int, t_w: int) -> None:
    name, p, m, v = pipeline
    # Times of a chunk: the passes of a stage take v times as long.
    bubble = (p - 1) * (t_f + t_b)
    if name == "zb-h1":
        t_w = min(t_w, t_f, t_b)
        bubble -= (min(m, p) - 1) * t_w
    times = {"forward": t_f, "backward": t_b, "weight": t_w}
    busy = m * v * (t_f + t_b + (t_w if name == "zb-h1" else 0))

    assert free_makespan(pipeline, times) == busy + bubble
    assert makespan(pipeline, times) == makespan(pipeline, times, overlap=v > 1) == busy + bubble


@pytest.mark.slow
@given(p=st.integers(1, 9), m=st.integers(1, 20), t_f=durations, t_b=durations, t_w=durations)
def test_zb_h1_waits_for_no_message_even_where_its_closed_form_does_not_hold(
    p: int, m: int, t_f: int, t_b: int, t_w: int
) -> None:
    times = {"forward": t_f, "backward": t_b, "weight": t_w}
    free = free_makespan(("zb-h1", p, m, 1), times)

    assert free >= m * (t_f + t_b + t_w) + (p - 1) * (t_f + t_b) - (min(m, p) - 1) * t_w
    assert makespan(("zb-h1", p, m, 1), times) == free


@pytest.mark.slow
@given(pipeline=pipelines(), data=st.data())
def test_each_micro_batch_passes_each_chunk_once_each_way(
    pipeline: tuple[str, int, int, int], data: st.DataObject
) -> None:
    name, p, m, v = pipeline
    steps = ordered(name, data.draw(st.integers(0, p - 1)), p, m, v)
    ways = ["forward", "backward", "weight"] if name == "zb-h1" else ["forward", "backward"]

    assert len(steps) == len(ways) * m * v
    for batch in range(m):
        for chunk in range(v):
            assert [step.direction for step in steps if step[1:3] == (batch, chunk)] == ways


@given(pipeline=pipelines(), data=st.data())
def test_in_flight_is_the_published_closed_form(pipeline: tuple[str, int, int, int], data: st.DataObject) -> None:
    name, p, m, v = pipeline
    stage = data.draw(st.integers(0, p - 1))
    warm_up = p - stage - 1 if v == 1 else 2 * (p - stage - 1) + (v - 1) * p
    closed = {"gpipe": m, "zb-h1": min(p, m)}.get(name, min(warm_up + 1, m * v))

    assert in_flight(ordered(name, stage, p, m, v)) == closed


@pytest.mark.slow
@given(pipeline=pipelines())
def test_peaks_of_the_first_stage_are_the_published_ones(pipeline: tuple[str, int, int, int]) -> None:
    name, p, m, v = pipeline
    found = in_flight(ordered(name, 0, p, m, v))

    if name == "gpipe":
        assert found == m
    elif v == 1:
        assert found == min(p, m)
    elif m > p:
        # Korthikanti et al., arXiv 2205.05198, section 4.2: 1 + (p - 1) / (p v) times those of p micro-batches.
        assert found == p * v + p - 1


@given(m=st.integers(1, 24), p=st.integers(1, 12), data=st.data())
def test_zb_h1_keeps_no_more_inputs_of_backward_passes_than_1f1b(m: int, p: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, p - 1))
    without = [step[:3] for step in ordered("zb-h1", stage, p, m) if step.direction != "weight"]

    assert without == [step[:3] for step in ordered("1f1b", stage, p, m)]
    assert in_flight(ordered("1f1b", stage, p, m)) == min(p - stage, m)


def test_zb_h1_of_three_stages_and_five_micro_batches() -> None:
    orders = [
        " ".join(f"{step.direction[0]}{step.micro_batch}" for step in ordered("zb-h1", i, 3, 5)) for i in range(3)
    ]

    assert orders == [
        "f0 f1 f2 b0 w0 f3 b1 w1 f4 b2 w2 b3 w3 b4 w4",
        "f0 f1 b0 f2 b1 w0 f3 b2 w1 f4 b3 w2 b4 w3 w4",
        "f0 b0 f1 b1 f2 b2 w0 f3 b3 w1 f4 b4 w2 w3 w4",
    ]


def test_interleaved_1f1b_of_two_stages_and_two_chunks() -> None:
    def order(stage: int) -> str:
        steps = ordered("1f1b", stage, 2, 4, 2)
        return " ".join(f"{step.direction[0]}{step.micro_batch}{'ab'[step.chunk]}" for step in steps)

    # Narayanan et al., figure 4, for two devices: micro-batches in twos through chunk a, then b.
    assert order(0) == "f0a f1a f0b f1b f2a b0b f3a b1b f2b b0a f3b b1a b2b b3b b2a b3a"
    assert order(1) == "f0a f1a f0b b0b f1b b1b f2a b0a f3a b1a f2b b2b f3b b3b b2a b3a"


@pytest.mark.parametrize(
    ("name", "stages", "micro_batches", "said"),
    [
        ("gpipe", 4, 8, "2 chunks per stage need the schedule 1f1b, not gpipe"),
        ("zb-h1", 4, 8, "not zb-h1"),
        ("1f1b", 1, 8, "need a pipeline of 2 stages or more"),
        ("1f1b", 4, 6, "6 micro-batches are no multiple of the 4 stages"),
    ],
)
def test_what_cannot_be_interleaved_is_refused(name: str, stages: int, micro_batches: int, said: str) -> None:
    with pytest.raises(SimulationError, match=said):
        ordered(name, 0, stages, micro_batches, 2)


FORWARD, BACK, WEIGHT = Step("forward", 0), Step("backward", 0), Step("weight", 0)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([BACK, FORWARD], "the backward pass of micro-batch 0, chunk 0, comes before its forward pass"),
        ([FORWARD, WEIGHT, BACK], "the weight pass of micro-batch 0, chunk 0, comes before its backward pass"),
        ([FORWARD, FORWARD], "the forward pass of micro-batch 0, chunk 0, comes twice"),
        ([FORWARD, BACK, Step("forward", 1)], "there is no such micro-batch"),
        ([FORWARD], "has {'forward': 1} passes, but each kind takes 1"),
        ((Step("forward", batch) for batch in count()), "micro-batch 1, chunk 0, comes twice, or there is no such"),
        ([Step("forward", 0.0)], "has a forward pass of micro-batch 0.0, chunk 0; write whole numbers"),
        ([Step("forward", [0])], "has a forward pass of micro-batch [0], chunk 0; write whole numbers"),
        ([Step([], 0)], "has a [] pass; a pass is forward, backward, weight"),
        ([Step("forward", 0, 0, "warm")], "has a 'warm' phase; a phase is warm-up, steady, cool-down"),
    ],
)
def test_a_schedule_that_leaves_something_out_is_refused(
    monkeypatch: pytest.MonkeyPatch, steps: Iterable[Step], said: str
) -> None:
    monkeypatch.setitem(SCHEDULES.own, "mine", Schedule("mine", lambda *_: steps))
    with pytest.raises(
        SimulationError, match=rf"test_schedules\.py:\d+: schedule mine\(0, 1, 1\): .*{re.escape(said)}"
    ):
        ordered("mine", 0, 1, 1)


def _turns(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """All forward passes first, but for stage 1, which takes turns."""
    del stages
    turns = [Step(way, batch) for batch in range(micro_batches) for way in ("forward", "backward")]
    return turns if stage == 1 else sorted(turns, key=lambda step: step.direction, reverse=True)


def _reversed(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """The last stage begins with the last micro-batch, whose message comes last."""
    batches = range(micro_batches)[:: -1 if stage == stages - 1 else 1]
    return [Step(way, batch) for way in ("forward", "backward") for batch in batches]


def _1f1b_one_by_one(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """1F1B that sends before it receives, on both sides, unless messages go beside passes."""
    return [step._replace(phase="cool-down") for step in ordered("1f1b", stage, stages, micro_batches)]


@pytest.mark.parametrize(
    ("steps", "overlap", "said"),
    [
        (_turns, True, "stage 1 comes no further than the backward pass of micro-batch 0, chunk 0, stage 2"),
        (_reversed, True, "stage 2 comes no further than the forward pass of micro-batch 3, chunk 0"),
        (_1f1b_one_by_one, False, "stage 0 comes no further than the backward pass of micro-batch 0, chunk 0"),
    ],
)
def test_stages_that_wait_for_each_other_for_ever_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    steps: Callable[..., list[Step]],
    overlap: bool,  # noqa: FBT001  pytest's
    said: str,
) -> None:
    monkeypatch.setitem(SCHEDULES.own, "mine", Schedule("mine", steps))
    with pytest.raises(SimulationError, match=rf"test_schedules\.py:\d+: schedule mine of 3 stages and 4 mic.*{said}"):
        require_end("mine", 3, 4, 1, overlap=overlap)


@pytest.mark.slow
@given(pipeline=pipelines(), overlap=st.booleans())
def test_stages_of_schedules_that_end_are_not_said_to_wait(pipeline: tuple[str, int, int, int], overlap: bool) -> None:  # noqa: FBT001  hypothesis'
    name, p, m, v = pipeline
    own = SCHEDULES.own[name]

    def steps(*sizes: int) -> Sequence[Step]:
        return own.steps(*sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCHEDULES.own, "mine", replace(own, steps=steps))
        require_end("mine", p, m, v, overlap=overlap)
        patch.setitem(SCHEDULES.own, "mine", Schedule("mine", _1f1b_one_by_one))
        require_end("mine", p, m, 1, overlap=True)


def test_1f1b_of_four_stages_and_four_micro_batches() -> None:
    order = [(step.direction[0], step.micro_batch) for step in ordered("1f1b", 2, 4, 4)]

    assert order == [(way, int(k)) for way, k in ("f0", "f1", "b0", "f2", "b1", "f3", "b2", "b3")]


def test_gpipe_goes_back_in_reverse() -> None:
    assert [step.micro_batch for step in ordered("gpipe", 0, 1, 3)] == [0, 1, 2, 2, 1, 0]


def test_as_many_passes_each_way_have_no_other_direction_beside_them_as_1f1b_warms_up_with_and_one() -> None:
    """``get_pp_rank_microbatches`` of NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/schedules.py."""
    for stages, micro_batches, chunks in ((1, 5, 1), (4, 16, 1), (4, 16, 2), (4, 16, 3)):
        for stage in range(stages):
            steps = ordered("1f1b", stage, stages, micro_batches, chunks)

            found = without_other_direction(steps)

            warm_up = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
            ways = [step.direction for step in steps if step in found]
            assert ways == ["forward"] * (warm_up + 1) + ["backward"] * (warm_up + 1)
