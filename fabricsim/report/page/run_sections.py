"""Sections of the page of one run; numbers are those of its summary."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fabricsim.report.capture_text import AT_MOST, transfer_cells
from fabricsim.report.causes_text import cause_name, cause_text, what_causes_share
from fabricsim.report.page import drawings
from fabricsim.report.page.assumptions import assumptions
from fabricsim.report.page.html import Html, bar, isolated, items, paragraph, section, table, text
from fabricsim.report.queues_text import why
from fabricsim.report.text import headline_text, human_number, job_cells, parts_of, sizes_of, whose_time
from fabricsim.results.capture import CaptureSummary
from fabricsim.results.causes import LIMITS, NETWORK
from fabricsim.results.jobs import JobSummary
from fabricsim.results.packets import QueueSummary
from fabricsim.results.resources import ResourceSummary
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import Summary
from fabricsim.results.use_over_time import held_over_time
from fabricsim.units import human_bytes, human_count, human_percent, human_seconds, seconds

ROWS = 20
"""Rows of a table at most."""
_TIMELINE = """<p class="faint">Wheel or + and - zoom, dragging or the arrow keys move, Home shows all, n and p tell one
span of the first rank after the other. High bars are the main stream; narrow ones below are
what runs beside it, and the host.</p>
<p><button id="closer">Zoom in</button><button id="wider">Zoom out</button><button id="earlier">Earlier</button>
<button id="later">Later</button><button id="whole">All</button></p>
<canvas id="timeline" tabindex="0" role="application" aria-describedby="told" height="200"></canvas>
<p id="told" aria-live="polite" class="faint">Point at a bar to read what it is.</p>"""


def run_sections(result: RunRecord, summary: Summary, names: Sequence[Sequence[str]]) -> Iterator[Html]:
    """Make the sections of a run; `names` are those of the timeline with their colours."""
    yield _top(summary)
    if "jobs" in summary:
        yield section("jobs", "Jobs", _jobs(summary["jobs"]))
    if "capture" in summary:
        yield section("capture", "Captured and replayed", *_capture(summary["capture"]))
    yield section("causes", "What the iteration waited for", *_causes(summary))
    yield section("time", "Where the time goes", _breakdown(summary), _timers(summary))
    keys = "".join(f'<li><i style="background:{colour}"></i>{text(name)}</li>' for name, colour in names)
    yield section("when", "Timeline", Html(f'{_TIMELINE}<ul class="legend">{keys}</ul>'))
    if summary["collectives"]:
        yield section("collectives", "Collectives against their bound", _collectives(summary))
    yield section(
        "links", "Use of links and hosts", *_use(summary),
        drawings.heat_map(result.series, result.iteration, held_over_time(result, drawings.BINS)),
        drawings.fabric(result.links, seconds(result.iteration)),
    )  # fmt: skip
    if result.pairs is not None:
        source, target, sent = result.pairs.merged()
        drawn = drawings.matrix(source, target, sent.astype(np.float64), result.pairs.ranks)
        yield section("matrix", "Who sends to whom", drawn)
    slow = summary["message_slowdown"]
    half, most = (human_number(slow[name]) for name in ("p50", "p99"))
    told = f"Half of the messages took up to {half}x, 99 % up to {most}x of their time alone."
    messages = [paragraph(told), drawings.histogram(result.slowdowns)] if slow["p50"] is not None else []
    if rows := summary.get("queues"):
        messages.append(queues(rows))
    if result.packets is not None:
        messages.append(drawings.depths(result.packets.taps))
    if messages:
        yield section("queues", "Messages and queues", *messages)
    yield section("made", "How this was made", *_made(summary), assumptions(result.resolved))


def _top(summary: Summary) -> Html:
    headline = headline_text(summary).plain.removeprefix(summary["name"]).rstrip()
    first, *rest = headline.split("\n")
    rates = summary.get("throughput")
    tiles = {"until all are done": human_seconds(summary["run_time_s"])} if "jobs" in summary else {}
    tiles["longest iteration" if tiles else "iteration"] = human_seconds(summary["iteration_time_s"])
    if rates is not None and rates["mfu"]:
        tiles["MFU"] = human_percent(rates["mfu"])
    tiles |= {name: human_percent(time / summary["iteration_time_s"]) for name, time in parts_of(summary)}
    boxes = "".join(f"<div><b>{text(value)}</b>{text(name)}</div>" for name, value in tiles.items())
    said = "".join(paragraph(line) for line in rest)
    return Html(f'<h1>{isolated(summary["name"])}{text(first)}</h1>{said}<div class="tiles">{boxes}</div>')


def _jobs(jobs: Sequence[JobSummary]) -> Html:
    heads = ["Job", "Ranks", "Start", "Iteration", "Compute", "Exposed comm.", "Bubble", "First cause beside computing"]
    return table("Each from its own start", heads, [job_cells(job) for job in jobs])


def _capture(capture: CaptureSummary) -> Iterator[Html]:
    captured, change = capture["captured_iteration_s"], capture["change"]
    if captured is None or change is None:
        yield paragraph("The trace does not say when its operations ran: there is no captured time to compare with.")
    else:
        took = f"Captured {human_seconds(captured)}, replayed {human_seconds(capture['replayed_iteration_s'])}"
        yield paragraph(f"{took}: {human_percent(change, signed=True)}.")
    shown = capture["transfers"][:ROWS]
    if shown:
        heads = ["Transfer", "Ranks", "Size", "Count", "Captured", "Replayed", "Change"]
        count = f"{len(shown)} of {len(capture['transfers'])} kinds"
        why_most = f"; {AT_MOST}" if any(row["captured_at_most"] for row in shown) else ""
        caption = f"{count}, from the last rank ready to the last done (medians){why_most}"
        yield table(caption, heads, map(transfer_cells, shown))


def _causes(summary: Summary) -> Iterator[Html]:
    causes = summary["causes"]
    whole = sum(cause["time_s"] for cause in causes)
    of = what_causes_share(causes, summary["iteration_time_s"])
    lead = f"<p>First cause: <b>{text(cause_name(causes[0]))}</b>, {human_percent(causes[0]['share'])} of {of}"
    quiet = sum(cause["share"] for cause in causes if cause["cause"] in NETWORK) < LIMITS
    yield Html(f"{lead}{'; nothing in the network limits it' if quiet else ''}.</p>")
    rows = [
        [
            cause_text(cause),
            bar(cause["share"]),
            human_seconds(cause["time_s"]),
            human_seconds(max(whole - cause["time_s"], 0)),
        ]
        for cause in causes[:ROWS]
    ]
    heads = ["Cause along the critical path", "Share", "At most to gain", "Iteration if it took no time"]
    yield table(f"What the last rank waited for in its {human_seconds(whole)}", heads, rows)
    by_collective: dict[str, float] = {}
    for cause in causes:
        if cause["cause"] in NETWORK or cause["resource"]:
            by_collective[cause["of"]] = by_collective.get(cause["of"], 0.0) + cause["time_s"]
    if by_collective:
        most = sorted(by_collective.items(), key=lambda each: -each[1])
        cells = [[name, bar(time / whole), human_seconds(time)] for name, time in most]
        yield table("Exposed time on the critical path", ["Collective", "Share", "Time"], cells)


def _breakdown(summary: Summary) -> Html:
    breakdown, total = summary["breakdown_s"], summary["iteration_time_s"]
    rows = [[part, bar(time / total), human_seconds(time)] for part, time in parts_of(summary)]
    rows += [
        [f"exposed, {name}", bar(time / total), human_seconds(time)]
        for name, time in breakdown["exposed_communication"].items()
        if time
    ]
    besides = {
        "communication behind compute (costs no time)": breakdown["overlapped_communication"],
        "of the bubble, waiting in collectives": breakdown["waiting_in_collectives"],
    }
    rows += [[name, bar(time / total), human_seconds(time)] for name, time in besides.items()]
    return table(f"Where the time goes ({whose_time(summary)})", ["Part", "Share", "Time"], rows)


def _timers(summary: Summary) -> Html:
    rows = [[name, human_seconds(time)] for name, time in summary["timers_s"].items() if time]
    return table("Timers (the slowest rank of each, as Megatron-LM prints them)", ["Timer", "Time"], rows[:ROWS])


def _collectives(summary: Summary) -> Html:
    shown = summary["collectives"][:ROWS]
    rows = []
    for row, size in zip(shown, sizes_of(shown), strict=True):
        rates = (row["algbw_bytes_per_s"], row["busbw_bytes_per_s"], row["bound_bytes_per_s"])
        share = row["share_of_bound"]
        rows.append(
            [
                f"{row['dimension']} {row['collective']}", str(row["ranks"]), size, str(row["count"]),
                human_seconds(row["time_mean_s"]), *("-" if rate is None else f"{rate / 1e9:.3g}" for rate in rates),
                "-" if share is None else bar(share),
            ]
        )  # fmt: skip
    heads = ["Collective", "Ranks", "Size", "Count", "Time", "algbw (GB/s)", "busbw (GB/s)", "Bound (GB/s)", "Of bound"]
    return table(f"{len(shown)} of {len(summary['collectives'])} kinds, times are means of the calls", heads, rows)


def _use(summary: Summary) -> Iterator[Html]:
    yield tiers(summary["resources"])
    rows = [
        [row["name"], row["kind"], bar(row["utilisation"]), human_bytes(int(row["payload_bytes"]))]
        for row in summary["links"]
    ]
    yield table("Hottest resources, threads and NVLink included", ["Resource", "Kind", "Mean use", "Payload"], rows, 2)


def tiers(resources: Iterable[ResourceSummary]) -> Html:
    """Show the use of resources by tier."""
    rows = [
        [row["tier"], row["kind"], str(row["count"]), bar(row["utilisation_mean"]), bar(row["utilisation_max"]),
         row["busiest"]]
        for row in list(resources)[:ROWS]
    ]  # fmt: skip
    return table("Use by tier", ["Resources", "Kind", "Count", "Mean", "Most", "Busiest"], rows, 2)


def queues(rows: Sequence[QueueSummary]) -> Html:
    """Show the most congested wires."""
    if not rows:
        return paragraph("No packet was dropped, marked or paused, and no queue grew.")
    cells = [
        [row["name"], f"{row['packets']:,}", human_bytes(row["deepest_queue_bytes"]), f"{row['marks']:,}",
         f"{row['drops']:,}", f"{row['trims']:,}", f"{row['errors']:,}",
         f"{row['pauses']:,}", human_seconds(row["paused_s"])]
        for row in rows
    ]  # fmt: skip
    heads = ["Wire", "Packets", "Deepest queue", "Marked", "Dropped", "Trimmed", "Lost", "Pauses", "Paused"]
    return Html(paragraph(f"Most congested: {rows[0]['name']}, {why(rows[0])}.") + table("Queues", heads, cells))


def _made(summary: Summary) -> Iterator[Html]:
    said = list(
        dict.fromkeys([*summary.get("capture", {"assumptions": []})["assumptions"], *summary.get("assumptions", ())])
    )
    if said:
        yield Html("<h3>Assumed</h3>" + items(said))
    if summary["notes"]:
        yield Html("<h3>Notes</h3>" + items(summary["notes"]))
    counted = [human_count(count, name.replace("_", " ")) for name, count in summary["counters"].items() if count]
    run = f"Engine {summary['engine']}, seed {summary['seed']}, fabricsim {summary['version']}"
    yield paragraph(f"{run}; {', '.join(counted)}.")
    yield paragraph(
        "What a value is taken from stands beside it in the output of fabricsim show; what the model leaves out, and "
        "by how much it errs, in the documentation under accuracy and validation."
    )
