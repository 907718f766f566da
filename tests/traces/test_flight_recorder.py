from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.run.verbs import replay
from fabricsim.traces import flight_recorder, readers
from fabricsim.traces.trace import COMMUNICATION, KINDS, ProcessGroup, Recording
from tests.reference import mutations


def entry(number: int, name: str, sent: list[list[int]], got: list[list[int]], **more: object) -> dict[str, Any]:
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_750_000_000_000_000_000 + 1000 * number,
        "duration_ms": 0.25,
        "input_sizes": sent,
        "input_dtypes": ["BFloat16"] * len(sent),
        "output_sizes": got,
        "output_dtypes": ["BFloat16"] * len(got),
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 5,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
        **more,
    }


ENTRIES = [
    entry(0, "all_reduce", [[3, 4]], [[3, 4]]),
    entry(1, "_all_gather_base", [[6]], [[24]]),
    entry(2, "_reduce_scatter_base", [[24]], [[6]]),
    entry(3, "send 1->0", [[5]], [[5]], process_group=["7", "pp"], is_p2p=True),
    entry(4, "recv 1<-0", [[5]], [[5]], process_group=["7", "pp"], is_p2p=True),
    entry(5, "coalesced", [], []),
    entry(6, "all_reduce_barrier", [[1]], [[1]]),
]
CONFIGURED = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
    "7": {"name": "7", "desc": "pp", "ranks": "[1, 3]"},
}
DUMP = {
    "entries": ENTRIES,
    "pg_config": CONFIGURED,
    "pg_status": {"0": {"last_enqueued_collective": "7"}},
    "version": "2.10",
}


def written(dump: dict[str, Any]) -> bytes:
    return json.dumps(dump).encode()


def read_text(text: bytes, folder: Path, name: str = "nccl_trace_rank_3.json") -> list[Recording]:
    (folder / name).write_bytes(text)
    return [one for source in sources([folder / name]) for one in flight_recorder.read(source)]


def test_sizes_groups_and_peers(tmp_path: Path) -> None:
    [recording] = read_text(written(DUMP), tmp_path)
    found = [recording.communications[number] for number in recording.nodes["communication"] if number != NONE]
    assert [(one.operation, one.size, one.peer) for one in found] == [
        ("all_reduce", 24, NONE),
        ("all_gather", 48, NONE),
        ("reduce_scatter", 48, NONE),
        ("send", 10, 1),
        ("recv", 10, 1),
        ("barrier", NONE, NONE),
    ]
    assert {one.datatype for one in found} == {"bfloat16"}
    assert recording.groups == (ProcessGroup("0", "default_pg", (0, 1, 2, 3), 4), ProcessGroup("7", "pp", (1, 3), 2))
    assert (recording.rank, recording.world) == (3, 4)


def test_times_are_those_of_the_calls(tmp_path: Path) -> None:
    [recording] = read_text(written(DUMP), tmp_path)
    assert recording.origin == 1_750_000_000_000_000_000
    launch, kernel = recording.nodes[2:4]
    assert (KINDS[launch["kind"]], launch["start"], launch["duration"]) == ("launch", 1_000_000, NONE)
    assert (KINDS[kernel["kind"]], kernel["start"], kernel["duration"]) == ("communication", NONE, 250_000_000)
    assert (2, 3, True) in recording.edges.tolist()
    messages = recording.nodes[recording.nodes["kind"] == COMMUNICATION]
    assert messages["sequence"].tolist() == [1, 2, 3, NONE, NONE, 7]


def test_entries_may_come_last_and_out_of_order(tmp_path: Path) -> None:
    turned = {key: DUMP[key] for key in ("version", "pg_config", "pg_status")} | {"entries": ENTRIES[::-1]}
    [one], [other] = read_text(written(DUMP), tmp_path), read_text(written(turned), tmp_path)
    assert (one.nodes == other.nodes).all()
    assert one.groups == other.groups


def test_what_the_buffer_has_lost_and_what_was_not_timed(tmp_path: Path) -> None:
    later = [one | {"duration_ms": None, "record_id": one["record_id"] + 100} for one in ENTRIES]
    [recording] = read_text(written(DUMP | {"entries": later}), tmp_path)
    assert any("the first 100 communications" in sentence for sentence in recording.missing)
    assert any("TORCH_NCCL_ENABLE_TIMING" in sentence for sentence in recording.missing)


def test_a_pickle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    for protocol in (2, 3, 4, 5):
        path = tmp_path / f"nccl_trace_rank_{protocol}"
        path.write_bytes(pickle.dumps(DUMP, protocol))
        with pytest.raises(TraceError, match="_dump_nccl_trace_json"):
            readers.read([path])


def test_found_among_all_forms(tmp_path: Path) -> None:
    for rank in (1, 0):
        (tmp_path / f"fr_{rank}.json").write_bytes(written(DUMP))
    trace = readers.read([tmp_path])
    assert (trace.form, trace.world) == ("flight_recorder", 4)
    assert [recording.rank for recording in trace.recordings] == [0, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (written(DUMP)[:-200], "cannot be read|cut"),
        (written(DUMP)[:900], "is cut after item"),
        (written(DUMP).replace(b"[[3, 4]]", b"[[3, -4]]"), "entry 0 cannot be read"),
        (written(DUMP).replace(b'"[1, 3]"', b'"[1, 1]"'), "group '7' are none"),
        (b'{"profiling_name": 1}', "no list"),
        (written(DUMP).replace(b'"duration_ms": 0.25', b'"duration_ms": 113747595430'), "entry 0 cannot be read"),
    ],
)
def test_mistakes(text: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=says):
        read_text(text, tmp_path)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_damage_ends_in_recordings_or_one_error(drawn: st.DataObject, tmp_path: Path) -> None:
    text = drawn.draw(mutations.damaged([written(DUMP)]))
    try:
        recordings = read_text(text, tmp_path)
    except TraceError:
        return
    for recording in recordings:
        assert (recording.edges["before"] < len(recording.nodes)).all()
        assert all(one.size >= NONE for one in recording.communications)


def test_sends_and_receives_given_together_do_not_wait_for_one_another(tmp_path: Path) -> None:
    for rank in (0, 1):
        other = 1 - rank
        entries = [
            entry(0, "all_reduce", [[64]], [[64]]),
            entry(1, f"send {rank}->{other}", [[64]], [[64]], is_p2p=True),
            entry(2, f"recv {rank}<-{other}", [[64]], [[64]], is_p2p=True),
            entry(3, "coalesced", [], [], is_p2p=True),
            entry(4, "all_reduce", [[64]], [[64]], collective_seq_id=2),
        ]
        configured = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        dump = {"entries": entries, "pg_config": configured}
        (tmp_path / f"trace1_rank_{rank}.json").write_bytes(written(dump))

    result = replay(tmp_path, "dgx-a100")

    starts, ends = result.calls.start.tolist(), result.calls.end.tolist()
    first, *messages, last = range(4)
    assert all(ends[first] <= starts[message] and ends[message] <= starts[last] for message in messages)
    assert starts[messages[0]] == starts[messages[1]]
