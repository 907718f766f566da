from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.traces import horovod, readers
from fabricsim.traces.trace import COMMUNICATION, COPY, KINDS, WAIT, Communication, Group

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from fabricsim.traces.trace import Recording

Event = dict[str, Any]


def begin(pid: int, name: str, ts: int) -> Event:
    return {"ph": "B", "name": name, "ts": ts, "pid": pid}


def end(pid: int, ts: int, **args: object) -> Event:
    return {"ph": "E", "ts": ts, "pid": pid, **({"args": args} if args else {})}


def named(pid: int, name: str) -> Event:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def ready(pid: int, rank: int, ts: int) -> Event:
    return {"ph": "X", "name": str(rank), "ts": ts, "pid": pid, "dur": 0}


START = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1000}}
ALONE = [
    START,
    named(1, "grad.1"),
    begin(1, "NEGOTIATE_ALLREDUCE", 10),
    ready(1, 1, 11),
    ready(1, 0, 19),
    end(1, 20),
    begin(1, "ALLREDUCE", 21),
    begin(1, "QUEUE", 22),
    end(1, 23),
    begin(1, "NCCL_ALLREDUCE", 25),
    end(1, 75),
    end(1, 76, dtype="float16", shape="[10, 20]"),
]
FUSED = [
    *ALONE,
    *[begin(pid, "ALLREDUCE", 100) for pid in (2, 3)],
    *[begin(pid, "MEMCPY_IN_FUSION_BUFFER", 101) for pid in (2, 3)],
    *[end(pid, 103) for pid in (2, 3)],
    *[begin(pid, "NCCL_ALLREDUCE", 104 + pid) for pid in (2, 3)],
    *[end(pid, 120 + pid) for pid in (2, 3)],
    *[begin(pid, "MEMCPY_OUT_FUSION_BUFFER", 130) for pid in (2, 3)],
    *[end(pid, 135) for pid in (2, 3)],
    *[end(pid, 140, dtype="float32", shape=f"[{pid}]") for pid in (2, 3)],
]


def read_text(text: bytes, folder: Path) -> list[Recording]:
    (folder / "timeline.json").write_bytes(text)
    return [one for source in sources([folder / "timeline.json"]) for one in horovod.read(source)]


def written(events: list[Event]) -> bytes:
    return json.dumps(events).encode()


def communications(recording: Recording) -> list[Communication]:
    return [recording.communications[number] for number in recording.nodes["communication"] if number != NONE]


def test_one_tensor(tmp_path: Path) -> None:
    [recording] = read_text(written(ALONE), tmp_path)
    assert (recording.rank, recording.world, recording.origin) == (0, 2, 1_000_000)
    assert recording.groups == (Group("global", "", (0, 1), 2),)
    assert communications(recording) == [Communication("all_reduce", 0, 2 * 10 * 20, "float16")]
    negotiation, exchange = recording.nodes
    assert (negotiation["kind"], exchange["kind"]) == (WAIT, COMMUNICATION)
    us = 1_000_000
    assert (negotiation["start"], negotiation["duration"]) == (10 * us, 10 * us)
    assert (exchange["start"], exchange["duration"]) == (25 * us, 50 * us)
    assert [(edge["before"], edge["after"]) for edge in recording.edges] == [(0, 1)]


def test_fused_tensors_are_one_communication(tmp_path: Path) -> None:
    [recording] = read_text(written(FUSED), tmp_path)
    assert [one.size for one in communications(recording)] == [400, 4 * (2 + 3)]
    kinds = [KINDS[kind] for kind in recording.nodes["kind"]]
    assert kinds.count("communication") == 2
    assert kinds.count("copy") == 4
    [fused] = [number for number, node in enumerate(recording.nodes) if node["communication"] == 1]
    assert (recording.nodes["start"][fused], recording.nodes["duration"][fused]) == (106_000_000, 17_000_000)
    into = [edge["before"] for edge in recording.edges if edge["after"] == fused]
    out = [edge["after"] for edge in recording.edges if edge["before"] == fused]
    assert len(into) == len(out) == 2
    assert {int(recording.nodes["kind"][node]) for node in (*into, *out)} == {COPY}


def test_tensors_that_were_not_fused_are_communications_of_their_own(tmp_path: Path) -> None:
    events = [event for event in FUSED if "FUSION" not in event.get("name", "") and event.get("ts") not in {103, 135}]
    [recording] = read_text(written(events), tmp_path)
    assert [one.size for one in communications(recording)] == [400, 8, 12]


def test_a_list_without_end(tmp_path: Path) -> None:
    text = written(FUSED)
    [recording] = read_text(text.rstrip(b"]"), tmp_path)
    assert len(communications(recording)) == 2
    [recording] = read_text(text[: text.rindex(b'"dtype"')], tmp_path)
    # the last tensor of the fused communication has not ended: of that nothing is known
    assert len(communications(recording)) == 1
    assert any("stopped before" in sentence for sentence in recording.missing)


def test_without_sizes(tmp_path: Path) -> None:
    [recording] = read_text(written([*ALONE[:-1], end(1, 76)]), tmp_path)
    assert communications(recording)[0].size == NONE
    assert any("the size of 1 communications" in sentence for sentence in recording.missing)


def test_a_reduce_scatter_hands_out_a_part(tmp_path: Path) -> None:
    text = written(ALONE).replace(b"ALLREDUCE", b"REDUCESCATTER")
    [recording] = read_text(text, tmp_path)
    assert communications(recording) == [Communication("reduce_scatter", 0, 2 * 400, "float16")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (written([*ALONE, end(1, 80)]), "event 12 ends a span of 'grad.1' that has not begun"),
        (written([*ALONE[:-2], end(1, 3)]), "ends at 3 us what began at 25 us"),
        (written(ALONE).replace(b'"ts": 22', b'"ts": -22'), "event 7 cannot be read"),
        (written([START, *[begin(1, "A", 1)] * 70]), "more than 64 spans"),
        (b'[{"name": "NEGOTIATE_A", "ph": "M"}, 5]', "item 1 of its list is no object"),
    ],
)
def test_mistakes(text: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=says):
        read_text(text, tmp_path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_damage_ends_in_recordings_or_one_error(drawn: st.DataObject, tmp_path: Path, mutations: ModuleType) -> None:
    samples = [written(ALONE), written(FUSED)]
    text = drawn.draw(mutations.damaged(samples))
    try:
        recordings = read_text(text, tmp_path)
    except TraceError:
        return
    for recording in recordings:
        assert (recording.nodes["duration"] >= 0).all()
        assert (recording.edges["before"] != recording.edges["after"]).all()


@pytest.mark.parametrize(("cluster", "slowest_us"), [("hkbu_10g", 904_082), ("hkbu_100g", 188_518)])
def test_captured_on_32_ranks(cluster: str, slowest_us: int, traces: Path) -> None:
    trace = readers.read([traces / "nccl_logs" / cluster / "horovod-nccl-only.json"])
    assert (trace.form, trace.world) == ("horovod", 32)
    [recording] = trace.recordings
    assert [one.size for one in communications(recording)] == [4 * 2**exponent for exponent in range(28)]
    assert int(recording.nodes["duration"][recording.nodes["kind"] == COMMUNICATION].max()) == slowest_us * 1_000_000
