"""The packet engine against closed forms, and against other packet simulators on the same work.

What those gave for each flow is not part of fabricsim: the folder named by ``FABRICSIM_PEERS`` holds
it, in ``fct/RUN__PATTERN.csv`` (columns ``src``, ``dst``, ``fct_or_finish_us``) and
``fct/single_flow.csv``. Without it the closed forms alone are compared. The presets ``peers-...``
carry the parameters of those runs; what was chosen with the results known stands in the documentation.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim import traffic
from fabricsim.errors import InputError
from fabricsim.transports.parameters import packet_framing
from fabricsim.validation import measured
from fabricsim.validation.peers_runs import FLOW, alone, in_ring, matrix, ring, run, scenario
from fabricsim.validation.study import Study, ValidationRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
FOLDER = "FABRICSIM_PEERS"
"""Environment variable that names the folder of the other simulators' results."""
TARGET = 0.05
"""Of the mean completion time against a simulator."""
FLOW_TARGET = 0.10
"""Of the median over the flows of the difference per flow."""

_PAIRS = {2: (0, 1), 4: (0, 4), 6: (0, 127)}
"""Ends of the flow that is alone, by its links."""
_PACKETS = (1, 250, 2500)
_PAYLOAD = 4096
_US = 1e6
_AT_RECEIVER = ("ns3dev", "nspy")  # whose flows are complete when the last byte is received, not acknowledged
_CLOSED = "closed form, fabricsim.validation.peers_runs"


@dataclass(frozen=True)
class Case:
    """A transport that other simulators ran too.

    Attributes
    ----------
    name
        As in the tables.
    transport
        Preset of the library.
    own
        The simulator that its parameters are from.
    others
        Further simulators of the same kind of transport, with parameters and algorithms of their own.
    reference
        Simulators of transports that only resemble it; no target.
    settings
        Laid over the preset.
    """

    name: str
    transport: str
    own: str
    others: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[str, ...]:
        """All simulators of this kind of transport."""
        return (self.own, *self.others)

    @property
    def peers(self) -> tuple[str, ...]:
        """All simulators that it is held against."""
        return (*self.kind, *self.reference)


@dataclass(frozen=True)
class Comparison:
    """One case on one pattern.

    Attributes
    ----------
    case, pattern
        What was run.
    pairs
        Source and target of each flow, n of them.
    ours
        Completion times by simulator, counted as that one counts them, s, shape ``(n,)``.
    theirs
        What it gave, s, shape ``(n,)``.
    cpu_seconds
        Of our run.
    """

    case: Case
    pattern: str
    pairs: list[tuple[int, int]]
    ours: dict[str, NDArray[np.float64]]
    theirs: dict[str, NDArray[np.float64]]
    cpu_seconds: float

    def rows(self) -> list[ValidationRow]:
        """Mean completion time beside that of each simulator."""
        what = f"{self.case.name}, {self.pattern}: mean completion time"
        return [
            _row(what, theirs.mean(), self.ours[peer].mean(), f"{peer}__{self.pattern}")
            for peer, theirs in self.theirs.items()
        ]

    def agreement(self, peer: str) -> dict[str, float]:
        """Completion times in us, and how far they differ from a simulator's."""
        ours, theirs = self.ours[peer], self.theirs[peer]
        apart = np.abs(ours / theirs - 1)
        figures = {
            f"{who}_{name}": float(value) * _US
            for name in ("min", "mean", "max")
            for who, times in (("our", ours), ("their", theirs))
            for value in [getattr(times, name)()]
        }
        return {
            **figures,
            "mean_differs": float(ours.mean() / theirs.mean() - 1),
            "flow_median": float(np.median(apart)),
            "flow_p90": float(np.percentile(apart, 90)),
        }

    def misses(self) -> list[str]:
        """Say which target is missed against the simulator that the parameters are from."""
        own = self.agreement(self.case.own)
        name = f"{self.case.name}, {self.pattern}"
        missed = []
        if abs(own["mean_differs"]) > TARGET and not self._within_range():
            missed.append(f"{name}: mean {own['mean_differs']:+.1%}")
        if own["flow_median"] > FLOW_TARGET:
            missed.append(f"{name}: median over flows {own['flow_median']:.1%}")
        return missed

    def _within_range(self) -> bool:
        """Whether our mean lies between those of the simulators of this kind."""
        means = [float(times.mean()) for peer, times in self.theirs.items() if peer in self.case.kind]
        return min(means) <= float(self.ours[self.case.own].mean()) <= max(means)

    def flows(self) -> list[dict[str, float]]:
        """Completion times of all flows, us."""
        received = next((times for peer, times in self.ours.items() if peer.startswith(_AT_RECEIVER)), None)
        acknowledged = next((times for peer, times in self.ours.items() if not peer.startswith(_AT_RECEIVER)), None)
        found = []
        for index, (source, target) in enumerate(self.pairs):
            flow: dict[str, float] = {"source": source, "target": target}
            for name, times in (("received_us", received), ("acknowledged_us", acknowledged)):
                if times is not None:
                    flow[name] = float(times[index]) * _US
            flow.update({peer: float(times[index]) * _US for peer, times in self.theirs.items()})
            found.append(flow)
        return found


CASES = (
    Case("RoCE", "peers-roce", "csg_roce_dmodk"),
    Case("DCQCN", "peers-dcqcn", "ns3rdma_dcqcn_4096_dmodk"),
    Case("DCQCN, 1000 B", "peers-dcqcn", "ns3rdma_dcqcn_1000_dmodk", settings=("transport.packet.payload=1000B",)),
    Case("DCTCP of htsim", "peers-dctcp-htsim", "csg_dctcp_dmodk", ("ns3dev_dctcp_dmodk", "ns3rdma_dctcp_4096_dmodk")),
    Case("DCTCP of ns-3", "peers-dctcp-ns3", "ns3dev_dctcp_dmodk", ("csg_dctcp_dmodk", "ns3rdma_dctcp_4096_dmodk")),
    Case("New Reno of htsim", "peers-new-reno-htsim", "csg_tcp_dmodk", ("ns3dev_newreno_dmodk", "nspy_reno_dmodk")),
    Case("New Reno of ns-3", "peers-new-reno-ns3", "ns3dev_newreno_dmodk", ("csg_tcp_dmodk", "nspy_reno_dmodk")),
    Case("NSCC, spraying", "peers-nscc", "uet_uec_nscc", reference=("csg_eqds_spray64", "csg_ndp_spray64")),
)
"""What is compared."""
PATTERNS = {"perm128": 8, "ring16": 4}
"""Traffic patterns, and ports of a switch of their fat tree."""
_SINGLE = {
    "csg_roce": "peers-roce",
    "uet_uec": "peers-nscc",
    "ns3rdma_dcqcn_4096": "peers-dcqcn",
    "csg_dctcp": "peers-dctcp-htsim",
    "ns3dev_newreno": "peers-new-reno-ns3",
    "ns3dev_dctcp": "peers-dctcp-ns3",
}
"""Runs of one flow alone, and the preset of each."""
_LARGE = {"csg_roce": "peers-roce", "csg_dctcp": "peers-dctcp-htsim", "uet_uec_nscc": "peers-nscc"}
_LARGE_K = 16
_LARGE_SIZE = "2048000B"


def validate(progress: Callable[[float], None] | None = None) -> Study:
    """Compare the packet engine with closed forms, and with other simulators where their results are there.

    Parameters
    ----------
    progress
        Called with the share of the runs done.

    Raises
    ------
    InputError
        Where the folder of results is named and lacks one.
    """
    folder = results_folder()
    steps = 3 if folder is None else 4 + len(CASES) * len(PATTERNS)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done / steps)

    rows = closed_form_rows()
    step()
    rows += ring_rows()
    step()
    summary: dict[str, Any] = {"largest error of the closed forms": max(abs(row.relative_error or 0.0) for row in rows)}
    if folder is None:
        summary["other simulators"] = (
            f"left out: their completion time of each flow is not here; {FOLDER} names its folder"
        )
    else:
        rows += single_flow_rows(folder)
        step()
        found = []
        for comparison in comparisons(folder):
            found += [] if comparison is None else [comparison]
            step()
        rows += [row for each in found for row in each.rows()]
        summary |= _condense(found)
    summary["1,024 hosts, permutations not the same"] = large()
    step()
    return Study("peers", rows, summary, _parameters(folder))


def results_folder() -> Path | None:
    """Folder of the other simulators' results; None where none is named.

    Raises
    ------
    InputError
        Where it is named and is no folder.
    """
    name = os.environ.get(FOLDER)
    if not name:
        return None
    folder = Path(name)
    if not (folder / "fct").is_dir():
        msg = f"{FOLDER} is {name!r}, and there is no folder 'fct' in it; name another one, or unset it"
        raise InputError(msg)
    return folder


# ---- closed forms -------------------------------------------------------------------------------


def closed_form_rows() -> list[ValidationRow]:
    """Compare one flow alone over 2, 4 and 6 links with its closed form."""
    return [
        _row(f"RoCE, {packets} packets alone over {links} links", form, _alone("peers-roce", packets, links), _CLOSED)
        for links in _PAIRS
        for packets in _PACKETS
        for form in [alone(packets, links, *_wire("peers-roce"))]
    ]


def ring_rows() -> list[ValidationRow]:
    """Compare neighbours in a ring of 16, whose acknowledgements share the links of the data, with the closed form."""
    chosen, pairs = scenario("peers-roce", PATTERNS["ring16"]), ring(16)
    result = run(chosen, matrix(pairs, FLOW, 16), PATTERNS["ring16"])
    rows = []
    for links in _PAIRS:
        form = in_ring(FLOW // _PAYLOAD, links, *_wire("peers-roce"))
        mean = float(result.acknowledged[result.links == links].mean())
        rows.append(_row(f"RoCE, ring of 16, flows over {links} links", form, mean, _CLOSED))
    return rows


def _wire(transport: str) -> tuple[int, int]:
    """Bytes on the wire of a packet and of an acknowledgement."""
    framing = packet_framing(scenario(transport, 4).transport)
    return framing.packet, framing.ack


def _alone(transport: str, packets: int, links: int, *, at_receiver: bool = False) -> float:
    """Completion time of one flow alone, s."""
    demand = matrix([_PAIRS[links]], packets * _PAYLOAD, 128)
    result = run(scenario(transport, 8), demand, 8)
    return float((result.received if at_receiver else result.acknowledged)[0])


# ---- against other simulators -------------------------------------------------------------------


def single_flow_rows(folder: Path) -> list[ValidationRow]:
    """Compare one flow alone with what each simulator gave."""
    rows = []
    for line in _lines(folder / "fct" / "single_flow.csv"):
        transport = _SINGLE.get(line["sim"])
        if transport is None:
            continue
        packets, links = int(line["bytes"]) // _PAYLOAD, int(line["hops"])
        ours = _alone(transport, packets, links, at_receiver=line["sim"].startswith(_AT_RECEIVER))
        what = f"{transport}, {packets} packets alone over {links} links"
        rows.append(_row(what, float(line["fct_us"]) / _US, ours, line["sim"]))
    return rows


def completion_times(folder: Path, peer: str, pattern: str) -> dict[tuple[int, int], float] | None:
    """Read what a simulator gave, s, by source and target; None where it did not run this pattern."""
    path = folder / "fct" / f"{peer}__{pattern}.csv"
    if not path.is_file():
        return None
    return {(int(line["src"]), int(line["dst"])): float(line["fct_or_finish_us"]) / _US for line in _lines(path)}


def _lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))
    except OSError as error:
        msg = f"{path}: cannot be read ({error}); {FOLDER} names the folder that holds it"
        raise InputError(msg) from error


def compare(case: Case, pattern: str, theirs: dict[str, dict[tuple[int, int], float]]) -> Comparison:
    """Run a pattern with the transport of a case, and hold it against the simulators' times by source and target."""
    pairs = sorted(theirs[case.own])
    k = PATTERNS[pattern]
    result = run(scenario(case.transport, k, case.settings), matrix(pairs, FLOW, k**3 // 4), k)
    return Comparison(
        case,
        pattern,
        pairs,
        {peer: result.received if peer.startswith(_AT_RECEIVER) else result.acknowledged for peer in theirs},
        {peer: np.array([times[pair] for pair in pairs]) for peer, times in theirs.items()},
        result.cpu_seconds,
    )


def comparisons(folder: Path) -> Iterator[Comparison | None]:
    """Compare all cases and patterns; None for one that no simulator has run."""
    for pattern in PATTERNS:
        for case in CASES:
            theirs = {peer: times for peer in case.peers if (times := completion_times(folder, peer, pattern))}
            yield compare(case, pattern, theirs) if case.own in theirs else None


def _condense(found: Sequence[Comparison]) -> dict[str, Any]:
    """Name the findings of all comparisons."""
    summary: dict[str, Any] = {}
    for pattern in PATTERNS:
        of_pattern = [each for each in found if each.pattern == pattern]
        summary[f"{pattern}, completion times in us and how far they differ"] = {
            f"{each.case.name} / {peer}": each.agreement(peer) for each in of_pattern for peer in each.theirs
        }
    misses = [miss for each in found for miss in each.misses()]
    summary["beyond the targets"] = "; ".join(misses) if misses else "nothing"
    summary["CPU seconds, perm128"] = {
        each.case.name: _cpu(each.case.kind, "perm128", each.cpu_seconds) for each in found if each.pattern == "perm128"
    }
    for each in found:
        summary[f"flows, {each.case.name}, {each.pattern}"] = each.flows()
    return summary


def _cpu(peers: Sequence[str], where: str, ours: float) -> dict[str, float]:
    """CPU time of the fastest simulator of a kind of transport and ours, s, and how many times as fast we are."""
    table = measured.load("peers").rows
    stems = {peer.removesuffix("_dmodk") for peer in peers}
    here = table[(table["scenario"] == where) & np.isin(table["run"], list(stems))]
    fastest = float(here["cpu_s"].min())
    return {"ours": ours, "fastest": fastest, "times_as_fast": fastest / ours}


def large() -> dict[str, dict[str, float]]:
    """Run permutations on 1,024 hosts beside those of other simulators, which drew other ones."""
    table = measured.load("peers").rows
    found = {}
    for peer, transport in _LARGE.items():
        chosen = scenario(transport, _LARGE_K)
        demand = traffic.request("permutation", chosen, size=_LARGE_SIZE)
        result = run(chosen, demand, _LARGE_K)
        theirs = table[(table["scenario"] == "perm1024") & (table["run"] == peer)][0]
        found[transport] = {
            "our_mean_us": float(result.acknowledged.mean()) * _US,
            "their_mean_us": float(theirs["mean_fct_s"]) * _US,
            "our_cpu_s": result.cpu_seconds,
            "their_cpu_s": float(theirs["cpu_s"]),
        }
    return found


# ---- what is shown ------------------------------------------------------------------------------


def draw(study: Study, folder: Path) -> list[Path]:
    """Draw the completion times of each case against those of the simulators; returns the files written."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.report.against import flows_against  # noqa: PLC0415  as above

    paths = []
    for case in CASES:
        for pattern in PATTERNS:
            flows = study.summary.get(f"flows, {case.name}, {pattern}")
            if not flows:
                continue
            theirs = {peer: [flow[peer] for flow in flows] for peer in case.peers if peer in flows[0]}
            ours = {peer: [flow[_column(peer)] for flow in flows] for peer in theirs}
            path = folder / f"peers-{_slug(case.name)}-{pattern}.png"
            plots.save(flows_against(ours, theirs, f"{case.name}: {len(flows)} flows of {pattern}"), path)
            paths.append(path)
    return paths


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def _column(peer: str) -> str:
    return "received_us" if peer.startswith(_AT_RECEIVER) else "acknowledged_us"


def _row(quantity: str, measured_s: float, predicted_s: float, source: str) -> ValidationRow:
    certainty = "inferred" if source == _CLOSED else "captured"
    return ValidationRow(quantity, "us", float(measured_s) * _US, float(predicted_s) * _US, source, certainty)


def _parameters(folder: Path | None) -> dict[str, str]:
    return {
        "transports": "presets peers-... (workloads/transports, workloads/switches): the parameters of those runs",
        "fabric": "fat tree of k-port switches, 100 Gb/s and 1 us per link, store-and-forward, D-mod-k routes",
        "completion": "at the sender, on the last acknowledgement: delivery and its way back unloaded; ns-3's TCP and "
        "ns.py count until delivery",
        "targets": f"mean within {TARGET:.0%} of the simulator that the parameters are from, or in the range "
        f"of its kind; per flow within {FLOW_TARGET:.0%} in the median",
        "CPU seconds": "of the simulation, kernels compiled; the only figures here that differ between runs",
        "results of other simulators": "not here" if folder is None else f"read from {FOLDER}",
    }
