from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fabricsim.calibration.measurements import Measurement, between, read, split
from fabricsim.errors import InputError, TraceError

HEAD = "#       size         count      type   redop    time   algbw   busbw  error     time   algbw   busbw  error\n"
DEVICE = "#   Rank {0:2} Pid  {0} on      node{1} device  {2} [0x3d] GeForce RTX 2080 Ti\n"
OSU = (
    "# OSU MPI Latency Test v5.7\n# Size          Latency (us)\n"
    "1                       1.70\n2                       1.72\n4                       1.75\n"
)


def _log(factor: float = 1.75, rows: int = 5) -> str:
    """A log of 8 ranks on 2 hosts, with NCCL's lines."""
    text = (
        "".join(DEVICE.format(rank, rank // 4, rank % 4) for rank in range(8)) + "NCCL version 2.6.4+cuda10.1\n" + HEAD
    )
    for power in range(20, 20 + rows):
        size, time = 2**power, 2**power / 3000
        bus = f"{time:.1f} 3.00 {3 * factor:.2f} 1e-06"
        text += f"{size} {size // 4} float sum {bus} {bus}\n"
    return text


def _write(folder: Path, text: str) -> str:
    path = folder / "run.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_log_says_what_ran_and_where(tmp_path: Path) -> None:
    found = read(_write(tmp_path, _log()))

    assert (found.kind, found.test, found.ranks, found.hosts, found.nccl) == (
        "collective",
        "all_reduce",
        8,
        2,
        "2.6.4+cuda10.1",
    )
    assert found.sizes.tolist() == [2**power for power in range(20, 25)]
    assert found.seconds == pytest.approx(found.sizes / 3e9, rel=1e-3)


def test_the_lesser_of_both_times_is_fitted() -> None:
    found = read("hkbu-100g-ib-default")
    row = found.sizes.tolist().index(2048)

    assert (found.seconds[row], found.undisturbed[row]) == pytest.approx((202.2e-6, 70.91e-6))
    assert (found.ranks, found.hosts) == (32, 8)


@pytest.mark.parametrize(("factor", "test"), [(1.75, "all_reduce"), (0.875, "reduce_scatter")])
def test_the_bus_bandwidth_tells_the_collective(tmp_path: Path, factor: float, test: str) -> None:
    assert read(_write(tmp_path, _log(factor))).test == test


def test_what_no_table_tells_is_asked_for(tmp_path: Path) -> None:
    untold = _write(tmp_path, _log(1.3))
    with pytest.raises(InputError, match="--test all_reduce"):
        read(untold)
    assert read(untold, "all_reduce").test == "all_reduce"
    with pytest.raises(InputError, match="--test says broadcast"):
        read("hkbu-10gbe-default", "broadcast")


def test_tables_of_osu(tmp_path: Path) -> None:
    found = read(_write(tmp_path, OSU))

    assert (found.kind, found.test, found.sizes.tolist()) == ("latency", "latency", [1, 2, 4])
    bandwidth = read(
        _write(tmp_path, OSU.replace("Latency (us)", "Bandwidth (MB/s)").replace("Latency T", "Bandwidth T"))
    )
    assert (bandwidth.kind, bandwidth.seconds[0]) == ("bandwidth", pytest.approx(1 / 1.70e6))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("nothing of a table\n", "no table in it"),
        ('{"coll": 1}\n', "no log of NCCL's inspector"),
        (OSU.replace("MPI Latency", "MPI Allreduce Latency"), "osu_latency and osu_bw"),
        (OSU.rsplit("\n", 2)[0] + "\n", "has 2 rows"),
        (OSU + "8 1.\n", "cut or damaged"),
        (_log()[:-30], "cut or damaged"),
        (_log().replace("3.00", "3,00"), "cut or damaged"),
        ("\x00\x01", "binary data"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        read(_write(tmp_path, text))
    assert "run.log" in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(TraceError, match=r"nowhere\.log"):
        read("nowhere.log")
    with pytest.raises(InputError, match="of no collective"):
        read("megatron")


def _numbers(count: int) -> Measurement:
    times = np.arange(1.0, count + 1)
    return Measurement("table", "collective", "all_reduce", np.arange(1, count + 1), times, times)


@pytest.mark.parametrize(("which", "held"), [("half", [2, 4, 6]), ("other-half", [1, 3, 5, 7])])
def test_halves_take_every_second_size(which: str, held: list[int]) -> None:
    fitted, out = split(_numbers(7), which)

    assert out.sizes.tolist() == held
    assert sorted([*fitted.sizes, *out.sizes]) == list(range(1, 8))


def test_a_number_draws_the_same_half_again() -> None:
    drawn = [split(_numbers(40), seed)[1].sizes.tolist() for seed in ("1", "1", "2")]

    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 20
    with pytest.raises(InputError, match="--hold-out 'quarter'"):
        split(_numbers(7), "quarter")


def test_sizes_may_be_bounded() -> None:
    assert between(_numbers(9), 3, 6).sizes.tolist() == [3, 4, 5, 6]
    with pytest.raises(InputError, match="widen them"):
        between(_numbers(9), 8, 100)


def _inspected(folder: Path, ranks: range, times: dict[int, list[float]], nodes: int = 2) -> Path:
    for rank in ranks:
        lines = [
            {
                "header": {"id": "0x1", "rank": rank, "n_ranks": len(ranks), "nnodes": nodes},
                "metadata": {"inspector_output_format_version": "v4.0", "hostname": f"node{rank}", "pid": rank},
                "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": size, "coll_exec_time_us": us + 50 * rank},
            }
            for size, all_us in times.items()
            for us in all_us
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"rank{rank}.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_logs_of_the_inspector_count_the_rank_that_waited_least(tmp_path: Path) -> None:
    times = {1024: [30.0, 31.0, 90.0], 4096: [40.0], 2**20: [400.0, 402.0]}
    found = read(str(_inspected(tmp_path, range(4), times)))

    assert (found.test, found.ranks, found.hosts, found.nccl) == ("all_reduce", 4, 2, "")
    assert dict(zip(found.sizes.tolist(), found.seconds.tolist(), strict=True)) == pytest.approx(
        {1024: 31e-6, 4096: 40e-6, 2**20: 401e-6}
    )
    with pytest.raises(InputError, match="has no call of broadcast"):
        read(str(tmp_path), "broadcast")


@pytest.mark.parametrize(
    ("name", "ranks", "hosts"), [("nccl-h200-azure", 8, 1), ("nccl-mi300x", 8, 1), ("nccl-p5", 8, 1)]
)
def test_tables_that_ship_say_how_many_gpus_ran(name: str, ranks: int, hosts: int) -> None:
    found = read(name)

    assert (found.ranks, found.hosts) == (ranks, hosts)
