"""The timeline against the trace-event format, the run itself, and the reader of PyTorch's own traces."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import ResultError
from fabricsim.records.program import COLLECTIVE, HOST, MAIN_STREAM
from fabricsim.records.program import COMPUTE as OPS_COMPUTE
from fabricsim.report.trace_events.lines import MICROSECONDS, Number, lines
from fabricsim.report.trace_events.slices import FIRST_STREAM, HOST_THREAD, _first_fit
from fabricsim.report.trace_events.writer import write_timeline, write_timelines
from fabricsim.results.result import RunRecord
from fabricsim.run.pipeline import load, simulate
from fabricsim.run.verbs import replay
from fabricsim.traces.readers import read
from fabricsim.traces.trace import COMMUNICATION, COMPUTE

SMALL = (
    'job.model={include="gpt2-medium",layers=4}', "job.micro_batch=1", "job.global_batch=8", "cluster.hosts=8",
    "job.parallelism={tensor=2,pipeline=2,data=2}",
)  # fmt: skip


@pytest.fixture(scope="module")
def run() -> RunRecord:
    return simulate(load("gpt2-medium-dp", list(SMALL)))


def written(run: RunRecord, path: Path) -> dict[str, Any]:
    write_timeline(run, path)
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == "kernel"]


NEEDED = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": (int, float), "dur": (int, float)},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "C": {"name": str, "pid": int, "ts": (int, float), "args": dict},
    "s": {"name": str, "cat": str, "pid": int, "tid": int, "ts": (int, float), "id": int},
    "f": {"name": str, "cat": str, "pid": int, "tid": int, "ts": (int, float), "id": int, "bp": str},
}
"""Fields of each phase of "Trace Event Format" (Google, 2016) that viewers need."""
METADATA = {
    "process_name": "name", "thread_name": "name", "process_sort_index": "sort_index", "thread_sort_index": "sort_index"
}  # fmt: skip


def assert_valid(trace: dict[str, Any]) -> None:
    """Hold a trace against the format: phases, types of fields, metadata, counters, pairs of arrows."""
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    arrows: dict[int, list[str]] = defaultdict(list)
    for event in trace["traceEvents"]:
        for field, kind in NEEDED[event["ph"]].items():
            assert isinstance(event[field], kind), event
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "M":
            assert METADATA[event["name"]] in event["args"]
        elif event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event["ph"])
    assert all(sorted(ends) == ["f", "s"] for ends in arrows.values())


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_timeline_is_valid(run: RunRecord, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    write_timeline(run, path)
    assert_valid(json.loads(gzip.decompress(path.read_bytes()) if suffix == ".json.gz" else path.read_bytes()))


@pytest.mark.slow
def test_that_of_a_replay_is_valid_and_has_what_held_its_calls(tmp_path: Path) -> None:
    replayed = replay("dlrm-v100", "dgx1-v100")
    trace = written(replayed, tmp_path / "t.json.gz")

    assert_valid(trace)
    counters = {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"}
    assert any("NVLink" in name for name in counters)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9)), max_size=80))
def test_each_span_has_the_first_lane_that_is_free(spans: list[tuple[int, int, int]]) -> None:
    spans = sorted(spans)
    group, start, time = map(np.ascontiguousarray, np.array(spans, np.int64).reshape(-1, 3).T)
    found = np.empty(len(spans), np.int64)
    _first_fit(found, np.empty_like(found), group, start, start + time)

    for place, (mine, begin, _) in enumerate(spans):
        before = zip(spans[:place], found[:place].tolist(), strict=True)
        busy = {lane for (other, since, took), lane in before if other == mine and since + took > begin}
        assert found[place] == next(lane for lane in range(len(spans)) if lane not in busy)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 8 * 10**18)), min_size=1))
def test_lines_have_the_numbers_of_their_template(rows: list[tuple[int, int]]) -> None:
    which, column = np.array(rows).T

    made = lines(
        [[b"a", Number(0), b" ", Number(0, MICROSECONDS), b"\n"], [Number(1, 8), b" is longer than a block\n"]],
        which,
        (column, column % 10**8),
    )

    first = [f"a{value} {value // 10**6}.{value % 10**6:06}" for template, value in rows if template == 0]
    second = [f"{value % 10**8:08} is longer than a block" for template, value in rows if template == 1]
    assert bytes(made.text()).decode().splitlines() == first + second


@pytest.mark.slow
def test_a_packed_timeline_is_the_plain_one_and_has_no_time_or_name_in_it(run: RunRecord, tmp_path: Path) -> None:
    for name in ("one.json.gz", "other.json.gz", "plain.json"):
        write_timeline(run, tmp_path / name)

    assert gzip.decompress((tmp_path / "one.json.gz").read_bytes()) == (tmp_path / "plain.json").read_bytes()
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "other.json.gz").read_bytes()


@pytest.mark.slow
def test_each_op_is_a_slice_with_its_times(run: RunRecord, tmp_path: Path) -> None:
    found = slices(written(run, tmp_path / "t.json.gz"))

    took = (run.spans["end"] > run.spans["start"]) & (run.ops["kind"] == OPS_COMPUTE)
    took |= run.ops["kind"] == COLLECTIVE
    expected = sorted(zip(run.ops["rank"][took].tolist(), run.spans["start"][took].tolist(), strict=True))
    assert sorted((event["pid"], round(event["ts"] * 10**6)) for event in found) == expected
    collectives = sum("Collective name" in event["args"] for event in found)
    assert collectives == (run.ops["kind"] == COLLECTIVE).sum()


@pytest.mark.slow
def test_no_two_slices_of_a_thread_overlap(run: RunRecord, tmp_path: Path) -> None:
    by_thread = defaultdict(list)
    for event in slices(written(run, tmp_path / "t.json.gz")):
        begin = round(event["ts"] * 10**6)
        by_thread[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 10**6)))

    assert len(by_thread) > 8 * 2
    for spans in by_thread.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans))


def assert_no_overlaps(trace: dict[str, Any]) -> dict[tuple[int, int], int]:
    """Hold slices of a thread against one another; gives how long all of each take, ps."""
    by_thread = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            begin = round(event["ts"] * 10**6)
            by_thread[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 10**6)))
    for spans in by_thread.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    return {thread: sum(end - begin for begin, end in spans) for thread, spans in by_thread.items()}


@pytest.mark.slow
def test_a_host_is_one_thread_that_does_one_thing_after_the_other(tmp_path: Path) -> None:
    """A host is busy from the begin of a pass until the last of its ops that holds a kernel up."""
    run = simulate(load("what-if-launches"))
    took = assert_no_overlaps(written(run, tmp_path / "t.json.gz"))

    hosts = {rank: time for (rank, thread), time in took.items() if HOST_THREAD <= thread < FIRST_STREAM}
    assert len(hosts) == len([thread for _, thread in took if HOST_THREAD <= thread < FIRST_STREAM]), "one for a rank"
    for rank, time in hosts.items():
        mine = run.spans[(run.ops["rank"] == rank) & (run.ops["kind"] == HOST) & (run.ops["stream"] != MAIN_STREAM)]
        busy, until = 0, 0
        for begin, end in sorted(zip(mine["start"].tolist(), mine["end"].tolist(), strict=True)):
            busy, until = busy + max(end - max(begin, until), 0), max(until, end)
        assert 0 < time == busy <= run.iteration


@pytest.mark.slow
def test_more_slices_at_once_than_a_stream_has_threads_do_not_overlap(run: RunRecord, tmp_path: Path) -> None:
    calls = run.ops["kind"] == COLLECTIVE
    ops, spans = run.ops.copy(), run.spans.copy()
    ops["rank"][calls], spans["start"][calls] = 0, 0
    first = run.calls.kinds[0].dimension
    kinds = tuple(kind._replace(dimension=first) for kind in run.calls.kinds)
    crowded = dataclasses.replace(run, ops=ops, spans=spans, calls=dataclasses.replace(run.calls, kinds=kinds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fabricsim.report.trace_events.slices.FIRST_STREAM", 520)
        assert calls.sum() > 520
        took = assert_no_overlaps(written(crowded, tmp_path / "t.json.gz"))

    assert max(thread for _, thread in took) == 1039


@pytest.mark.slow
def test_arrows_lead_from_each_send_to_its_receive(run: RunRecord, tmp_path: Path) -> None:
    trace = written(run, tmp_path / "t.json.gz")
    begin, end = (
        {event["id"]: event for event in trace["traceEvents"] if event["ph"] == phase} for phase in ("s", "f")
    )

    sends = [event for event in slices(trace) if event["args"].get("Collective name") == "send"]
    assert len(begin) == len(sends) > 0
    assert begin.keys() == end.keys()
    for number, start in begin.items():
        assert start["ts"] <= end[number]["ts"]
        assert start["pid"] != end[number]["pid"]


@pytest.mark.slow
def test_processes_say_where_ranks_are(run: RunRecord, tmp_path: Path) -> None:
    events = written(run, tmp_path / "t.json.gz")["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}

    assert names[0] == "rank 0 (TP 0, DP 0, PP 0)"
    assert names[7] == "rank 7 (TP 1, DP 1, PP 1)"
    assert names[8] == "fabric"
    assert any(event["ph"] == "C" and event["pid"] == 8 for event in events)


@pytest.mark.slow
def test_each_group_of_ranks_is_one_process_group(run: RunRecord, tmp_path: Path) -> None:
    trace = written(run, tmp_path / "t.json.gz")
    groups = {group["pg_name"]: group for group in trace["distributedInfo"]["pg_config"]}

    told = [(group["pg_desc"], tuple(group["ranks"])) for group in groups.values()]
    assert len(set(told)) == len(told)
    for event in slices(trace):
        if "Process Group Name" in event["args"]:
            group = groups[event["args"]["Process Group Name"]]
            assert event["pid"] in group["ranks"]
            assert event["args"]["Process Group Description"] == group["pg_desc"]
            assert event["args"]["Group size"] == group["pg_size"]


@pytest.mark.slow
def test_the_reader_of_the_profilers_traces_reads_it_back(run: RunRecord, tmp_path: Path) -> None:
    assert write_timelines(run, tmp_path) == 8

    trace = read([tmp_path])

    assert trace.form == "kineto"
    recordings = sorted(trace.recordings, key=lambda each: each.rank)
    assert [each.rank for each in recordings] == list(range(8))
    for each in recordings:
        mine = run.ops["rank"] == each.rank
        kinds = Counter(each.nodes["kind"].tolist())
        assert kinds[COMMUNICATION] == (mine & (run.ops["kind"] == COLLECTIVE)).sum()
        assert (
            kinds[COMPUTE] == (mine & (run.ops["kind"] == OPS_COMPUTE) & (run.spans["end"] > run.spans["start"])).sum()
        )
        found = Counter((one.operation, one.size) for one in each.communications)
        assert {name for name, _ in found} >= {"all_reduce", "send" if each.rank < 4 else "recv"}
        sizes = {kind.size for kind in run.calls.kinds if kind.collective == "all_reduce"}
        assert {size for name, size in found if name == "all_reduce"} <= sizes


@pytest.mark.slow
def test_timelines_of_a_slow_network_replayed_on_a_fast_one_take_as_long_as_a_run_there(tmp_path: Path) -> None:
    scenario = ['job.model={include="gpt2-medium",layers=4}', "job.launch=graph"]
    slow, fast = (
        simulate(load("gpt2-medium-dp", [*scenario, f"transport={name}"])) for name in ("tcp-10g", "rdma-100g")
    )
    write_timelines(slow, tmp_path)

    again = replay(tmp_path, "gpt2-medium-dp", transport="rdma-100g")

    assert again.capture.steps[0].captured == pytest.approx(slow.iteration, rel=1e-6)
    assert again.iteration == pytest.approx(fast.iteration, rel=0.01)


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(run: RunRecord, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_timeline(run, tmp_path / name)

    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.slow
def test_a_full_disk_is_said_though_a_thread_writes_and_nothing_is_left(
    run: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fabricsim.report.trace_events.writer._store", no_room)
    with pytest.raises(ResultError, match=r"run\.json: cannot be written: No space left on device"):
        write_timeline(run, tmp_path / "run.json")
    assert not [*tmp_path.iterdir()]
