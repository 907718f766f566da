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


@style.picture
def packet_paths(log: PacketLog, title: str) -> Figure:
    """Draw when the first packets of a flow, and their answers, left on each logged wire of its way.

    The flow is the one that was seen on the most wires, of equal ones the first.

    `title`: what was run.
    Raises ResultError if no data packet was logged.
    """
    data = log.entries[log.entries["kind"] == DATA]
    style.require_some(len(data), "packet", "log packets of wires that data cross, such as *")
    seen = np.unique(np.column_stack([data["flow"], data["wire"]]), axis=0)[:, 0]
    flow = int(np.argmax(np.bincount(seen)))
    mine = log.entries[log.entries["flow"] == flow]
    numbers = np.unique(mine["number"][mine["kind"] == DATA])[:MOST_PACKETS]
    forward = mine[(mine["kind"] == DATA) & np.isin(mine["number"], numbers)][:MOST_ENTRIES]
    back = mine[(mine["kind"] != DATA) & np.isin(mine["echo"], numbers)][:MOST_ENTRIES]
    places = _places(forward, back)
    forward, back = (part[np.isin(part["wire"], list(places))] for part in (forward, back))
    figure = style.new_figure(0.9 + 0.4 * len(places))
    axes = figure.add_subplot()
    unit, scale = style.time_unit(int(max(part["time"].max(initial=0) for part in (forward, back))))
    for part, key in ((forward, "number"), (back, "echo")):
        for number in numbers.tolist():
            of_number = part[part[key] == number]
            for own in np.unique(of_number["number"]).tolist():
                _draw(axes, of_number[of_number["number"] == own], places, scale)
    axes.set_yticks(list(places.values()), [log.wires[wire] for wire in places])
    axes.invert_yaxis()
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_xlabel(f"Time at which the first bit leaves ({unit})")
    axes.grid(visible=True, axis="x", alpha=0.3)
    style.legend(figure)
    way = f"{log.source[flow]} to {log.target[flow]}"
    figure.suptitle(f"{title}\nthe first {len(numbers)} packets from {way}", wrap=True)
    return figure


def _places(forward: NDArray[np.void], back: NDArray[np.void]) -> dict[int, int]:
    """Row of each wire: data first, in the order in which they are reached."""
    wires = [*forward["wire"].tolist(), *back["wire"].tolist()]
    return {wire: place for place, wire in enumerate([*dict.fromkeys(wires)][:MOST_WIRES])}


def _draw(axes: Axes, entries: NDArray[np.void], places: dict[int, int], scale: float) -> None:
    """Draw one packet: a line from wire to wire for each time that it was sent."""
    entered = [places[int(wire)] for wire in entries["wire"]]
    begins = [index for index, place in enumerate(entered) if place == min(entered)]
    for begin, end in zip(begins, [*begins[1:], len(entries)], strict=True):
        part = entries[begin:end]
        time = part["time"] / scale
        rows = [places[int(wire)] for wire in part["wire"]]
        colour, label = _colour(part)
        axes.plot(time, rows, "-", color=colour, linewidth=0.7, marker=".", markersize=2.5, label=label)
        for chosen, marker, colour, label in (
            (_has(part, MARKED), "s", _MARK, "marked"),
            (_has(part, TRIMMED), "v", _TRIM, "trimmed"),
            (part["fate"] != SENT, "X", "black", "dropped or lost"),
        ):
            if chosen.any():
                at = time[chosen], np.array(rows)[chosen]
                axes.plot(*at, marker, color=colour, markersize=4, linestyle="none", label=label)


def _has(entries: NDArray[np.void], bit: int) -> NDArray[np.bool_]:
    data: NDArray[np.bool_] = ((entries["state"] & bit) != 0) & (entries["kind"] == DATA)
    return data


def _colour(entries: NDArray[np.void]) -> tuple[str, str]:
    if int(entries["kind"][0]) != DATA:
        return _ANSWER, "acknowledgement"
    again = int(entries["state"][0]) & AGAIN
    return (_SECOND, "data, sent again") if again else (_FIRST, "data")
