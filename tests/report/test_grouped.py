from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from fabricsim.errors import ResultError
from fabricsim.report.grouped import Bar, grouped
from fabricsim.report.plots import save

BARS = [
    Bar("gpt2-medium", "tcp-10g", 1.0, 3.0),
    Bar("gpt2-medium", "rdma-100g", 1.0, 0.5),
    Bar("bert-base", "tcp-10g", 0.5, 2.0),
    Bar("bert-base", "rdma-100g", 0.5, 0.25),
]


def rectangles(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def test_a_run_is_one_stacked_bar() -> None:
    (axes,) = grouped(BARS, "Runs").axes
    lower = [patch for patch in rectangles(axes) if patch.get_y() == 0]
    upper = [patch for patch in rectangles(axes) if patch.get_y() > 0]

    assert sorted(patch.get_height() for patch in lower) == [0.5, 0.5, 1.0, 1.0]
    assert sorted(patch.get_y() + patch.get_height() for patch in upper) == [0.75, 1.5, 2.5, 4.0]
    assert sorted(patch.get_x() for patch in lower) == sorted(patch.get_x() for patch in upper)


def test_groups_keep_their_order_and_bars_keep_clear_of_each_other() -> None:
    (axes,) = grouped(BARS, "Runs").axes

    assert [label.get_text() for label in axes.get_xticklabels()] == ["gpt2-medium", "bert-base"]
    edges = sorted(
        (patch.get_x(), patch.get_x() + patch.get_width()) for patch in rectangles(axes) if patch.get_y() == 0
    )
    assert all(left[1] <= right[0] for left, right in pairwise(edges))
    assert [round((left + right) / 2, 6) for left, right in edges] == [-0.2, 0.2, 0.8, 1.2]


def test_axes_have_units_and_the_legend_names_each_run_once() -> None:
    figure = grouped(BARS, "Runs of a study")
    (axes,) = figure.axes

    assert (axes.get_ylabel(), axes.get_xlabel()) == ("Iteration time (s)", "Model")
    assert figure.get_suptitle() == "Runs of a study"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "compute",
        "communication and waiting, tcp-10g",
        "communication and waiting, rdma-100g",
    ]


def test_a_run_may_be_missing_from_a_group() -> None:
    (axes,) = grouped(BARS[:3], "Runs").axes

    assert len(axes.patches) == 2 * 3


@pytest.mark.slow
def test_more_runs_than_colours_are_drawn(tmp_path: Path) -> None:
    bars = [Bar("model", f"transport-{index}", 1.0, 1.0) for index in range(9)]

    save(grouped(bars, "Runs"), tmp_path / "runs.svg")

    assert (tmp_path / "runs.svg").stat().st_size > 0


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ResultError, match="there is no run to draw"):
        grouped([], "Runs")
