from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import InputError, TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.run.verbs import replay
from fabricsim.traces import horovod, nccl_tests, readers
from fabricsim.traces.horovod_parts import Ran, fitting, parts
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.traces.trace import COMMUNICATION, COPY, HOST, KINDS, Communication, ProcessGroup, Recording
from tests.reference import mutations

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
    assert recording.groups == (ProcessGroup("global", "", (0, 1), 2),)
    assert communications(recording) == [Communication("all_reduce", 0, 2 * 10 * 20, "float16")]
    negotiation, exchange = recording.nodes
    assert (negotiation["kind"], exchange["kind"]) == (HOST, COMMUNICATION)
    us = 1_000_000
    assert (negotiation["start"], negotiation["duration"]) == (10 * us, 10 * us)
    assert (exchange["start"], exchange["duration"]) == (25 * us, 50 * us)
    assert [(edge["before"], edge["after"]) for edge in recording.edges] == [(0, 1)]


def test_a_negotiation_waits_for_what_had_ended_before_it_and_not_for_what_ran_beside_it(tmp_path: Path) -> None:
    later = [begin(4, "NEGOTIATE_ALLREDUCE", 75), ready(4, 0, 76), ready(4, 1, 76), end(4, 80)]
    beside = [begin(5, "NEGOTIATE_ALLREDUCE", 74), ready(5, 0, 75), ready(5, 1, 76), end(5, 79)]
    [recording] = read_text(written([*ALONE, *later, *beside]), tmp_path)
    starts = dict(zip((recording.nodes["start"] // 1_000_000).tolist(), range(4), strict=True))

    found = {(edge["before"], edge["after"]) for edge in recording.edges}
    assert found == {(starts[10], starts[25]), (starts[25], starts[75])}


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


IN = ("MEMCPY_IN_HOST_BUFFER", "MPI_ALLREDUCE", "MEMCPY_OUT_HOST_BUFFER")
SHARED = ("NCCL_REDUCESCATTER", *IN, "NCCL_ALLGATHER")
REST = ("NCCL_REDUCE", *IN, "NCCL_BCAST")
BOTH = ("NCCL_REDUCESCATTER", "NCCL_REDUCE", *IN, "NCCL_ALLGATHER", "NCCL_BCAST")


def hierarchical(pids: tuple[int, ...], elements: int, names: tuple[str, ...], world: int) -> list[Event]:
    """One all-reduce, each part of which takes 10 us; several tensors go into the fusion buffer."""
    first = 1000 * pids[0]
    events = [begin(pid, "NEGOTIATE_ALLREDUCE", first) for pid in pids]
    events += [ready(pids[0], rank, first) for rank in range(world)]
    events += [end(pid, first + 1) for pid in pids]
    events += [begin(pid, "ALLREDUCE", first + 2) for pid in pids]
    if len(pids) > 1:
        names = ("MEMCPY_IN_FUSION_BUFFER", *names)
    for place, name in enumerate(names, 1):
        events += [begin(pid, name, first + 20 * place) for pid in pids]
        events += [end(pid, first + 20 * place + 10) for pid in pids]
    return [*events, *(end(pid, first + 900, dtype="float32", shape=f"[{elements}]") for pid in pids)]


def test_parts_of_a_hierarchical_all_reduce(tmp_path: Path) -> None:
    # 1026 = 4 x 256 + 2; below 4 elements nothing can be shared
    events = [*hierarchical((1,), 1026, BOTH, 8), *hierarchical((2,), 3, REST, 8)]
    [recording] = read_text(written(events), tmp_path)
    host, hosts = ProcessGroup("host", "", (0, 1, 2, 3), 4), ProcessGroup("hosts", "", (0, 4), 2)
    shares = [(recording.groups[one.group], one._replace(group=NONE)) for one in communications(recording)]
    assert shares == [
        (host, Communication("reduce_scatter", NONE, 4 * 1024, "float32")),
        (host, Communication("reduce", NONE, 4 * 2, "float32", peer=3)),
        (hosts, Communication("all_reduce", NONE, 4 * 256, "float32")),
        (host, Communication("all_gather", NONE, 4 * 1024, "float32")),
        (host, Communication("broadcast", NONE, 4 * 2, "float32", peer=3)),
        (host, Communication("reduce", NONE, 4 * 3, "float32", peer=3)),
        (hosts, Communication("all_reduce", NONE, 0, "float32")),
        (host, Communication("broadcast", NONE, 4 * 3, "float32", peer=3)),
    ]
    copies = recording.nodes[recording.nodes["kind"] == COPY]
    assert [recording.names[name] for name in copies["name"]] == [IN[0], IN[2]] * 2
    assert (copies["duration"] == 10_000_000).all()
    said = "which ranks are on one host: 4 that follow one another (the one number that fits what ran"
    assert any(sentence.startswith(said) for sentence in recording.missing)
    assert any(sentence.startswith("by which algorithm MPI communicates") for sentence in recording.missing)


def test_fused_tensors_fill_up_the_buffer_of_a_hierarchical_all_reduce(tmp_path: Path) -> None:
    # 3 tensors of 100 elements are filled up to 2 x 64 x 3 = 384
    events = [*hierarchical((1,), 3, BOTH, 4), *hierarchical((2, 3, 4), 100, SHARED, 4)]
    [recording] = read_text(written(events), tmp_path)
    fused = [one for one in communications(recording) if one.size > 12]
    assert [(one.operation, one.size) for one in fused] == [
        ("reduce_scatter", 4 * 384),
        ("all_reduce", 4 * 192),
        ("all_gather", 4 * 384),
    ]


def test_all_ranks_of_a_hierarchical_all_reduce(tmp_path: Path) -> None:
    (tmp_path / "timeline.json").write_bytes(written(hierarchical((1,), 1026, BOTH, 8)))
    trace = readers.read([tmp_path], ranks_per_host=4)
    rebuilt = rebuild(trace)
    calls = sorted((one.collective, one.ranks, one.size) for one in rebuilt.program.calls.kinds)
    places = ((0, 1, 2, 3), (4, 5, 6, 7))
    expected = [(name, ranks, 4096) for name in ("reduce_scatter", "all_gather") for ranks in places]
    expected += [(name, ranks, 8) for name in ("reduce", "broadcast") for ranks in ((3, 0, 1, 2), (7, 4, 5, 6))]
    assert calls == sorted([*expected, *(("all_reduce", (rank, rank + 4), 1024) for rank in range(4))])


def test_a_host_of_one_rank_copies(tmp_path: Path) -> None:
    [recording] = read_text(written(hierarchical((1,), 1, SHARED, 15)), tmp_path)
    assert communications(recording) == [Communication("all_reduce", 0, 4, "float32")]
    assert recording.groups == (ProcessGroup("hosts", "", tuple(range(15)), 15),)
    assert [KINDS[kind] for kind in recording.nodes["kind"]].count("copy") == 4


def test_ranks_per_host_that_the_timeline_does_not_show(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_bytes(written(hierarchical((1,), 1024, SHARED, 16)))
    trace = readers.read([path])
    assert any(one.endswith("hierarchical all-reduces fits 1, 2, 4, 8") for one in trace.recordings[0].missing)
    with pytest.raises(
        TraceError, match=r"does not say how many ranks a host has; say it by ranks_per_host \(--ranks-per-host N\)"
    ):
        rebuild(trace)
    for local in (2, 8):
        calls = rebuild(readers.read([path], ranks_per_host=local)).program.calls.kinds
        across = {one.ranks: one.size for one in calls if one.collective == "all_reduce"}
        assert across == {tuple(range(first, 16, local)): 4096 // local for first in range(local)}
    with pytest.raises(TraceError, match=r"is not of hosts of 3 ranks: what ran .* fits 1, 2, 4, 8 to a host"):
        readers.read([path], ranks_per_host=3)
    (tmp_path / "a.goal").write_text("num_ranks 1\nrank 0 {\ncalc 1\n}\n")
    with pytest.raises(
        InputError, match=r"ranks_per_host 4 \(--ranks-per-host\): .*a.goal is of form goal, which does without"
    ):
        readers.read([tmp_path / "a.goal"], ranks_per_host=4)


@pytest.mark.parametrize(
    "events",
    [
        hierarchical((1,), 1024, REST, 16),
        hierarchical((1, 2), 1024, REST, 16),
        hierarchical((1,), 1024, SHARED, 7) + hierarchical((2,), 7, REST, 7),
    ],
)
def test_hosts_of_different_sizes_are_refused(events: list[Event], tmp_path: Path) -> None:
    (tmp_path / "timeline.json").write_bytes(written(events))
    trace = readers.read([tmp_path])
    assert any(one.endswith("fits none") for one in trace.recordings[0].missing)
    with pytest.raises(TraceError, match="or capture with HOROVOD_HIERARCHICAL_ALLREDUCE=0"):
        rebuild(trace)


@given(local=st.integers(1, 16), hosts=st.integers(2, 8), sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=9))
def test_the_true_number_of_ranks_per_host_fits(local: int, hosts: int, sizes: list[int]) -> None:
    ran = []
    for size in sizes:
        shared, rest, across = parts(size, local, fused=False)
        assert (shared + rest, across * local) == (size, shared)
        filled = parts(size, local, fused=True)
        assert (filled.rest, filled.shared % (64 * local)) == (0, 0)
        assert 0 <= filled.shared - size < 64 * local
        ran.append(Ran(size, shared > 0, rest > 0))
    assert local in fitting(local * hosts, ran)


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


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_damage_ends_in_recordings_or_one_error(drawn: st.DataObject, tmp_path: Path) -> None:
    samples = [written(ALONE), written(FUSED), written(hierarchical((1,), 1026, BOTH, 4))]
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "transport", "least"), [("hkbu_10g", "tcp-10g", 64 * 2**20), ("hkbu_100g", "rdma-100g", 2 * 2**20)]
)
def test_captured_all_reduces_are_replayed(cluster: str, transport: str, least: int, traces: Path) -> None:
    """Within 25 % from where connections are warm; what is smaller waited, and is shorter in a replay."""
    result = replay(traces / "nccl_logs" / cluster / "horovod-nccl-only.json", "hkbu", transport=transport)
    assert result.capture is not None
    changes = {one.size: one.replayed / one.captured - 1 for one in result.capture.transfers if one.size >= 2**20}
    assert sorted(changes) == [2**exponent for exponent in range(20, 30)]
    assert max(changes.values()) < 0.25
    assert min(change for size, change in changes.items() if size >= least) > -0.25
    assert any("how long communications waited" in sentence for sentence in result.capture.assumptions)


@pytest.mark.slow
def test_what_the_captured_all_reduces_waited_for_is_not_in_the_fabric(traces: Path) -> None:
    """nccl-tests on the same hosts, after a warm-up, take as long as the replay and half as long as the timeline."""
    table = nccl_tests.read(traces / "nccl_logs" / "hkbu_10g" / "10g-stepexp2.txt")
    result = replay(traces / "nccl_logs" / "hkbu_10g" / "horovod-nccl-only.json", "hkbu", transport="tcp-10g")
    assert result.capture is not None
    replayed = {one.size: one.replayed / 1e6 for one in result.capture.transfers}
    for row in table.rows:
        if 2**21 <= row["size"] <= 2**25:
            assert replayed[row["size"]] == pytest.approx(row["time_out_s"] * 1e6, rel=0.05)


def test_python_names_a_form_and_files_as_the_command_line_does(tmp_path: Path) -> None:
    (tmp_path / "timeline.json").write_text(json.dumps(ALONE), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    named = replay(tmp_path, "hkbu", transport="rdma-100g", form="horovod", only="*.json")
    assert named.capture is not None
    assert named.capture.form == "horovod"
    with pytest.raises(InputError, match="holds no kernels"):
        replay(tmp_path, "hkbu", transport="rdma-100g", form="kineto", only="*.json")
