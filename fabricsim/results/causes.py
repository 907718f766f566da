"""What an iteration waited for: the causes along its critical path, the one that took most first."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypedDict

import numpy as np

from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, NONE
from fabricsim.results.breakdown import critical_rank, marked_ranks
from fabricsim.results.critical_path import Stretch, critical_path
from fabricsim.results.resources import tier
from fabricsim.results.result import LinkRecord, Rest, RunRecord
from fabricsim.units import human_count, human_percent, human_seconds, seconds

STRAGGLES = 1.1
"""A rank that computes this many times as long as the median rank is said to."""
_UNEVEN = 0.5
"""Mean use of a tier over its busiest resource, below which its load is said to be uneven."""
_SLOW = 0.95
"""Share of the fastest of its tier below which a wire is said to be slow."""
_AT_HOST = re.compile(r"\bhost\d")
"""In names of wires at hosts and of what is inside of them; a switch may be called ``hostleaf0``."""
_STAGES = re.compile(r"pipeline|(?<![a-z])pp(?![a-z])", re.IGNORECASE)
"""In names of the groups of pipelines."""
_RESTS = {
    Rest.LATENCY: "latency",
    Rest.TIMEOUTS: "timeouts",
    Rest.RETRANSMISSIONS: "retransmissions",
    Rest.PAUSES: "pauses",
    Rest.MARKS: "congestion control",
    Rest.FAILURE: "failed link",
}
NETWORK = frozenset({"wire", *_RESTS.values()})
"""Causes that lie in the network, its protocols included."""
LIMITS = 0.01
"""Share of the iteration below which nothing in the network is said to limit it."""


class Cause(TypedDict):
    """One cause, and the time that the critical path spends on it.

    ``cause`` is ``compute``, ``host``, ``pipeline bubble``, ``bubble`` (of traces that name no pipeline), ``idle``, the
    kind of a resource (``wire``, ``PCIe``, ...) or what a call waits for while it uses none fully: ``failed link``,
    ``latency``, ``timeouts``, ``retransmissions``, ``pauses`` or ``congestion control``. ``of`` is the collective, or
    the rank; ``resource`` the busiest one, if any. At most ``time_s``, ``share`` of the iteration, would be gained if
    it took no time: another path may be as long.
    """

    cause: str
    of: str
    resource: str | None
    time_s: float
    share: float
    detail: str


class _Part(NamedTuple):
    """Time (ps) that a piece of the path spends on a cause; ``limit`` is the link of the result, NONE without.

    ``call`` is the call that it is a part of, NONE without.
    """

    cause: str
    of: str
    limit: int
    rank: int
    time: float
    timer: str = ""
    call: int = NONE


def causes(result: RunRecord) -> list[Cause]:
    """Rank the causes along the critical path of the iteration.

    `result`: the run. If it is a replayed trace that marks its iterations, the paths of those of the rank that ends
        last of the marked ones are taken together, and times are their mean.
    Returns: the longest first; the times add up to the iteration of that rank.
    """
    windows = _windows(result)
    whole = sum(end - begin for _, begin, end in windows)
    parts = [part for window in windows for part in _parts(result, *window)]
    groups: dict[tuple[str, str, str], list[_Part]] = {}
    for part in parts:
        resource = "" if part.limit == NONE else tier(result.links[part.limit].name)
        groups.setdefault((part.cause, part.of, resource), []).append(part)
    rows = [_cause(result, some, whole, len(windows)) for some in groups.values()]
    return sorted((row for row in rows if row["time_s"] > 0), key=lambda row: (-row["time_s"], row["cause"], row["of"]))


def _windows(result: RunRecord) -> list[tuple[int, int, int]]:
    """Give rank, begin and end of what is looked at, ps."""
    marked = marked_ranks(result)
    if not marked:
        return [(critical_rank(result), 0, result.iteration)]
    steps = result.steps
    last = max(marked, key=lambda rank: max(step.start + step.replayed for step in steps if step.rank == rank))
    return [(last, step.start, step.start + step.replayed) for step in steps if step.rank == last]


def _parts(result: RunRecord, rank: int, begin: int, end: int) -> Iterable[_Part]:
    waits = _Waits(result, rank)
    kinds, calls, timers = (result.ops[name] for name in ("kind", "call", "timer"))
    limits = [column.tolist() for column in result.calls.limits]
    for stretch in critical_path(result, rank, begin, end):
        time = stretch.end - stretch.begin
        kind = NONE if stretch.op == NONE else int(kinds[stretch.op])
        if kind == COLLECTIVE:
            yield from _of_call(result, int(calls[stretch.op]), stretch, limits)
            continue
        via = None if stretch.via == NONE else result.calls.kinds[result.calls.kind[stretch.via]]
        if via is not None and via.collective == "send_recv":
            bubble = waits.within(stretch.begin, stretch.end)
            yield _Part(*_waited_for(via.dimension), NONE, stretch.rank, bubble)
            time -= bubble
        if kind == COMPUTE:
            timer = result.timers[timers[stretch.op]]
            yield _Part("compute", "", NONE, stretch.rank, time, timer)
        elif kind == HOST:
            yield _Part("host", "", NONE, stretch.rank, time)
        else:
            yield _Part("idle", "", NONE, stretch.rank, time)


def _waited_for(dimension: str) -> tuple[str, str]:
    """Say what a wait for the sender of a message is: of a pipeline, or of ranks of any kind as traces may have."""
    if _STAGES.search(dimension):
        return "pipeline bubble", "waiting for other stages"
    return "bubble", "waiting for other ranks"


def _of_call(result: RunRecord, call: int, stretch: Stretch, limits: Iterable[list[Any]]) -> Iterable[_Part]:
    limit, used, rest, failed, _ = (column[call] for column in limits)
    kind = result.calls.kinds[result.calls.kind[call]]
    of, time = f"{kind.dimension} {kind.collective}", stretch.end - stretch.begin
    if limit != NONE:
        yield _Part(result.links[limit].kind, of, limit, stretch.rank, used * time, call=call)
    yield _Part(_RESTS[Rest(rest)], of, failed, stretch.rank, (1 - used) * time, call=call)


class _Waits:
    """When a rank neither computes nor moves data nor its host works."""

    def __init__(self, result: RunRecord, rank: int) -> None:
        mine = result.ops["rank"] == rank
        ops, spans = result.ops[mine], result.spans[mine]
        begin = spans["start"].copy()
        collective = ops["kind"] == COLLECTIVE
        ready = result.calls.start[ops["call"][collective]]
        begin[collective] = np.minimum(np.maximum(begin[collective], ready), spans["end"][collective])
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(spans["end"][order])
        fresh = np.maximum(begin, np.concatenate([[0], end[:-1]]))
        self._begin, self._end = fresh[fresh < end], end[fresh < end]
        self._busy = np.concatenate([[0], np.cumsum(self._end - self._begin)])

    def within(self, begin: int, end: int) -> int:
        """Time from `begin` to `end` in which it waits, ps."""
        return (end - begin) - (self._upto(end) - self._upto(begin))

    def _upto(self, time: int) -> int:
        place = int(np.searchsorted(self._begin, time))
        last = max(place - 1, 0)
        over = max(int(self._end[last]) - time, 0) if place else 0
        return int(self._busy[place]) - over


def _cause(result: RunRecord, parts: list[_Part], whole: int, windows: int) -> Cause:
    time = sum(part.time for part in parts)
    cause, of, limit = parts[0][:3]
    resource = None
    if limit != NONE:
        limit = min({part.limit for part in parts}, key=lambda index: (-_use(result, index), index))
        resource = result.links[limit].name
    return {
        "cause": cause,
        "of": of or _ranks(parts),
        "resource": resource,
        "time_s": seconds(time / windows),
        "share": time / whole,
        "detail": _detail(result, cause, parts, limit),
    }


def _ranks(parts: list[_Part]) -> str:
    return f"{'' if len({part.rank for part in parts}) == 1 else 'mostly '}rank {_most(parts)}"


def _most(parts: list[_Part]) -> int:
    """Rank on which most of the time is spent; the lowest of equals."""
    times: dict[int, float] = {}
    for part in parts:
        times[part.rank] = times.get(part.rank, 0) + part.time
    return min(times, key=lambda rank: (-times[rank], rank))


def _use(result: RunRecord, limit: int) -> float:
    return result.links[limit].load / result.links[limit].capacity


def _detail(result: RunRecord, cause: str, parts: list[_Part], limit: int) -> str:
    """Say what a reader should know of a cause besides; empty if there is nothing."""
    if cause == "compute":
        return ", ".join(text for text in (_straggler(result, _most(parts)), _timer(parts)) if text)
    if limit != NONE and cause != _RESTS[Rest.FAILURE]:
        said = _sharing(result, parts, limit), *_of_limit(result, parts, limit)
        return ", ".join(text for text in said if text)
    if result.packets is None or cause not in NETWORK or cause == Rest.LATENCY.name.lower():
        return ""
    counted = [
        (result.counters.get(name, 0), name) for name in ("timeouts", "retransmissions", "drops", "errors", "pauses")
    ]
    told = [human_count(count, name) for count, name in counted if count]
    cables = result.resolved.get("fabric", {}).get("cables", {})
    lossy = [f"{name} loses packets" for name, cable in cables.items() if cable.get("bit_error_rate")]
    return ", ".join([*lossy, *told])


def _timer(parts: list[_Part]) -> str:
    """Say which timer has more than half of the time, if it is none of the passes."""
    whole = sum(part.time for part in parts)
    for timer in sorted({part.timer for part in parts} - {"forward-compute", "backward-compute"}):
        if 2 * sum(part.time for part in parts if part.timer == timer) > whole:
            return f"mostly {timer}"
    return ""


def _straggler(result: RunRecord, rank: int) -> str:
    ops = result.ops["kind"] == COMPUTE
    spans = result.spans[ops]
    total = np.bincount(result.ops["rank"][ops], (spans["end"] - spans["start"]).astype(np.float64))
    median = float(np.median(total[total > 0]))
    ratio = total[rank] / median
    return (
        f"{ratio:.2f} times as long as the median rank's {human_seconds(seconds(median))}" if ratio >= STRAGGLES else ""
    )


def _sharing(result: RunRecord, parts: list[_Part], limit: int) -> str:
    """Name the other jobs, and the traffic beside them, that used a resource meanwhile."""
    crossing, of = result.links[limit].calls, parts[0].of
    mine = next((job for job in result.jobs if of.startswith(f"{job.name} ")), None)
    others = [
        job.name
        for job in result.jobs
        if mine not in {None, job}
        and max(job.start, mine.start) < min(job.end, mine.end)
        and any(call.startswith(f"{job.name} ") for call in crossing)
    ]
    if result.calls.limits.beside[[part.call for part in parts]].any():
        others += [call for call in crossing if call.startswith("traffic ")]
    return f"shared with {', '.join(others)}" if others else ""


def _slower(result: RunRecord, limit: int) -> str:
    """Say of a wire that others of its tier are faster."""
    link = result.links[limit]
    alike = [other for other in result.links if tier(other.name) == tier(link.name)]
    fastest = max(alike, key=lambda other: other.capacity)
    slow = link.kind == "wire" and link.capacity < _SLOW * fastest.capacity
    return f"it runs at {_gbps(link)}, its tier at up to {_gbps(fastest)}" if slow else ""


def _of_limit(result: RunRecord, parts: list[_Part], limit: int) -> Iterable[str]:
    """Say why a resource is slow or has much to carry; of one that failures slowed down, only these."""
    failed = _failed(result, parts, limit)
    if failed and limit in result.failures["link"][result.failures["share"] > 0]:
        return (failed,)
    return _slower(result, limit), failed, _unevenness(result, limit)


def _failed(result: RunRecord, parts: list[_Part], limit: int) -> str:
    """Say what failed during calls so that wires that limit them were slow, or wires and PCIe slots had more to carry.

    A NIC that is down gives its load to others, whichever these are.
    """
    scenario = result.resolved.get("fabric", {}).get("failures", ())
    nics = [index for index, failure in enumerate(scenario) if failure.get("nic")]
    slow = (result.failures["share"] > 0) & np.isin(result.failures["link"], [part.limit for part in parts])
    down = (result.failures["share"] == 0) & np.isin(result.failures["failure"], nics)
    some = result.failures[slow | down]
    if result.links[limit].kind not in {"wire", "PCIe"} or not len(some):
        return ""
    found = np.zeros(len(some), bool)
    for call, limiting in {(part.call, part.limit) for part in parts}:
        meanwhile = (some["start"] < result.calls.end[call]) & (some["end"] > result.calls.start[call])
        found |= meanwhile & ((some["share"] == 0) | (some["link"] == limiting))
    return ", ".join(_said(scenario[index]) for index in np.unique(some["failure"][found]).tolist())


def _said(failure: dict[str, str]) -> str:
    name = next((failure[key] for key in ("link", "switch", "nic", "host") if failure.get(key)), "")
    return f"{name} is degraded to {failure['rate']}" if failure.get("rate") else f"{name} is down"


def _gbps(link: LinkRecord) -> str:
    return f"{link.capacity * 8 / 1e9:.3g} Gb/s"


def _unevenness(result: RunRecord, limit: int) -> str:
    link = result.links[limit]
    alike = [_use(result, place) for place, other in enumerate(result.links) if tier(other.name) == tier(link.name)]
    mean = float(np.mean(alike))
    if _AT_HOST.search(link.name) or mean > _UNEVEN * _use(result, limit):
        return ""  # hosts may have unequal parts in a job; switches spread what comes over equal ways
    share = human_percent(mean / _use(result, limit), 0)
    return f"uneven load: its tier of {len(alike)} is used {share} as much in the mean"
