"""Causes along the critical path, and resources by tier, as tables."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable, titled
from fabricsim.results.causes import LIMITS, NETWORK, Cause
from fabricsim.results.resources import ResourceSummary
from fabricsim.units import human_percent, human_seconds

ROWS = 8
"""Causes and tiers shown at most; the JSON has all of them."""


def cause_name(cause: Cause) -> str:
    """Name a cause for people: ``wire leaf0->spine0, data all_reduce``."""
    resource = f" {cause['resource']}" if cause["resource"] else ""
    return f"{cause['cause']}{resource}, {cause['of']}"


def cause_text(cause: Cause) -> str:
    """Name a cause as `cause_name` does, with its detail if it has one."""
    return cause_name(cause) + (f" ({cause['detail']})" if cause["detail"] else "")


def first_beside_compute(causes: Sequence[Cause]) -> Cause:
    """Choose the first cause that is no computing, if there is one."""
    return next((cause for cause in causes if cause["cause"] != "compute"), causes[0])


def what_causes_share(causes: Sequence[Cause], iteration: float) -> str:
    """Name what causes add up to: in replays the last rank may take longer than the `iteration`, the mean of all."""
    last = human_seconds(sum(cause["time_s"] for cause in causes))
    return "the iteration" if last == human_seconds(iteration) else f"the {last} of the last rank"


def causes_text(causes: Sequence[Cause], iteration: float) -> RenderableType:
    """Rank the causes of an iteration, the first in words above the table.

    `causes`: of `fabricsim.results.causes.causes`.
    `iteration`: of the headline, s.
    """
    title = Text("First cause: ").append(cause_name(causes[0]), style="bold")
    title.append(f", {human_percent(causes[0]['share'])} of {what_causes_share(causes, iteration)}")
    if sum(cause["share"] for cause in causes if cause["cause"] in NETWORK) < LIMITS:
        title.append("; nothing in the network limits it")
    rows = ((cause_text(one), human_seconds(one["time_s"]), human_percent(one["share"])) for one in causes[:ROWS])
    return Group(title, FittedTable("What the last rank waited for", ["At most\nto gain", "Share"], rows), "")


def resources_text(resources: Sequence[ResourceSummary], span: str = "whole run") -> RenderableType:
    """Show how much the resources of each tier were used.

    `resources`: of `fabricsim.results.resources.by_tier`.
    `span`: over which their use is meant.
    """
    table = FittedTable("Resources", ["Count", "Mean", "Most"], words=["Busiest"], least=["Count", "Busiest"])
    for row in resources[:ROWS]:
        shares = (human_percent(row[key]) for key in ("utilisation_mean", "utilisation_max"))
        name = f"{row['kind']} {row['tier']}"
        table.add(name, f"{row['count']:,}", *shares, row["busiest"])
    return titled(f"Links and host resources, use over the {span}", table)
