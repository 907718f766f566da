"""What was recorded over time, as counters: rates of links, queues, windows of flows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fabricsim.report.trace_events.lines import MICROSECONDS, Lines, Number, Template, compact, lines
from fabricsim.results.packets import Packets, Tap
from fabricsim.results.result import RunRecord, Series
from fabricsim.results.use_over_time import peaks, use_over_time

MOST_LINKS = 64
"""Links whose rate is written at most: those that are used most at some time."""
_AT_ONCE = 2**15
_STRETCHES = 1024
_UNITS = {"queue": ("B", 1.0), "window": ("packets", 1.0), "pace": ("Mb/s", 8e-6)}
_LARGEST = 2.0**62


def rates(series: Series, pid: int) -> Iterator[Lines]:
    """Write the payload rates of the busiest links, Mb/s; `pid` is the process that they are shown in."""
    busiest = np.argsort(-peaks(series), kind="stable")[:MOST_LINKS]
    time = np.arange(series.rate.shape[1], dtype=np.int64) * series.interval
    for link in busiest[series.rate[busiest].any(axis=1)].tolist():
        yield from _counter(f"rate {series.names[link]}", "Mb/s", pid, time, series.rate[link] * 8e-6)


def held(result: RunRecord, pid: int) -> Iterator[Lines]:
    """Write the use of threads, NVLink and PCIe by the calls that they limit, thousandths of what they can do."""
    edges, tiers = use_over_time(result, _STRETCHES)
    for use in tiers:
        if use.held:
            yield from _counter(
                f"use {use.kind} {use.tier}", "1/1000", pid, edges[:-1].astype(np.int64), 1e3 * use.most
            )


def taps(packets: Packets, pid: int) -> Iterator[Lines]:
    """Write what was tapped."""
    for tap in packets.taps:
        unit, scale = _UNITS[tap.kind]
        time, value = _falling(tap) if tap.kind == "queue" and len(tap.time) else (tap.time, tap.value)
        yield from _counter(f"{tap.kind} {tap.of}", unit, pid, time, value * scale)


def _falling(tap: Tap) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Enter what is left of a queue between its points, as counters hold their values and queues fall evenly."""
    between = np.linspace(tap.time[0], tap.time[-1], _STRETCHES, dtype=np.int64)
    time = np.concatenate([tap.time, between])
    order = np.argsort(time, kind="stable")
    return time[order], np.concatenate([tap.value, np.interp(between, tap.time, tap.value)])[order]


def _counter(name: str, unit: str, pid: int, time: NDArray[np.int64], value: NDArray[np.float64]) -> Iterator[Lines]:
    """Write a counter: its values as whole numbers, those left out that repeat the one before."""
    whole = np.rint(np.clip(np.nan_to_num(value, posinf=0.0), 0, _LARGEST)).astype(np.int64)
    kept = np.flatnonzero(np.diff(whole, prepend=-1))
    head = compact({"ph": "C", "name": name, "pid": pid, "tid": 0})[:-1] + b',"ts":'
    line: Template = [head, Number(0, MICROSECONDS), b',"args":{' + compact(unit) + b":", Number(1), b"}},\n"]
    for begin in range(0, len(kept), _AT_ONCE):
        some = kept[begin : begin + _AT_ONCE]
        yield lines([line], np.zeros(len(some), np.int64), (time[some], whole[some]))
