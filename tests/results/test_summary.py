from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import ResultError
from fabricsim.records.program import COLLECTIVE, COMPUTE, MAIN_STREAM, NONE, OP, OVERLAPPED_STREAM, SLOWDOWN_BINS, SPAN
from fabricsim.results.breakdown import critical_rank, rank_time
from fabricsim.results.capture import Capture, StepTime
from fabricsim.results.result import CallRecord, CallRecords, RunRecord, Series
from fabricsim.results.summary import HOTTEST, Summary, bus_factor, summarise, timer_totals, to_json
from fabricsim.units import PS_PER_S
from tests.reference import factory

S = PS_PER_S
SOMETIMES = {"throughput", "simulated_ranks", "queues", "capture", "assumptions", "jobs", "uncertainty", "pairs"}
"""Keys of jobs and of several of them, of folded and packet runs, of replays, and of algorithms that nothing checks."""


def test_every_rank_is_divided_by_hand(two_ranks: RunRecord) -> None:
    # rank 0: forward 0-4, waits for rank 1 until 6, all-reduce 6-10, optimizer 10-11
    early = rank_time(two_ranks, 0)
    assert (early.compute, early.waiting, early.idle, early.overlapped) == (5 * S, 2 * S, 0, 2 * S)
    assert early.exposed == {"pipeline": 0, "data": 4 * S}
    assert (early.bubble, early.exposed_communication, early.iteration) == (2 * S, 4 * S, 11 * S)
    late = rank_time(two_ranks, 1)
    assert (late.compute, late.waiting, late.idle, late.overlapped) == (7 * S, 0, 0, 2 * S)


def test_the_critical_rank_ends_last_and_then_computes_most(two_ranks: RunRecord) -> None:
    assert critical_rank(two_ranks) == 1
    later = two_ranks.spans.copy()
    later["end"][np.flatnonzero(two_ranks.ops["rank"] == 0)[-1]] += 1
    assert critical_rank(dataclasses.replace(two_ranks, spans=later, iteration=two_ranks.iteration + 1)) == 0


def test_summary_of_two_ranks(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    assert summary["iteration_time_s"] == 11.0
    assert summary["critical_rank"] == 1
    assert summary["breakdown_s"] == {
        "compute": 7.0,
        "exposed_communication": {"pipeline": 0.0, "data": 4.0},
        "host": 0.0,
        "bubble": 0.0,
        "waiting_in_collectives": 0.0,
        "overlapped_communication": 2.0,
    }
    assert summary["exposed_communication_s"] == 4.0
    assert summary["run_time_s"] == 11.0
    # the slowest rank of each timer: rank 1 for forward-compute, rank 0 for the all-reduce
    assert summary["timers_s"] == {"forward-compute": 6.0, "send": 2.0, "params-all-reduce": 6.0, "optimizer": 1.0}
    assert summary["ranks"] == 2
    assert summary["wall_seconds"] == two_ranks.wall_seconds


SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 20), st.integers(0, 9)), max_size=12)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(0, 6), (6, 11)], [3.0, 1.0, 3.0, 0.5]),
        ([(6, 11)], [0.0, 0.0, 4.0, 1.0]),
        ([(1, 3)], [2.0, 1.0, 0.0, 0.0]),
    ],
)
def test_timers_of_marked_steps_are_of_their_mean(
    two_ranks: RunRecord, windows: list[tuple[int, int]], expected: list[float]
) -> None:
    steps = [
        StepTime(rank, number, 0, (end - start) * PS_PER_S, start * PS_PER_S)
        for rank in (0, 1)
        for number, (start, end) in enumerate(windows)
    ]
    replayed = dataclasses.replace(two_ranks, capture=Capture("kineto", NONE, tuple(steps), (), ()))

    assert list(timer_totals(replayed).values()) == expected


@pytest.mark.slow
@given(spans=SPANS)
def test_time_in_which_ops_of_a_timer_overlap_counts_once(spans: list[tuple[int, int, int, int]]) -> None:
    ops, times = np.zeros(len(spans), OP), np.zeros(len(spans), SPAN)
    inside: dict[tuple[int, int], set[int]] = {(rank, timer): set() for rank in (0, 1) for timer in (0, 1)}
    for index, (rank, timer, start, length) in enumerate(spans):
        ops[index]["rank"], ops[index]["timer"] = rank, timer
        times[index] = (start * S, (start + length) * S)
        inside[rank, timer] |= set(range(start, start + length))
    result = dataclasses.replace(factory.two_ranks(), ops=ops, spans=times, timers=("send", "receive"))
    used = {timer for _, timer, _, _ in spans}
    assert timer_totals(result) == {
        name: max(len(inside[0, timer]), len(inside[1, timer]))
        for timer, name in enumerate(("send", "receive"))
        if timer in used
    }


def test_bandwidths_count_as_nccl_tests_does(two_ranks: RunRecord) -> None:
    reduce, send = summarise(two_ranks)["collectives"]
    assert (reduce["dimension"], reduce["collective"], reduce["count"]) == ("data", "all_reduce", 1)
    assert reduce["time_mean_s"] == 4.0
    assert reduce["algbw_bytes_per_s"] == 1e9
    assert reduce["busbw_bytes_per_s"] == 1e9  # 2 (n - 1) / n is 1 for two ranks
    assert reduce["bound_bytes_per_s"] == 1.2e9
    assert reduce["share_of_bound"] == pytest.approx(1 / 1.2)
    assert (send["collective"], send["busbw_bytes_per_s"]) == ("send_recv", 500_000)


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 4, 0.75),
        ("broadcast", 4, 1.0),
        ("reduce", 4, 1.0),
        ("send_recv", 2, 1.0),
    ],
)
def test_bus_factor(collective: str, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == factor


def test_waiting_for_an_overlapped_collective_is_exposed(bucketed: RunRecord) -> None:
    # compute 0-4, all-reduce 2-7, optimizer 7-8
    summary = summarise(bucketed)
    assert summary["breakdown_s"] == {
        "compute": 5.0,
        "exposed_communication": {"data": 3.0},
        "host": 0.0,
        "bubble": 0.0,
        "waiting_in_collectives": 0.0,
        "overlapped_communication": 2.0,
    }
    assert summary["exposed_communication_s"] == 3.0


def test_alike_calls_are_one_row_and_another_bound_is_another_row(two_ranks: RunRecord) -> None:
    calls = CallRecords.of(
        CallRecord("send_recv", "pipeline", 2, 100, 0, end * S, bound) for end, bound in ((1, 5.0), (3, 5.0), (9, 7.0))
    )
    rows = summarise(dataclasses.replace(two_ranks, calls=calls))["collectives"]
    assert [(row["count"], row["time_mean_s"], row["bound_bytes_per_s"]) for row in rows] == [
        (1, 9.0, 7.0),
        (2, 2.0, 5.0),
    ]


def test_nothing_to_divide_by_is_null(two_ranks: RunRecord) -> None:
    calls = CallRecords.of([CallRecord("broadcast", "data", 2, 0, S, S, float("inf")), *list(two_ranks.calls)[1:]])
    row = summarise(dataclasses.replace(two_ranks, calls=calls))["collectives"][-1]
    assert row["algbw_bytes_per_s"] is None
    assert row["bound_bytes_per_s"] is None
    assert row["share_of_bound"] is None


def test_the_hottest_link_comes_first(two_ranks: RunRecord) -> None:
    rows = summarise(two_ranks)["links"]
    assert [row["name"] for row in rows] == ["host0 proxy", "host0 > leaf0", "host1 > leaf0"]
    assert [row["utilisation"] for row in rows] == pytest.approx([0.8, 0.5, 0.25])
    wire = rows[1]
    assert wire["payload_rate_mean_bytes_per_s"] == pytest.approx(0.6e9)
    assert wire["payload_rate_peak_bytes_per_s"] == two_ranks.series.rate[0].max()
    assert wire["calls"] == ["data all_reduce", "pipeline send_recv"]
    assert rows[0]["payload_rate_peak_bytes_per_s"] is None


def test_links_are_cut_to_the_hottest() -> None:
    rows = summarise(factory.pipeline(ranks=16, batches=2))["links"]
    assert len(rows) == HOTTEST
    assert [row["utilisation"] for row in rows] == sorted((row["utilisation"] for row in rows), reverse=True)


def test_json_keeps_keys_and_order(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    text = to_json(summary)
    assert json.loads(text) == summary
    assert list(json.loads(text)) == [key for key in Summary.__annotations__ if key not in SOMETIMES]
    assert to_json(summarise(two_ranks)) == text


def test_json_refuses_what_is_not_finite(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    summary["exposed_communication_s"] = float("nan")
    with pytest.raises(ResultError, match="not finite"):
        to_json(summary)


def test_a_run_without_work_is_an_error(two_ranks: RunRecord) -> None:
    empty = dataclasses.replace(
        two_ranks, ops=np.zeros(0, OP), spans=np.zeros(0, SPAN), calls=CallRecords.of([]), iteration=0
    )
    with pytest.raises(ResultError, match="no work"):
        summarise(empty)


def test_pipeline_timers_hold_the_waiting(pipeline: RunRecord) -> None:
    summary = summarise(pipeline)
    rank = summary["critical_rank"]
    mine = pipeline.ops["rank"] == rank
    busy = (pipeline.spans["end"] - pipeline.spans["start"])[mine].sum() / S
    breakdown = summary["breakdown_s"]
    timed = summary["exposed_communication_s"] + breakdown["waiting_in_collectives"]
    assert timed == pytest.approx(busy - breakdown["compute"])
    assert breakdown["bubble"] > 0


@st.composite
def schedules(draw: st.DrawFn) -> RunRecord:
    """One rank: main ops one after another with gaps, overlapped ops anywhere, calls that start anywhere."""
    ops, spans, calls, now = [], [], [], 0
    for _ in range(draw(st.integers(1, 8))):
        main, kind = draw(st.booleans()), draw(st.sampled_from([COMPUTE, COLLECTIVE]))
        overlapped = kind == COLLECTIVE and not main
        start = draw(st.integers(0, 30)) if overlapped else now + draw(st.integers(0, 3))
        end = start + draw(st.integers(0, 9))
        now = now if overlapped else end
        call = NONE
        if kind == COLLECTIVE:
            call = len(calls)
            name = draw(st.sampled_from(["data", "pipeline"]))
            calls.append(CallRecord("all_reduce", name, 2, 1, draw(st.integers(0, 50)), end, 1.0))
        stream = OVERLAPPED_STREAM if overlapped else MAIN_STREAM
        ops.append((0, kind, stream, 0, call, NONE, 0, 0, 0, 0))
        spans.append((start, end))
    span = np.array(spans, SPAN)
    return RunRecord(
        "drawn", "", {}, "tcp-10g", "flow", 0, "0", np.array(ops, OP), span, ("t",), CallRecords.of(calls), (),
        Series(1, (), np.zeros((0, 0)), np.zeros(0)), np.zeros(SLOWDOWN_BINS, np.int64), {},
        int(span["end"].max()), 0.0,
    )  # fmt: skip


def _state(result: RunRecord, instant: int) -> tuple[str, bool]:
    """Tell what the rank does in ``[instant, instant + 1)``, and whether data moves, op by op."""
    state, moves = "idle", False
    order = {"compute": 0, "main": 1, "overlapped": 2, "waiting": 3, "idle": 4}
    names = {}
    for op, (start, end) in zip(result.ops, result.spans, strict=True):
        if not start <= instant < end:
            continue
        if op["kind"] == COMPUTE:
            new = "compute"
        else:
            call = result.calls[op["call"]]
            ready = call.start if call.start <= end else start
            stream = "main" if op["stream"] == MAIN_STREAM else "overlapped"
            new = stream if instant >= ready else "waiting"
            moves |= instant >= ready
            if new == stream:
                # of two overlapped ones the dimension that is called first in the program
                rank = [c.dimension for c in result.calls].index(call.dimension)
                names[new] = min(names.get(new, (rank, call.dimension)), (rank, call.dimension))
        state = min(state, new, key=order.__getitem__)
    return names[state][1] if state in names else state, moves


@pytest.mark.slow
@given(schedules())
def test_division_equals_a_count_of_instants(result: RunRecord) -> None:
    counts = {"compute": 0, "waiting": 0, "idle": 0, "data": 0, "pipeline": 0}
    overlapped = 0
    for instant in range(result.iteration):
        state, moves = _state(result, instant)
        counts[state] += 1
        overlapped += moves and state == "compute"
    time = rank_time(result, 0)
    assert (time.compute, time.waiting, time.idle) == (counts["compute"], counts["waiting"], counts["idle"])
    assert time.overlapped == overlapped
    assert all(time.exposed.get(name, 0) == counts[name] for name in ("data", "pipeline"))
    assert time.iteration == result.iteration
