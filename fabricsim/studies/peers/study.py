"""The packet engine against closed forms, and against other packet simulators on the same work.

What those gave for each flow is not part of fabricsim: the folder named by ``FABRICSIM_PEERS`` holds
it, in ``fct/RUN__PATTERN.csv`` (columns ``src``, ``dst``, ``fct_or_finish_us``) and
``fct/single_flow.csv``. Without it the closed forms alone are compared. The presets ``peers-...``
carry the parameters of those runs; what was chosen with the results known stands in the documentation.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim import measured
from fabricsim.errors import InputError
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run import traffic
from fabricsim.studies.frame.study import Progress, Study, silent
from fabricsim.studies.peers.cases import AT_RECEIVER, CASES, FLOW_TARGET, TARGET, US, Case, Comparison, row
from fabricsim.studies.peers.patterns import FlowPattern, lines_of, own_patterns, their_pattern, theory
from fabricsim.studies.peers.runs import FLOW, alone, in_ring, matrix, ring, run, scenario
from fabricsim.transports.parameters import packet_framing
from fabricsim.units import human_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure


FOLDER = "FABRICSIM_PEERS"
"""Environment variable that names the folder of the other simulators' results."""
_PAIRS = {2: (0, 1), 4: (0, 4), 6: (0, 127)}  # ends of the flow that is alone, by its links
_PACKETS = (1, 250, 2500)
_PAYLOAD = 4096
_CLOSED = "closed form, fabricsim.studies.peers.runs"
_THEORY = "theory, fabricsim.studies.peers.patterns"
_SINGLE = {
    "csg_roce": "peers-roce",
    "uet_uec": "peers-nscc",
    "csg_eqds": "peers-eqds",
    "csg_ndp": "peers-ndp",
    "ns3rdma_dcqcn_4096": "peers-dcqcn",
    "csg_dctcp": "peers-dctcp-htsim",
    "ns3dev_newreno": "peers-new-reno-ns3",
    "ns3dev_dctcp": "peers-dctcp-ns3",
}
"""Runs of one flow alone, and the preset of each."""
_LARGE = {"csg_roce": "peers-roce", "csg_dctcp": "peers-dctcp-htsim", "uet_uec_nscc": "peers-nscc"}
_LARGE_K = 16
_LARGE_SIZE = "2048000B"


def validate(progress: Progress = silent) -> Validation:
    """Compare the packet engine with closed forms, and with other simulators if their results are there.

    Raises InputError if the folder of results is named and lacks one.
    """
    folder = results_folder()
    patterns, theirs = own_patterns(), [] if folder is None else runs_in(folder)
    steps = 4 + len(patterns) * len(CASES) + len(theirs)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(done / steps)

    rows = closed_form_rows()
    step()
    rows += ring_rows()
    step()
    summary: dict[str, Any] = {"largest error of the closed forms": max(abs(row.error) for row in rows)}
    against_theory = []
    for pattern in patterns:
        for case in CASES:
            against_theory += theory_rows(case, pattern)
            step()
    rows += against_theory
    summary["against theory, by transport"] = _largest(against_theory)
    if folder is None:
        summary["other simulators"] = (
            f"left out: their completion time of each flow is not here; {FOLDER} names its folder"
        )
    else:
        rows += single_flow_rows(folder)
        found = []
        for case, name in theirs:
            found.append(compare(folder, case, name))
            step()
        rows += [row for each in found for row in each.rows()]
        summary |= _condense(found)
    step()
    summary["1,024 hosts, permutations not the same"] = large()
    step()
    return Validation("peers", rows, summary, _parameters(folder))


def results_folder() -> Path | None:
    """Folder of the other simulators' results; None if none is named.

    Raises InputError if it is named and is no folder.
    """
    name = os.environ.get(FOLDER)
    if not name:
        return None
    folder = Path(name)
    if not (folder / "fct").is_dir():
        raise InputError(f"{FOLDER} is {name!r}, and there is no folder 'fct' in it; name another one, or unset it")
    return folder


# ---- closed forms -------------------------------------------------------------------------------


def closed_form_rows() -> list[ValidationRow]:
    """Compare one flow alone over 2, 4 and 6 links with its closed form."""
    return [
        row(
            f"RoCE, {packets} packets alone over {links} links",
            form,
            _alone("peers-roce", packets, links),
            _CLOSED,
            captured=False,
        )
        for links in _PAIRS
        for packets in _PACKETS
        for form in [alone(packets, links, *_wire("peers-roce"))]
    ]


def ring_rows() -> list[ValidationRow]:
    """Compare neighbours in a ring of 16, whose acknowledgements share the links of the data, with the closed form."""
    result = run(scenario("peers-roce", 4), matrix(ring(16), FLOW, 16), 4)
    rows = []
    for links in _PAIRS:
        form = in_ring(FLOW // _PAYLOAD, links, *_wire("peers-roce"))
        mean = float(result.acknowledged[result.links == links].mean())
        rows.append(row(f"RoCE, ring of 16, flows over {links} links", form, mean, _CLOSED, captured=False))
    return rows


def theory_rows(case: Case, pattern: FlowPattern) -> list[ValidationRow]:
    """Compare a transport on a pattern with closed forms or max-min sharing."""
    return [
        row(f"{case.name}, {pattern.name}: {what}", expected, found, _THEORY, captured=False)
        for what, expected, found in theory(case, pattern)
    ]


def _largest(rows: Sequence[ValidationRow]) -> dict[str, dict[str, float]]:
    """Error of each pattern, by transport."""
    errors: dict[str, dict[str, float]] = {}
    for each in rows:
        case, _, pattern = each.quantity.rpartition(": ")[0].rpartition(", ")
        errors.setdefault(case, {})[pattern] = each.error
    return errors


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
    for line in lines_of(folder / "fct" / "single_flow.csv"):
        transport = _SINGLE.get(line["sim"])
        if transport is None:
            continue
        packets, links = int(line["bytes"]) // _PAYLOAD, int(line["hops"])
        ours = _alone(transport, packets, links, at_receiver=line["sim"].startswith(AT_RECEIVER))
        what = f"{transport}, {packets} packets alone over {links} links"
        rows.append(row(what, float(line["fct_us"]) / US, ours, line["sim"], captured=True))
    return rows


def completion_times(folder: Path, peer: str, pattern: str) -> dict[tuple[int, int], float] | None:
    """Read what a simulator gave, s, by source and target; None if it did not run this pattern."""
    path = folder / "fct" / f"{peer}__{pattern}.csv"
    if not path.is_file():
        return None
    return {(int(line["src"]), int(line["dst"])): float(line["fct_or_finish_us"]) / US for line in lines_of(path)}


def runs_in(folder: Path) -> list[tuple[Case, str]]:
    """Cases, and patterns that the simulator of each has run."""
    names = sorted({path.stem.rpartition("__")[2] for path in (folder / "fct").glob("*__*.csv")})
    return [(case, name) for name in names for case in CASES if (folder / "fct" / f"{case.own}__{name}.csv").is_file()]


def compare(folder: Path, case: Case, name: str) -> Comparison:
    """Run a pattern with the transport of a case, and hold it against the simulators' times by source and target."""
    theirs = {peer: times for peer in case.peers if (times := completion_times(folder, peer, name))}
    pairs = sorted(theirs[case.own])
    result = their_pattern(folder, name, pairs).run(case)
    return Comparison(
        case,
        name,
        pairs,
        {peer: result.received if peer.startswith(AT_RECEIVER) else result.acknowledged for peer in theirs},
        {peer: np.array([times[pair] for pair in pairs]) for peer, times in theirs.items()},
        result.cpu_seconds,
    )


def _condense(found: Sequence[Comparison]) -> dict[str, Any]:
    """Name the findings of all comparisons."""
    summary: dict[str, Any] = {}
    for pattern in dict.fromkeys(each.pattern for each in found):
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
    """CPU time of the fastest simulator of a kind of transport and ours, s, how many times as fast we are, if known."""
    table = measured.load("peers").rows
    stems = {_without_paths(peer) for peer in peers}
    here = table[(table["scenario"] == where) & np.isin(table["run"], list(stems))]
    if not len(here):
        return {"ours": ours}
    fastest = float(here["cpu_s"].min())
    return {"ours": ours, "fastest": fastest, "times_as_fast": fastest / ours}


def _without_paths(peer: str) -> str:
    """Name of a run without that of its routes, as in the table of CPU times."""
    return peer.removesuffix("_dmodk").removesuffix("_spray64")


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
            "our_mean_us": float(result.acknowledged.mean()) * US,
            "their_mean_us": float(theirs["mean_fct_s"]) * US,
            "our_cpu_s": result.cpu_seconds,
            "their_cpu_s": float(theirs["cpu_s"]),
        }
    return found


# ---- what is shown ------------------------------------------------------------------------------


def _pictures(study: Validation) -> Iterator[tuple[str, Figure]]:
    """Draw the completion times of each case against those of the simulators."""
    from fabricsim.report.against import flows_against  # noqa: PLC0415  imports matplotlib

    for case in CASES:
        begin = f"flows, {case.name}, "
        for key in [key for key in study.summary if key.startswith(begin)]:
            flows, pattern = study.summary[key], key.removeprefix(begin)
            theirs = {peer: [flow[peer] for flow in flows] for peer in case.peers if peer in flows[0]}
            ours = {peer: [flow[_column(peer)] for flow in flows] for peer in theirs}
            picture = flows_against(ours, theirs, f"{case.name}: {len(flows)} flows of {pattern}")
            yield f"peers-{_slug(case.name)}-{pattern}.png", picture


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def _column(peer: str) -> str:
    return "received_us" if peer.startswith(AT_RECEIVER) else "acknowledged_us"


def _parameters(folder: Path | None) -> dict[str, str]:
    return {
        "transports": "presets peers-... (workloads/transports, workloads/switches): the parameters of those runs",
        "fabric": "fat tree of k-port switches, 100 Gb/s and 1 us per link, store-and-forward, D-mod-k routes",
        "completion": "at the sender, on the last acknowledgement: delivery and its way back unloaded; ns-3's TCP and "
        "ns.py count until delivery",
        "targets": f"mean within {human_percent(TARGET, 0)} of the simulator that the parameters are from; "
        f"per flow within {human_percent(FLOW_TARGET, 0)} in the median",
        "CPU seconds": "of the simulation, kernels compiled; the only figures here that differ between runs",
        "results of other simulators": "not here" if folder is None else f"read from {FOLDER}",
    }


STUDY = Study("peers", __doc__, validate, _pictures, against="simulators", engine="packet")
