"""Scaling curves are ratios to the fewest nodes; rates over time are what was carried."""

from __future__ import annotations

import numpy as np
import pytest

from fabricsim.errors import ResultError
from fabricsim.report import plots

RUNS = [
    plots.ScaledRun(line, model, nodes, weak, time)
    for line, cost in (("slow", 1.0), ("fast", 0.1))
    for model, compute in (("small", 1.0), ("large", 4.0))
    for nodes in (2, 4, 8)
    for weak, time in ((True, compute + cost * nodes), (False, 2 * compute / nodes + cost))
]


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.3, 7.0])
def test_lines_are_means_over_models_of_gains_over_the_fewest_nodes(width: float) -> None:
    with plots.paper(width):
        weak, strong = plots.scaling(RUNS, "x").axes

    slow, fast = weak.get_lines()
    assert slow.get_ydata()[-1] == pytest.approx(50 * (3 / 9 + 6 / 12))
    assert fast.get_ydata()[0] == 100
    ideal, slow, _ = strong.get_lines()
    assert list(ideal.get_ydata()) == [1, 2, 4]
    assert slow.get_ydata()[-1] == pytest.approx(0.5 * (2 / 1.25 + 5 / 2))


def test_rates_over_time_end_with_their_run() -> None:
    (axes,) = plots.rates_over_time({"a": (0.5, np.array([1.0, 2.0])), "b": (1.0, np.array([3.0]))}, "x").axes

    assert axes.get_xlabel() == "Time (ms)"
    assert [patch.get_data().edges[-1] for patch in axes.patches] == [1000.0, 1000.0]


def test_nothing_to_draw_is_refused() -> None:
    for draw in (lambda: plots.scaling([], "x"), lambda: plots.rates_over_time({}, "x")):
        with pytest.raises(ResultError, match="there is no run to draw"):
            draw()
