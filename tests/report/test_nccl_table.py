from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import SimulationError
from fabricsim.report.nccl_table import BenchRow, render
from fabricsim.traces import nccl_tests
from fabricsim.traces.nccl_tests import Device

DEVICES = [Device(rank, f"host{rank // 4}", rank % 4, "GeForce RTX 2080 Ti") for rank in range(8)]


def printed(rows: list[BenchRow], collective: str = "all_reduce") -> str:
    return render(
        rows,
        collective=collective,
        devices=DEVICES,
        machine="cluster hkbu, transport tcp-10g, NCCL 2.6",
        version="1.2.3",
    )


def data_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_first_line_says_that_it_is_simulated() -> None:
    first, second = printed([BenchRow(4, 1e-6)]).splitlines()[:2]

    assert first.startswith("# simulated by fabricsim 1.2.3")
    assert second == "# cluster hkbu, transport tcp-10g, NCCL 2.6"


def test_columns_are_those_of_nccl_tests() -> None:
    text = printed([BenchRow(1048576, 0.5e-3)])

    assert "\n#       size         count      type   redop    root     time   algbw   busbw  #wrong     time" in text
    # size %12, count %12, type %8, redop %6, root %6, then time %7, algbw %6, busbw %6, N/A, each after two blanks
    half = "   500.00    2.10    3.67    N/A"
    assert data_rows(text) == [f"     1048576        262144     float     sum      -1{half}{half}"]


@pytest.mark.parametrize(
    ("seconds", "time"),
    [
        (0.4e-6, "   0.40"),
        (6.4e-6, "   6.40"),
        (9999.99e-6, "9999.99"),
        (14977.14e-6, "14977.1"),
        (0.443148, " 443148"),
        (1.5, "1500000"),
        (62.2, "6.2e+07"),
    ],
)
def test_times_have_as_many_decimals_as_fit(seconds: float, time: str) -> None:
    assert data_rows(printed([BenchRow(2**34, seconds)]))[0][54:61] == time


def test_average_is_the_mean_of_the_bus_bandwidths() -> None:
    # 8 ranks: 1.75 GB in 1 s and in 0.5 s are 1.75 * 1.75 and 3.5 * 1.75 GB/s.
    text = printed([BenchRow(1_750_000_000, 1.0), BenchRow(1_750_000_000, 0.5)])

    assert "\n# Avg bus bandwidth    : 4.59375 \n" in text


@pytest.mark.parametrize(
    ("collective", "program", "head"),
    [
        ("all_gather", "all_gather_perf", "32     float    none      -1"),
        ("reduce_scatter", "reduce_scatter_perf", "32     float     sum      -1"),
        ("broadcast", "broadcast_perf", "256     float    none       0"),
        ("send_recv", "sendrecv_perf", "256     float    none      -1"),
    ],
)
def test_other_collectives(collective: str, program: str, head: str) -> None:
    text = printed([BenchRow(1024, 1e-6)], collective)

    assert f"# Collective test starting: {program}\n" in text
    assert data_rows(text)[0].split("  ", 1)[0] == ""
    assert head in data_rows(text)[0]


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2**36), st.floats(1e-6, 1e3)), min_size=1, max_size=20),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv"]),
)
def test_table_is_read_back(tmp_path: Path, cases: list[tuple[int, float]], collective: str) -> None:
    file = tmp_path / "table.txt"
    file.write_text(printed([BenchRow(*case) for case in cases], collective))

    table = nccl_tests.read(file)

    assert (table.collective, table.ranks, table.hosts) == (collective, 8, 2)
    assert table.devices == tuple(DEVICES)
    assert table.rows["size"].tolist() == [size for size, _ in cases]
    for column in ("time_out_s", "time_in_s"):
        # Three significant digits up to 10 s, two above: what the column has room for.
        np.testing.assert_allclose(table.rows[column], [time for _, time in cases], rtol=0.05, atol=0.005e-6)


def test_what_cannot_be_printed_is_refused() -> None:
    with pytest.raises(SimulationError, match="nothing to print"):
        printed([])
    with pytest.raises(SimulationError, match=r"4 bytes took 0\.0 s"):
        printed([BenchRow(4, 0.0)])


def test_zero_bytes_are_printed() -> None:
    assert data_rows(printed([BenchRow(0, 6.4e-6)]))[0].endswith("     6.40    0.00    0.00    N/A")
