"""All plots in one place; each lives in its own module and gives a figure that `save` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.records.packet import DATA
from fabricsim.report.agreement import bus_bandwidth, measured_against_predicted
from fabricsim.report.bars import breakdown, comparison
from fabricsim.report.fct import compared_traffic, completion_times
from fabricsim.report.grouped import grouped
from fabricsim.report.heat_map import heat_map
from fabricsim.report.lines import frontier, lines
from fabricsim.report.path import packet_paths
from fabricsim.report.scaling import ScaledRun, rates_over_time, scaling
from fabricsim.report.scatter import agreement
from fabricsim.report.style import paper, save
from fabricsim.report.sweeps import volume_sweeps
from fabricsim.report.taps import queues, windows
from fabricsim.report.timeline import timeline
from fabricsim.report.utilisation import payload_rates, utilisation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fabricsim.results.packets import Packets
    from fabricsim.results.traffic import TrafficRecord

__all__ = [
    "ScaledRun",
    "agreement",
    "breakdown",
    "bus_bandwidth",
    "compared_traffic",
    "comparison",
    "frontier",
    "grouped",
    "heat_map",
    "lines",
    "measured_against_predicted",
    "of_packets",
    "of_traffic",
    "paper",
    "rates_over_time",
    "save",
    "scaling",
    "timeline",
    "utilisation",
    "volume_sweeps",
]


def of_packets(packets: Packets, title: str) -> dict[str, Figure]:
    """Draw what a packet run recorded; by the name of the picture, empty if nothing was tapped."""
    figures = {}
    used = {tap.kind for tap in packets.taps if len(tap.time)}
    if "queue" in used:
        figures["queues"] = queues(packets, title)
    if used & {"window", "pace"}:
        figures["windows"] = windows(packets, title)
    if packets.log is not None and (packets.log.entries["kind"] == DATA).any():
        figures["packets"] = packet_paths(packets.log, title)
    return figures


def of_traffic(result: TrafficRecord) -> dict[str, Figure]:
    """Draw the completion times of a traffic run and what it recorded; by the name of the picture."""
    figures = {"fct": completion_times(result)}
    title = f"{result.matrix.name} on {result.name} over {result.transport}"
    if result.packets is not None:
        figures |= of_packets(result.packets, title)
    if result.series is not None and result.series.rate.any():
        end = int((result.matrix.flows["start"] + result.completion).max())
        figures["rates"] = payload_rates(result.series, end, title)
    return figures
