"""The page of one result, of traffic, or of several runs side by side."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fabricsim.errors import ResultError
from fabricsim.files.atomic import whole
from fabricsim.report.axis_names import heading
from fabricsim.report.causes_text import cause_name
from fabricsim.report.compared import SideBySide, compared
from fabricsim.report.difference_text import signed
from fabricsim.report.labels import tell_apart
from fabricsim.report.page import drawings
from fabricsim.report.page.html import Html, bar, document, isolated, items, paragraph, section, table, text
from fabricsim.report.page.run_sections import ROWS, queues, run_sections, tiers
from fabricsim.report.page.spans import spans
from fabricsim.report.text import times
from fabricsim.results.difference import change_of_causes
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from fabricsim.results.traffic import TrafficRecord, summarise_traffic
from fabricsim.units import human_bytes, human_count, human_percent, human_seconds, seconds


def write_page(results: Sequence[tuple[str, RunRecord | TrafficRecord]], path: Path) -> None:
    """Write the report of results as one HTML file.

    `results`: what each is called, and the result; all but one have to be of jobs.
    `path`: file to write.
    Raises ResultError if traffic is to be compared, or the file cannot be written.
    """
    content = page(results)
    with whole(path, "name a file in a folder that exists and has room", ResultError) as part:
        part.write_text(content, encoding="utf-8")


def page(results: Sequence[tuple[str, RunRecord | TrafficRecord]]) -> str:
    """Make the report of results; parameters and errors as of `write_page`."""
    name, first = results[0]
    if len(results) == 1 and isinstance(first, TrafficRecord):
        return document(f"{first.matrix.name} on {first.name}", _traffic(first), {})
    runs = [result for _, result in results if not isinstance(result, TrafficRecord)]
    if len(runs) < len(results):
        msg = f"{name}: traffic cannot stand beside other results; give results of jobs, or one of traffic alone"
        raise ResultError(msg)
    drawn = spans(runs[0])
    body = list(_side_by_side([name for name, _ in results], runs)) if len(runs) > 1 else []
    body += run_sections(runs[0], summarise(runs[0]), drawn["names"])
    return document(f"{runs[0].name} over {runs[0].transport}", body, drawn)


def _side_by_side(files: Sequence[str], runs: Sequence[RunRecord]) -> Iterator[Html]:
    """Put runs side by side, and say what makes each differ from the first."""
    by, names = tell_apart(runs)
    if len(set(names)) < len(names):
        by, names = "file", list(files)
    groups = compared(runs, names)
    shares = ["Compute", "Exposed comm.", "Host", "Bubble"]
    heads = [heading(by), "Iteration", "Speed-up", *shares, "MFU", "First cause"]
    parts = [table("Runs side by side", heads, [_compared_row(row) for group in groups for row in group])]
    parts += [_differing(group[0], row) for group in groups for row in group[1:]]
    yield section("compared", f"Compared by {by}", *parts)
    yield Html(f'<p class="faint">From here on: {isolated(names[0])}, the first result.</p>')


def _differing(first: SideBySide, other: SideBySide) -> Html:
    changes = [pair for pair in change_of_causes(first.summary, other.summary) if pair.first != pair.second][:ROWS]
    cells = [
        [pair.name, human_seconds(pair.first), human_seconds(pair.second), signed(pair.second - pair.first)]
        for pair in changes
    ]
    title = f"What makes {other.name} differ from {first.name}"
    return table(title, ["Cause", first.name, other.name, "Difference"], cells)


def _compared_row(row: SideBySide) -> list[object]:
    summary = row.summary
    time, rates = summary["iteration_time_s"], summary.get("throughput")
    breakdown, first = summary["breakdown_s"], summary["causes"][0]
    parts = breakdown["compute"], summary["exposed_communication_s"], breakdown["host"], breakdown["bubble"]
    mfu = human_percent(rates["mfu"]) if rates is not None and rates["mfu"] else "-"
    told = f"{cause_name(first)} ({human_percent(first['share'])})"
    words = Html(f'<span class="words">{text(told)}</span>')
    return [row.name, human_seconds(time), times(row.speed), *map(human_seconds, parts), mfu, words]


def _traffic(result: TrafficRecord) -> Iterator[Html]:
    summary = summarise_traffic(result)
    title = f"{isolated(summary['matrix'])} on {isolated(summary['name'])} over {isolated(summary['transport'])}"
    sent = f"{human_count(summary['flow_count'], 'flows')}, {human_bytes(summary['total_bytes'])}, all done after "
    yield Html(f"<h1>{title}</h1>{paragraph(sent + human_seconds(summary['makespan_s']))}")
    spreads: tuple[tuple[str, Any, Any], ...] = (
        ("completion time", summary["completion_time_s"], human_seconds),
        ("slowdown", summary["slowdown"], lambda value: f"{value:.3g}x"),
    )
    keys = ("min", "mean", "p50", "p99", "max")
    rows = [[name, *(show(spread[key]) for key in keys)] for name, spread, show in spreads]
    flows, ranks = result.matrix.flows, result.matrix.endpoints
    drawn = drawings.matrix(flows["source"], flows["target"], flows["bytes"].astype(np.float64), ranks)
    yield section("flows", "Flow completion", table("Of all flows", ["", *keys], rows))
    yield section("matrix", "Who sends to whom", drawn)
    cells = [[row["name"], row["kind"], bar(row["utilisation"]), str(row["flows"])] for row in summary["links"]]
    hottest = table("Hottest resources", ["Resource", "Kind", "Mean use", "Flows"], cells, 2)
    load = drawings.fabric([use.link for use in result.links], seconds(result.makespan))
    rates = Html("") if result.series is None else drawings.heat_map(result.series, result.makespan)
    yield section("links", "Use of links and hosts", tiers(summary["resources"]), hottest, rates, load)
    if summary["notes"]:
        yield section("notes", "Notes", items(summary["notes"]))
    if "queues" in summary:
        taps = () if result.packets is None else result.packets.taps
        yield section("queues", "Queues", queues(summary["queues"]), drawings.depths(taps))
