from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.cluster import Gpu
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.links import TURNS
from fabricsim.workload.tally import EqualCalls, tally
from fabricsim.workload.volume_summary import summarise_volumes
from tests.reference.jobs import make_job
from tests.reference.program_calls import program_calls

CALLS = st.lists(
    st.builds(
        EqualCalls,
        dimension=st.sampled_from(["data", "tensor"]),
        collective=st.sampled_from(sorted(TURNS)),
        members=st.integers(1, 9),
        size=st.integers(0, 10**6),
        times=st.integers(1, 20),
    ),
    max_size=20,
)


def test_wire_factors_are_those_of_nccl_tests() -> None:
    # doc/PERFORMANCE.md of nccl-tests: bytes that each of n ranks sends, over the size
    assert EqualCalls("data", "all_reduce", 8, 800, 1).wire / 8 == 800 * 2 * 7 / 8
    for name in ("reduce_scatter", "all_gather", "all_to_all"):
        assert EqualCalls("data", name, 8, 800, 1).wire / 8 == 800 * 7 / 8
    assert EqualCalls("pipeline", "send_recv", 2, 800, 1).wire == 800
    assert EqualCalls("context", "ring_exchange", 4, 800, 1).wire == 4 * 800
    assert EqualCalls("data", "broadcast", 8, 800, 1).wire == 7 * 800
    assert not any(EqualCalls("data", name, 1, 800, 1).wire for name in TURNS)


@given(calls=CALLS)
def test_tally_keeps_every_call_that_sends_something(calls: list[EqualCalls]) -> None:
    volumes = tally(calls)
    sending = [each for each in calls if each.wire]
    assert sum(volume.calls for volume in volumes.values()) == sum(each.times for each in sending)
    assert sum(volume.buffer for volume in volumes.values()) == sum(each.buffer for each in sending)
    assert sum(volume.wire for volume in volumes.values()) == sum(each.wire for each in sending)


@pytest.mark.slow
@given(calls=CALLS)
def test_one_call_many_times_is_many_calls(calls: list[EqualCalls]) -> None:
    assert tally(calls) == tally(one for each in calls for one in [each._replace(times=1)] * each.times)


@given(calls=CALLS)
def test_sizes_are_described_by_what_they_are(calls: list[EqualCalls]) -> None:
    for key, volume in tally(calls).items():
        sizes = sorted(
            size for each in calls if (each[0], each[1]) == key and each.wire for size in [each.size] * each.times
        )
        assert volume.extremes() == (sizes[0], statistics.median_low(sizes), sizes[-1])
        histogram = volume.histogram()
        assert sum(histogram.values()) == len(sizes)
        assert list(histogram) == sorted(histogram)
        for low, count in histogram.items():
            assert count == sum(low <= size < 2 * low for size in sizes)


def test_equal_calls_of_a_program_are_counted_together(gpu: Gpu) -> None:
    program = JobPlan(make_job(data=2, pipeline=2, micro_batches=3), gpu).program()
    counted = list(program_calls(program))
    assert sum(each.times for each in counted) == len(program.calls)
    assert len({each[:4] for each in counted}) == len(counted)
    assert {each.dimension for each in counted} == {"data", "pipeline", "embedding"}


def test_summary_says_where_program_and_formula_differ() -> None:
    counted = tally([EqualCalls("data", "all_reduce", 4, 100, 2), EqualCalls("pipeline", "send_recv", 2, 7, 1)])
    formula = tally([EqualCalls("data", "all_reduce", 4, 200, 1), EqualCalls("pipeline", "send_recv", 2, 7, 1)])
    summary = summarise_volumes("x", 4, counted, formula)
    data, pipeline = summary["volumes"]
    assert (data["difference"]["calls"], data["difference"]["wire_bytes"], data["agrees"]) == (1, 0, False)
    assert (pipeline["agrees"], summary["agree"]) == (True, False)
    assert summary["total"]["wire_bytes"] == 2 * 3 * 200 + 7
    assert summary["wire_bytes_per_gpu"] == pytest.approx(1207 / 4)
    assert data["histogram"] == {"64": 2}


def test_summary_shows_what_only_one_of_both_has() -> None:
    summary = summarise_volumes("x", 2, tally([EqualCalls("data", "all_reduce", 2, 8, 1)]), {})
    assert summary["volumes"][0]["formula"] == {"calls": 0, "buffer_bytes": 0, "wire_bytes": 0}
    assert not summary["agree"]
