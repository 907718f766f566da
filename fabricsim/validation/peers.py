"""The packet engine against closed forms, and against other packet simulators on the same work.

What those gave for each flow is not part of fabricsim: the folder named by ``FABRICSIM_PEERS`` holds
it, in ``fct/RUN__PATTERN.csv`` (columns ``src``, ``dst``, ``fct_or_finish_us``) and
``fct/single_flow.csv``. Without it the closed forms alone are compared. The presets ``peers-...``
carry the parameters of those runs; nothing is fitted.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim import traffic
from fabricsim.errors import InputError
from fabricsim.transports.parameters import packet_framing
from fabricsim.validation import measured
from fabricsim.validation.peers_runs import FLOW, Run, alone, in_ring, matrix, ring, run, scenario
from fabricsim.validation.study import Study, ValidationRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from fabricsim.validation.study import Study as _Study

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
    settings
        Laid over the preset.
    """

    name: str
    transport: str
    own: str
    others: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def peers(self) -> tuple[str, ...]:
        """All simulators of this kind of transport."""
        return (self.own, *self.others)


CASES = (
    Case("RoCE", "peers-roce", "csg_roce_dmodk"),
    Case("DCQCN", "peers-dcqcn", "ns3rdma_dcqcn_4096_dmodk"),
    Case("DCQCN, 1000 B", "peers-dcqcn", "ns3rdma_dcqcn_1000_dmodk", settings=("transport.packet.payload=1000B",)),
    Case("DCTCP of htsim", "peers-dctcp-htsim", "csg_dctcp_dmodk", ("ns3dev_dctcp_dmodk", "ns3rdma_dctcp_4096_dmodk")),
    Case("DCTCP of ns-3", "peers-dctcp-ns3", "ns3dev_dctcp_dmodk", ("csg_dctcp_dmodk", "ns3rdma_dctcp_4096_dmodk")),
    Case("New Reno of htsim", "peers-new-reno-htsim", "csg_tcp_dmodk", ("ns3dev_newreno_dmodk", "nspy_reno_dmodk")),
    Case("New Reno of ns-3", "peers-new-reno-ns3", "ns3dev_newreno_dmodk", ("csg_tcp_dmodk", "nspy_reno_dmodk")),
    Case("NSCC, spraying", "peers-nscc", "uet_uec_nscc", ("csg_eqds_spray64", "csg_ndp_spray64")),
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
    steps = 3 + (0 if folder is None else 1 + len(CASES) * len(PATTERNS))
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
    summary: dict[str, Any] = {
        "largest error of the closed forms": max(abs(row.relative_error or 0.0) for row in rows),
    }
    if folder is None:
        summary["comparisons"] = f"left out: what other simulators gave for each flow is not here; set {FOLDER}"
    else:
        rows += single_flow_rows(folder)
        step()
        for found, part in _comparisons(folder, step):
            rows += found
            _merge(summary, part)
    _merge(summary, {"1,024 hosts, each its own permutation": large()})
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


def _comparisons(
    folder: Path, step: Callable[[], None]
) -> Iterator[tuple[list[ValidationRow], dict[str, dict[str, Any]]]]:
    for pattern in PATTERNS:
        for case in CASES:
            theirs = {peer: times for peer in case.peers if (times := completion_times(folder, peer, pattern))}
            if case.own in theirs:
                yield _compare(case, pattern, theirs)
            step()


def _compare(
    case: Case, pattern: str, theirs: dict[str, dict[tuple[int, int], float]]
) -> tuple[list[ValidationRow], dict[str, dict[str, Any]]]:
    pairs = sorted(theirs[case.own])
    result = simulate(case, pattern, pairs)
    rows, table = [], {}
    for peer, times in theirs.items():
        ours = seen_by(peer, result)
        peers = np.array([times[pair] for pair in pairs])
        source = f"{peer}__{pattern}"
        rows.append(_row(f"{case.name}, {pattern}: mean completion time", peers.mean(), ours.mean(), source))
        table[f"{case.name} / {peer}"] = _agreement(ours, peers)
    flows = {
        "pairs": [list(pair) for pair in pairs],
        "received_us": (result.received * _US).tolist(),
        "acknowledged_us": (result.acknowledged * _US).tolist(),
        "theirs_us": {peer: [times[pair] * _US for pair in pairs] for peer, times in theirs.items()},
    }
    summary: dict[str, dict[str, Any]] = {pattern: table}
    if pattern == "perm128":
        summary["CPU time, perm128"] = {case.name: _cpu(case.peers, pattern, result.cpu_seconds)}
    summary[f"verdicts, {pattern}"] = {case.name: {"mean": _verdict(case, table), "per_flow": _per_flow(case, table)}}
    summary["flows"] = {f"{case.name}, {pattern}": [flows]}
    return rows, summary


def simulate(case: Case, pattern: str, pairs: Sequence[tuple[int, int]]) -> Run:
    """Run a pattern with a transport."""
    k = PATTERNS[pattern]
    return run(scenario(case.transport, k, case.settings), matrix(pairs, FLOW, k**3 // 4), k)


def seen_by(peer: str, result: Run) -> NDArray[np.float64]:
    """Completion times as a simulator counts them, s: some when all is received, most when it is acknowledged."""
    return result.received if peer.startswith(_AT_RECEIVER) else result.acknowledged


def _agreement(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> dict[str, float]:
    """Completion times in us, and how far they differ."""
    apart = np.abs(ours / theirs - 1)
    spread = {
        f"{who}_{name}": float(value) * _US
        for name in ("min", "mean", "max")
        for who, times in (("our", ours), ("their", theirs))
        for value in [getattr(times, name)()]
    }
    return {
        **spread,
        "mean_apart": float(ours.mean() / theirs.mean() - 1),
        "flow_median": float(np.median(apart)),
        "flow_p90": float(np.percentile(apart, 90)),
    }
