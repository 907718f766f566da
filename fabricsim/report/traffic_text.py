"""A traffic run as tables for the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from fabricsim.report.axis_names import heading
from fabricsim.report.causes_text import resources_text
from fabricsim.report.queues_text import queues_text
from fabricsim.report.tables import FittedTable, titled
from fabricsim.report.text import counted_text, notes_text
from fabricsim.results.traffic import TrafficSummary
from fabricsim.units import human_bytes, human_count, human_percent, human_seconds

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
        notes_text([summary]),
        counted_text(summary),
    )


def comparison_text(summaries: Sequence[TrafficSummary], labels: tuple[str, Sequence[str]]) -> RenderableType:
    """Put several runs of one pattern side by side.

    `summaries`: of `fabricsim.results.traffic.summarise_traffic`.
    `labels`: what they differ in, and what each is called.
    """
    table = FittedTable(
        escape(heading(labels[0])),
        ["Makespan", "mean", "p50", "p99", "Slowdown\np99"],
        words=["Most used"],
        least=["p50", "mean"],
    )
    for label, summary in zip(labels[1], summaries, strict=True):
        times = (summary["completion_time_s"][name] for name in ("mean", "p50", "p99"))
        busiest = summary["resources"][0]
        table.add(
            label,
            human_seconds(summary["makespan_s"]),
            *map(human_seconds, times),
            f"{summary['slowdown']['p99']:.2f}",
            f"{busiest['kind']} {busiest['busiest']} ({human_percent(busiest['utilisation_max'])})",
        )
    one = summaries[0]
    sent = f"{human_count(one['flow_count'], 'flows')}, {human_bytes(one['total_bytes'])}"
    what = f"{one['matrix']}: {sent}; times of a flow"
    return Group(titled(what, table), notes_text(summaries, labels[1]))


def _headline(summary: TrafficSummary) -> Text:
    text = Text()
    text.append(summary["matrix"], style="bold")
    text.append(f" on {summary['name']} over {summary['transport']}: {human_count(summary['flow_count'], 'flows')}, ")
    text.append(f"{human_bytes(summary['total_bytes'])}\nMakespan ")
    text.append(human_seconds(summary["makespan_s"]), style="bold")
    text.append(", from the first start to the last delivery\n")
    return text


def _spreads(summary: TrafficSummary) -> Group:
    times, slowdowns = summary["completion_time_s"], summary["slowdown"]
    rows = (
        ("completion time", *(human_seconds(times[name]) for name in ("min", "mean", "p50", "p99", "max"))),
        ("slowdown", *(f"{slowdowns[name]:.2f}" for name in ("min", "mean", "p50", "p99", "max"))),
    )
    table = FittedTable("Of a flow", _COLUMNS, rows, least=["min", "p50"])
    return titled("Completion times, and slowdown against the time alone on the idle fabric", table)
