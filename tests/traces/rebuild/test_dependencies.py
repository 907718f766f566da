"""What waits for what, found again in jobs whose order is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.records.program import HOST_STREAM, MAIN_STREAM
from fabricsim.traces.rebuild.dependencies import Ordered, delayed, order
from fabricsim.traces.rebuild.strand import TIMERS, strand
from fabricsim.traces.trace import LAUNCH, Communication, Recording
from tests.reference import captured_jobs as jobs

US = 10**6
REDUCTION = Communication("all_reduce", size=4)


def replayed(recording: Recording, **options: float) -> tuple[Ordered, list[float], list[float]]:
    """Order a recording and let it run with communication that takes no time; gives starts and ends of nodes, us."""
    ordered = order(recording)
    calls = [()] * int(np.count_nonzero(ordered.nodes["kind"] == 1))
    made = strand(recording, ordered, calls, **options)
    start, end = jobs.starts(made)
    gated = np.zeros(len(ordered.nodes), bool) | (ordered.gaps > 0)
    gated[ordered.edges["before"][ordered.edges["on_start"]]] = True
    bodies = np.cumsum(1 + gated) - 1
    return ordered, (start[bodies] / US).tolist(), (end[bodies] / US).tolist()


@st.composite
def schedules(draw: st.DrawFn) -> tuple[list[tuple[str, int, int, int]], int]:
    """Launches on up to three streams and waits of a host, in the times at which such a job would run."""
    rows, now, free = [], 0, {7: 0, 20: 0, 24: 0}
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.integers(0, 40))
        if draw(st.booleans()) or not rows:
            stream = draw(st.sampled_from(sorted(free)))
            start = max(now + draw(st.integers(0, 6)), free[stream] + draw(st.integers(0, 2)))
            duration = draw(st.integers(1, 60))
            free[stream] = start + duration
            rows.append((f"launch {stream}", now, start, duration))
            now += 2
        else:
            end = max(now, *free.values()) + draw(st.integers(1, 4))
            rows.append(("wait", now, end - now, 0))
            now = end
    return rows, now


@pytest.mark.slow
@given(schedules())
def test_what_was_captured_is_what_is_replayed(schedule: tuple[list[Any], int]) -> None:
    """Whatever the order of launches, waits and gaps: each operation ends when it was captured."""
    job = jobs.Captured()
    for name, called, start, duration in schedule[0]:
        if name == "wait":
            job.wait("cudaDeviceSynchronize", called, start)
        else:
            job.launch(int(name.split()[1]), called, start, duration)
    recording = job.recording()
    nodes = recording.nodes[np.argsort(recording.nodes["start"], kind="stable")]
    _, _, ends = replayed(recording)
    assert ends == pytest.approx(((nodes["start"] - nodes["start"].min() + nodes["duration"]) / US).tolist())


def test_a_slower_gpu_keeps_the_host_waiting_where_it_waits() -> None:
    job = jobs.Captured()
    job.launch(7, called=0, start=5, duration=100)
    job.wait("cudaStreamSynchronize", 10, 97)  # until 107, 2 after the kernel has ended
    job.launch(7, called=120, start=125, duration=10)
    _, starts, _ = replayed(job.recording(), gpu_speed=0.5)
    assert starts == [0, 5, 205, 220, 225]  # the wait takes until 207, and the host goes on 13 later


def test_a_slower_gpu_does_not_hold_a_host_that_does_not_wait() -> None:
    job = jobs.Captured()
    job.launch(7, called=0, start=5, duration=100)
    job.launch(7, called=10, start=105, duration=10)
    _, starts, _ = replayed(job.recording(), gpu_speed=0.5)
    assert starts == [0, 5, 10, 205]


def test_a_stream_told_to_wait_goes_on_after_the_other() -> None:
    """The second kernel of stream 7 began long after what it waited for; it waits for it none the less."""
    job = jobs.Captured()
    job.launch(20, called=0, start=5, duration=30)
    job.host("cudaStreamWaitEvent", 10, 1)
    job.launch(7, called=100, start=105, duration=10)
    _, starts, _ = replayed(job.recording(), gpu_speed=0.1)
    assert starts[-1] == 305 + 3  # what a kernel takes to begin


def test_a_late_start_just_when_another_stream_was_done_is_taken_for_waiting() -> None:
    job = jobs.Captured()
    job.launch(20, called=0, start=5, duration=300)
    job.launch(7, called=10, start=306, duration=10)
    ordered, starts, _ = replayed(job.recording(), gpu_speed=0.5)
    assert ordered.inferred == 1
    assert starts[-1] == 606


def test_threads_hand_work_to_one_another() -> None:
    """The backward pass runs in a thread of its own, after what the main thread had done and before it goes on."""
    job = jobs.Captured()
    job.host("forward", 0, 10)
    other = job.builder.lane("thread", "thread 2")
    job.host("backward", 20, 30, thread=other)
    job.host("step", 60, 5)
    ordered, _, _ = replayed(job.recording())
    assert {(int(before), int(after)) for before, after, _ in ordered.edges.tolist()} >= {(0, 1), (1, 2)}
    assert (ordered.gaps / US).tolist() == [0, 10, 10]


def test_overlaps_of_rounding_are_cut_and_real_ones_kept() -> None:
    job = jobs.Captured()
    job.launch(7, called=0, start=5, duration=11)
    job.launch(7, called=3, start=15, duration=40)  # one before the first has ended, by its rounded times
    job.launch(7, called=8, start=25, duration=10)  # in the midst of the second
    _, starts, _ = replayed(job.recording())
    assert [starts[place] for place in (2, 4, 5)] == [5, 15, 25]


def test_a_step_begins_where_it_was_marked_and_ends_with_what_it_launched() -> None:
    job = jobs.Captured()
    job.step(3, 4, 90)
    job.launch(7, called=10, start=15, duration=100)
    job.host("tail", 80, 5)
    recording = job.recording()
    ordered = order(recording)
    made = strand(recording, ordered, [])
    start, end = jobs.starts(made)
    ((first, last),) = made.steps.tolist()
    assert (end[last] - end[first]) / US == 111
    assert ordered.marked.tolist() == [[recording.steps["start"][0], recording.steps["start"][0] + 111 * US]]
    assert start[first] == 0


def test_a_host_that_runs_ahead_does_not_wait_for_the_device_at_the_end_of_a_step() -> None:
    job = jobs.Captured()
    for number, begin in enumerate((0, 10, 20)):
        job.step(number, begin, begin + 10)
        job.launch(7, called=begin + 1, start=100 * number + 5, duration=100)
    ordered, start, end = replayed(job.recording())
    steps = [end[last] - end[first] for first, last in ordered.steps.tolist()]
    launches = np.flatnonzero(ordered.nodes["kind"] == LAUNCH)

    assert np.diff(ordered.marked).ravel().tolist() == [105 * US, 100 * US, 100 * US]
    assert steps == [105, 100, 100]
    assert [start[launch] for launch in launches] == [1, 11, 21]


def test_a_rank_that_begins_later_does_all_of_it_later() -> None:
    job = jobs.Captured()
    job.launch(7, called=0, start=5, duration=10)
    job.host("more", 30, 5)
    recording = job.recording()
    made = strand(recording, delayed(order(recording), 50 * US), [])
    start, _ = jobs.starts(made)
    assert start.max() / US == 80


def test_without_times_lanes_and_edges_are_all_the_order_there_is() -> None:
    builder = jobs.RecordingBuilder("a.et")
    lane, free = builder.lane("stream", "stream 0"), builder.lane("any", "")
    nodes = [builder.node(0, lane, "a", duration=3), builder.node(0, free, "b", duration=4)]
    nodes += [builder.node(0, lane, "c"), builder.node(0, free, "d", duration=5)]
    builder.edge(nodes[1], nodes[2])
    recording = builder.build(0, 1)
    ordered = order(recording)
    made = strand(recording, ordered, [])
    start, _ = jobs.starts(made)
    assert start.tolist() == [0, 0, 4, 0]
    assert ordered.unknown == 1


def test_kinds_of_ops_say_what_works() -> None:
    job = jobs.Captured()
    job.launch(7, called=0, start=5, duration=10)
    job.communicate(20, called=20, start=30, duration=10, what=REDUCTION)
    recording = job.recording()
    made = strand(recording, order(recording), [()])
    booked = {TIMERS[timer] for timer in made.rows[:, 3].tolist()}
    assert booked == {"kernels", "host", "launch", "all_reduce"}
    by_kind = {(kind, stream) for kind, stream in made.rows[:, 1:3].tolist()}
    assert by_kind == {(0, MAIN_STREAM), (2, MAIN_STREAM), (2, HOST_STREAM)}


def test_short_kernels_side_by_side_do_not_wait_for_each_other_in_a_circle() -> None:
    job = jobs.Captured()
    job.launch(7, called=0, start=100, duration=1)
    job.launch(20, called=3, start=102, duration=2)
    ordered, _, _ = replayed(job.recording())
    assert all(before < after for before, after, _ in ordered.edges.tolist())
