from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.lines import MOST_BLANK
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.run.verbs import replay
from fabricsim.traces import inspector, readers
from fabricsim.traces.inspector import InspectedOp
from fabricsim.traces.trace import ProcessGroup, Recording
from tests.reference import mutations

HEADER = {"id": "0x9e7a479f95a66c", "comm_name": "DP Group 0", "rank": 31, "n_ranks": 32, "nnodes": 4}
SMALL = {"id": "0x11", "rank": 1, "n_ranks": 2, "nnodes": 1}
METADATA = {
    "inspector_output_format_version": "v4.0",
    "dump_timestamp_us": 1749490229087081,
    "hostname": "node7",
    "pid": 468528,
}


def coll(name: str, size: int, us: int, **more: object) -> dict[str, Any]:
    return {
        "coll_perf": {
            "coll": name,
            "coll_sn": 129,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": us,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 19.065018,
            "coll_busbw_gbs": 18.469236,
            **more,
        }
    }


SEND = {
    "p2p_perf": {
        "p2p": "Send",
        "p2p_sn": 8,
        "p2p_peer": 0,
        "p2p_msg_size_bytes": 524288,
        "p2p_exec_time_us": 50,
        "p2p_timing_source": "kernel_gpu",
    }
}
EVENTS = {"kernel_events": [{"channel_id": 0, "kernel_start_ts": 2005}, {"channel_id": 1, "kernel_start_ts": 2003}]}


def lines(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


def with_header(header: dict[str, Any], *objects: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"header": header, "metadata": METADATA, **one} for one in objects]


OLD = lines(
    *with_header(SMALL, coll("AllGather", 1000, 10)),
    *with_header(HEADER, coll("ReduceScatter", 65536, 110), coll("AllReduce", 4096, 20, event_trace_ts=EVENTS), SEND),
)
STATS = {"dump_stats": {"coll_records": 1, "p2p_records": 1, "proxy_records": 1}}
NEW = lines(
    *with_header(HEADER, STATS),
    coll("AllReduce", 4096, 20),
    SEND,
    {"proxy_trace": {"record_type": "proxy_op_start", "proxy_op_sn": 12}},
)


def read_rows(text: bytes, folder: Path) -> list[InspectedOp]:
    (folder / "node7-pid468528.log").write_bytes(text)
    return [row for source in sources([folder]) for row in inspector.rows(source)]


def read_text(text: bytes, folder: Path) -> list[Recording]:
    (folder / "node7-pid468528.log").write_bytes(text)
    return [one for source in sources([folder]) for one in inspector.read(source)]


def test_rows(tmp_path: Path) -> None:
    rows = read_rows(OLD, tmp_path)
    assert [(row.operation, row.ranks, row.size, row.seconds, row.rank) for row in rows] == [
        ("all_gather", 2, 2000, 10e-6, 1),
        ("reduce_scatter", 32, 32 * 65536, 110e-6, 31),
        ("all_reduce", 32, 4096, 20e-6, 31),
        ("send", 32, 524288, 50e-6, 31),
    ]
    # the plugin's own bandwidth of that reduce-scatter, in GB/s
    assert rows[1].size / rows[1].seconds / 1e9 == pytest.approx(19.065018, rel=1e-6)
    assert [row.start for row in rows] == [NONE, NONE, 2003, NONE]
    assert rows[3].peer == 0


def test_a_header_that_is_for_the_lines_that_follow(tmp_path: Path) -> None:
    rows = read_rows(NEW, tmp_path)
    assert [(row.operation, row.ranks, row.group) for row in rows] == [
        ("all_reduce", 32, "0x9e7a479f95a66c"),
        ("send", 32, "0x9e7a479f95a66c"),
    ]


def test_recording(tmp_path: Path) -> None:
    [recording] = read_text(OLD, tmp_path)
    assert (recording.rank, recording.world, recording.host) == (31, 32, "node7")
    assert recording.groups == (
        ProcessGroup("0x11", "", (), 2),
        ProcessGroup("0x9e7a479f95a66c", "DP Group 0", tuple(range(32)), 32),
    )
    assert recording.nodes["duration"].tolist() == [10_000_000, 110_000_000, 20_000_000, 50_000_000]
    assert recording.origin == 2_003_000
    assert recording.nodes["start"].tolist() == [NONE, NONE, 0, NONE]
    assert recording.communications[recording.nodes["communication"][3]].peer == 0


def test_processes_of_one_file_are_told_apart(tmp_path: Path) -> None:
    other = OLD.replace(b"468528", b"468529").replace(b'"rank": 31', b'"rank": 30')
    (tmp_path / "all.jsonl").write_bytes(OLD + other)
    trace = readers.read([tmp_path])
    assert trace.form == "inspector"
    assert [recording.rank for recording in trace.recordings] == [30, 31]


def test_a_last_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    assert len(read_rows(OLD[:-40], tmp_path)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OLD.replace(b"65536", b"-5"), r"log: line 2 cannot be read: Expected `int` >= 0 - at `\$.coll_perf"),
        (OLD.replace(b"{", b"", 1), "line 1 cannot be read"),
        (NEW.split(b"\n", 1)[1], ":1: has no header"),
        (OLD.replace(b'"n_ranks": 32', b'"n_ranks": 0'), "line 2 cannot be read"),
        (b"x" * (inspector.MOST_LINE + 1), "16 MiB"),
        (b"{}\n" * (MOST_BLANK + 1), "100,000 lines in a row without an operation"),
        (OLD.replace(b": 65536", b": %d" % 2**53, 1), ":2: has an operation of"),
        (OLD.replace(b'_us": 110', b'_us": %d' % 10**13), "line 2 cannot be read"),
    ],
)
def test_mistakes(text: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=says):
        read_rows(text, tmp_path)


def test_kernels_of_one_job(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="kernels begin at 2003 and at 99999999992003 us: more than the 92 days"):
        read_text(OLD.replace(b'_ts": 200', b'_ts": 9999999999200') + OLD, tmp_path)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_damage_ends_in_recordings_or_one_error(drawn: st.DataObject, tmp_path: Path) -> None:
    one = [line for text in (OLD, NEW) for line in text.splitlines()]
    text = drawn.draw(mutations.damaged([OLD, NEW, *one]))
    try:
        recordings = read_text(text, tmp_path)
    except TraceError:
        return
    for recording in recordings:
        assert (recording.nodes["duration"] >= 0).all()
        assert all(one.size >= 0 for one in recording.communications)


def test_messages_without_times_do_not_wait_for_one_another(tmp_path: Path) -> None:
    messages = []
    for rank in (0, 1):
        about = {"header": SMALL | {"rank": rank}, "metadata": METADATA | {"pid": rank}}
        ends = ({"p2p": name, "p2p_peer": 1 - rank} for name in ("Send", "Recv"))
        messages += [{**about, "p2p_perf": SEND["p2p_perf"] | end} for end in ends]
        messages.append({**about, **coll("AllReduce", 4096, 9)})
    (tmp_path / "log.jsonl").write_bytes(lines(*messages))

    result = replay(tmp_path, "dgx-a100")

    assert result.calls.start[0] == result.calls.start[1]
    assert result.calls.start[2] >= max(result.calls.end[:2])
