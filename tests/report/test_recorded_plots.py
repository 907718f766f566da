from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType

from fabricsim.errors import ResultError
from fabricsim.records.packet import AGAIN, DATA, DROPPED
from fabricsim.report import plots
from fabricsim.report.difference_text import difference_text
from fabricsim.report.path import MOST_ENTRIES, MOST_WIRES, packet_paths
from fabricsim.report.queues_text import queues_text, why
from fabricsim.report.taps import MOST_POINTS, STRETCHES, queues, windows
from fabricsim.report.text import summary_text
from fabricsim.results.difference import difference
from fabricsim.results.packets import Packets, Tap, congested
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from tests.reference import factory

MS = 10**9  # ps


@pytest.fixture
def packets() -> Packets:
    made: Packets = factory.packets()
    return made


def printed(shown: RenderableType) -> str:
    console = Console(width=120, record=True, file=None, highlight=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


# ---- pictures -----------------------------------------------------------------------------------


def test_queue_is_drawn_in_its_unit_and_names_the_deepest(packets: Packets) -> None:
    (axes,) = queues(packets, "x").axes
    (line,) = axes.get_lines()

    assert line.get_xdata().tolist() == [0, 1, 2]  # ms
    assert line.get_ydata().tolist() == [0, 64, 0]  # kB
    assert axes.get_title(loc="right") == "deepest 64 kB"


@pytest.mark.slow
def test_a_queue_that_drains_with_nothing_coming_falls_evenly(packets: Packets) -> None:
    """It has points only for what comes, so none between the last arrival and the time at which it is empty."""
    filling = np.linspace(0, 8e6, MOST_POINTS + 1)
    time = np.append(np.arange(len(filling)), len(filling) * 4) * MS
    (axes,) = queues(replace(packets, taps=(Tap("queue", "x", time, np.append(filling, 0.0)),)), "x").axes
    band, mean = (patch.get_data() for patch in axes.patches)

    middle = (mean.edges[:-1] + mean.edges[1:]) / 2
    expected = np.interp(middle, time / (1000 * MS), np.append(filling, 0.0) / 1e6)  # s, MB
    away = np.abs(middle - MOST_POINTS / 1000) > mean.edges[1]  # not at the peak
    assert np.allclose(mean.values[away], expected[away], atol=1e-9)
    assert np.all(band.baseline <= mean.values)
    assert np.all(mean.values <= band.values)


@pytest.mark.slow
def test_too_many_points_are_a_band_with_the_mean_over_time(packets: Packets) -> None:
    depth = np.tile([0.0, 2e6, 2e6, 0.0], 5 * MOST_POINTS)
    depth[1234] = 5e6
    tap = Tap("queue", "x", np.arange(len(depth)) * MS, depth)
    (axes,) = queues(replace(packets, taps=(tap,)), "x").axes
    band, mean = (patch.get_data() for patch in axes.patches)

    assert len(band.values) == STRETCHES
    assert sorted(set(band.values.tolist())) == [2, 5]  # MB
    assert set(band.baseline.tolist()) == {0}
    held = np.average(depth[:-1]) / 1e6
    assert np.average(mean.values, weights=np.diff(mean.edges)) == pytest.approx(held)


def test_windows_that_never_move_are_left_out_beside_rates_that_do(packets: Packets) -> None:
    still = Tap("window", "0->1", np.array([0, MS]), np.array([1e6, 1e6]))
    pace = Tap("pace", "0->1", np.array([0, MS]), np.array([2.5e9, 1.25e9]))
    (axes,) = windows(replace(packets, taps=(still, pace)), "x").axes

    assert axes.get_ylabel() == "Sending rate (Gb/s)"


def test_windows_and_rates_have_a_panel_each(packets: Packets) -> None:
    pace = Tap("pace", "0->1", np.array([0, MS, 2 * MS]), np.array([np.inf, 1.25e9, 2.5e9]))
    window_panel, pace_panel = windows(replace(packets, taps=(*packets.taps, pace)), "x").axes

    assert window_panel.get_lines()[0].get_ydata().tolist() == [10, 11]
    drawn = pace_panel.get_lines()[0].get_ydata()
    assert np.isnan(drawn[0])
    assert drawn[1] == 10  # Gb/s


def test_path_has_a_line_per_packet_and_answer(packets: Packets) -> None:
    log = packets.log
    assert log is not None
    (axes,) = packet_paths(log, "x").axes
    rows = [line.get_ydata()[0] for line in axes.get_lines() if line.get_linestyle() == "-" and len(line.get_xdata())]

    assert sorted(rows) == [0, 0, 0, 1, 1, 1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["host0 > leaf0", "leaf0 > host0"]


@pytest.mark.slow
def test_path_marks_losses_and_colours_what_is_sent_again(packets: Packets) -> None:
    log = packets.log
    assert log is not None
    entries = log.entries.copy()
    entries["fate"][1] = DROPPED
    again = entries[1:2].copy()
    again["time"], again["state"], again["fate"] = 3 * MS // 1000, AGAIN, 0
    entries = np.concatenate([entries[:3], again, entries[3:]])
    (axes,) = packet_paths(replace(log, entries=entries), "x").axes
    lines = [line for line in axes.get_lines() if len(line.get_xdata())]
    data = [line for line in lines if line.get_linestyle() == "-" and line.get_ydata()[0] == 0]

    assert len(data) == 4
    assert len({line.get_color() for line in data}) == 2
    assert [line.get_xdata().tolist() for line in lines if line.get_marker() == "X"] == [[1.0]]


@pytest.mark.slow
def test_a_log_without_end_draws_its_first_wires(packets: Packets) -> None:
    log = packets.log
    assert log is not None
    entries = np.resize(log.entries[log.entries["kind"] == DATA], 3 * MOST_ENTRIES)
    entries["wire"] = np.arange(len(entries)) % (3 * MOST_WIRES)
    names = tuple(f"wire {number}" for number in range(3 * MOST_WIRES))
    (axes,) = packet_paths(replace(log, entries=entries, wires=names), "x").axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(names[:MOST_WIRES])
    assert sum(len(line.get_xdata()) for line in axes.lines) <= MOST_ENTRIES


@pytest.mark.slow
def test_a_name_without_end_is_cut(packets: Packets, tmp_path: Path) -> None:
    log = packets.log
    assert log is not None
    figure = packet_paths(replace(log, wires=("x" * 70_000, "y")), "x")
    plots.save(figure, tmp_path / "cut.svg")
    (axes,) = figure.axes
    assert [len(tick.get_text()) for tick in axes.get_yticklabels()] == [301, 1]


@pytest.mark.slow
def test_pictures_are_those_of_what_was_recorded(packets: Packets, tmp_path: Path) -> None:
    figures = plots.of_packets(packets, "x")
    for name, figure in figures.items():
        plots.save(figure, tmp_path / f"{name}.png")

    assert list(figures) == ["queues", "windows", "packets"]
    assert plots.of_packets(replace(packets, taps=(), log=None), "x") == {}


@pytest.mark.parametrize("draw", [queues, windows])
def test_nothing_to_draw_is_said(packets: Packets, draw: object) -> None:
    with pytest.raises(ResultError, match="to draw; tap some that"):
        draw(replace(packets, taps=()), "x")  # type: ignore[operator]  # one of two functions


# ---- text ---------------------------------------------------------------------------------------


def test_table_leaves_out_what_never_happened(packets: Packets) -> None:
    text = printed(queues_text(congested(packets)))

    assert "Marked" in text
    assert "Dropped" not in text
    assert "Pauses" not in text
    assert "Most congested: host0 > leaf0, 16.7 % of 6 packets marked, up to 62.5 KiB waiting" in text


def test_reasons_are_in_words() -> None:
    row = {"packets": 1000, "deepest": 2048, "drops": 3, "trims": 1200, "pauses": 2, "paused": 5 * MS}
    (found,) = congested(factory.packets(wires={"a->b": row}))

    assert why(found) == "3 packets dropped, 1,200 packets trimmed, paused 2 times for 5 ms, up to 2 KiB waiting"


def test_summary_of_a_packet_run_names_the_most_congested_wire(two_ranks: RunRecord, packets: Packets) -> None:
    shown = printed(summary_text(summarise(replace(two_ranks, engine="packet", packets=packets))))

    assert "Most congested: host0 > leaf0" in shown
    assert "Most congested" not in printed(summary_text(summarise(two_ranks)))


def test_difference_names_what_packets_suffered(two_ranks: RunRecord, packets: Packets) -> None:
    counters = {"drops": 7, "retransmissions": 9, "timeouts": 0}
    other = replace(two_ranks, engine="packet", packets=packets, counters=counters)
    shown = printed(difference_text("x", ("flow", "packet"), difference(two_ranks, other), summarise(other)))

    assert "x: packet against flow" in shown
    assert "In all: 7 drops, 9 retransmissions" in shown
    calm = replace(other, counters={})
    shown = printed(difference_text("x", ("flow", "packet"), difference(two_ranks, calm), summarise(calm)))
    assert "No packet was dropped, marked, paused or sent again: what differs is" in " ".join(shown.split())
    shown = printed(difference_text("x", ("packet", "reference"), difference(calm, calm), summarise(calm)))
    assert "what differs is" not in " ".join(shown.split())
