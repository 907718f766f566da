"""What the packet engine is compared with: transports that other simulators ran, and how far flows differ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.results.validation import ValidationRow
from fabricsim.units import human_percent

TARGET = 0.05
"""Of the mean completion time against a simulator."""
FLOW_TARGET = 0.10
"""Of the median over the flows of the difference per flow."""
AT_RECEIVER = ("ns3dev", "nspy")
"""Simulators whose flows are complete when the last byte is received, not acknowledged."""
US = 1e6
"""Microseconds per second."""


def row(quantity: str, measured_s: float, predicted_s: float, source: str, *, captured: bool) -> ValidationRow:
    """Return a comparison of two times, s, in us."""
    certainty = "captured" if captured else "inferred"
    return ValidationRow(quantity, "us", float(measured_s) * US, float(predicted_s) * US, source, certainty)


@dataclass(frozen=True)
class Case:
    """A transport that other simulators ran too.

    `name`: as in the tables.
    `transport`: preset of the library.
    `own`: the simulator that its parameters are from.
    `others`: further simulators of the same kind of transport, with parameters and algorithms of their own.
    `reference`: simulators of transports that only resemble it; no target.
    `settings`: laid over the preset.
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

    `case`, `pattern`: what was run.
    `pairs`: source and target of each flow, n of them.
    `ours`: completion times by simulator, counted as that one counts them, s, shape ``(n,)``.
    `theirs`: what it gave, s, shape ``(n,)``.
    `cpu_seconds`: of our run.
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
            row(what, theirs.mean(), self.ours[peer].mean(), f"{peer}__{self.pattern}", captured=True)
            for peer, theirs in self.theirs.items()
        ]

    def agreement(self, peer: str) -> dict[str, float]:
        """Completion times in us, and how far they differ from a simulator's."""
        ours, theirs = self.ours[peer], self.theirs[peer]
        apart = np.abs(ours / theirs - 1)
        figures = {
            f"{who}_{name}": float(value) * US
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
        if abs(own["mean_differs"]) > TARGET:
            missed.append(f"{name}: mean {human_percent(own['mean_differs'], signed=True)}")
        if own["flow_median"] > FLOW_TARGET:
            missed.append(f"{name}: median over flows {human_percent(own['flow_median'])}")
        return missed

    def flows(self) -> list[dict[str, float]]:
        """Completion times of all flows, us."""
        received = next((times for peer, times in self.ours.items() if peer.startswith(AT_RECEIVER)), None)
        acknowledged = next((times for peer, times in self.ours.items() if not peer.startswith(AT_RECEIVER)), None)
        found = []
        for index, (source, target) in enumerate(self.pairs):
            flow: dict[str, float] = {"source": source, "target": target}
            for name, times in (("received_us", received), ("acknowledged_us", acknowledged)):
                if times is not None:
                    flow[name] = float(times[index]) * US
            flow.update({peer: float(times[index]) * US for peer, times in self.theirs.items()})
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
    Case("HPCC", "peers-hpcc", "ns3rdma_hpcc_4096_dmodk"),
    Case("NSCC, spraying", "peers-nscc", "uet_uec_nscc", reference=("csg_eqds_spray64", "csg_ndp_spray64")),
    Case("EQDS, spraying", "peers-eqds", "csg_eqds_spray64", reference=("csg_ndp_spray64",)),
    Case("NDP, spraying", "peers-ndp", "csg_ndp_spray64", reference=("csg_eqds_spray64",)),
)
"""What is compared."""
