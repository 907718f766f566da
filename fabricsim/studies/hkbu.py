"""NCCL and MPI on the HKBU cluster: one cluster, two networks, captured tables.

Nothing is fitted to the tables of collectives. Latencies of the MPI messages come from the rows of
the OSU tables below 1 KiB, which are left out of the comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim import measured
from fabricsim.results.summary import bus_factor
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.bench import collective_times, point_to_point_times
from fabricsim.scenario.load import load
from fabricsim.studies.frame.study import Progress, Study, silent
from fabricsim.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

    from fabricsim.measured import MeasuredTable
    from fabricsim.scenario.scenario import Scenario

NETWORKS = {"10GbE": "tcp-10g", "100G InfiniBand": "rdma-100g"}
"""Transport preset of each network."""
_ALL_REDUCE = {"10GbE": "hkbu-10gbe-default", "100G InfiniBand": "hkbu-100g-ib-default"}
_LATENCY = {"10GbE": "hkbu-10gbe-osu-latency", "100G InfiniBand": "hkbu-100g-ib-osu-latency"}
_PLATEAU = 4 * 2**20  # from this size bus bandwidth is compared, bytes
_CALIBRATED_BELOW = 1024  # rows below this size gave the latencies, bytes


def validate(progress: Progress = silent) -> Validation:
    """Compare all-reduce and point-to-point times on both networks with the captured tables."""
    rows: list[ValidationRow] = []
    summary: dict[str, Any] = {}
    for done, network in enumerate(NETWORKS, start=1):
        bandwidth, small = _all_reduce_rows(network)
        latency = _latency_rows(network)
        summary[f"{network}: largest error of bus bandwidth from 4 MiB"] = _largest(bandwidth)
        summary[f"{network}: largest error of point-to-point time from 1 KiB"] = _largest(latency)
        summary[f"{network}: median error of all-reduce time below 4 MiB"] = _median(small)
        rows += [*bandwidth, *latency, *small]
        progress(done / len(NETWORKS))
    return Validation("hkbu", rows, summary, _parameters())


def _pictures(study: Validation) -> Iterator[tuple[str, Figure]]:
    """Draw bus bandwidth over size, measured and predicted, for each network."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    ranks = load("hkbu").scenario.cluster.ranks
    for network, transport in NETWORKS.items():
        title = f"All-reduce over {ranks} GPUs, {network}"
        yield f"hkbu-{transport}.png", plots.bus_bandwidth(*_bandwidths(study, network, ranks), title)


def _bandwidths(study: Validation, network: str, ranks: int) -> tuple[list[int], list[float], list[float]]:
    """Sizes, measured and predicted bus bandwidth in bytes/s, from the rows of times too."""
    found = {row.quantity: row for row in study.rows}
    sizes, real, simulated = [], [], []
    for size in (int(size) for size in measured.load(_ALL_REDUCE[network]).rows["size"]):
        row = found[_quantity(network, size)]
        if size >= _PLATEAU:
            pair = (row.measured * 1e9, row.predicted * 1e9)
        else:
            moved = bus_factor("all_reduce", ranks) * size
            pair = (moved / row.measured * 1e6, moved / row.predicted * 1e6)
        sizes.append(size)
        real.append(pair[0])
        simulated.append(pair[1])
    return sizes, real, simulated


def _quantity(network: str, size: int) -> str:
    what = "bus bandwidth" if size >= _PLATEAU else "time"
    return f"{network} all-reduce {what}, {human_bytes(size)}"


def _scenario(network: str) -> Scenario:
    return load("hkbu", [f"transport={NETWORKS[network]}"]).scenario


def _all_reduce_rows(network: str) -> tuple[list[ValidationRow], list[ValidationRow]]:
    """Bus bandwidth of the large sizes in GB/s, and time of the small ones in us."""
    scenario, table = _scenario(network), measured.load(_ALL_REDUCE[network])
    moved = bus_factor("all_reduce", scenario.cluster.ranks)
    predicted = collective_times(scenario, "all_reduce", [int(size) for size in table.rows["size"]])
    bandwidth, small = [], []
    for row, record in zip(predicted, table.rows, strict=True):
        quantity, time = _quantity(network, row.size), float(record["time_out_s"])
        if row.size >= _PLATEAU:
            gigabytes = moved * row.size / 1e9
            bandwidth.append(_row(quantity, "GB/s", gigabytes / time, gigabytes / row.seconds, table))
        else:
            small.append(_row(quantity, "us", time * 1e6, row.seconds * 1e6, table))
    return bandwidth, small


def _latency_rows(network: str) -> list[ValidationRow]:
    """One-way times of single messages in us, without the rows that the latencies are from."""
    table = measured.load(_LATENCY[network])
    compared = table.rows[table.rows["size"] >= _CALIBRATED_BELOW]
    predicted = point_to_point_times(_scenario(network), [int(size) for size in compared["size"]])
    return [
        _row(f"{network} point-to-point time, {human_bytes(row.size)}", "us", time * 1e6, row.seconds * 1e6, table)
        for row, time in zip(predicted, compared["latency_s"], strict=True)
    ]


def _row(quantity: str, unit: str, value: float, predicted: float, table: MeasuredTable) -> ValidationRow:
    return ValidationRow(quantity, unit, value, predicted, table.source, table.certainty)


def _largest(rows: list[ValidationRow]) -> float:
    return max(abs(row.error) for row in rows)


def _median(rows: list[ValidationRow]) -> float:
    return float(np.median([abs(row.error) for row in rows]))


def _parameters() -> dict[str, str]:
    return {
        "scenario": "hkbu (workloads/scenarios/hkbu.toml); each figure's source stands beside it",
        "calibrated": "one-way MPI latency, from the OSU rows below 1 KiB; those rows are not compared",
        "algorithms": "as NCCL 2.6 chooses them: trees and LL for small messages, rings and Simple for large ones",
    }


STUDY = Study("hkbu", __doc__, validate, _pictures)
