from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.records.program import NONE
from fabricsim.traces.nccl_log.facts import LoggedPlace
from fabricsim.traces.nccl_log.lines import messages
from fabricsim.traces.nccl_log.reader import read_log, recognises
from fabricsim.traces.nccl_log.records import LoggedChoice, NcclLog
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, ProcessGroup, Recording


def said(rank: int, text: str) -> str:
    """Two hosts of two GPUs each."""
    return f"node{rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL INFO {text}\n"


def init(rank: int, address: str, place: int, size: int, identity: str = "", state: str = "COMPLETE") -> str:  # noqa: PLR0913, PLR0917  as NCCL prints
    where = f"cudaDev {rank % 2} nvmlDev {rank % 2} busId {rank % 2}7000"
    return said(rank, f"ncclCommInitRank comm {address} rank {place} nranks {size} {where}{identity} - Init {state}")


def call(rank: int, name: str, number: int, count: int, datatype: int, root: int, address: str, size: int) -> str:  # noqa: PLR0913, PLR0917  as NCCL prints
    buffers = "sendbuff 0x7f3c00000000 recvbuff (nil)"
    what = f"count {count} datatype {datatype} op 0 root {root} comm {address} [nranks={size}] stream 0x55aa"
    return said(rank, f"{name}: opCount {number:x} {buffers} {what}")


WORLD, PAIR = " commId 0xabc", " commId 0xdef0"
SAMPLE = (
    "Epoch 0 begins\n"
    "NCCL version 2.21.5+cuda12.4\n"
    + "".join(said(rank, "Using network IB") for rank in range(4))
    + said(0, "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>")
    + said(0, "Channel 00/02 :    0   1   2   3")
    + said(0, "Trees [0] 1/2/-1->0->-1 [1] 1/-1/-1->0->2")
    + said(0, "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA")
    + said(0, "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read")
    + said(0, "2 coll channels, 0 collnet channels, 4 nvls channels, 8 p2p channels, 2 p2p channels per peer")
    + "".join(init(rank, f"0x{rank}10", rank, 4, WORLD) for rank in range(4))
    + "".join(init(rank, f"0x{rank}20", rank // 2, 2, f"{PAIR}{rank % 2}") for rank in range(4))
    + "".join(call(rank, "AllReduce", 0x9F, 1024, 9, 0, f"0x{rank}10", 4) for rank in range(4))
    + said(0, "AllReduce: 2048 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..1}")
    + said(0, "4096 Bytes -> Algo 1 proto 2 time 12.500000")
    + "".join(call(rank, "AllGather", 0xA0, 512, 7, 0, f"0x{rank}10", 4) for rank in range(4))
    + "".join(call(rank, "ReduceScatter", 0, 256, 7, 0, f"0x{rank}20", 2) for rank in range(4))
    + "".join(
        call(rank, name, 1, 100, 6, 1 - rank // 2, f"0x{rank}20", 2) for rank in range(4) for name in ("Send", "Recv")
    )
    + "".join(call(rank, "Broadcast", 2, 10, 8, 1, f"0x{rank}20", 2) for rank in range(4))
)


def written(folder: Path, text: str) -> Path:
    file = folder / "nccl.log"
    file.write_text(text)
    return file


def log_of(folder: Path, text: str) -> NcclLog:
    return first_log(written(folder, text))


def first_log(path: Path) -> NcclLog:
    (log,) = (read_log(source) for source in sources([path]))
    return log


def recordings(folder: Path, text: str = SAMPLE) -> tuple[Recording, ...]:
    trace = read([written(folder, text)])
    assert trace.form == "nccl_log"
    return trace.recordings


def test_what_a_log_says_of_the_set_up(tmp_path: Path) -> None:
    log = log_of(tmp_path, SAMPLE)

    assert log.versions == ("2.21.5+cuda12.4",)
    assert log.networks == {"IB": 4}
    assert log.adapters == {"mlx5_0:1/RoCE": 1, "mlx5_1:1/RoCE": 1}
    assert [(each.rank, each.size, each.host, each.device) for each in log.communicators[:4]] == [
        (0, 4, "node0", 0),
        (1, 4, "node0", 1),
        (2, 4, "node1", 0),
        (3, 4, "node1", 1),
    ]
    first = log.communicators[0]
    assert first.facts.rings == {0: (0, 1, 2, 3)}
    assert first.facts.trees == {0: LoggedPlace(None, (1, 2)), 1: LoggedPlace(2, (1,))}
    assert (first.facts.channels, first.facts.p2p_channels, first.facts.nvls_channels) == (2, 8, 4)
    assert first.facts.transports == {"NET/IB/GDRDMA": 1, "P2P/CUMEM/read": 1}
    assert log.choices == {
        LoggedChoice("AllReduce", 2048, "tree", "ll128", 2): 1,
        LoggedChoice("", 4096, "ring", "simple", NONE): 1,
    }


def test_calls_become_recordings(tmp_path: Path) -> None:
    ranks = recordings(tmp_path)

    assert [(each.rank, each.world, each.host) for each in ranks] == [
        (0, 4, "node0"),
        (1, 4, "node0"),
        (2, 4, "node1"),
        (3, 4, "node1"),
    ]
    third = ranks[3]
    assert third.groups == (ProcessGroup("0xabc", "", (0, 1, 2, 3), 4), ProcessGroup("0xdef01", "", (1, 3), 2))
    what = [third.communications[node["communication"]] for node in third.nodes if node["kind"] == COMMUNICATION]
    assert [(each.operation, each.group, each.size, each.datatype, each.peer) for each in what] == [
        ("all_reduce", 0, 2048, "bfloat16", NONE),
        ("all_gather", 0, 512 * 4 * 4, "float32", NONE),
        ("reduce_scatter", 1, 256 * 4 * 2, "float32", NONE),
        ("send", 1, 200, "float16", 1),
        ("recv", 1, 200, "float16", 1),
        ("broadcast", 1, 80, "float64", 3),
    ]
    assert third.nodes["sequence"].tolist() == [0x9F, 0xA0, *[NONE] * 5]
    assert np.all(third.nodes["start"] == NONE)
    assert any("when anything ran" in missing for missing in third.missing)


def test_sends_and_receives_of_a_group_run_at_once(tmp_path: Path) -> None:
    nodes, edges = recordings(tmp_path)[0].nodes, recordings(tmp_path)[0].edges

    assert nodes["kind"].tolist() == [COMMUNICATION] * 5 + [COMPUTE, COMMUNICATION]
    assert {(edge["before"], edge["after"]) for edge in edges} == {(2, 3), (2, 4), (3, 5), (4, 5)}
    assert nodes["lane"][3] == nodes["lane"][4] != nodes["lane"][2]


def test_a_log_can_be_replayed(tmp_path: Path) -> None:
    program = rebuild(read([written(tmp_path, SAMPLE)])).program

    assert program.ranks == 4
    assert sorted(call.collective for call in program.calls) == sorted(
        ["all_reduce", "all_gather"] + ["reduce_scatter", "broadcast"] * 2 + ["send_recv"] * 4
    )


def test_one_file_per_process(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in range(4):
        mine = [line for line in SAMPLE.splitlines(keepends=True) if f":{100 + rank}:" in line]
        (folder / f"nccl.{rank}.log").write_text("".join(mine))

    apart = read([folder])

    for one, whole in zip(apart.recordings, recordings(tmp_path), strict=True):
        assert (one.rank, one.groups[1], one.communications) == (whole.rank, whole.groups[1], whole.communications)
    assert rebuild(apart).program.ranks == 4


@pytest.mark.parametrize(
    "dress",
    [
        lambda line: f"[1,3]<stdout>:{line}",
        lambda line: f"12: {line}",
        lambda line: f"(Worker pid=7, ip=10.0.0.1) {line}",
        lambda line: f"[2026-05-05 06:16:47] {line}",
        lambda line: f"{line}\r",
        lambda line: line.replace(" NCCL INFO", " 1558545003174220 NCCL INFO"),
        lambda line: f"Epoch 3: 17%|### {line}",
    ],
    ids=["mpirun", "srun", "ray", "timestamp", "carriage return", "microseconds", "progress bar"],
)
def test_what_launchers_add(tmp_path: Path, dress: object) -> None:
    dressed = "".join(f"{dress(line)}\n" for line in SAMPLE.splitlines())  # type: ignore[operator]

    assert log_of(tmp_path, dressed).communicators == log_of(tmp_path, SAMPLE).communicators
    for one, other in zip(recordings(tmp_path, dressed), recordings(tmp_path), strict=True):
        np.testing.assert_array_equal(one.nodes, other.nodes)


def test_two_messages_in_one_line() -> None:
    line = "  1048576  262144  float a1:1:2 [3] NCCL INFO b2:4:5 [6] init.cc:77 NCCL WARN wrong"

    first, second = messages(line)

    assert (first.process, first.thread, first.device, first.text) == (("a1", 1), 2, 3, "")
    assert (second.process, second.thread, second.device, second.text) == (("b2", 4), 5, 6, "wrong")


def test_older_forms_of_trees_and_rings(tmp_path: Path) -> None:
    text = (
        said(1, "Channel 00 :    0   1   2   3")
        + said(1, "Ring 00 : 7 -> 10 [receive] via NET/Socket/0")
        + said(1, "Ring 00 : 1[1] -> 0[0] via direct shared memory")
        + said(1, "Trees [0] 0->1->3/-1/-1 [1] 2/-1/-1->1->0|0->1->2/-1/-1")
        + said(1, "Tree 2 : -1 -> 1 -> 0/2/-1")
        + said(1, "comm 0x7f rank 1 nranks 4 cudaDev 1 nvmlDev 1 - Init COMPLETE")
        + said(1, "NET/Socket : Using [0]ib0:10.0.0.11<0>")
        + said(1, "NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.0.0.11<0>")
    )
    log = log_of(tmp_path, text)

    assert log.networks == {"IB": 1}
    (only,) = log.communicators
    assert only.facts.rings == {0: (0, 1, 2, 3)}
    assert only.facts.trees == {0: LoggedPlace(0, (3,)), 1: LoggedPlace(0, (2,)), 2: LoggedPlace(None, (0, 2))}
    assert only.facts.transports == {"NET/Socket": 1, "SHM": 1}
    assert (only.rank, only.size) == (1, 4)


def test_connections_made_after_the_set_up(tmp_path: Path) -> None:
    """Since NCCL 2.22 a communicator connects when it is first used, and another thread may do it."""
    later = said(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC").replace(":200 ", ":999 ")
    text = init(0, "0x1", 0, 2, " commId 0x5", "START") + init(0, "0x1", 0, 2, " commId 0x5") + later
    (only,) = log_of(tmp_path, text).communicators

    assert only.facts.transports == {"P2P/IPC": 1}


def test_an_address_used_again_is_another_communicator(tmp_path: Path) -> None:
    text = init(0, "0x1", 0, 2, " commId 0x5") + init(0, "0x1", 1, 3, " commId 0x6")

    assert [(each.size, each.identity) for each in log_of(tmp_path, text).communicators] == [(2, "0x5"), (3, "0x6")]


def test_splits_are_known_by_parent_and_color(tmp_path: Path) -> None:
    split = " parent 0x{}10 color {} key 0 commId 0x0"
    text = SAMPLE + "".join(init(rank, f"0x{rank}30", rank % 2, 2, split.format(rank, rank // 2)) for rank in range(4))
    log = log_of(tmp_path, text)

    assert [each.identity for each in log.communicators[-4:]] == ["0xabc/1.0", "0xabc/1.0", "0xabc/1.1", "0xabc/1.1"]


def test_communicators_without_identity_are_known_where_they_are_of_all(tmp_path: Path) -> None:
    before = SAMPLE.replace(WORLD, "").replace(f"{PAIR}0", "").replace(f"{PAIR}1", "")
    first = recordings(tmp_path, before)[0]

    assert first.groups[0] == ProcessGroup("communicator 0 of all ranks", "", (0, 1, 2, 3), 4)
    assert first.groups[1].ranks == ()
    assert any("which ranks are in some communicators of 2 ranks" in missing for missing in first.missing)


def test_rccl_says_its_rank_in_each_call(tmp_path: Path) -> None:
    text = "".join(
        call(rank, "AllReduce", 3, 8, 7, 0, f"0x{rank}10", 4).rstrip() + f" task 0 globalrank {rank}\n"
        for rank in range(4)
    )

    assert [each.rank for each in recordings(tmp_path, text)] == [0, 1, 2, 3]


def test_one_process_that_does_not_say_its_rank(tmp_path: Path) -> None:
    (only,) = recordings(tmp_path, call(0, "AllReduce", 3, 8, 7, 0, "0x10", 4))

    assert (only.rank, only.world) == (NONE, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(line for line in SAMPLE.splitlines(keepends=True) if "opCount" not in line), "NCCL_DEBUG_SUBSYS=INIT"),
        (SAMPLE.replace("count 1024 datatype", "count 10x:1:2 [0] NCCL", 1), "NCCL_DEBUG_FILE=nccl.%h.%p.log"),
        (
            "".join(line for line in SAMPLE.splitlines(keepends=True) if "Init COMPLETE" not in line),
            "no communicator of all of them",
        ),
        (SAMPLE.replace("root 1 comm", "root 9 comm"), "with rank 9 of a communicator of 2 ranks"),
        (SAMPLE.replace("count 512", "count 999999999999999999"), "more than any memory holds"),
        (SAMPLE.replace("rank 3 nranks 4", "rank 7 nranks 4"), "is of rank 7, but the job has 4 ranks"),
        (SAMPLE + "x" * 70_000, "longer than 64 KiB"),
        (SAMPLE + "\0", "binary data"),
    ],
)
def test_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match="nccl") as caught:
        read([written(tmp_path, text)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_operations_and_datatypes_are_said_to_be_missing(tmp_path: Path) -> None:
    text = SAMPLE.replace("AllGather:", "AllToAllv:").replace("datatype 9", "datatype 77")
    first = recordings(tmp_path, text)[0]

    assert first.communications[0].size == NONE
    assert (first.communications[1].operation, first.communications[1].size) == ("unknown", NONE)
    assert any("datatype 77" in missing for missing in first.missing)
    assert any("what AllToAllv does" in missing for missing in first.missing)


def test_what_is_recognised() -> None:
    assert recognises("log", SAMPLE.encode())
    assert not recognises("trace.json", b'{"x": "a:1:2 [0] NCCL INFO hello"}')
    assert not recognises("log", b"Epoch 1")


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    cut=st.integers(0, len(SAMPLE)), at=st.integers(0, len(SAMPLE) - 1), insert=st.text(max_size=8), twice=st.booleans()
)
def test_damaged_logs_are_read_or_refused(tmp_path: Path, cut: int, at: int, insert: str, *, twice: bool) -> None:
    text = (SAMPLE[:at] + insert + SAMPLE[at + len(insert) :])[:cut] * (1 + twice)
    file = tmp_path / "nccl.log"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        trace = read([file], "nccl_log")
    except TraceError:
        return
    assert trace.recordings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "version", "sizes", "network"),
    [
        ("nccl_logs/hkbu_10g/10g-stepexp2.txt", "2.6.4+cuda10.1", {32: 32}, {"Socket": 32}),
        ("nccl_logs/hkbu_10g/ring-10g-stepexp2.txt", "2.4.7+cuda10.1", {32: 32}, {"Socket": 32}),
        ("nccl_logs/hkbu_100g/100g-stepexp2.txt", "2.6.4+cuda10.1", {32: 32}, {"IB": 32}),
        ("nccl_logs/hkbu_100g/ring-100g-stepexp2.txt", "2.4.7+cuda10.1", {32: 32}, {"IB": 32}),
        ("megatron_logs/all_reduce_bench-32gb-n4.txt.xz", "2.10.3+cuda11.3", {16: 16}, {"IB": 16}),
        ("megatron_logs/n16_32gb_all_reduce_bench.txt.xz", "2.7.8+cuda10.2", {64: 64}, {"IB": 64}),
        (
            "megatron_logs/meg_gpt2_perf_n16-1999618.out.xz",
            "2.7.8+cuda10.2",
            {1: 64, 2: 128, 4: 64, 16: 16, 64: 128},
            {"IB": 64},
        ),
    ],
)
def test_real_logs(traces: Path, name: str, version: str, sizes: dict[int, int], network: dict[str, int]) -> None:
    log = first_log(traces / name)

    assert log.versions == (version,)
    assert log.networks == network
    counted = np.unique([each.size for each in log.communicators], return_counts=True)
    assert dict(zip(*map(np.ndarray.tolist, counted), strict=True)) == sizes
    assert not len(log.calls)
    with pytest.raises(TraceError, match="NCCL_DEBUG_SUBSYS=INIT,COLL"):
        read([traces / name], "nccl_log")
