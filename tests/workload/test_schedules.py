from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.workload.pipeline_parallel import Pipeline, run_stage
from fabricsim.workload.program import ProgramBuilder
from fabricsim.workload.schedules import Step, gpipe, one_forward_one_backward, schedule

if TYPE_CHECKING:
    from conftest import Replay

TIMERS = [
    *(f"{direction}-{what}" for direction in ("forward", "backward") for what in ("compute", "recv", "send")),
    "forward-send-backward-recv",
    "backward-send-forward-recv",
]
Name = Literal["1f1b", "gpipe"]
NAMES: list[Name] = ["1f1b", "gpipe"]


@pytest.mark.parametrize("name", NAMES)
@given(p=st.integers(1, 12), m=st.integers(1, 24), t_f=st.integers(1, 1000), t_b=st.integers(1, 1000))
def test_bubble_is_p_minus_one_passes_of_each_kind(  # noqa: PLR0913, PLR0917  the letters of the formula
    name: Name, p: int, m: int, t_f: int, t_b: int, replay: Replay
) -> None:
    builder = ProgramBuilder(TIMERS)
    pipeline = Pipeline(builder, range(p), [1] * p)

    for stage in range(p):

        def compute(step: Step, rank: int = stage) -> None:
            duration = t_f if step.direction == "forward" else t_b
            builder.compute(rank, duration, f"{step.direction}-compute")

        run_stage(builder, pipeline, stage, schedule(name, stage, p, m), [compute] * (2 * m))
    _, end = replay(builder.build())

    assert end.max() == (m + p - 1) * (t_f + t_b)


@pytest.mark.parametrize("name", NAMES)
@given(p=st.integers(1, 12), m=st.integers(1, 24), data=st.data())
def test_each_micro_batch_passes_once_each_way(name: Name, p: int, m: int, data: st.DataObject) -> None:
    steps = schedule(name, data.draw(st.integers(0, p - 1)), p, m)

    assert sorted((step.direction, step.micro_batch) for step in steps) == sorted(
        (way, k) for way in ("forward", "backward") for k in range(m)
    )
    for k in range(m):
        places = [i for i, step in enumerate(steps) if step.micro_batch == k]
        assert [steps[i].direction for i in places] == ["forward", "backward"]


@given(p=st.integers(1, 12), m=st.integers(1, 24), data=st.data())
def test_1f1b_keeps_at_most_as_many_activations_as_stages_follow(p: int, m: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, p - 1))
    kept, most = 0, 0
    for step in one_forward_one_backward(stage, p, m):
        kept += 1 if step.direction == "forward" else -1
        most = max(most, kept)

    assert most == min(p - stage, m)


def test_1f1b_of_four_stages_and_four_micro_batches() -> None:
    order = [(step.direction[0], step.micro_batch) for step in one_forward_one_backward(2, 4, 4)]

    assert order == [(way, int(k)) for way, k in ("f0", "f1", "b0", "f2", "b1", "f3", "b2", "b3")]


def test_gpipe_goes_back_in_reverse() -> None:
    assert [step.micro_batch for step in gpipe(3)] == [0, 1, 2, 2, 1, 0]
