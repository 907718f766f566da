"""Summaries as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from fabricsim.errors import ResultError
from fabricsim.report.axis_names import heading
from fabricsim.report.capture_text import capture_text
from fabricsim.report.causes_text import cause_text, causes_text, first_beside_compute, resources_text
from fabricsim.report.pairs_text import pairs_text
from fabricsim.report.queues_text import queues_text
from fabricsim.report.tables import FittedTable, titled
from fabricsim.units import human_bytes, human_count, human_percent, human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fabricsim.results.jobs import JobSummary
    from fabricsim.results.summary import CollectiveSummary, Summary
    from fabricsim.results.traffic import TrafficSummary
    from fabricsim.results.uncertainty import UncertaintySummary

ROWS = 12
"""Collectives shown at most; the JSON has all of them."""
_PARAMETERS = 5
"""Uncertain parameters shown at most; the JSON has all that bring something."""


def summary_text(summary: Summary) -> RenderableType:
    """Show one run: what it took, where the time went, and what the iteration waited for.

    `summary`: of `fabricsim.results.summary.summarise`.
    Returns: for ``rich.console.Console.print``.
    """
    blocks: list[RenderableType] = [
        headline_text(summary),
        *([_jobs(summary["jobs"])] if "jobs" in summary else []),
    ]
    if "capture" in summary:
        host = sum(cause["share"] for cause in summary["causes"] if cause["cause"] == "host")
        blocks.append(capture_text(summary["capture"], host))
    blocks += [_uncertainty(summary["uncertainty"])] if "uncertainty" in summary else []
    blocks += [_breakdown(summary), causes_text(summary["causes"], summary["iteration_time_s"]), _timers(summary)]
    if summary["collectives"]:
        blocks.append(_collectives(summary["collectives"]))
    if summary["resources"]:
        blocks.append(resources_text(summary["resources"]))
    if summary.get("queues"):
        blocks.append(queues_text(summary["queues"]))
    blocks += [pairs_text("Who sends to whom", summary["pairs"])] if "pairs" in summary else []
    blocks += [Text(f"Assumed: {assumption}") for assumption in summary.get("assumptions", ())]
    blocks += [notes_text([summary]), _footer(summary)]
    return Group(*blocks)


def brief_text(summary: Summary) -> RenderableType:
    """Show of one run what fits on a screen: what it took, and where the time went."""
    jobs = [_jobs(summary["jobs"])] if "jobs" in summary else []
    causes = causes_text(summary["causes"], summary["iteration_time_s"])
    return Group(headline_text(summary), *jobs, _breakdown(summary), causes, _footer(summary))


def assumed_text(summaries: Sequence[Summary]) -> RenderableType:
    """Say what was assumed in some of several runs, each once."""
    said: dict[str, None] = {}
    for summary in summaries:
        if "capture" in summary:
            said |= dict.fromkeys(summary["capture"]["assumptions"])
        said |= dict.fromkeys(summary.get("assumptions", ()))
    return Group(*(Text(f"Assumed: {assumption}") for assumption in said))


def notes_text(summaries: Sequence[Summary | TrafficSummary], names: Sequence[str] = ("",)) -> RenderableType:
    """Say what a reader has to know of how runs were made, each once, and of which runs if not of all."""
    runs: dict[str, list[str]] = {}
    for summary, name in zip(summaries, names, strict=True):
        for note in summary["notes"]:
            runs.setdefault(note, []).append(name)
    some = {note: "" if len(of) == len(names) else f" ({', '.join(of)})" for note, of in runs.items()}
    return Group(*(Text(f"Note{of}: {note}") for note, of in some.items()))


def comparison_table(
    summaries: Sequence[Summary], speeds: Sequence[float | None], labels: tuple[str, Sequence[str]]
) -> Table:
    """Compare runs of one scenario over several transports, or of one job on several fabrics.

    `summaries`: at least one, shown in the given order. Compute, exposed communication, host and bubble of a row add up
        to its iteration.
    `speeds`: of each against the slowest (`fabricsim.results.speed_up.speed_ups`).
    `labels`: what they differ in, and what each is called.
    Raises ResultError if there is nothing to compare.
    """
    if not summaries:
        raise ResultError("there is no run to compare; name at least one transport")
    numbers = ["Iteration", "Speed-\nup", "Compute", "Exposed\ncomm.", "Bubble"]
    host = any(summary["breakdown_s"]["host"] for summary in summaries)
    if host:
        numbers.insert(-1, "Host")
    by, names = labels
    rates = _rate_columns(summaries)
    least = ["HFU", "TFLOP/s\nper GPU", "Tokens/s", "Host", "Bubble", "Speed-\nup", "Compute", "Exposed\ncomm."]
    least += ["First cause", "MFU"]
    table = FittedTable(escape(heading(by)), [*numbers, *rates], words=["First cause"], least=least, gap=0)
    for row, (label, summary) in enumerate(zip(names, summaries, strict=True)):
        first = summary["causes"][0]
        table.add(
            label,
            human_seconds(summary["iteration_time_s"]),
            times(speeds[row]),
            human_seconds(summary["breakdown_s"]["compute"]),
            human_seconds(summary["exposed_communication_s"]),
            *([human_seconds(summary["breakdown_s"]["host"])] if host else []),
            human_seconds(summary["breakdown_s"]["bubble"]),
            *(column[row] for column in rates.values()),
            f"{first['cause']}, {first['of']} ({human_percent(first['share'])})",
        )
    return table


def _rate_columns(summaries: Sequence[Summary]) -> dict[str, list[str]]:
    """Columns of `throughput` that some run has, by heading."""
    rates = [summary.get("throughput") for summary in summaries]
    cells = {
        "MFU": [human_percent(rate["mfu"]) if rate and rate["mfu"] else "-" for rate in rates],
        "HFU": [human_percent(rate["hfu"]) if rate and rate["hfu"] else "-" for rate in rates],
        "TFLOP/s\nper GPU": [human_number(rate["tflops_per_gpu"]) if rate else "-" for rate in rates],
        "Tokens/s": [human_number(rate["tokens_per_s"]) if rate else "-" for rate in rates],
    }
    return {heading: column for heading, column in cells.items() if set(column) != {"-"}}


def times(factor: float | None) -> str:
    """Write a factor; ``-`` if there is none."""
    return "-" if factor is None else f"{factor:.2f}x"


def human_number(value: float | None) -> str:
    """Three digits, or as many as stand before the point; ``-`` if there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"  # noqa: PLR2004  three digits


def headline_text(summary: Summary) -> Text:
    """Say what was run, how long it took, and which rates that makes."""
    text = Text()
    text.append(f"{summary['name']}", style="bold")
    if "jobs" in summary:
        return _headline_of_jobs(summary, text)
    folded = f" folded to {summary['simulated_ranks']}" if "simulated_ranks" in summary else ""
    text.append(f": {human_count(summary['ranks'], 'ranks')}{folded} over {summary['transport']}\n")
    text.append("Iteration time ")
    text.append(human_seconds(summary["iteration_time_s"]), style="bold")
    unknown = _compute_unknown(summary)
    if unknown and not summary["breakdown_s"]["host"]:
        return text.append(" of communication alone: the trace does not say how long kernels take\n")
    known = [part for part in parts_of(summary) if not unknown or part[0] != "compute"]
    parts = [f"{name} {human_percent(time / summary['iteration_time_s'])}" for name, time in known]
    text.append(f": {', '.join(parts)}{'; the trace does not say how long kernels take' if unknown else ''}\n")
    return text.append(f"{', '.join(rates)}\n") if (rates := _rates(summary)) else text


def _headline_of_jobs(summary: Summary, text: Text) -> Text:
    """Say how long each of several jobs took."""
    jobs = summary["jobs"]
    many = f"{human_count(len(jobs), 'jobs')} on {human_count(summary['ranks'], 'ranks')}"
    text.append(f": {many} over {summary['transport']}\nIteration time ")
    for number, job in enumerate(jobs):
        text.append(f"{', ' if number else ''}{job['name']} ")
        text.append(human_seconds(job["iteration_time_s"]), style="bold")
    return text.append(f"; all done after {human_seconds(summary['run_time_s'])}\n")


def _rates(summary: Summary) -> list[str]:
    """Say what of `throughput` is known."""
    if "throughput" not in summary:
        return []
    rates = summary["throughput"]
    shares = [
        f"{name} {human_percent(share)}" for name, share in (("MFU", rates["mfu"]), ("HFU", rates["hfu"])) if share
    ]
    speed = [f"{human_number(rates['tflops_per_gpu'])} TFLOP/s per GPU"]
    return [*shares, *speed, *([f"{human_number(rates['tokens_per_s'])} tokens/s"] if rates["tokens_per_s"] else [])]


def _jobs(jobs: Sequence[JobSummary]) -> Group:
    """Show what became of each job, and what its own iteration waited for first besides computing."""
    numbers = ["Ranks", "Start", "Iteration", "Compute", "Exposed\ncomm.", "Bubble"]
    least = ["Start", "Ranks", "Bubble", "Compute"]
    table = FittedTable("Job", numbers, map(job_cells, jobs), words=["First cause beside computing"], least=least)
    return titled("Jobs, each from its own start", table)


def job_cells(job: JobSummary) -> list[str]:
    """Name a job, its ranks, start, iteration, compute, exposed communication, bubble and first other cause."""
    compute, exposed = job["compute_s"], job["exposed_communication_s"]
    times = job["start_s"], job["iteration_time_s"], compute, exposed, job["bubble_s"]
    first = first_beside_compute(job["causes"])
    told = f"{cause_text(first)}, {human_percent(first['share'])}"
    return [job["name"], str(job["ranks"]), *map(human_seconds, times), told]


def _uncertainty(found: UncertaintySummary) -> Group:
    """Show the interval of an iteration, and the parameters that it owes most to."""
    low, high = human_seconds(found["low_s"]), human_seconds(found["high_s"])
    told = f"{low} to {high}"
    if "jobs" in found:
        jobs = (
            f"{job['name']} {human_seconds(job['low_s'])} to {human_seconds(job['high_s'])}" for job in found["jobs"]
        )
        told = f"{', '.join(jobs)}, each job from its own start"
    title = Text(f"{human_percent(found['inside'], 0)} of {found['runs']} runs with drawn parameters take {told}")
    columns = ["Certainty", "Spread", "Larger", "Smaller", "Share"]
    table = FittedTable("What to measure first", columns, words=["Value"], least=["Value", "Spread"], gap=0)
    for row in found["influences"][:_PARAMETERS]:
        spread, share = (human_percent(row[key], 0) for key in ("spread", "share"))
        changes = (human_percent(row[key], signed=True) for key in ("change", "change_smaller"))
        table.add(row["key"], row["certainty"], spread, *changes, share, row["value"])
    return Group(title, table, "") if found["influences"] else Group(title, "")


def _compute_unknown(summary: Summary) -> bool:
    """Whether a replayed trace has no times of kernels, of which shares would tell nothing."""
    return "capture" in summary and not summary["breakdown_s"]["compute"]


def parts_of(summary: Summary) -> list[tuple[str, float]]:
    """Name what an iteration goes to, and its time, s; the host if it takes any."""
    breakdown = summary["breakdown_s"]
    parts = [("compute", breakdown["compute"]), ("exposed communication", summary["exposed_communication_s"])]
    host = [("host", breakdown["host"])] if breakdown["host"] else []
    return [*parts, *host, ("bubble", breakdown["bubble"])]


def _breakdown(summary: Summary) -> Group:
    breakdown, total = summary["breakdown_s"], summary["iteration_time_s"]
    table = FittedTable("Part", ["Time", "Share"])
    exposed = {name: time for name, time in breakdown["exposed_communication"].items() if time}
    for part, time in parts_of(summary):
        communication = part == "exposed communication"
        alone = f", {next(iter(exposed))}" if communication and len(exposed) == 1 else ""
        if part == "compute" and _compute_unknown(summary):
            table.add(part, "unknown", "-")
            continue
        table.add(part + alone, human_seconds(time), human_percent(time / total))
        for name, of in exposed.items() if communication and not alone else ():
            table.add(f"  {name}", human_seconds(of), human_percent(of / total))
    table.add_section()
    besides = {
        "communication behind compute": breakdown["overlapped_communication"],
        "of the bubble, waiting in collectives": breakdown["waiting_in_collectives"],
    }
    for name, time in besides.items():
        table.add(name, human_seconds(time), human_percent(time / total))
    return titled(f"Where the time goes ({whose_time(summary)})", table)


def whose_time(summary: Summary) -> str:
    """Say of which ranks and iterations the breakdown is."""
    steps = summary["capture"]["steps"] if "capture" in summary else 0
    if not steps:
        if any(job["start_s"] for job in summary.get("jobs", ())):
            return f"rank {summary['critical_rank']}, the last of the longest job to end, from the job's own start"
        return f"rank {summary['critical_rank']}, the last to end"
    return f"mean of {steps} steps of the captured ranks" if steps > 1 else "mean of the captured ranks"


def _timers(summary: Summary) -> Group:
    rows = ((name, human_seconds(time)) for name, time in summary["timers_s"].items() if time)
    title = "Timers (the slowest rank of each, as Megatron-LM prints them)"
    return titled(title, FittedTable("Timer", ["Time"], rows))


def _collectives(rows: list[CollectiveSummary]) -> Group:
    more = f" ({ROWS} of {len(rows)} kinds, the longest)" if len(rows) > ROWS else ""
    table = FittedTable(
        "Collective",
        ["Ranks", "Size", "Count", "Time", "algbw\n(GB/s)", "busbw\n(GB/s)", "Of bound"],
        least=["algbw\n(GB/s)", "Count", "Ranks", "Of bound"],
    )
    shown = rows[:ROWS]
    for row, size in zip(shown, sizes_of(shown), strict=True):
        share = row["share_of_bound"]
        table.add(
            f"{row['dimension']} {row['collective']}",
            str(row["ranks"]),
            size,
            str(row["count"]),
            human_seconds(row["time_mean_s"]),
            *(
                "-" if rate is None else f"{rate / 1e9:.3g}"
                for rate in (row["algbw_bytes_per_s"], row["busbw_bytes_per_s"])
            ),
            "-" if share is None else human_percent(share),
        )
    return titled(f"Collectives, time as the mean of the calls{more}", table)


def sizes_of(rows: Sequence[CollectiveSummary]) -> list[str]:
    """Sizes for people, to the byte where rows would look alike otherwise."""
    looks = [(row["dimension"], row["collective"], row["ranks"], human_bytes(row["size_bytes"])) for row in rows]
    return [
        f"{row['size_bytes']:,} B" if looks.count(look) > 1 else look[-1] for row, look in zip(rows, looks, strict=True)
    ]


def counted_text(summary: Summary | TrafficSummary) -> Text:
    """Say what the engine counted, in what time, and what would repeat the run."""
    shown = {name: count for name, count in summary["counters"].items() if count or summary["engine"] == "flow"}
    counts = ", ".join(human_count(count, name.replace("_", " ")) for name, count in shown.items())
    wall = f" in {human_seconds(summary['wall_seconds'])}" if summary["wall_seconds"] is not None else ""
    run = f"engine {summary['engine']}, seed {summary['seed']}, fabricsim {summary['version']}"
    return Text(f"{counts}{wall}\n{run}" if counts else run, style="dim")


def _footer(summary: Summary) -> Text:
    slow = summary["message_slowdown"]
    slowdown = ""
    if slow["p50"] is not None and slow["p99"] is not None:
        # said, or the figures of a job alone on its fabric would puzzle
        shared = any(row["collective"] != "send_recv" for row in summary["collectives"])
        why = " (channels of one collective share their NIC, which counts)" if shared else ""
        slowdown = f"Messages took {slow['p50']:.3g}x (p50), {slow['p99']:.3g}x (p99) of their time alone{why}\n"
    return Text(slowdown).append(counted_text(summary))
