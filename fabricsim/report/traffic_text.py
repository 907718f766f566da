"""A traffic run as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from fabricsim.report.causes_text import resources_text
from fabricsim.report.queues_text import queues_text
from fabricsim.report.tables import FittedTable
from fabricsim.units import human_bytes, human_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from fabricsim.results.traffic import TrafficSummary

_COLUMNS = ("min", "mean", "p50", "p99", "max")


def traffic_text(summary: TrafficSummary) -> RenderableType:
    """Show how long the flows took, how much longer than alone, and how much each tier of links was used.

    `summary`: of `fabricsim.results.traffic.summarise_traffic`.
    Returns: for ``rich.console.Console.print``.
    """
    queues = [queues_text(summary["queues"])] if summary.get("queues") else []
    return Group(
        _headline(summary),
        _spreads(summary),
        resources_text(summary["resources"], "makespan"),
        *queues,
        _footer(summary),
    )


def _headline(summary: TrafficSummary) -> Text:
    text = Text()
    text.append(summary["matrix"], style="bold")
    text.append(f" on {summary['name']} over {summary['transport']}: {summary['flow_count']:,} flows, ")
    text.append(f"{human_bytes(summary['total_bytes'])}\nMakespan ")
    text.append(human_seconds(summary["makespan_s"]), style="bold")
    text.append(", from the first start to the last delivery\n")
    return text


def _spreads(summary: TrafficSummary) -> Group:
    table = FittedTable("Of a flow", _COLUMNS, least=["min", "p50"])
    times, slowdowns = summary["completion_time_s"], summary["slowdown"]
    table.add_row("completion time", *(human_seconds(times[name]) for name in ("min", "mean", "p50", "p99", "max")))
    table.add_row("slowdown", *(f"{slowdowns[name]:.2f}" for name in ("min", "mean", "p50", "p99", "max")))
    return _titled("Completion times, and slowdown against the time alone on the idle fabric", table)


def _footer(summary: TrafficSummary) -> Text:
    shown = {name: count for name, count in summary["counters"].items() if count or summary["engine"] == "flow"}
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in shown.items())
    run = f"engine {summary['engine']}, seed {summary['seed']}, fabricsim {summary['version']}"
    return Text(f"{counts} in {human_seconds(summary['wall_seconds'])}\n{run}", style="dim")


def _titled(title: str, table: Table) -> Group:
    return Group(Text(title, style="bold"), table, "")
