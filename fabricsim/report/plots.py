"""All plots in one place; each lives in its own module and gives a figure that `save` writes."""

from __future__ import annotations

from fabricsim.report.agreement import bus_bandwidth, measured_against_predicted
from fabricsim.report.bars import breakdown, comparison
from fabricsim.report.grouped import Bar, grouped
from fabricsim.report.style import save
from fabricsim.report.timeline import timeline
from fabricsim.report.utilisation import utilisation

__all__ = [
    "Bar",
    "breakdown",
    "bus_bandwidth",
    "comparison",
    "grouped",
    "measured_against_predicted",
    "save",
    "timeline",
    "utilisation",
]
