"""Collectives on published clusters: times of nccl-tests tables, and what NCCL chose.

Each table has one description of its cluster, with the source of each figure beside it in the library. No row of a
table is fitted; where a latency is published nowhere, it is taken from the smallest rows of the table, which are then
left out (`TableCase.judged_from`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fabricsim import measured
from fabricsim.collectives.nccl import trees
from fabricsim.collectives.nccl.choice import threshold
from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.collectives.nccl.tuning import PROTOCOLS
from fabricsim.collectives.tree import double_parents, over_hosts
from fabricsim.files.packaged import tables
from fabricsim.results.summary import bus_factor
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.bench import collective_times
from fabricsim.scenario.collectives import PAIRED
from fabricsim.scenario.load import load
from fabricsim.studies.frame.study import Progress, Study, silent
from fabricsim.studies.hkbu import NETWORKS
from fabricsim.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.collectives.nccl.graph import GroupShape
    from fabricsim.measured import MeasuredTable
    from fabricsim.scenario.scenario import Scenario

_LARGE = 16 * 2**20  # bytes from which the findings are given apart
_SMALL = 64 * 2**10
_US = 1e6


@dataclass(frozen=True)
class TableCase:
    """A table and the description of its cluster, as ``nccl.toml`` has them.

    `table`: name of the measured table.
    `machine`: its class of machines and networks, over which the findings are summed up.
    `settings`: what sets the scenario apart from ``hkbu``, as on the command line.
    `why`: sources of these settings beyond those in the library.
    `judged_from`: bytes from which rows are judged; smaller ones gave the latency.
    `calibrates`: whether a parameter is calibrated on it: its rows are printed and in no median.
    """

    table: str
    machine: str
    settings: tuple[str, ...] = ()
    why: str = ""
    judged_from: int = 0
    calibrates: bool = False


_INSIDE = ("cluster.hosts=1", "cluster.intra_host=nvlink", "cluster.gpus_per_pcie_switch=1")
_CALIBRATES = "reduce_scatter"
_AS_MEASURED_ELSEWHERE = "h200-sxm"  # GPU whose NCCL figures are another's, so that no row of its own gave them
CASES = msgspec.convert(tables(__package__, "nccl.toml")["case"], tuple[TableCase, ...])
"""All tables, in the order of the report."""


def validate(progress: Progress = silent) -> Validation:
    """Compare times of collectives with published tables."""
    rows: list[ValidationRow] = logged_rows()
    tables: dict[str, dict[str, float]] = {}
    machines: dict[str, list[tuple[int, float]]] = {case.machine: [] for case in CASES}
    nvlink: dict[str, dict[str, float]] = {}
    for label, inside in nvlink_rows().items():
        rows += [row for _, row in inside]
        nvlink[label] = _findings([(size, row.error) for size, row in inside])
    for done, case in enumerate(CASES, start=1):
        found = _compare(case)
        rows += [row for _, row in found]
        sized = [(size, row.error) for size, row in found]
        tables[case.table] = _findings(sized)
        machines[case.machine] += [] if case.calibrates else sized
        progress(done / len(CASES))
    everything = [entry for each in machines.values() for entry in each]
    summary: dict[str, Any] = {
        "median error of time, all rows": _median([error for _, error in everything]),
        "median error of time, rows from 16 MiB": _median([error for size, error in everything if size >= _LARGE]),
        "tables": tables,
        "machines": {name: _findings(each) | _bands(each) for name, each in machines.items()}
        | {"all": _findings(everything) | _bands(everything)},
        "inside one host over NVLink, from 1 MiB": nvlink,
    }
    return Validation("nccl", rows, summary, {case.table: case.why for case in CASES if case.why})


def _pictures(study: Validation) -> Iterator[tuple[str, Figure]]:
    """Draw bus bandwidth over size, measured and predicted, for each table."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    for case in CASES:
        table = measured.load(case.table)
        sizes = [int(size) for size in table.rows["size"] if size >= max(1, case.judged_from)]
        found = [row for row in study.rows if row.quantity.startswith(f"{case.table},")]
        moved = bus_factor(str(table.conditions["collective"]), scenario(case).cluster.ranks) * _US
        real = [moved * size / row.measured for size, row in zip(sizes, found, strict=True)]
        simulated = [moved * size / row.predicted for size, row in zip(sizes, found, strict=True)]
        picture = plots.bus_bandwidth(sizes, real, simulated, table.title)
        yield f"nccl-{case.table.removeprefix('nccl-')}.png", picture


def logged_rows() -> list[ValidationRow]:
    """Compare channels, rings, trees and thresholds with those that NCCL 2.6.4 logged; counts of what is alike."""
    log = measured.load("nccl-hkbu-log")
    found: list[ValidationRow] = []

    def add(quantity: str, real: float, predicted: float) -> None:
        found.append(ValidationRow(quantity, "1", real, predicted, log.source, log.certainty))

    for network, transport in NETWORKS.items():
        described = load("hkbu", [f"transport={transport}"]).scenario
        plan = NcclPlan(described)
        group = plan.group(tuple(range(described.cluster.ranks)))
        ring = [int(rank) for rank in str(log.conditions["ring"]).split()]
        logged = log.rows[log.rows["network"] == network]
        add(f"{network} log: channels", float(log.conditions["channels"]), group.channels)
        alike = sum(here == there for here, there in enumerate(ring))
        add(f"{network} log: places in the ring alike", len(ring), alike)
        add(f"{network} log: places in the trees alike", len(logged), _alike(logged, group, described))
        ours = [[threshold(a, p, group.ranks) for p in PROTOCOLS] for a in ("tree", "ring")]
        real = [[int(x) for x in part.split("/")] for part in str(log.conditions["thresholds"]).split("|")]
        same = sum(
            here == there for one, other in zip(real, ours, strict=True) for here, there in zip(one, other, strict=True)
        )
        add(f"{network} log: thresholds alike", 6, same)
    return found


def nvlink_rows() -> dict[str, list[tuple[int, ValidationRow]]]:
    """Compare collectives inside one host, by GPU, collective and GPUs; reduce-scatter gave NCCL's costs on the GPU."""
    table = measured.load("nccl-nvlink")
    found: dict[str, list[tuple[int, ValidationRow]]] = {}
    columns = ("gpu", "nccl", "collective", "gpus")
    for gpu, nccl, collective, gpus in dict.fromkeys(tuple(row[name] for name in columns) for row in table.rows):
        chosen = table.rows[
            (table.rows["gpu"] == gpu) & (table.rows["collective"] == collective) & (table.rows["gpus"] == gpus)
        ]
        described = load(
            "hkbu", [f"cluster.gpu={gpu}", f"cluster.gpus_per_host={gpus}", f"collectives.nccl='{nccl}'", *_INSIDE]
        )
        predicted = collective_times(described.scenario, str(collective), [int(size) for size in chosen["size"]])
        gave = collective == _CALIBRATES and gpu != _AS_MEASURED_ELSEWHERE
        label = f"{collective}, {gpus} x {gpu}" + (" (calibrates)" if gave else "")
        found[label] = [
            (row.size, _row(f"{label}, {human_bytes(row.size)}", float(record["time_out_s"]), row.seconds, table))
            for row, record in zip(predicted, chosen, strict=True)
        ]
    return found


def _alike(logged: NDArray[np.void], group: GroupShape, described: Scenario) -> int:
    """Count the ranks whose parent and children are those of the log."""
    cluster = described.cluster.model_copy(update={"nic": described.nic})
    order, size = trees.chain(cluster, group.tree.within * group.tree.channels), cluster.gpus_per_host
    chains = [[host * size + gpu for gpu in order] for host in range(group.hosts)]
    doubled = double_parents(group.hosts, mirrored_when_even=group.tuning.mirrored_when_even)
    parents = [over_hosts(chains, tree, split=trees.splits(cluster)) for tree in doubled]
    alike = 0
    for row in logged:
        tree, rank = parents[int(row["channel"])], int(row["rank"])
        children = [int(child) for child in str(row["children"]).split()]
        parent = None if row["parent"] == row["rank"] else int(row["parent"])
        alike += tree[rank] == parent and [child for child, above in enumerate(tree) if above == rank] == children
    return alike


def scenario(case: TableCase) -> Scenario:
    """Describe the cluster of a table."""
    return load("hkbu", list(case.settings)).scenario


def _compare(case: TableCase) -> list[tuple[int, ValidationRow]]:
    table = measured.load(case.table)
    described, collective = scenario(case), str(table.conditions["collective"])
    judged = table.rows[table.rows["size"] >= max(1, case.judged_from)]
    predicted = collective_times(described, collective, [int(size) for size in judged["size"]])
    found = []
    for row, record in zip(predicted, judged, strict=True):
        quantity = f"{case.table}, {human_bytes(row.size)}{_taken(described, collective, row.size)}"
        found.append((row.size, _row(quantity, float(record["time_out_s"]), row.seconds, table)))
    return found


def _taken(described: Scenario, collective: str, size: int) -> str:
    """Say what NCCL's cost model takes, if it is asked."""
    if described.collectives.nccl is None or collective in PAIRED:
        return ""
    taken = NcclPlan(described).pick(collective, tuple(range(described.cluster.ranks)), size)
    return f" ({taken.algorithm} {taken.protocol})"


def _row(quantity: str, seconds: float, predicted: float, table: MeasuredTable) -> ValidationRow:
    return ValidationRow(quantity, "us", seconds * _US, predicted * _US, table.source, table.certainty)


def _findings(sized: Sequence[tuple[int, float]]) -> dict[str, float]:
    large = [error for size, error in sized if size >= _LARGE]
    return {
        "rows": float(len(sized)),
        "median": _median([error for _, error in sized]),
        "median_from_16_MiB": _median(large),
        "largest_from_16_MiB": max(map(abs, large), default=0.0),
    }


def _bands(sized: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Medians below 64 KiB and from there to 16 MiB, and the share of rows that are predicted too fast."""
    return {
        "median_below_64_KiB": _median([error for size, error in sized if size < _SMALL]),
        "median_to_16_MiB": _median([error for size, error in sized if _SMALL <= size < _LARGE]),
        "too_fast": float(np.mean([error < 0 for _, error in sized])),
    }


def _median(errors: Sequence[float]) -> float:
    return float(np.median(np.abs(errors))) if errors else 0.0


STUDY = Study("nccl", __doc__, validate, _pictures)
