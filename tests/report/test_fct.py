from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fabricsim.report.fct import completion_times
from fabricsim.report.style import save
from fabricsim.results.traffic import DEMAND, Matrix, TrafficRecord


def traffic(sizes: list[int], slowdown: list[float]) -> TrafficRecord:
    flows = np.zeros(len(sizes), DEMAND)
    flows["bytes"] = sizes
    alone = np.array(sizes, np.int64) * 80
    completion = (alone * slowdown).astype(np.int64)
    matrix = Matrix(flows, 2, "a rather long name of a matrix, with many words in it")
    return TrafficRecord("scenario " * 12, matrix, "transport", "flow", 0, "1", completion, alone, (), {}, 0.0)


SIZES = [10 ** (2 + index % 6) for index in range(600)]
RUNS = {
    "one size": traffic([1000] * 4, [1.0, 2.0, 2.0, 40.0]),
    "many sizes": traffic(SIZES, [1 + index / 20 for index in range(600)]),
    "little slowdown": traffic(SIZES, [1 + index / 2000 for index in range(600)]),
    "one flow": traffic([1000], [1.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_clipped_and_axes_are_named(name: str, tmp_path: Path) -> None:
    figure = completion_times(RUNS[name])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.get_size_inches() * figure.dpi

    for axes in figure.axes:
        box = axes.get_tightbbox(canvas.get_renderer())
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        labels = [text.get_text() for text in axes.get_yticklabels() if text.get_text()]
        assert len(labels) >= 2
    save(figure, tmp_path / "plot.svg")
    save(figure, tmp_path / "plot.png")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_legends_lie_outside_of_the_panels_and_do_not_narrow_them(name: str) -> None:
    figure = completion_times(RUNS[name])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()

    assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    width = figure.get_window_extent().width
    assert all(axes.get_window_extent().width > 0.38 * width for axes in figure.axes)


@pytest.mark.slow
def test_many_decades_of_time_have_a_unit_each() -> None:
    figure = completion_times(traffic([1, 10**9], [1.0, 1.0]))
    FigureCanvasAgg(figure).draw()
    (times, _) = figure.axes

    assert times.get_xlabel() == "Flow completion time"
    names = [label.get_text() for label in times.get_xticklabels()]
    assert {"1 ns", "10 µs", "1 ms", "10 s"} <= set(names)


@pytest.mark.slow
def test_lines_are_the_distribution_of_the_flows() -> None:
    times, slowdowns = completion_times(RUNS["one size"]).axes
    busy, alone = times.lines

    assert busy.get_xdata() == pytest.approx([0.08, 0.08, 0.16, 0.16, 3.2])
    assert busy.get_ydata() == pytest.approx([0, 0.25, 0.5, 0.75, 1.0])
    assert set(alone.get_xdata()) == {0.08}
    assert times.get_xlabel() == "Flow completion time (\N{MICRO SIGN}s)"
    assert slowdowns.lines[0].get_xdata() == pytest.approx([1, 1, 2, 2, 40])


@pytest.mark.slow
def test_slowdown_over_size_has_median_and_tail_of_groups() -> None:
    _, axes = completion_times(RUNS["many sizes"]).axes
    flows, median, tail = axes.lines

    assert len(flows.get_xdata()) == 600
    assert np.diff(median.get_xdata()).min() >= 0
    assert (tail.get_ydata() >= median.get_ydata()).all()
    assert median.get_ydata().mean() == pytest.approx(16, rel=0.05)
