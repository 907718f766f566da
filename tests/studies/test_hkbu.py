from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim import measured
from fabricsim.run.bench import collective_times, point_to_point_times
from fabricsim.scenario.load import load
from fabricsim.studies import hkbu
from fabricsim.traces import nccl_tests, osu

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.results.validation import Validation, ValidationRow


@pytest.fixture(scope="module")
def study() -> Validation:
    return hkbu.validate()


def rows(study: Validation, beginning: str) -> list[ValidationRow]:
    return [row for row in study.rows if row.quantity.startswith(beginning)]


@pytest.mark.slow
@pytest.mark.parametrize(("network", "bound"), [("10GbE", 0.05), ("100G InfiniBand", 0.10)])
def test_bus_bandwidth_from_4_mib(study: Validation, network: str, bound: float) -> None:
    compared = rows(study, f"{network} all-reduce bus bandwidth")

    assert [row.quantity.split(", ")[1] for row in compared] == [f"{2**n} MiB" for n in range(2, 10)]
    assert {row.unit for row in compared} == {"GB/s"}
    assert max(abs(row.relative_error or 0) for row in compared) < bound


@pytest.mark.slow
@pytest.mark.parametrize("network", ["10GbE", "100G InfiniBand"])
def test_point_to_point_time_from_1_kib(study: Validation, network: str) -> None:
    compared = rows(study, f"{network} point-to-point time")

    assert compared[0].quantity.endswith(", 1 KiB")
    assert compared[-1].quantity.endswith(", 4 MiB")
    assert {row.unit for row in compared} == {"us"}
    assert max(abs(row.relative_error or 0) for row in compared) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("network", ["10GbE", "100G InfiniBand"])
def test_small_all_reduces_are_reported_with_their_error(study: Validation, network: str) -> None:
    compared = rows(study, f"{network} all-reduce time")
    errors = sorted(abs(row.relative_error or 0) for row in compared)

    assert compared[0].quantity.endswith(", 4 B")
    assert len(compared) == 20
    median = (errors[9] + errors[10]) / 2
    assert study.summary[f"{network}: median error of all-reduce time below 4 MiB"] == pytest.approx(median)


@pytest.mark.slow
def test_summary_repeats_the_largest_errors(study: Validation) -> None:
    for network in hkbu.NETWORKS:
        for what, beginning in (
            ("bus bandwidth from 4 MiB", "all-reduce bus bandwidth"),
            ("point-to-point time from 1 KiB", "point-to-point time"),
        ):
            largest = max(abs(row.relative_error or 0) for row in rows(study, f"{network} {beginning}"))
            assert study.summary[f"{network}: largest error of {what}"] == largest


@pytest.mark.slow
def test_rows_are_named_once_and_captured(study: Validation) -> None:
    assert len({row.quantity for row in study.rows}) == len(study.rows)
    assert {row.certainty for row in study.rows} == {"captured"}
    assert all("10g" in row.source for row in rows(study, "10GbE"))
    assert all("100g" in row.source for row in rows(study, "100G"))


@pytest.mark.slow
def test_predictions_do_not_look_at_the_measured_times(study: Validation, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = measured.load

    def tripled(name: str) -> measured.MeasuredTable:
        table = genuine(name)
        changed = table.rows.copy()
        for column in set(table.rows.dtype.names or ()) & {"time_out_s", "latency_s"}:
            changed[column] *= 3
        return measured.MeasuredTable(**{**vars(table), "rows": changed})

    monkeypatch.setattr(measured, "load", tripled)
    other = hkbu.validate()

    assert [row.predicted for row in other.rows] == [row.predicted for row in study.rows]
    time = rows(study, "10GbE all-reduce time")[0]
    assert rows(other, "10GbE all-reduce time")[0].measured == pytest.approx(3 * time.measured)


@pytest.mark.slow
def test_pictures(study: Validation, tmp_path: Path) -> None:
    paths = hkbu.STUDY.draw(study, tmp_path)

    assert [path.name for path in paths] == ["hkbu-tcp-10g.png", "hkbu-rdma-100g.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


# ---- against the captured files themselves ------------------------------------------------------


RING_10G = "hkbu_10g/ring-10g-stepexp2.txt"
RING_100G = "hkbu_100g/ring-100g-stepexp2.txt"
MEBIBYTE = 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "transport", "sizes", "bound"),
    [
        (RING_10G, "tcp-10g", (4 * MEBIBYTE, 2**40), 0.05),
        (RING_100G, "rdma-100g", (8 * MEBIBYTE, 2**40), 0.10),
        pytest.param(
            RING_100G,
            "rdma-100g",
            (4 * MEBIBYTE, 8 * MEBIBYTE),
            0.10,
            marks=pytest.mark.xfail(
                strict=True,
                reason="14 % too fast at 4 MiB, as validation.md says",
            ),
        ),
    ],
)
def test_captured_logs_of_ring_runs(
    traces: Path, log: str, transport: str, sizes: tuple[int, int], bound: float
) -> None:
    captured = nccl_tests.read(traces / "nccl_logs" / log).rows
    captured = captured[captured["size"] >= 4 * MEBIBYTE][::16]  # enough of some hundred
    captured = captured[(captured["size"] >= sizes[0]) & (captured["size"] < sizes[1])]

    scenario = load("hkbu", [f"transport={transport}"]).scenario
    predicted = collective_times(scenario, "all_reduce", [int(size) for size in captured["size"]])

    assert len(captured) > 0
    for row, record in zip(predicted, captured, strict=True):
        assert record["time_out_s"] / row.seconds - 1 == pytest.approx(0, abs=bound), row.size


@pytest.mark.slow
@pytest.mark.parametrize(("log", "transport"), [("10g-latency.txt", "tcp-10g"), ("100g-latency.txt", "rdma-100g")])
def test_captured_osu_tables(traces: Path, log: str, transport: str) -> None:
    captured = osu.read(traces / "osu" / "hkbu" / log).rows
    captured = captured[captured["size"] >= 1024]
    sizes = [int(size) for size in captured["size"]]

    predicted = point_to_point_times(load("hkbu", [f"transport={transport}"]).scenario, sizes)

    for row, record in zip(predicted, captured, strict=True):
        assert row.seconds == pytest.approx(record["latency_s"], rel=0.15), row.size
