from __future__ import annotations

import gzip
import lzma
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.results.summary import bus_factor
from fabricsim.traces import nccl_tests
from fabricsim.traces.nccl_tests import NcclTestsTable

# An old form (no root, `error`) and the current one, as a run of 4 ranks on 2 hosts would print them.
OLD = """\
# nThread 1 nGpus 1 minBytes 4 maxBytes 1048576 step: 512(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1001 on      alpha device  0 [0x3d] GeForce RTX 2080 Ti
#   Rank  1 Pid   1002 on      alpha device  1 [0x3e] GeForce RTX 2080 Ti
#   Rank  2 Pid   2001 on       beta device  0 [0x3d] GeForce RTX 2080 Ti
#   Rank  3 Pid   2002 on       beta device  1 [0x3e] GeForce RTX 2080 Ti
NCCL version 2.6.4+cuda10.1
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0   float     sum     6.36    0.00    0.00  0e+00     6.40    0.00    0.00  0e+00
           4             1   float     sum    59.24    0.00    0.00  2e-07    58.27    0.00    0.00  1e-07
        2048           512   float     sum   202.20    0.01    0.02  5e-07    70.91    0.03    0.04  5e-07
     1048576        262144   float     sum    732.2    1.43    2.15  1e-06    728.6    1.44    2.16  1e-06
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.54625
#
"""
NEW = """\
# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907
# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
# Using devices
#  Rank  0 Group  0 Pid  40001 on      alpha device  0 [0000:06:00] NVIDIA A100-PCIE-40GB
#  Rank  1 Group  0 Pid  40002 on       beta device  0 [0000:06:00] NVIDIA A100-PCIE-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           128     float    none      -1    61.85    0.02    0.01       0    47.04    0.02    0.01    N/A
        2048           256     float    none      -1    13908    0.00    0.00       0    13855    0.00    0.00    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.00812
#
# Collective test concluded: all_gather_perf
"""
ROW = next(line for line in NEW.splitlines() if line.startswith("        2048 "))


def table(folder: Path, content: str | bytes) -> NcclTestsTable:
    file = folder / "log"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return nccl_tests.read(file)


def mistake(folder: Path, content: str) -> str:
    with pytest.raises(TraceError) as error:
        table(folder, content)
    return str(error.value)


def test_old_form(tmp_path: Path) -> None:
    read = table(tmp_path, OLD)

    assert (read.collective, read.version, read.ranks, read.hosts) == (None, "2.6.4+cuda10.1", 4, 2)
    assert read.devices[3] == nccl_tests.Device(3, "beta", 1, "GeForce RTX 2080 Ti")
    assert read.rows["size"].tolist() == [0, 4, 2048, 1048576]
    assert read.rows["count"].tolist() == [0, 1, 512, 262144]
    assert set(read.rows["datatype"]) == {"float"}
    assert set(read.rows["redop"]) == {"sum"}
    assert set(read.rows["root"]) == {-1}
    np.testing.assert_allclose(read.rows["time_out_s"], [6.36e-6, 59.24e-6, 202.2e-6, 732.2e-6])
    np.testing.assert_allclose(read.rows["time_in_s"], [6.4e-6, 58.27e-6, 70.91e-6, 728.6e-6])
    np.testing.assert_allclose(read.rows["algbw_out"], [0, 0, 0.01e9, 1.43e9])
    np.testing.assert_allclose(read.rows["busbw_out"], [0, 0, 0.02e9, 2.15e9])
    np.testing.assert_allclose(read.rows["algbw_in"], [0, 0, 0.03e9, 1.44e9])
    np.testing.assert_allclose(read.rows["busbw_in"], [0, 0, 0.04e9, 2.16e9])


def test_current_form(tmp_path: Path) -> None:
    read = table(tmp_path, NEW)

    assert (read.collective, read.version, read.ranks, read.hosts) == ("all_gather", "2.29.7", 2, 2)
    assert read.rows["redop"].tolist() == ["none", "none"]
    np.testing.assert_allclose(read.rows["time_out_s"], [61.85e-6, 13908e-6])
    np.testing.assert_allclose(read.rows["time_in_s"], [47.04e-6, 13855e-6])


def test_form_without_redop(tmp_path: Path) -> None:
    header = "#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error\n"

    read = table(tmp_path, header + "65536 4096 float 16.57 1.22 1.22 0e+00 11.85 1.38 1.39 0e+00\n")

    assert read.rows[0].tolist()[:5] == (65536, 4096, "float", "none", -1)
    assert read.rows["busbw_in"][0] == pytest.approx(1.39e9)


def test_form_with_root_and_per_iteration_columns(tmp_path: Path) -> None:
    side = "time algbw busbw #wrong i_min i_max i_p99 i_cv% "
    values = "{0}.5 1.25 1.5 0 1.00 9.00 8.00 3.00 "
    header = f"# size count type redop root {side * 2}timestamp\n"

    read = table(tmp_path, f"{header}64 16 half none 3 {values.format(7)}{values.format(8)} 2025-01-01 10:00:00\n")

    assert read.rows["root"][0] == 3
    assert read.rows["time_out_s"][0] == pytest.approx(7.5e-6)
    assert read.rows["time_in_s"][0] == pytest.approx(8.5e-6)


def test_time_that_was_not_measured_is_nan(tmp_path: Path) -> None:
    read = table(tmp_path, NEW.replace("61.85    0.02    0.01", "  N/A     N/A     N/A"))

    assert math.isnan(read.rows["time_out_s"][0])
    assert read.rows["time_in_s"][0] == pytest.approx(47.04e-6)


@pytest.mark.parametrize(
    "dress",
    [
        lambda line: f"[1,0]<stdout>:{line}",
        lambda line: f" 0: {line}",
        lambda line: f"> {line}",
        lambda line: "|".join(f" {line} ".split(" ")),
        lambda line: f"{line}\r",
        lambda line: f"{line}\nalpha:15610:15610 [0] NCCL INFO Launch mode Parallel",
    ],
    ids=["mpirun", "srun", "quoted", "Markdown", "CRLF", "debug lines between"],
)
@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
def test_dressed_tables_are_the_plain_ones(tmp_path: Path, form: str, dress: Callable[[str], str]) -> None:
    dressed = "\n".join(map(dress, form.splitlines()))

    np.testing.assert_array_equal(table(tmp_path, dressed).rows, table(tmp_path, form).rows)


DEBUG = "beta:15610:15611 [0] NCCL INFO Channel 00 : 1[0] -> 0[0] via NET/Socket/0"


@pytest.mark.parametrize(
    "row",
    [
        ROW.replace("  13908", f"{DEBUG}\n  13908"),
        ROW.replace("  13855", f"{DEBUG}\n{DEBUG}\n  13855"),
        ROW + DEBUG,
        f"{DEBUG}{ROW}",
        f"{ROW}\n{DEBUG}",
    ],
    ids=["after the head", "between the halves", "behind", "before", "on the next line"],
)
def test_debug_lines_within_a_row_do_not_harm_it(tmp_path: Path, row: str) -> None:
    assert ROW in NEW
    np.testing.assert_array_equal(table(tmp_path, NEW.replace(ROW, row)).rows, table(tmp_path, NEW).rows)


def test_repeated_header_of_a_run_without_mpi_is_no_second_table(tmp_path: Path) -> None:
    header = next(line for line in NEW.splitlines() if "algbw" in line)

    assert len(table(tmp_path, NEW.replace(header, f"{header}\n{header}")).rows) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (NEW.replace(ROW, ROW[:70]), ":12: the row of 2048 bytes is cut"),
        (NEW[: NEW.index(ROW) + 70], ":12: the row of 2048 bytes is cut"),
        (NEW[: NEW.index(ROW) + 30], ":12: not a row of the table"),
        (NEW[: NEW.index(ROW) + 38], ":12: the row is cut"),
        (NEW[: NEW.index(ROW)], ":11: the table stops at 1024 bytes but was to go to 2048"),
        (NEW[: NEW.index("        1024")], "its table has no rows"),
        (NEW[:200], "no nccl-tests table"),
        (NEW.replace("13908", "139x8"), ":12: the row of 2048 bytes is cut"),
        (NEW.replace("     float    none      -1    13908", "     flout    none      -1    13908"), ":12: not a row"),
        (NEW.replace("13908", "N/A").replace("13855", "N/A"), ":12: the row of 2048 bytes has no time"),
        (NEW + NEW, ":25: a second table starts here"),
        (
            NEW.replace("#wrong     time   algbw   busbw  #wrong", "#wrong     time   alg"),
            ":9: the table's header is cut",
        ),
        ("just some text\n", "no nccl-tests table"),
    ],
)
def test_damaged_logs_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    text = mistake(tmp_path, content)

    assert message in text
    assert str(tmp_path / "log") in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((value, f"has time {value};") for value in ("nan", "-nan", "inf", "0", "0.000", "1e400", "1e-322")),
        ("-13908", "is cut or damaged"),
    ],
)
@pytest.mark.parametrize("measured", ["13908", "13855"], ids=["out of place", "in place"])
def test_time_that_no_clock_shows_is_refused(tmp_path: Path, measured: str, value: str, message: str) -> None:
    assert f":12: the row of 2048 bytes {message}" in mistake(tmp_path, NEW.replace(measured, value))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((value, f"has busbw {value};") for value in ("nan", "-nan", "inf", "1e400", "1e308")),
        ("-0.01", "is cut or damaged"),
    ],
)
def test_bandwidth_that_no_run_has_is_refused(tmp_path: Path, value: str, message: str) -> None:
    damaged = ROW.replace("0.00    0.00", f"0.00 {value}", 1)

    assert f":12: the row of 2048 bytes {message}" in mistake(tmp_path, NEW.replace(ROW, damaged))


def test_bandwidth_that_was_not_measured_is_nan(tmp_path: Path) -> None:
    read = table(tmp_path, NEW.replace(ROW, ROW.replace("0.00    0.00", "0.00     N/A", 1)))

    assert math.isnan(read.rows["busbw_out"][1])
    assert read.rows["busbw_in"][1] == 0


def test_row_of_nothing_may_take_no_time(tmp_path: Path) -> None:
    read = table(tmp_path, OLD.replace("6.36", "0.00"))

    assert (read.rows["size"][0], read.rows["time_out_s"][0]) == (0, 0)


def test_garbage_is_a_trace_error(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 4096, np.uint8).tobytes()

    with pytest.raises(TraceError, match="binary data"):
        table(tmp_path, noise)


def survives(folder: Path, content: bytes) -> None:
    """Read `content`: either a table with usable rows comes out, or a `TraceError`."""
    try:
        read = table(folder, content)
    except TraceError as error:
        assert str(folder) in str(error)  # noqa: PT017  both outcomes are right
        return
    assert len(read.rows) > 0
    moved = read.rows[read.rows["size"] > 0]
    times = np.stack([moved["time_out_s"], moved["time_in_s"]])
    assert np.all((times > 0) & np.isfinite(times) | np.isnan(times))
    assert not np.isnan(times).all(axis=0).any()
    for column in ("algbw_out", "busbw_out", "algbw_in", "busbw_in"):
        assert np.all((moved[column] >= 0) & np.isfinite(moved[column]) | np.isnan(moved[column]))


@pytest.mark.slow
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
def test_cut_logs_end_in_a_table_or_a_trace_error(tmp_path: Path, form: str, pack: Callable[[bytes], bytes]) -> None:
    content = pack(form.encode())
    for length in range(0, len(content), 13):
        survives(tmp_path, content[:length])


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    form=st.sampled_from([OLD, NEW]),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=4),
    pack=st.sampled_from([bytes, lzma.compress]),
)
def test_flipped_bits_end_in_a_table_or_a_trace_error(
    tmp_path: Path, form: str, flips: list[tuple[int, int]], pack: Callable[[bytes], bytes]
) -> None:
    content = bytearray(pack(form.encode()))
    for place, bit in flips:
        content[place % len(content)] ^= 1 << bit

    survives(tmp_path, bytes(content))


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("0123456789 .-e|#:\nfloatsumN/A"), max_size=300))
def test_text_that_looks_like_rows_ends_in_a_table_or_a_trace_error(tmp_path: Path, body: str) -> None:
    head, _, _ = NEW.partition(ROW)

    survives(tmp_path, (head + body).encode())


@pytest.mark.parametrize(
    ("name", "version", "count", "first", "last"),
    [
        ("hkbu_10g/10g-stepexp2.txt", "2.6.4+cuda10.1", 9, (1048576, 2298.9, 0.88), (268435456, 443148, 1.17)),
        ("hkbu_100g/100g-stepexp2.txt", "2.6.4+cuda10.1", 9, (1048576, 734.4, 2.77), (268435456, 94479, 5.50)),
        ("hkbu_10g/ring-10g-stepexp2.txt", "2.4.7+cuda10.1", 512, (1048576, 4476.2, 0.45), (536870912, 885831, 1.17)),
        ("hkbu_100g/ring-100g-stepexp2.txt", "2.4.7+cuda10.1", 512, (1048576, 2258.2, 0.90), (536870912, 191943, 5.42)),
    ],
)
def test_captured_logs(  # noqa: PLR0913, PLR0917  one column of the table each
    traces: Path, name: str, version: str, count: int, first: tuple[float, ...], last: tuple[float, ...]
) -> None:
    read = nccl_tests.read(traces / "nccl_logs" / name)

    assert (read.version, read.ranks, read.hosts, len(read.rows)) == (version, 32, 8, count)
    assert [device.rank for device in read.devices] == list(range(32))
    for row, (size, us, busbw) in ((read.rows[0], first), (read.rows[-1], last)):
        assert row["size"] == size
        assert row["time_out_s"] == pytest.approx(us * 1e-6)
        assert row["busbw_out"] == pytest.approx(busbw * 1e9)


def test_captured_bus_bandwidth_follows_from_time_and_factor(traces: Path) -> None:
    read = nccl_tests.read(traces / "nccl_logs" / "hkbu_100g" / "ring-100g-stepexp2.txt")

    bandwidth = read.rows["size"] / read.rows["time_out_s"] * bus_factor("all_reduce", read.ranks)

    np.testing.assert_allclose(bandwidth, read.rows["busbw_out"], atol=0.0051e9)


@pytest.mark.slow
def test_captured_log_cut_anywhere_ends_in_a_table_or_a_trace_error(traces: Path, tmp_path: Path) -> None:
    content = (traces / "nccl_logs" / "hkbu_10g" / "10g-stepexp2.txt").read_bytes()
    for length in range(0, len(content), 311):
        survives(tmp_path, content[:length])


def test_captured_log_of_another_benchmark_has_no_table(traces: Path) -> None:
    with pytest.raises(TraceError, match="no nccl-tests table"):
        nccl_tests.read(traces / "megatron_logs" / "all_reduce_bench-32gb-n4.txt.xz")
