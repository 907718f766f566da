"""NCCL and MPI on the HKBU cluster: one cluster, two networks, captured tables.

Nothing is fitted to the tables of collectives. Latencies of the MPI messages come from the rows of
the OSU tables below 1 KiB, which are left out of the comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.spec.load import load
from fabricsim.units import human_bytes
from fabricsim.validation import measured
from fabricsim.validation.bench import collective_times, point_to_point_times
from fabricsim.validation.study import Study, ValidationRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fabricsim.validation.measured import MeasuredTable

NETWORKS = {"10GbE": "tcp-10g", "100G InfiniBand": "rdma-100g"}
"""Transport preset of each network."""
_ALL_REDUCE = {"10GbE": "hkbu-10gbe-default", "100G InfiniBand": "hkbu-100g-ib-default"}
_LATENCY = {"10GbE": "hkbu-10gbe-osu-latency", "100G InfiniBand": "hkbu-100g-ib-osu-latency"}
_PLATEAU = 4 * 2**20  # from this size bus bandwidth is compared, bytes
_CALIBRATED_BELOW = 1024  # rows below this size gave the latencies, bytes


def validate(progress: Callable[[float], None] | None = None) -> Study:
    """Compare all-reduce and point-to-point times on both networks with the captured tables."""
    rows: list[ValidationRow] = []
    summary: dict[str, Any] = {}
    done = 0
    for network, transport in NETWORKS.items():
        scenario = load("hkbu", [f"transport={transport}"]).scenario
        table = measured.load(_ALL_REDUCE[network])
        sizes = [int(size) for size in table.rows["size"]]
        times = [row.seconds for row in collective_times(scenario, "all_reduce", sizes)]
        bandwidth, small = _all_reduce_rows(network, table, times, scenario.cluster.ranks)
        osu = measured.load(_LATENCY[network])
        sent = osu.rows["size"] >= _CALIBRATED_BELOW
        predicted = point_to_point_times(scenario, [int(size) for size in osu.rows["size"][sent]])
        latency = [
            _row(f"{network} point-to-point time, {human_bytes(row.size)}", "us", value * 1e6, row.seconds * 1e6, osu)
            for row, value in zip(predicted, osu.rows["latency_s"][sent], strict=True)
        ]
        summary[f"{network}: largest error of bus bandwidth from 4 MiB"] = _largest(bandwidth)
        summary[f"{network}: largest error of point-to-point time from 1 KiB"] = _largest(latency)
        summary[f"{network}: median error of all-reduce time below 4 MiB"] = _median(small)
        rows += [*bandwidth, *latency, *small]
        done += 1
        if progress is not None:
            progress(done / len(NETWORKS))
    return Study("hkbu", rows, summary, _parameters())


def draw(study: Study, folder: Path) -> list[Path]:
    """Draw bus bandwidth over size, measured and predicted, for each network."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    paths = []
    for network, name in _ALL_REDUCE.items():
        rows = [row for row in study.rows if row.quantity.startswith(f"{network} all-reduce")]
        table = measured.load(name)
        ranks = load("hkbu").scenario.cluster.ranks
        factor = 2 * (ranks - 1) / ranks
        times = {row.quantity: row for row in rows}
        sizes, real, simulated = [], [], []
        for record in table.rows:
            label = human_bytes(int(record["size"]))
            time = times.get(f"{network} all-reduce time, {label}")
            rate = times.get(f"{network} all-reduce bus bandwidth, {label}")
            if rate is not None:
                found = (rate.measured * 1e9, rate.predicted * 1e9)
            elif time is not None:
                size = int(record["size"])
                found = (factor * size / time.measured * 1e6, factor * size / time.predicted * 1e6)
            else:
                continue
            sizes.append(int(record["size"]))
            real.append(found[0])
            simulated.append(found[1])
        path = folder / f"hkbu-{NETWORKS[network]}.png"
        plots.save(plots.bus_bandwidth(sizes, real, simulated, f"All-reduce over 32 GPUs, {network}"), path)
        paths.append(path)
    return paths


def _all_reduce_rows(
    network: str, table: MeasuredTable, times: list[float], ranks: int
) -> tuple[list[ValidationRow], list[ValidationRow]]:
    factor = 2 * (ranks - 1) / ranks
    bandwidth, small = [], []
    for record, predicted in zip(table.rows, times, strict=True):
        size, time = int(record["size"]), float(record["time_out_s"])
        if size >= _PLATEAU:
            label = f"{network} all-reduce bus bandwidth, {human_bytes(size)}"
            bandwidth.append(_row(label, "GB/s", factor * size / time / 1e9, factor * size / predicted / 1e9, table))
        else:
            label = f"{network} all-reduce time, {human_bytes(size)}"
            small.append(_row(label, "us", time * 1e6, predicted * 1e6, table))
    return bandwidth, small


def _row(quantity: str, unit: str, value: float, predicted: float, table: MeasuredTable) -> ValidationRow:
    return ValidationRow(quantity, unit, value, predicted, table.source, table.certainty)


def _largest(rows: list[ValidationRow]) -> float:
    return max(abs(row.relative_error or 0.0) for row in rows)


def _median(rows: list[ValidationRow]) -> float:
    return float(np.median([abs(row.relative_error or 0.0) for row in rows]))


def _parameters() -> dict[str, str]:
    return {
        "scenario": "hkbu (workloads/scenarios/hkbu.toml); each figure's source stands beside it",
        "calibrated": "one-way MPI latency, from the OSU rows below 1 KiB; those rows are not compared",
        "not modelled": "tree algorithm and LL protocol, which NCCL uses for small messages",
    }
