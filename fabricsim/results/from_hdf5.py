"""Parts of a result from groups of an HDF5 file; see `fabricsim.results.hdf5`."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import COLLECTIVE, NONE, OP, SLOWDOWN_BINS, SPAN
from fabricsim.results import columns
from fabricsim.results.capture import Capture, CapturedTransfer, StepTime
from fabricsim.results.hdf5_reader import ResultFile
from fabricsim.results.packets import PROTOCOLS, PacketLog, Packets, Tap
from fabricsim.results.pairs import Pairs
from fabricsim.results.result import CallRecord, CallRecords, JobRecord, LinkRecord, Rest, RunRecord, Series
from fabricsim.results.slowed import none_failed, rates_left
from fabricsim.results.throughput import IterationWork

MOST_RANKS = 2**20
"""Ranks of one result; a job of traces has at most a quarter of that."""
MOST_TOTALS = 2**24
"""Ranks times timers: how many totals `fabricsim.results.summary` makes."""
_MOST_BYTES = 2**62
_MOST_COPIES = 2**24
"""Calls of one kind at one instant: no more than ranks and dimensions."""
_HELD = ("limit", "used", "rest")


def read_result(reader: ResultFile) -> RunRecord:
    """Read all parts of a result; raises `fabricsim.errors.ResultError` if they do not fit together."""
    ops, spans, timers = _read_ops(reader)
    calls = _read_calls(reader)
    least = np.where(ops["kind"] == COLLECTIVE, 0, NONE)
    reader.require_within(ops["call"], least, len(calls), "group ops names calls that group calls does not have")
    folded = reader.has_attribute("folded_from_ranks")
    links = read_links(reader, folded=folded)
    for limit in (calls.limits.limit, calls.limits.failed):
        reader.require_within(limit, NONE, len(links), "group calls names a link that is not there")
    reader.require_within(calls.limits.rest, 0, len(Rest), "group calls has a rest that is none of its flags")
    ranks = reader.integer_attribute("folded_from_ranks") if folded else None
    if ranks is not None:
        reader.require(int(ops["rank"].max(initial=-1)) < ranks, f"group ops names ranks beyond the {ranks} there are")
        _require_few_ranks(reader, 0, max(ranks, int(ops["rank"].max(initial=-1)) + 1), len(timers))
    about = read_about(reader)
    failures = read_failures(reader, links, about["resolved"])
    slowdowns = reader.numbers(columns.FLOWS.group, columns.FLOWS.columns[0], (SLOWDOWN_BINS,))
    reader.require(bool(np.all(slowdowns >= 0)), "group flows counts less than no messages")
    return RunRecord(
        **about,
        ops=ops,
        spans=spans,
        timers=timers,
        calls=calls,
        links=links,
        series=read_series(reader, links, failures),
        slowdowns=slowdowns,
        iteration=reader.integer_attribute("iteration_ps"),
        wall_seconds=0.0,
        packets=read_packets(reader) if reader.has_group(columns.WIRES.group) else None,
        ranks=ranks,
        capture=_read_capture(reader) if reader.has_attribute("capture") else None,
        work=_read_work(reader) if reader.has_attribute("work") else None,
        jobs=_read_jobs(reader, ops, calls) if reader.has_attribute("jobs") else (),
        pairs=_read_pairs(reader) if reader.has_group(columns.PAIRS.group) else None,
        failures=failures,
    )


def read_about(reader: ResultFile) -> dict[str, Any]:
    """Read what a run of either form says of itself, by the name of the field."""
    return {
        **{name: reader.text_attribute(name) for name in columns.TEXT_ATTRIBUTES},
        "resolved": _read_resolved(reader),
        "seed": reader.integer_attribute("seed"),
        "counters": reader.json_attribute("counters"),
        **{name: _read_lines(reader, name) for name in ("notes", "asked")},
    }


def _read_lines(reader: ResultFile, name: str) -> tuple[str, ...]:
    return tuple(reader.text_attribute(name).splitlines()) if reader.has_attribute(name) else ()


def _read_resolved(reader: ResultFile) -> dict[str, Any]:
    """Read the scenario; of its tables, what a summary looks at is checked."""
    told = reader.json_attribute("resolved")
    fabric, collectives = told.get("fabric", {}), told.get("collectives", {})
    tables = all(isinstance(table, dict) for table in (fabric, collectives, told.get("extensions", {})))
    reader.require(tables, "attribute resolved has no tables fabric and collectives, or extensions that are none")
    cables = fabric.get("cables", {})
    changed = isinstance(cables, dict) and all(isinstance(each, dict) for each in cables.values())
    reader.require(changed, "attribute resolved has cables that are no tables")
    failures = fabric.get("failures", [])
    failing = isinstance(failures, list) and all(isinstance(each, dict) for each in failures)
    reader.require(failing, "attribute resolved has failures that are no list of tables")
    algorithms = isinstance(collectives.get("algorithm"), (str, dict, type(None)))
    reader.require(algorithms, "attribute resolved has algorithms that are neither a name nor a table")
    return told


def _read_work(reader: ResultFile) -> IterationWork:
    told = reader.json_attribute("work")
    known = {name: told.get(name) for name in IterationWork._fields}
    numbers = all(
        isinstance(value, (int, float)) and 0 < value < math.inf for value in known.values() if value is not None
    )
    reader.require(numbers and known["hardware_flops"] is not None, "work does not say its FLOPs in numbers above 0")
    return IterationWork(**cast("dict[str, Any]", known))


def _read_jobs(reader: ResultFile, ops: NDArray[np.void], calls: CallRecords) -> tuple[JobRecord, ...]:
    """Read which part of ops and calls each job has; they follow one another, and each has its own calls."""
    told = reader.json_attribute("jobs").get("parts")
    reader.require(isinstance(told, list), "attribute jobs has no parts")
    jobs: list[JobRecord] = []
    op = call = 0
    for each in cast("list[Any]", told):
        known = isinstance(each, dict) and each.keys() == set(JobRecord._fields) and isinstance(each["name"], str)
        known = known and all(type(value) is int and value >= 0 for name, value in each.items() if name != "name")
        reader.require(known, "attribute jobs has one that does not say what is its own in whole numbers")
        job = JobRecord(**each)
        in_turn = (job.first_op, job.first_call) == (op, call) and job.ops > 0 and job.start < job.end < 2**62
        reader.require(in_turn, "attribute jobs has jobs that do not follow one another")
        op, call = op + job.ops, call + job.calls
        mine = ops["call"][job.first_op : op]
        inside = bool(np.all((mine == NONE) | ((mine >= job.first_call) & (mine < call))))
        reader.require(op <= len(ops) and call <= len(calls) and inside, "attribute jobs shares out what is not there")
        jobs.append(job)
    return tuple(jobs)


def _read_pairs(reader: ResultFile) -> Pairs:
    group = columns.PAIRS.group
    ranks, domain, in_network = (reader.integer_attribute(name, group) for name in columns.PAIRS_NUMBERS)
    count = len(reader.numbers(group, columns.PAIRS.index))
    source, target, dimension, carried = (reader.numbers(group, column, (count,)) for column in columns.PAIRS.columns)
    names = reader.text(group, columns.DIMENSION_NAME)
    reader.require(0 < domain <= ranks <= MOST_RANKS and 0 <= in_network < _MOST_BYTES, "group pairs has no such ranks")
    for column, beyond in ((source, ranks), (target, ranks), (dimension, len(names))):
        reader.require_within(column, 0, beyond, "group pairs names ranks or dimensions that are not there")
    some = bool(np.all(carried >= 0)) and float(carried.sum(dtype=np.float64)) < _MOST_BYTES
    reader.require(some, "group pairs has bytes that no job sends")
    return Pairs(ranks, domain, names, source, target, dimension, carried, in_network)


def _read_ops(reader: ResultFile) -> tuple[NDArray[np.void], NDArray[np.void], tuple[str, ...]]:
    group = columns.OPS.group
    ops = reader.records(columns.OPS, OP)
    spans = np.zeros(len(ops), SPAN)
    for column in columns.SPANS:
        spans[column.name] = reader.numbers(group, column, ops.shape)
    reader.require(bool(np.all(spans["start"] <= spans["end"])), "group ops has ops that end before they start")
    timers = reader.text(group, columns.TIMER_NAME)
    booked = "group ops books time under timers that timer_name does not have"
    reader.require_within(ops["timer"], 0, len(timers), booked)
    if len(ops):
        _require_few_ranks(reader, int(ops["rank"].min()), int(ops["rank"].max()) + 1, len(timers))
    return ops, spans, timers


def _require_few_ranks(reader: ResultFile, lowest: int, ranks: int, timers: int) -> None:
    """Refuse ranks of which no run has that many: what is counted for each rank would fill the memory."""
    reader.require(lowest >= 0, f"group ops names rank {lowest}")
    few = ranks <= MOST_RANKS and ranks * timers <= MOST_TOTALS
    reader.require(few, f"is of {ranks} ranks with {timers} timers; the file is damaged, run the scenario again")


def _read_calls(reader: ResultFile) -> CallRecords:
    failures = reader.has_column(columns.CALLS.group, columns.FAILED.name)
    table = columns.CALLS_OF_FAILURES if failures else columns.CALLS
    count = len(reader.numbers(table.group, table.index))
    older = not any(reader.has_column(table.group, name) for name in _HELD)  # from before it was told what held a call
    some = [column for column in table.columns if not (older and column.name in _HELD)]
    for column in (columns.BESIDE, columns.CALL_COPIES):
        some += [column] if reader.has_column(table.group, column.name) else []
    data = [reader.values(table.group, column, count) for column in some]
    names = [column.name for column in some]
    calls = [CallRecord(**dict(zip(names, row, strict=True))) for row in zip(*data, strict=True)]
    possible = all(call.ranks > 0 and call.size >= 0 and call.start <= call.end for call in calls)
    reader.require(all(0 <= call.beside <= call.used for call in calls), "group calls has parts of use that are none")
    reader.require(possible, "group calls has calls of no ranks, of less than no bytes, or that end before they start")
    counted = all(0 < call.copies <= _MOST_COPIES for call in calls)
    reader.require(counted, "group calls has calls that stand for none, or for more than there are")
    return CallRecords.of(calls)


def read_links(reader: ResultFile, *, folded: bool) -> tuple[LinkRecord, ...]:
    """Read resources."""
    table = columns.LINKS
    names = reader.text(table.group, table.index)
    data = [reader.values(table.group, column, len(names)) for column in table.columns]
    crossing = reader.text(table.group, columns.CROSSING.columns[0])
    counts = np.array(data.pop(), np.int64)
    reader.require(
        bool(np.all(counts >= 0)) and int(counts.sum()) == len(crossing),
        "crossing_calls do not add up to crossing_call",
    )
    ends = np.cumsum(counts)
    calls = [crossing[end - count : end] for end, count in zip(ends, counts, strict=True)]
    copies = reader.values(table.group, columns.COPIES, len(names)) if folded else [1] * len(names)
    links = tuple(LinkRecord(*row) for row in zip(names, *data, calls, copies, strict=True))
    possible = all((link.capacity > 0 or not link.load) and link.copies > 0 for link in links)
    reader.require(possible, "group links has loads on links without capacity, or links that stand for none")
    return links


def read_failures(reader: ResultFile, links: Sequence[LinkRecord], resolved: dict[str, Any]) -> NDArray[np.void]:
    """Read what failures of a resolved scenario did to links."""
    table = columns.FAILURES
    if not reader.has_group(table.group):
        return none_failed()
    failures = reader.records(table)
    for name, count in (("link", len(links)), ("failure", len(resolved.get("fabric", {}).get("failures", ())))):
        reader.require_within(failures[name], 0, count, f"group failures names a {name} that is not there")
    some = (failures["start"] >= 0) & (failures["start"] < failures["end"])
    possible = some & (failures["share"] >= 0) & (failures["share"] < 1)
    reader.require(bool(np.all(possible)), "group failures has failures of no time, or that leave no share of a rate")
    return failures


def read_series(reader: ResultFile, links: Sequence[LinkRecord], failures: NDArray[np.void]) -> Series:
    """Read the rates of links over time."""
    group = "series"
    names = reader.text(group, columns.SERIES_LINK)
    bins = len(reader.numbers(group, columns.SERIES_TIME))
    rate = reader.numbers(group, columns.SERIES_RATE, (len(names), bins))
    capacity = reader.numbers(group, columns.SERIES_CAPACITY, (len(names),))
    reader.require(bool(np.isfinite(rate).all() and np.isfinite(capacity).all()), "group series has rates without end")
    reader.require(bool((rate >= 0).all() and (capacity >= 0).all()), "group series has rates below 0")
    left = {links[link].name: left for link, left in rates_left(failures).items()}
    return Series(reader.integer_attribute("interval_ps", group), names, rate, capacity, left)


def _read_capture(reader: ResultFile) -> Capture:
    told = reader.json_attribute("capture")
    form, span, assumptions = told.get("form"), told.get("span_ps"), told.get("assumptions")
    whole = isinstance(form, str) and isinstance(span, int) and isinstance(assumptions, list)
    reader.require(whole, "capture does not say form, span_ps and assumptions")
    steps, transfers = (
        zip(
            *(
                reader.values(table.group, column, len(reader.numbers(table.group, table.index)))
                for column in table.columns
            ),
            strict=True,
        )
        for table in (columns.STEPS, columns.TRANSFERS)
    )
    return Capture(
        cast("str", form),
        cast("int", span),
        tuple(StepTime(*row) for row in steps),
        tuple(CapturedTransfer(*row) for row in transfers),
        tuple(map(str, cast("list[object]", assumptions))),
    )


def read_packets(reader: ResultFile) -> Packets:
    """Read what a packet run counted and recorded."""
    names = reader.text(columns.WIRES.group, columns.WIRES.index)
    wires = reader.records(columns.WIRES, count=len(names))
    count = reader.integer_attribute("taps", "series")
    taps = []
    for index in range(count):
        group = f"series/tap{index}"
        reader.require(reader.has_group(group), f"group {group} is missing")
        taps.append(_read_tap(reader, group))
    log = _read_log(reader) if reader.has_group(columns.LOG.group) else None
    return Packets(names, wires, tuple(taps), log)


def _read_tap(reader: ResultFile, group: str) -> Tap:
    kind = reader.text_attribute("kind", group)
    reader.require(kind in columns.TAP_VALUES, f"{group} is a tap of the unknown kind {kind!r}")
    time = reader.numbers(group, columns.TAP_TIME)
    reader.require(bool(np.all(time[1:] >= time[:-1])), f"the times of {group} do not ascend")
    value = reader.numbers(group, columns.TAP_VALUES[kind], (len(time),))
    return Tap(cast("Any", kind), reader.text_attribute("of", group), time, value)


def _read_log(reader: ResultFile) -> PacketLog:
    group = columns.LOG.group
    wires = reader.text(group, columns.LOG_WIRE)
    flows = len(reader.numbers(group, columns.LOG_FLOWS.index))
    source, target = (reader.numbers(group, column, (flows,)) for column in columns.LOG_FLOWS.columns)
    entries = reader.records(columns.LOG)
    for name, count in (("wire", len(wires)), ("flow", flows)):
        reader.require_within(entries[name], 0, count, f"group {group} names a {name} that is not there")
    reader.require(bool(np.all(entries["number"] >= 0)), f"group {group} holds a packet without number")
    protocol = reader.text_attribute("protocol", group)
    reader.require(protocol in PROTOCOLS, f"group {group} is of the unknown protocol {protocol!r}")
    payload, overhead, ecn = (reader.integer_attribute(name, group) for name in columns.LOG_NUMBERS)
    return PacketLog(entries, wires, source, target, payload, overhead, cast("Any", protocol), bool(ecn))
