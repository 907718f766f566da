from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.traces import osu
from fabricsim.traces.osu import OsuTable

LATENCY = """\
# OSU MPI Latency Test v5.7
# Size          Latency (us)
0                       1.67
8                       1.74
1024                    2.53
4194304               361.86"""
BANDWIDTH = """\
# OSU MPI-CUDA Bandwidth Test v7.5
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)
1                       1.35
1048576             12140.55
"""
ALL_REDUCE = """\

# OSU MPI Allreduce Latency Test v5.8
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                       8.10              7.90              8.40        1000
8                       8.20              7.95              8.50        1000
"""


def table(folder: Path, content: str) -> OsuTable:
    file = folder / "log"
    file.write_text(content)
    return osu.read(file)


def test_latency(tmp_path: Path) -> None:
    read = table(tmp_path, LATENCY)

    assert (read.test, read.version, read.quantity) == ("MPI Latency", "5.7", "latency")
    assert read.rows["size"].tolist() == [0, 8, 1024, 4194304]
    np.testing.assert_allclose(read.rows["latency_s"], [1.67e-6, 1.74e-6, 2.53e-6, 361.86e-6])
    assert np.isnan(read.rows["bandwidth"]).all()


def test_bandwidth_counts_megabytes_of_ten_to_the_six(tmp_path: Path) -> None:
    read = table(tmp_path, BANDWIDTH)

    assert (read.test, read.version, read.quantity) == ("MPI-CUDA Bandwidth", "7.5", "bandwidth")
    np.testing.assert_allclose(read.rows["bandwidth"], [1.35e6, 12140.55e6])
    assert np.isnan(read.rows["latency_s"]).all()


def test_collective_test_gives_the_average(tmp_path: Path) -> None:
    read = table(tmp_path, ALL_REDUCE)

    assert read.test == "MPI Allreduce Latency"
    np.testing.assert_allclose(read.rows["latency_s"], [8.1e-6, 8.2e-6])


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: "], ids=["mpirun", "srun"])
def test_launcher_prefixes(tmp_path: Path, prefix: str) -> None:
    dressed = "".join(f"{prefix}{line}\r\n" for line in LATENCY.splitlines())

    for column in ("size", "latency_s"):
        np.testing.assert_array_equal(table(tmp_path, dressed).rows[column], table(tmp_path, LATENCY).rows[column])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LATENCY[:-1], ":6: not a row of size and value"),  # 361.8
        (LATENCY[:-3], ":6: not a row of size and value"),  # 361
        (LATENCY[:-12], ":6: not a row of size and value"),  # the size alone
        (LATENCY.replace("1.74", "1.7x"), ":4: not a row"),
        (LATENCY.replace("1.74", "0.00"), ":4: the row of 8 bytes has latency 0.00;"),
        (BANDWIDTH.replace("12140.55", "0.00"), ":5: the row of 1048576 bytes has bandwidth 0.00;"),
        *((LATENCY.replace("1.74", value), ":4: not a row") for value in ("nan", "inf", "-1.74", "1e400", "N/A")),
        (LATENCY[:57], "its table has no rows"),
        (LATENCY[:20], "no OSU table"),
        (LATENCY + "\n" + BANDWIDTH, ":7: a second table starts here"),
        ("1 2.50\n", "no OSU table"),
    ],
)
def test_damaged_tables_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        table(tmp_path, content)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def survives(folder: Path, content: bytes) -> None:
    file = folder / "log"
    file.write_bytes(content)
    try:
        read = osu.read(file)
    except TraceError:
        return
    assert len(read.rows) > 0
    assert (read.rows["latency_s"] > 0).all() or (read.rows["bandwidth"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("content", [LATENCY, BANDWIDTH, ALL_REDUCE], ids=["latency", "bandwidth", "all_reduce"])
def test_cut_tables_end_in_a_table_or_a_trace_error(tmp_path: Path, content: str) -> None:
    for length in range(len(content)):
        survives(tmp_path, content[:length].encode())


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.sampled_from([LATENCY, BANDWIDTH, ALL_REDUCE]),
    flips=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 7)), min_size=1, max_size=4),
)
def test_flipped_bits_end_in_a_table_or_a_trace_error(
    tmp_path: Path, content: str, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(content.encode())
    for place, bit in flips:
        damaged[place % len(damaged)] ^= 1 << bit

    survives(tmp_path, bytes(damaged))


@pytest.mark.parametrize(
    ("name", "at_1_kib", "last"), [("10g-latency.txt", 53.03, 3795.97), ("100g-latency.txt", 2.53, 361.86)]
)
def test_captured_tables(traces: Path, name: str, at_1_kib: float, last: float) -> None:
    read = osu.read(traces / "osu" / "hkbu" / name)

    assert (read.test, read.version, read.quantity, len(read.rows)) == ("MPI Latency", "5.7", "latency", 24)
    assert read.rows["latency_s"][read.rows["size"] == 1024] == pytest.approx(at_1_kib * 1e-6)
    assert read.rows["size"][-1] == 4194304
    assert read.rows["latency_s"][-1] == pytest.approx(last * 1e-6)
