"""The summary of a run: what the terminal shows and ``--json`` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from fabricsim.errors import ResultError
from fabricsim.results.breakdown import critical_rank, iteration_parts, rank_count, simulated_ranks
from fabricsim.results.capture import CaptureSummary, summarise_capture
from fabricsim.results.causes import Cause, causes
from fabricsim.results.jobs import JobSummary, of_longest, summarise_jobs
from fabricsim.results.packets import QueueSummary, congested
from fabricsim.results.pairs import PairsSummary, summarise_pairs
from fabricsim.results.resources import ResourceSummary, by_use, resources, utilisation
from fabricsim.results.slowdown import percentile
from fabricsim.results.throughput import ThroughputSummary, throughput
from fabricsim.scenario.collectives import assumed
from fabricsim.units import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fabricsim.results.result import CallKind, CallRecords, LinkRecord, RunRecord
    from fabricsim.results.uncertainty import UncertaintySummary

HOTTEST = 10
"""Links that a summary names at most."""


class Breakdown(TypedDict):
    """Where the iteration goes, seconds.

    ``compute``, ``exposed_communication``, ``host`` and ``bubble`` add up to the iteration time. Of the bubble,
    ``waiting_in_collectives`` passes inside calls whose last rank is not ready; timers around the calls see it as
    communication. ``overlapped_communication`` runs behind compute and comes besides.
    """

    compute: float
    exposed_communication: dict[str, float]
    host: float
    bubble: float
    waiting_in_collectives: float
    overlapped_communication: float


class CollectiveSummary(TypedDict):
    """All calls of one collective that have dimension, group size, bytes and bound in common.

    ``count`` has all of them, those of ranks that others stand for in a folded run, too.
    ``time_mean_s`` is from when the last rank was ready until the last was done. ``algbw`` is bytes per that time
    and ``busbw`` is ``algbw`` times nccl-tests' factor (`bus_factor`), so that it compares with the rate of a link.
    ``bound`` is the bus bandwidth that the narrowest resource allows, and ``share_of_bound`` is ``busbw / bound``.
    Null stands if there is nothing to divide by.
    """

    dimension: str
    collective: str
    ranks: int
    size_bytes: int
    count: int
    time_mean_s: float
    algbw_bytes_per_s: float | None
    busbw_bytes_per_s: float | None
    bound_bytes_per_s: float | None
    share_of_bound: float | None


class LinkSummary(TypedDict):
    """One resource over the iteration.

    ``utilisation`` is the load over what the resource could have carried in the iteration; the payload rates are
    the mean over the iteration and the highest bin of the time series (null where the resource has none). In a
    folded run ``copies`` is how many alike it stands for, itself included.
    """

    name: str
    kind: str
    utilisation: float
    payload_bytes: float
    payload_rate_mean_bytes_per_s: float
    payload_rate_peak_bytes_per_s: float | None
    calls: list[str]
    copies: NotRequired[int]


class Summary(TypedDict):
    """What a practitioner reads first.

    `name`, `transport`, `engine`, `seed`, `version`, `ranks`: what was run.
    `iteration_time_s`: of a job, from the start until the end of the last op. Of a replayed trace that marks its
        iterations, the mean of these over all ranks that were captured. Of several jobs that do not all begin with the
        run, that of the one that takes longest from its own start; so are critical rank, breakdown and causes.
    `run_time_s`: all that was simulated, until the end of the last op.
    `critical_rank`: the rank that ends last (`critical_rank`).
    `breakdown_s`: what the iteration goes to: that of the critical rank, or the mean of the marked ones.
    `exposed_communication_s`: sum of ``breakdown_s["exposed_communication"]``.
    `throughput`: tokens and FLOPs per second and the share of the peak (`fabricsim.results.throughput.throughput`), if
        known.
    `timers_s`: for each timer the largest total over the ranks, as Megatron-LM prints it by default.
    `collectives`: kinds of calls, those that took the most time first.
    `causes`: what the iteration waited for along its critical path (`fabricsim.results.causes.causes`).
    `resources`: links and host resources by tier (`fabricsim.results.resources.resources`).
    `links`: the `HOTTEST` resources by utilisation, the hottest first; idle ones are left out.
    `message_slowdown`: transfer time of messages over that alone on their route: ``p50`` and ``p99``; null without
        messages.
    `counters`: what the engine counted.
    `wall_seconds`: time the simulation took; null for a result read from a file. The only field that depends on the
        clock.
    `simulated_ranks`: in folded runs: how many ranks stand for all.
    `queues`: in packet runs: the most congested wires (`fabricsim.results.packets.congested`).
    `capture`: of a replayed trace: what was captured, beside the replay
        (`fabricsim.results.capture.summarise_capture`).
    `notes`: what a reader has to know about how the run was made, a sentence each (`RunRecord.notes`).
    `jobs`: of several jobs: what became of each (`fabricsim.results.jobs.summarise_jobs`).
    `assumptions`: if a collective went by Chakra files of the user: what of their algorithm could not be checked.
    `pairs`: if asked for: who sends to whom (`fabricsim.results.pairs.summarise_pairs`).
    `uncertainty`: if asked for: the interval of the iteration (`fabricsim.results.uncertainty`).
    """

    name: str
    transport: str
    engine: str
    seed: int
    version: str
    ranks: int
    iteration_time_s: float
    run_time_s: float
    critical_rank: int
    breakdown_s: Breakdown
    exposed_communication_s: float
    timers_s: dict[str, float]
    collectives: list[CollectiveSummary]
    causes: list[Cause]
    resources: list[ResourceSummary]
    links: list[LinkSummary]
    message_slowdown: dict[str, float | None]
    counters: dict[str, int]
    notes: list[str]
    wall_seconds: float | None
    throughput: NotRequired[ThroughputSummary]
    simulated_ranks: NotRequired[int]
    queues: NotRequired[list[QueueSummary]]
    capture: NotRequired[CaptureSummary]
    assumptions: NotRequired[list[str]]
    jobs: NotRequired[list[JobSummary]]
    pairs: NotRequired[PairsSummary]
    uncertainty: NotRequired[UncertaintySummary]


def summarise(result: RunRecord) -> Summary:
    """Summarise a run.

    Returns: a plain dict of strings, integers, finite floats and None, ready for `to_json`.
    Raises ResultError if the run took no time at all: there is nothing to summarise.
    """
    return _summarise(result, of_longest(result), summarise_jobs(result))


def summarise_job(own: RunRecord) -> Summary:
    """Summarise what `of_job` takes out of a run, as a run by itself; links are those of the whole run."""
    return _summarise(own, own, [])


def _summarise(result: RunRecord, timed: RunRecord, jobs: list[JobSummary]) -> Summary:
    """Summarise a run; `timed` is the part of it whose iteration counts."""
    parts = iteration_parts(timed)
    summary: Summary = {
        "name": result.name,
        "transport": result.transport,
        "engine": result.engine,
        "seed": result.seed,
        "version": result.version,
        "ranks": rank_count(result),
        "iteration_time_s": seconds(parts.iteration),
        "run_time_s": seconds(result.iteration),
        "critical_rank": critical_rank(timed),
        "breakdown_s": {
            "compute": seconds(parts.compute),
            "exposed_communication": {dimension: seconds(time) for dimension, time in parts.exposed.items()},
            "host": seconds(parts.host),
            "bubble": seconds(parts.bubble),
            "waiting_in_collectives": seconds(parts.waiting),
            "overlapped_communication": seconds(parts.overlapped),
        },
        "exposed_communication_s": seconds(parts.exposed_communication),
        "timers_s": timer_totals(result),
        "collectives": _collectives(result.calls),
        "causes": causes(timed),
        "resources": resources(result),
        "links": _hottest(result),
        "message_slowdown": {f"p{share}": percentile(result.slowdowns, share / 100) for share in (50, 99)},
        "counters": dict(result.counters),
        "notes": list(result.notes),
        "wall_seconds": result.wall_seconds or None,
    }
    if result.work is not None:
        summary["throughput"] = throughput(result.work, summary["ranks"], summary["iteration_time_s"])
    if result.ranks is not None:
        summary["simulated_ranks"] = len(simulated_ranks(result))
    if result.packets is not None:
        summary["queues"] = congested(result.packets)
    if result.capture is not None:
        summary["capture"] = summarise_capture(result.capture, parts.iteration)
    if result.pairs is not None:
        summary["pairs"] = summarise_pairs(result.pairs)
    if jobs:
        summary["jobs"] = jobs
        summary["ranks"] = sum(job["ranks"] for job in jobs)
    called = {kind.collective for kind in result.calls.kinds}
    if unchecked := assumed(result.resolved.get("collectives", {}).get("algorithm"), called):
        summary["assumptions"] = unchecked
    return summary


def to_json(summary: Summary) -> str:
    """Write a summary as indented JSON with the keys in the documented order.

    Raises ResultError if a number is not finite; JSON has no way to write it.
    """
    try:
        return json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ResultError(f"{summary['name']}: the summary holds a number that is not finite ({error})") from error


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, after PERFORMANCE.md of nccl-tests.

    ``2 (n - 1) / n`` for all_reduce, ``(n - 1) / n`` for all_gather, reduce_scatter and all_to_all, else 1.
    """
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in {"all_gather", "reduce_scatter", "all_to_all"}:
        return (ranks - 1) / ranks
    return 1.0


def timer_totals(result: RunRecord) -> dict[str, float]:
    """Total of each timer that is used, on the rank that has the most of it, seconds; in program order.

    Time in which several ops of a timer run, as those of a grouped send and receive do, counts once. If a replayed
    trace marks steps, totals are of their mean, as is the iteration.
    """
    ranks, timers = rank_count(result), len(result.timers)
    total = np.zeros(ranks * timers, np.int64)
    place = result.ops["rank"].astype(np.int64) * timers + result.ops["timer"]
    windows = list(_steps(result, ranks))
    for spans in windows or [result.spans]:
        order = np.lexsort((spans["start"], place))
        np.add.at(total, place[order], _uncovered(place[order], spans[order]))
    slowest = total.reshape(ranks, timers).max(axis=0, initial=0)
    used = np.unique(result.ops["timer"]).tolist()
    return {result.timers[timer]: seconds(int(slowest[timer])) / max(len(windows), 1) for timer in used}


def _steps(result: RunRecord, ranks: int) -> Iterator[NDArray[np.void]]:
    """Cut the spans of all ops to each step that a replayed trace marks; nothing is left of ranks that mark none."""
    of = result.ops["rank"]
    for number in dict.fromkeys(step.number for step in result.steps):
        windows = np.zeros((ranks, 2), np.int64)
        for step in result.steps:
            if step.number == number:
                windows[step.rank] = step.start, step.start + step.replayed
        spans = result.spans.copy()
        for end in ("start", "end"):
            spans[end] = np.clip(spans[end], windows[of, 0], windows[of, 1])
        yield spans


def _uncovered(place: NDArray[np.int64], spans: NDArray[np.void]) -> NDArray[np.int64]:
    """Time of each span that no earlier one of its place covers, ps; sorted by place, then start."""
    # A running maximum within each place: of the ends' ranks, which place * n keeps apart without overflow.
    ends, number = np.unique(spans["end"], return_inverse=True)
    apart = place * len(ends)
    latest = ends[np.maximum.accumulate(number + apart) - apart]
    before = np.where(place[1:] == place[:-1], latest[:-1], 0)
    covered = np.maximum(spans["start"], np.concatenate([[0], before])[: len(spans)])
    uncovered: NDArray[np.int64] = np.maximum(spans["end"] - covered, 0)
    return uncovered


def _collectives(calls: CallRecords) -> list[CollectiveSummary]:
    groups: dict[tuple[str, str, int, int, float], list[int]] = {}
    for number, kind in enumerate(calls.kinds):
        # calls with another bound run over other resources: inside a host, say, and between hosts
        key = (kind.dimension, kind.collective, kind.ranks, kind.size, float(f"{kind.bound:.6g}"))
        groups.setdefault(key, []).append(number)
    # in whole numbers, so that folded runs have the means, and the order, of those of all ranks
    counts, times = np.zeros((2, len(calls.kinds)), np.int64)
    np.add.at(counts, calls.kind, calls.column("copies"))
    np.add.at(times, calls.kind, calls.column("copies") * (calls.end - calls.start))
    rows = [(key, int(times[kinds].sum()), int(counts[kinds].sum()), kinds[0]) for key, kinds in groups.items()]
    rows.sort(key=lambda row: (-row[1], row[0]))
    # of one of several jobs there are kinds that only others call
    return [_collective(calls.kinds[first], time, count) for _, time, count, first in rows if count]


def _collective(first: CallKind, total: int, count: int) -> CollectiveSummary:
    time = seconds(total) / count
    algbw = _ratio(first.size, time)
    busbw = None if algbw is None else algbw * bus_factor(first.collective, first.ranks)
    bound = first.bound if np.isfinite(first.bound) else None
    return {
        "dimension": first.dimension,
        "collective": first.collective,
        "ranks": first.ranks,
        "size_bytes": first.size,
        "count": count,
        "time_mean_s": time,
        "algbw_bytes_per_s": algbw,
        "busbw_bytes_per_s": busbw,
        "bound_bytes_per_s": bound,
        "share_of_bound": None if busbw is None or bound is None else _ratio(busbw, bound),
    }


def _hottest(result: RunRecord) -> list[LinkSummary]:
    time = seconds(result.iteration)
    busy = [link for link in result.links if link.load > 0 and link.capacity > 0]
    # sorted keeps the fabric's order among equals
    hottest = sorted(busy, key=lambda link: by_use(utilisation(link, time)))[:HOTTEST]
    rows = {name: rate for name, rate in zip(result.series.names, result.series.rate, strict=True) if rate.size}
    peaks = {name: float(rate.max()) for name, rate in rows.items()}
    summaries = [_link(link, time, peaks.get(link.name)) for link in hottest]
    if result.ranks is not None:
        for summary, link in zip(summaries, hottest, strict=True):
            summary["copies"] = link.copies
    return summaries


def _link(link: LinkRecord, time: float, peak: float | None) -> LinkSummary:
    return {
        "name": link.name,
        "kind": link.kind,
        "utilisation": utilisation(link, time),
        "payload_bytes": link.payload,
        "payload_rate_mean_bytes_per_s": link.payload / time,
        "payload_rate_peak_bytes_per_s": peak,
        "calls": list(link.calls),
    }


def _ratio(value: float, over: float) -> float | None:
    return value / over if over > 0 else None
