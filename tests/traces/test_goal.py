from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import InputError, TraceError
from fabricsim.records.program import NONE
from fabricsim.run.verbs import replay
from fabricsim.traces import readers
from fabricsim.traces.goal import reader as goal
from fabricsim.traces.goal import writer
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    WAIT,
    Communication,
    Lane,
    Recording,
    RecordingBuilder,
    Trace,
)
from tests.reference import mutations

SCHEDULE = """\
/* two ranks,
   one message each way */
num_ranks 2

rank 0 { // the first
  work: calc 1500 cpu 1
  out: send 4096b to 1 tag 7 cpu 1 nic 2
  out requires work /* sent when done */
  in: recv 8b from -1 tag -1
  in irequires out
}
rank 1 {
  l1: recv 4096b from 0 tag 7
  l2: send 8 b to 0
  l2 requires l1
  calc 0
}
"""


def schedule(folder: Path, text: str | bytes) -> Trace:
    file = folder / "schedule"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return readers.read([file])


def test_a_schedule(tmp_path: Path) -> None:
    trace = schedule(tmp_path, SCHEDULE)

    assert (trace.form, trace.world, len(trace.recordings)) == ("goal", 2, 2)
    first, second = trace.recordings
    assert first.lanes == (Lane("cpu", "cpu 1"), Lane("cpu", "cpu 0"))
    assert first.nodes["lane"].tolist() == [0, 0, 1]
    assert first.nodes["kind"].tolist() == [COMPUTE, COMMUNICATION, COMMUNICATION]
    assert first.nodes["duration"].tolist() == [1_500_000, NONE, NONE]
    assert [first.names[name] for name in first.nodes["name"]] == ["calc", "send", "recv"]
    assert first.communications == (
        Communication("send", size=4096, peer=1, tag=7, nic=2),
        Communication("recv", size=8, peer=NONE, tag=NONE),
    )
    assert first.edges.tolist() == [(0, 1, False), (1, 2, True)]
    assert second.communications == (
        Communication("recv", size=4096, peer=0, tag=7),
        Communication("send", size=8, peer=0),
    )
    assert second.edges.tolist() == [(0, 1, False)]
    assert second.nodes["duration"].tolist() == [NONE, NONE, 0]


def test_ranks_may_come_in_any_order_and_be_empty(tmp_path: Path) -> None:
    trace = schedule(tmp_path, "num_ranks 2\nrank 1 { }\nrank 0 {\ncalc 5\n}")

    assert [len(recording.nodes) for recording in trace.recordings] == [1, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_ranks 2", "num_ranks 0", ":3: num_ranks is 0, must be at least 1"),
        ("num_ranks 2", "num_ranks 9999999", ":3: num_ranks 9999999 is too large; at most 262144"),
        ("num_ranks 2", "num_ranks 3", "has 2 of 3 ranks, rank 2 is missing"),
        ("num_ranks 2", "num_ranks 2\nnum_ranks 2", ":4: num_ranks is 2, must be"),
        ("rank 1 {", "rank 2 {", ":12: rank 2 of 2; put num_ranks first"),
        ("rank 1 {", "rank 0 {", ":12: rank 0 stands twice"),
        ("rank 1 {", "rank 1 (", ":12: 'rank 1 (' is no GOAL; expected"),
        ("to 0", "to 2", ":14: send names rank 2, but there are 2"),
        ("to 0", "to -1", ":14: a send to rank -1"),
        ("to 0", "from 0", ":14: 'l2: send 8 b from 0' is no GOAL; expected \"send Nb to R\""),
        ("l2 requires l1", "l2 requires l3", ":15: no operation above is labelled l3"),
        ("l2 requires l1", "l2 requires l2", ":15: l2 waits for itself"),
        ("l2 requires l1", "l2 needs l1", ":15: 'l2 needs l1' is no GOAL"),
        ("l2: send", "l1: send", ":14: label l1 stands twice in rank 1"),
        ("calc 1500", "calc 1.5", ":6: 'work: calc 1.5 cpu 1' is no GOAL"),
        ("calc 1500", "calc 9999999999999999", ":6: calc 9999999999999999 is too large; at most 8000000000000000"),
        ("4096b to", "9999999999999999999b to", ":7: size 9999999999999999999 is too large"),
        ("cpu 1 nic 2", "cpu -1", ":7: cpu -1 is too small; at least 0"),
        ("4096b to", "-4096b to", ":7: size -4096 is too small; at least 0"),
        ("4096b to", f"{'9' * 30}b to", f":7: size {'9' * 24}... is too large; at most "),
        ("calc 1500", "calc 99999999999999999999", ":6: calc 99999999999999999999 is too large; at most 80000"),
        ("4096b to", f"-{'9' * 5000}b to", f":7: size -{'9' * 23}... is too small; at least 0"),
        ("tag 7 cpu 1", "tag -2", ":7: tag -2 is too small; at least -1"),
        ("to 0", "to -2", ":14: rank -2 is too small; at least -1"),
        ("to 0", "to -0", "is no GOAL; expected"),
        ("num_ranks 2", f"num_ranks {'9' * 20}", ":3: num_ranks 99999999999999999999 is too large; at most 262144"),
        ("cpu 1 nic 2", "cpu 1 cpu 1", ":7: 'out: send 4096b to 1 tag 7 cpu 1 cpu 1' is no GOAL"),
        ("cpu 1 nic 2", "cpu 99999999999", ":7: cpu 99999999999 is too large"),
        ("tag 7 cpu 1", "tag 4294967295", ":7: tag 4294967295 is too large"),
        ("calc 0", "calc 0 tag 1", ":16: 'calc 0 tag 1' is no GOAL"),
        ("calc 0", "calc 0 calc 1", ":16: 'calc 0 calc 1' is no GOAL"),
        ("  calc 0\n}\n", "  calc 0\n", "ends within rank 1: the file is cut"),
        ("sent when done */", "", ":8: a comment begins here and does not end"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SCHEDULE
    with pytest.raises(TraceError) as error:
        schedule(tmp_path, SCHEDULE.replace(old, new, 1))

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_time_to_read_grows_with_length_only(tmp_path: Path) -> None:
    words = "a" * 30_000 + "to  " * 8_000
    with pytest.raises(TraceError, match=":2: 'aaaa"):
        schedule(tmp_path, f"num_ranks 1\n{words}\n")
    hostile = "num_ranks 1\n" + "/* " * 21_000 + "\n*/" + " " * 60_000 + "rank 0 {\n" + "a:" * 30_000 + "\n"

    with pytest.raises(TraceError, match=":4: 'a:a:a:"):
        schedule(tmp_path, hostile)


def test_a_schedule_of_too_many_statements_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goal, "MOST_STATEMENTS", 3)

    with pytest.raises(TraceError, match=":9: more than 3 statements"):
        schedule(tmp_path, SCHEDULE)


def test_ranks_that_wait_for_one_another_are_named_with_the_file(tmp_path: Path) -> None:
    each = "a: send 5b to {0}\nb: recv 5b from {0}\na requires b"
    ranks = [f"{each.format(1)}\nc: send 7b to 2\nc requires a", each.format(0), "a: recv 7b from 0", "calc 5"]
    blocks = "\n".join(f"rank {rank} {{\n{text}\n}}" for rank, text in enumerate(ranks))
    (tmp_path / "dead.goal").write_text(f"num_ranks 4\n{blocks}\n", encoding="utf-8")

    with pytest.raises(
        TraceError, match=r"dead\.goal: ranks 0, 1 wait for one another: .* forms a circle; have a rank"
    ):
        replay(tmp_path / "dead.goal", "ideal-16")


def equal(one: Recording, other: Recording) -> bool:
    tables = all(np.array_equal(getattr(one, key), getattr(other, key)) for key in ("nodes", "edges", "steps"))
    fields = ("rank", "world", "lanes", "names", "groups", "communications", "origin", "host", "device", "missing")
    return tables and all(getattr(one, key) == getattr(other, key) for key in fields)


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    world = draw(st.integers(1, 4))
    return Trace("goal", tuple(draw(ranks(rank, world)) for rank in range(world)), world)


@st.composite
def ranks(draw: st.DrawFn, rank: int, world: int) -> Recording:
    builder = RecordingBuilder("drawn")
    tags, small = st.integers(NONE, 2**32 - 2), st.integers(0, 3)
    for _ in range(draw(st.integers(0, 8))):
        lane = builder.lane("cpu", f"cpu {draw(small)}")
        operation = draw(st.sampled_from(["send", "recv", "calc"]))
        if operation == "calc":
            builder.node(COMPUTE, lane, "calc", duration=1000 * draw(st.integers(0, 8 * 10**15)))
            continue
        peer = draw(st.integers(NONE if operation == "recv" else 0, world - 1))
        size, nic = draw(st.integers(0, 2**53)), draw(st.just(NONE) | small)
        message = Communication(operation, size=size, peer=peer, tag=draw(tags), nic=nic)
        builder.node(COMMUNICATION, lane, operation, communication=message)
    for after in range(1, builder.count):
        if draw(st.booleans()):
            builder.edge(draw(st.integers(0, after - 1)), after, on_start=draw(st.booleans()))
    return builder.build(rank, world)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=programs())
def test_what_is_written_is_read_back_equal(tmp_path: Path, trace: Trace) -> None:
    lost = writer.write(trace, tmp_path / "out.goal")
    again = readers.read([tmp_path / "out.goal"])

    assert lost == ()
    assert (again.form, again.world) == (trace.form, trace.world)
    assert all(equal(*pair) for pair in zip(trace.recordings, again.recordings, strict=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.goal"]


def test_streams_become_dependencies_and_losses_are_said(tmp_path: Path) -> None:
    builder = RecordingBuilder("captured")
    compute, thread = builder.lane("stream", "stream 7"), builder.lane("thread", "main")
    builder.node(COMPUTE, compute, "second", start=900, duration=1400)
    builder.node(COMPUTE, compute, "first", start=100, duration=800)
    builder.node(WAIT, thread, "cudaDeviceSynchronize", start=0, duration=5000)
    builder.node(HOST, thread, "step", start=6000, duration=1_000_000)
    lost = writer.write(Trace("kineto", (builder.build(0),), NONE), tmp_path / "out.goal")

    text = (tmp_path / "out.goal").read_text()
    assert "l0: calc 1\nl1: calc 1\nl2: calc 0 cpu 1\nl3: calc 1000 cpu 1\n" in text
    assert "l0 requires l1\nl3 requires l2\n}" in text
    assert lost == (
        "names of operations are left out",
        "times at which operations began are left out",
        "durations are rounded to whole nanoseconds",
        "work of hosts becomes that of devices",
    )


@pytest.mark.parametrize(
    ("communication", "duration", "message"),
    [
        (Communication("all_reduce", size=8), NONE, "rank 0 has 'all_reduce', and GOAL only sends and receives"),
        (None, NONE, "rank 0 has compute 'x' of no known duration"),
        (Communication("send", peer=0), NONE, "rank 0 has a send of no known size"),
        (Communication("send", size=8), NONE, "rank 0 has a send of no known receiver"),
        (Communication("recv", size=8, tag=-2), NONE, "rank 0 has a recv with tag -2"),
    ],
)
def test_what_goal_cannot_hold_is_refused(
    tmp_path: Path, communication: Communication | None, duration: int, message: str
) -> None:
    builder = RecordingBuilder("captured")
    kind = COMPUTE if communication is None else COMMUNICATION
    builder.node(kind, builder.lane("any", ""), "x", communication=communication, duration=duration)

    with pytest.raises(InputError, match=message):
        writer.write(Trace("x", (builder.build(0),), 1), tmp_path / "out.goal")
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_of_some_ranks_only_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rank 0 is not known; give the traces of all ranks"):
        writer.write(Trace("x", (RecordingBuilder("captured").build(1),), 2), tmp_path / "out.goal")


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_schedules_end_in_a_trace_or_a_trace_error(tmp_path: Path, data: st.DataObject) -> None:
    text = data.draw(mutations.damaged([SCHEDULE.encode(), b"num_ranks 1\nrank 0 {\na: calc 5\n}\n"]))
    try:
        trace = schedule(tmp_path, text)
    except TraceError:
        return
    assert len(trace.recordings) == trace.world
    for recording in trace.recordings:
        assert (recording.edges["before"] < len(recording.nodes)).all()


def test_the_binary_tree_of_loggopsim(traces: Path) -> None:
    trace = readers.read([traces / "goal" / "binary_tree_32.goal"])

    operations = [
        recording.communications[node["communication"]].operation
        for recording in trace.recordings
        for node in recording.nodes
    ]
    assert (trace.world, operations.count("send"), operations.count("recv")) == (32, 31, 31)
    assert sum(len(recording.edges) for recording in trace.recordings) == 26
