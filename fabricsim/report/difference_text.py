"""Two runs of one scenario side by side: where they differ, and what packets say about why."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fabricsim.report.compared import SideBySide, compared
from fabricsim.report.labels import tell_apart
from fabricsim.report.queues_text import queues_text
from fabricsim.report.tables import FittedTable, titled
from fabricsim.report.text import assumed_text, comparison_table, notes_text
from fabricsim.results.difference import Difference, Pair, change_of_causes
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import Summary
from fabricsim.units import human_count, human_percent, human_seconds

ROWS = 12
"""Kinds of calls shown at most."""
CHANGES = 3
"""Causes named at most of what makes one run slower than another."""
LEAST = 0.001
"""Share of the iteration below which a change is not worth a word."""
_REASONS = ("drops", "retransmissions", "timeouts", "copies", "marks", "trims", "errors", "pauses")


def difference_text(name: str, labels: tuple[str, str], found: Difference, explaining: Summary) -> RenderableType:
    """Show where two runs differ.

    `name`: of the scenario.
    `found`: what differs.
    `explaining`: summary of the run that has queues.
    Returns: for ``rich.console.Console.print``.
    """
    headline = Text(name, style="bold").append(f": {labels[1]} against {labels[0]}", style="not bold")
    calls = found.calls[:ROWS]
    more = f" ({ROWS} of {len(found.calls)} kinds, the longest)" if len(found.calls) > ROWS else ""
    blocks: list[RenderableType] = [headline, "", _times("Iteration", labels, [found.iteration]), ""]
    if calls:
        blocks.append(titled(f"Collectives, time as the mean of the calls{more}", _times("Collective", labels, calls)))
    blocks.append(titled("Timers", _times("Timer", labels, found.timers)))
    blocks.append(titled("Links whose use differs the most, over the iteration", _shares(labels, found.links)))
    blocks += [queues_text(explaining.get("queues", [])), _reasons(explaining, fluid="flow" in labels)]
    return Group(*blocks)


def comparison_text(results: Sequence[RunRecord], labels: tuple[str, Sequence[str]] | None) -> list[RenderableType]:
    """Show runs side by side, why each is slower or faster than the first, and what was assumed.

    `labels`: what they differ in, and what each is called; if left out that is found out, and causes are left out.
    """
    by, names = labels or tell_apart(results)
    groups = compared(results, names)
    rows = [row for group in groups for row in group]
    summaries = [row.summary for row in rows]
    table = comparison_table(summaries, [row.speed for row in rows], (by, [row.name for row in rows]))
    explained = [] if labels is None else map(explained_text, groups)
    return [table, *explained, assumed_text(summaries), notes_text(summaries, [row.name for row in rows])]


def explained_text(rows: Sequence[SideBySide]) -> RenderableType:
    """Say of each run but the first which causes make it slower or faster than that."""
    return Group(*(_explained(rows[0].name, row.name, rows[0].summary, row.summary) for row in rows[1:]))


def _explained(first: str, label: str, one: Summary, other: Summary) -> Text:
    whole = other["iteration_time_s"] - one["iteration_time_s"]
    most = LEAST * max(one["iteration_time_s"], other["iteration_time_s"])
    text = Text(f"{label} against {first}: ", style="bold").append(signed(whole), style="not bold")
    changed = [pair for pair in change_of_causes(one, other) if abs(pair.second - pair.first) >= most][:CHANGES]
    said = [f"{signed(pair.second - pair.first)} {pair.name}" for pair in changed]
    rest = whole - sum(pair.second - pair.first for pair in changed)
    said += [f"{signed(rest)} others"] if said and abs(rest) >= most else []
    return text.append(f" (on the critical path {'; '.join(said)})" if said else "", style="not bold")


def signed(time: float) -> str:
    """Write a difference of times with its sign."""
    return f"{'-' if time < 0 else '+'}{human_seconds(abs(time))}"


def _times(what: str, labels: tuple[str, str], rows: Iterable[Pair]) -> Table:
    table = FittedTable(what, [*labels, "Difference"])
    for row in rows:
        change = "-" if row.change is None else human_percent(row.change, signed=True)
        table.add(row.name, human_seconds(row.first), human_seconds(row.second), change)
    return table


def _shares(labels: tuple[str, str], rows: Iterable[Pair]) -> Table:
    table = FittedTable("Link", [*labels, "Difference"])
    for row in rows:
        cells = (human_percent(share) for share in (row.first, row.second))
        table.add(row.name, *cells, f"{100 * (row.second - row.first):+.1f} pp")
    return table


def _reasons(summary: Summary, *, fluid: bool) -> Text:
    """Total what keeps packets from flowing as a fluid would; two engines of packets have it alike."""
    counters = summary["counters"]
    parts = [human_count(counters[name], name) for name in _REASONS if counters.get(name)]
    if parts:
        return Text(f"In all: {', '.join(parts)}\n")
    why = ": what differs is how the transport starts, and how packets wait for one another" if fluid else ""
    return Text(f"No packet was dropped, marked, paused or sent again{why}\n")
