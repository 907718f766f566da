from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from fabricsim import measured
from fabricsim.errors import InputError
from fabricsim.results.summary import bus_factor
from fabricsim.traces import nccl_tests, osu

NCCL_TABLES = {
    "hkbu-10gbe-default": "hkbu_10g_default",
    "hkbu-10gbe-ring": "hkbu_10g_ring",
    "hkbu-100g-ib-default": "hkbu_100g_ib_default",
    "hkbu-100g-ib-ring": "hkbu_100g_ib_ring",
}

SHOWN_LATER = (
    "hkbu-16-100g-ib",
    "hkbu-16-10gbe-tree",
    "nccl-400g-staged",
    "nccl-400g-tree",
    "nccl-a3-high",
    "nccl-a3-ultra",
    "nccl-efa-eks",
    "nccl-gb200",
    "nccl-gh200-socket",
    "nccl-mi300x-2",
    "nccl-p5-2",
)


def test_what_ships() -> None:
    assert measured.names() == tuple(
        sorted(
            [
                *NCCL_TABLES,
                *SHOWN_LATER,
                "anthony2024",
                "dai-logs",
                "dai2024",
                "deepep",
                "dgxc",
                "dlperf",
                "efa-experts",
                "hkbu-100g-ib-osu-latency",
                "hkbu-10gbe-osu-latency",
                "fsdp",
                "jax",
                "jean-zay-pipeline",
                "megatron",
                "megatron-bridge",
                "mlperf",
                "nccl-400g-sendrecv",
                "nccl-a3-mega",
                "nccl-g4dn",
                "nccl-gh200",
                "nccl-h200-azure",
                "nccl-h200-stas",
                "nccl-hkbu-log",
                "nccl-mi300x",
                "nccl-nvlink",
                "nccl-p4de",
                "nccl-p5",
                "nccl-v100-socket",
                "peers",
                "rail-only",
                "simumax",
            ]
        )
    )


@pytest.mark.parametrize("name", measured.names())
def test_every_table_says_where_it_comes_from(name: str) -> None:
    table = measured.load(name)

    assert table.name == name
    assert table.title
    assert any(mark in table.source for mark in ("github.com/", "doi:", "arXiv", "manual"))
    assert table.licence
    assert table.certainty in get_args(measured.Certainty)
    assert table.conditions
    assert len(table.rows) > 0
    for column in table.rows.dtype.names or ():
        if np.issubdtype(table.rows[column].dtype, np.number):
            assert np.isfinite(table.rows[column]).all()
            assert (table.rows[column] >= 0).all()


@pytest.mark.parametrize(
    ("name", "rows", "smallest", "plateau"),
    [
        ("hkbu-10gbe-default", 28, 4, 1.17e9),
        ("hkbu-100g-ib-default", 28, 4, 5.51e9),
        ("hkbu-10gbe-ring", 10, 2**20, 1.17e9),
        ("hkbu-100g-ib-ring", 10, 2**20, 5.42e9),
    ],
)
def test_all_reduce_tables_are_in_base_units(name: str, rows: int, smallest: int, plateau: float) -> None:
    table = measured.load(name)

    assert table.rows["size"].tolist() == [smallest << step for step in range(rows)]
    assert table.rows["busbw_out"][-1] == pytest.approx(plateau)
    factor = bus_factor("all_reduce", 32)
    np.testing.assert_allclose(
        table.rows["size"] / table.rows["time_out_s"] * factor, table.rows["busbw_out"], atol=0.011e9
    )


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        measured.load("hkbu-10gbe-ring").rows["size"][0] = 1


@pytest.mark.parametrize(("name", "identity"), NCCL_TABLES.items())
def test_all_reduce_tables_equal_the_captured_ones(traces: Path, name: str, identity: str) -> None:
    tables = json.loads((traces / "nccl_tables" / "tables.json").read_text())
    captured = next(table for table in tables if table["id"] == identity)
    shipped = measured.load(name)
    rows = {row[0]: row for row in captured["rows"]}

    for row in shipped.rows:
        size, time_out, algbw, busbw, time_in, busbw_in = rows[int(row["size"])]
        expected = (size, time_out * 1e-6, algbw * 1e9, busbw * 1e9, time_in * 1e-6, busbw_in * 1e9)
        assert row.tolist() == pytest.approx(expected)
    if "default" in name:
        assert len(shipped.rows) == len(rows)
    assert shipped.conditions["nccl"] == captured["nccl"]
    assert shipped.licence.startswith(captured["licence"])


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("hkbu-10gbe-ring", "hkbu_10g/ring-10g-stepexp2.txt"),
        ("hkbu-100g-ib-ring", "hkbu_100g/ring-100g-stepexp2.txt"),
    ],
)
def test_ring_tables_equal_the_captured_logs(traces: Path, name: str, log: str) -> None:
    captured, shipped = nccl_tests.read(traces / "nccl_logs" / log).rows, measured.load(name).rows
    powers = captured[(captured["size"] & (captured["size"] - 1)) == 0]

    for column in shipped.dtype.names or ():
        np.testing.assert_allclose(shipped[column], powers[column])


@pytest.mark.parametrize(
    ("name", "log"), [("hkbu-10gbe-osu-latency", "10g-latency.txt"), ("hkbu-100g-ib-osu-latency", "100g-latency.txt")]
)
def test_latency_tables_equal_the_captured_ones(traces: Path, name: str, log: str) -> None:
    captured, shipped = osu.read(traces / "osu" / "hkbu" / log).rows, measured.load(name).rows

    np.testing.assert_array_equal(shipped["size"], captured["size"])
    np.testing.assert_array_equal(shipped["latency_s"], captured["latency_s"])


def test_headline_figures() -> None:
    figures = measured.figures("dai2024")

    assert {key: (figure.value, figure.unit) for key, figure in figures.items()} == {
        "data_parallel_gain_over_ipoib": (2.51, "x"),
        "data_parallel_gain_over_tcp": (4.79, "x"),
        "pipeline_gain_over_ipoib": (1.1, "x"),
        "pipeline_gain_over_tcp": (1.2, "x"),
        "peak_utilisation_rdma": (60.0, "Gb/s"),
        "peak_utilisation_ipoib": (20.0, "Gb/s"),
        "peak_utilisation_tcp": (9.0, "Gb/s"),
        "data_parallel_all_reduce_share": (91.12, "%"),
        "pipeline_communication_share": (90.0, "%"),
    }
    assert {figure.certainty for figure in figures.values()} == {"published"}


def test_pipeline_timers_of_the_last_rank_add_up_to_the_iteration() -> None:
    rows = measured.load("jean-zay-pipeline").rows
    timers = [name for name in rows.dtype.names or () if name.endswith("_s") and name != "iteration_s"]

    total = sum(rows[name] for name in timers)

    assert rows["iteration_s"][0] == pytest.approx(0.6613)
    # What the timers leave out (batch generator, copies) is under 4 %.
    np.testing.assert_allclose(total, rows["iteration_s"], rtol=0.04)


def test_unknown_table_is_named_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"'hkbu-10gbe-rings'; did you mean 'hkbu-10gbe-ring'\?"):
        measured.load("hkbu-10gbe-rings")
    with pytest.raises(InputError, match="holds rows, not headline figures"):
        measured.figures("hkbu-10gbe-ring")
