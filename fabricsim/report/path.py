"""Space-time diagram: the first packets of a flow on their way over its wires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.packet import AGAIN, DATA, MARKED, SENT, TRIMMED
from fabricsim.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.packets import PacketLog

MOST_PACKETS = 40
"""Packets drawn at most: the first ones of the flow."""
MOST_ENTRIES = 4000
"""Entries of the log drawn at most of data, and as many of answers: packets that are sent again and again have more."""
MOST_WIRES = 100
"""Wires that have a line at most, those reached first."""

_FIRST, _SECOND, _ANSWER = style.COMPUTE_COLOUR, style.COMMUNICATION_COLOURS[0], style.MEASURED_COLOUR
_TRIM, _MARK = style.COMMUNICATION_COLOURS[1:3]


def packet_paths(log: PacketLog, title: str) -> Figure:
    """Draw when the first packets of a flow, and their answers, left on each logged wire of its way.

    The flow is the one that was seen on the most wires, of equal ones the first.

    `title`: what was run.
    Raises ResultError if no data packet was logged.
    """
    data = log.entries[log.entries["kind"] == DATA]
    style.require_some(len(data), "packet", "log wires that data cross: --pcap '*'")
    seen = np.unique(np.column_stack([data["flow"], data["wire"]]), axis=0)[:, 0]
    flow = int(np.argmax(np.bincount(seen)))
    mine = log.entries[log.entries["flow"] == flow]
    numbers = np.unique(mine["number"][mine["kind"] == DATA])[:MOST_PACKETS]
    forward = mine[(mine["kind"] == DATA) & np.isin(mine["number"], numbers)][:MOST_ENTRIES]
    back = mine[(mine["kind"] != DATA) & np.isin(mine["echo"], numbers)][:MOST_ENTRIES]
    places = _places(forward, back)
    forward, back = (part[np.isin(part["wire"], list(places))] for part in (forward, back))
    figure = style.new_figure(10.0, 1.8 + 0.55 * len(places))
    axes = figure.add_subplot()
    unit, scale = style.time_unit(int(max(part["time"].max(initial=0) for part in (forward, back))))
    for number in numbers.tolist():
        _draw(axes, forward[forward["number"] == number], places, scale)
    for echo in numbers.tolist():
        for cause in np.unique(back["number"][back["echo"] == echo]).tolist():
            chosen = back[(back["echo"] == echo) & (back["number"] == cause)]
            _draw(axes, chosen, places, scale)
    axes.set_yticks(list(places.values()), [log.wires[wire] for wire in places])
    axes.invert_yaxis()
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_xlabel(f"Time at which the first bit leaves ({unit})")
    axes.grid(visible=True, axis="x", alpha=0.3)
    _legend(axes)
    way = f"{log.source[flow]} to {log.target[flow]}"
    figure.suptitle(f"The first {len(numbers)} packets from {way}: {title}", wrap=True)
    return figure


def _places(forward: NDArray[np.void], back: NDArray[np.void]) -> dict[int, int]:
    """Row of each wire: data first, in the order in which they are reached."""
    wires = [*forward["wire"].tolist(), *back["wire"].tolist()]
    return {wire: place for place, wire in enumerate([*dict.fromkeys(wires)][:MOST_WIRES])}


def _draw(axes: Axes, entries: NDArray[np.void], places: dict[int, int], scale: float) -> None:
    """Draw one packet: a line from wire to wire for each time that it was sent."""
    begins = [index for index, entry in enumerate(entries) if places[int(entry["wire"])] == _entrance(entries, places)]
    for begin, end in zip(begins, [*begins[1:], len(entries)], strict=True):
        part = entries[begin:end]
        time = part["time"] / scale
        rows = [places[int(wire)] for wire in part["wire"]]
        axes.plot(time, rows, "-", color=_colour(part), linewidth=0.8, marker=".", markersize=3)
        for chosen, marker, colour in (
            (_has(part, MARKED), "s", _MARK),
            (_has(part, TRIMMED), "v", _TRIM),
            (part["fate"] != SENT, "X", "black"),
        ):
            axes.plot(time[chosen], np.array(rows)[chosen], marker, color=colour, markersize=5, linestyle="none")


def _entrance(entries: NDArray[np.void], places: dict[int, int]) -> int:
    return min(places[int(wire)] for wire in entries["wire"])


def _has(entries: NDArray[np.void], bit: int) -> NDArray[np.bool_]:
    data: NDArray[np.bool_] = ((entries["state"] & bit) != 0) & (entries["kind"] == DATA)
    return data


def _colour(entries: NDArray[np.void]) -> str:
    if int(entries["kind"][0]) != DATA:
        return _ANSWER
    return _SECOND if int(entries["state"][0]) & AGAIN else _FIRST


def _legend(axes: Axes) -> None:
    for label, colour in (("data", _FIRST), ("data, sent again", _SECOND), ("acknowledgement", _ANSWER)):
        axes.plot([], [], "-", color=colour, label=label)
    for label, marker, colour in (("marked", "s", _MARK), ("trimmed", "v", _TRIM), ("dropped or lost", "X", "black")):
        axes.plot([], [], marker, color=colour, label=label)
    style.legend_beside(axes)
