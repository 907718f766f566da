"""Collectives on published clusters: times of nccl-tests tables, and what NCCL chose.

Each table has one description of its cluster, with the source of each figure beside it in the library. No row of a
table is fitted; where a latency is published nowhere, it is taken from the smallest rows of the table, which are then
left out (`TableCase.judged_from`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim import measured
from fabricsim.collectives.nccl import trees
from fabricsim.collectives.nccl.choice import threshold
from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.collectives.nccl.tuning import PROTOCOLS
from fabricsim.collectives.tree import double_parents, over_hosts
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
    """A table and the description of its cluster.

    `table`: name of the measured table.
    `machine`: its class of machines and networks, over which the findings are summed up.
    `settings`: what sets the scenario apart from ``hkbu``, as on the command line.
    `why`: sources of these settings beyond those in the library.
    `judged_from`: bytes from which rows are judged; smaller ones gave the latency.
    `calibrates`: whether a parameter is calibrated on it: its rows are printed and in no median.
    """

    table: str
    machine: str
    settings: tuple[str, ...]
    why: str = ""
    judged_from: int = 0
    calibrates: bool = False


def _hosts(cluster: str, count: int) -> tuple[str, str]:
    return f"cluster={cluster}", f"cluster.hosts={count}"


_EFA = 'collectives={nccl="2.18", adapter_latency="75us", protocol="simple"}'
_EFA_ANY = 'collectives={nccl="2.18", adapter_latency="75us"}'
_SIMPLE = 'collectives={nccl="2.18", protocol="simple"}'
_FLAT = ("cluster.nic_below_gpu_switch=false", "cluster.gpus_per_pcie_switch=1")
_STAGED = ("cluster.gpudirect=false", *_FLAT)
_NCCL_2_4 = 'collectives={nccl = "2.5", algorithm = "ring", max_channels = 1}'
_TREE_2_4 = 'collectives={nccl = "2.5", algorithm = "tree", max_channels = 1}'
_INSIDE = ("cluster.hosts=1", "cluster.intra_host=nvlink", "cluster.gpus_per_pcie_switch=1")
_ALONE = ("cluster.gpus_per_host=1", "cluster.nics_per_host=1")
_SIXTEEN = ("cluster.hosts=16", "cluster.gpus_per_pcie_switch=1", *_ALONE)
_H200 = (*_hosts("dgx-h100", 1), "cluster.gpu=h200-sxm")
_ONE_PROCESS = ("collectives.process_gpus=8", "collectives.launch=5.48us")
_LAUNCH = (
    "launches calibrated on the smallest row of eight A100 of another table, not judged: 43.83 us by "
    "all_reduce_perf -g 8 (github.com/stas00/ml-engineering, network/README.md)"
)
_CALIBRATES = "reduce_scatter"
_AS_MEASURED_ELSEWHERE = "h200-sxm"  # GPU whose NCCL figures are another's, so that no row of its own gave them
_SOCKETS, _EFA_CLASS, _EFA_STAGED = "TCP sockets", "EFA with GPUDirect", "EFA without GPUDirect"
_IB_STAGED, _ROCE_STAGED = "100G InfiniBand without GPUDirect", "400 Gb/s RoCE without GPUDirect"
_GOOGLE, _ROCE, _SLINGSHOT = "TCPX and TCPXO", "400 Gb/s RDMA with GPUDirect", "Slingshot"
_ONE_HOST, _RACK, _AMD = "one host of H100 or H200", "GB200 NVL72", "MI300X"
CASES = (
    TableCase("hkbu-10gbe-default", _SOCKETS, ("transport=tcp-10g",)),
    TableCase(
        "hkbu-10gbe-ring",
        _SOCKETS,
        ("transport=tcp-10g", _NCCL_2_4),
        "NCCL 2.4.7: NCCL_TREE_THRESHOLD=0, one channel in the log",
    ),
    TableCase("hkbu-100g-ib-default", _IB_STAGED, ()),
    TableCase("hkbu-100g-ib-ring", _IB_STAGED, (_NCCL_2_4,), "as hkbu-10gbe-ring"),
    TableCase("hkbu-16-100g-ib", _IB_STAGED, _SIXTEEN, "version not stated, taken as in hkbu-100g-ib-default"),
    TableCase(
        "hkbu-16-10gbe-tree",
        _SOCKETS,
        (*_SIXTEEN, "transport=tcp-10g", _TREE_2_4),
        "version not stated; trees by the name of the file, so NCCL 2.4 with one channel as in hkbu-10gbe-ring",
    ),
    TableCase(
        "nccl-p4de",
        _EFA_CLASS,
        (*_hosts("aws-p4de", 2), "transport=efa-100g", _EFA),
        'aws-ofi-nccl on p4d: "Internode latency set at 75.0 us", "Setting NCCL_PROTO to simple" (its issue 889)',
    ),
    TableCase(
        "nccl-p5-2",
        _EFA_CLASS,
        (*_hosts("aws-p5", 2), "transport=efa-400g", _EFA_ANY),
        "aws-ofi-nccl, src/platform-aws.c: latency 75 us on p5, no protocol forced; version of NCCL a guess",
    ),
    TableCase("nccl-p5", _ONE_HOST, (*_hosts("aws-p5", 1), 'collectives={nccl="2.18"}')),
    TableCase(
        "nccl-g4dn",
        _EFA_STAGED,
        (*_hosts("aws-g4dn-metal", 2), *_ALONE, "transport=efa-100g-staged", _SIMPLE),
        "aws-ofi-nccl sets NCCL_PROTO to simple if 128 bytes may arrive out of order, as on p4d",
    ),
    TableCase(
        "nccl-efa-eks",
        _EFA_STAGED,
        (*_hosts("aws-g4dn-metal", 2), *_ALONE, "transport=efa-100g-staged", _EFA_ANY),
        "instance not stated: taken as g4dn, with the latency of aws-ofi-nccl and no protocol forced, since its times "
        "double from 128 KiB to 1 MiB and fall beyond, as if LL gave way to Simple",
    ),
    TableCase(
        "nccl-a3-mega",
        _GOOGLE,
        (*_hosts("gcp-a3-mega", 2), "transport=tcpxo-200g", 'collectives={nccl="2.18"}'),
        "latency of TCPXO from the rows up to 16 KiB, which are not judged",
        judged_from=2**15,
    ),
    TableCase(
        "nccl-a3-high",
        _GOOGLE,
        (
            *_hosts("gcp-a3-high", 2),
            "transport=tcpx-200g",
            'collectives={nccl="2.18", algorithm="ring", protocol="simple"}',
        ),
        "ring and Simple, as scripts for TCPX set them; latency from the rows up to 2 MiB, which are not judged",
        judged_from=2**22,
    ),
    TableCase(
        "nccl-a3-ultra",
        _ROCE,
        (*_hosts("dgx-h100", 2), "cluster.gpu=h200-sxm", "transport=gib-400g", 'collectives={nccl="2.23"}'),
        "latency from the rows up to 16 KiB, which are not judged; version of NCCL a guess",
        judged_from=2**15,
    ),
    TableCase(
        "nccl-400g-tree",
        _ROCE,
        (*_hosts("dgx-h100", 2), *_ALONE, *_FLAT, "transport=rdma-400g", 'collectives={nccl="2.21", algorithm="tree"}'),
        "one of the four adapters, for the GPU's slot carries no more than one; version of NCCL a guess",
    ),
    TableCase(
        "nccl-gh200", _SLINGSHOT, (*_hosts("alps", 2), *_ALONE, "transport=slingshot-200g", 'collectives={nccl="2.21"}')
    ),
    TableCase(
        "nccl-gh200-socket",
        _SOCKETS,
        (*_hosts("alps", 2), "transport=tcp-200g", 'collectives={nccl="2.21"}'),
        "version of NCCL as in nccl-gh200",
    ),
    TableCase(
        "nccl-h200-stas",
        _ONE_HOST,
        (*_H200, 'collectives={nccl="2.27"}', *_ONE_PROCESS),
        f"all_reduce_perf -g 8, one process for all GPUs; {_LAUNCH}",
    ),
    TableCase(
        "nccl-h200-azure",
        _ONE_HOST,
        (*_H200, 'collectives={nccl="2.20", algorithm="nvls"}', *_ONE_PROCESS),
        f"NCCL_ALGO=NVLS and all_reduce_perf -g 8 (Benchmarks/NVIDIA/NCCLBandwidth.py there); {_LAUNCH}",
    ),
    TableCase(
        "nccl-gb200",
        _RACK,
        (*_hosts("gb200-nvl72", 1), 'collectives={nccl="2.26"}'),
        "a rack is one host of 72 GPUs here, as MNNVL is to NCCL",
    ),
    TableCase(
        "nccl-mi300x",
        _AMD,
        (*_hosts("mi300x-platform", 1), "collectives=rccl"),
        "xGMI as RCCL counts it; its kernels for small calls, those of MSCCL++, are not modelled",
    ),
    TableCase(
        "nccl-mi300x-2",
        _AMD,
        (*_hosts("mi300x-platform", 2), "transport=roce-400g", "collectives=rccl"),
        "adapters, processors and PCIe as those of clusters/dgx-h100",
    ),
    TableCase(
        "nccl-400g-sendrecv",
        _ROCE_STAGED,
        (*_hosts("dgx-h100", 2), *_ALONE, *_STAGED, "transport=rdma-400g", 'collectives={nccl="2.26"}'),
        "what kernels load from host memory is calibrated on the all-reduce of these hosts, gpus/h100-sxm",
    ),
    TableCase(
        "nccl-400g-staged",
        _ROCE_STAGED,
        (*_hosts("dgx-h100", 2), *_ALONE, *_STAGED, "transport=rdma-400g", 'collectives={nccl="2.26"}'),
        "gave staged_rate of gpus/h100-sxm: printed, and in no median",
        calibrates=True,
    ),
    TableCase(
        "nccl-v100-socket",
        _SOCKETS,
        ("cluster=v100-vm", "transport=tcp-10g", 'collectives={nccl="2.11"}'),
        "rate of the link not stated: 10 Gb/s is a guess",
    ),
)
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
