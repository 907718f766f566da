from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console, RenderableType
from rich.text import Text

from fabricsim.errors import InputError
from fabricsim.report import plots
from fabricsim.report.axis_names import axis_name, value_name
from fabricsim.report.lines import _labels
from fabricsim.report.swept import better, pictures, searched_text, swept_text


def rows(count: int, scale: float = 100.0) -> list[dict[str, Any]]:
    return [
        {
            "run": "r",
            "status": "done",
            "rate": f"{rate}Gbps",
            "batch": batch,
            "iteration_time_s": scale * batch / rate,
            "error": "",
        }
        for rate in range(100, 100 * (count + 1), 100)
        for batch in range(1, count + 1)
    ]


def test_one_line_for_each_value_of_the_second_key() -> None:
    ((name, figure),) = pictures(rows(3), ["rate", "batch"], [], "study")

    axes = figure.axes[0]
    assert name == "picture-1.png"
    assert axes.get_lines()[0].get_xydata().tolist() == [[rate * 1e9 / 8, 100 / rate] for rate in (100, 200, 300)]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Rate", "Iteration time (s)")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100 Gb/s", "200 Gb/s", "300 Gb/s"]


@pytest.mark.slow
@pytest.mark.parametrize("wide", [3.3, 7.0])
@pytest.mark.parametrize(
    "rates", [(100, 101, 102, 400), (1, 2, 3, 300, 310, 320, 400), (25, 40, 50, 100, 200, 400, 800), (10, 10.5)]
)
def test_names_of_ticks_do_not_run_into_one_another(rates: tuple[float, ...], wide: float) -> None:
    done = [
        {"run": "r", "status": "done", "rate": f"{rate}Gbps", "iteration_time_s": 1 / rate, "error": ""}
        for rate in rates
    ]
    with plots.paper(wide):
        ((_, figure),) = pictures(done, ["rate"], [], "study")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()

    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    assert (labels[0].get_text(), labels[-1].get_text()) == (f"{rates[0]:g} Gb/s", f"{rates[-1]:g} Gb/s")
    if not labels[0].get_rotation():
        boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels]
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes)) or len(labels) == 2


def test_runs_of_different_batches_are_ranked_by_their_tokens() -> None:
    small = {"run": "r", "status": "done", "batch": 64, "iteration_time_s": 1.0, "tokens_per_s": 64.0, "error": ""}
    large = {**small, "batch": 128, "iteration_time_s": 1.5, "tokens_per_s": 128 / 1.5}
    text = Text("\n").join(map(_plain, swept_text([small, large], ["batch"]))).plain
    assert text.startswith("2 runs, by tokens_per_s")
    assert text.index("128") < text.index("64 ")

    slow = {**small, "batch": 2, "iteration_time_s": 2.0, "tokens_per_s": 32.0}  # as many tokens
    assert _plain(swept_text([slow, small], ["batch"])[0]).plain.startswith("2 runs, by iteration_time_s")


@pytest.mark.slow
def test_a_heat_map_if_there_are_many() -> None:
    ((_, figure),) = pictures(rows(12), ["rate", "batch"], [], "study")

    grid = figure.axes[0].get_images()[0].get_array()
    assert grid.shape == (12, 12)
    assert grid[1, 0] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "unit", "factor"), [(0.1, "ms", 1e3), (1e-4, "µs", 1e6), (1e-7, "ns", 1e9)])
@pytest.mark.parametrize("count", [3, 12])
def test_short_times_have_a_unit_of_their_own(count: int, scale: float, unit: str, factor: float) -> None:
    ((_, figure),) = pictures(rows(count, scale), ["rate", "batch"], [], "study")

    drawn = figure.axes[0].get_lines()[0].get_ydata() if count == 3 else figure.axes[0].get_images()[0].get_array()[:1]
    label = figure.axes[0].get_ylabel() if count == 3 else figure.axes[1].get_ylabel()
    assert label == f"Iteration time ({unit})"
    assert np.ravel(drawn)[0] == pytest.approx(scale * factor / 100)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "told"), [(4, 16), (11, 0)])
def test_a_heat_map_has_its_figures_if_they_are_few(count: int, told: int) -> None:
    wanted = [{"kind": "heat-map", "x": "rate", "y": "batch", "value": "iteration_time_s"}]
    ((_, figure),) = pictures(rows(count), ["rate", "batch"], wanted, "study")

    texts = {tuple(map(int, text.get_position())): text.get_text() for text in figure.axes[0].texts}
    assert len(texts) == told
    for (column, line), text in texts.items():  # 100 s times batch over rate
        assert float(text) == pytest.approx((line + 1) / (column + 1), rel=5e-3)


def test_a_frontier_says_what_its_groups_differ_in() -> None:
    wanted = [{"kind": "frontier", "x": "batch", "y": "iteration_time_s", "by": "rate"}]
    ((_, figure),) = pictures(rows(2), ["rate", "batch"], wanted, "study")

    assert figure.legends[0].get_title().get_text() == "Rate"


@pytest.mark.parametrize(("label", "told"), [(None, set()), ("batch", {"1", "2"})])
def test_points_of_a_frontier_do_not_repeat_the_legend(label: str | None, told: set[str]) -> None:
    wanted = [{"kind": "frontier", "x": "batch", "y": "iteration_time_s", "by": "rate", "label": label}]
    ((_, figure),) = pictures(rows(2), ["rate", "batch"], wanted, "study")

    assert {text.get_text() for text in figure.axes[0].texts} == told


def test_a_frontier_joins_what_none_beats() -> None:
    wanted = [{"kind": "frontier", "x": "batch", "y": "iteration_time_s", "value": None, "by": "rate"}]
    ((_, figure),) = pictures(rows(3), ["rate", "batch"], wanted, "study")

    above, best, right = figure.axes[0].get_lines()[0].get_xydata().tolist()
    assert best == [1, 1 / 3]
    assert (above[0], right[1]) == (1, 1 / 3)  # what is worse in one figure alone lies on the line
    assert above[1] > 1
    assert right[0] > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "y", "steps"),
    [
        ("batch", "tokens_per_s", [(1, 3.0), (2, 6.0), (3, 9.0)]),
        ("tokens_per_s", "batch", [(9.0, 3), (6.0, 2), (3.0, 1)]),
        ("tokens_per_s", "mfu", [(9.0, 9.0)]),
        ("rate", "tokens_per_s", [(12.5e9, 3.0), (25e9, 6.0), (37.5e9, 9.0)]),
    ],
)
def test_of_some_figures_more_is_better(x: str, y: str, steps: list[tuple[float, float]]) -> None:
    more = [row | {"tokens_per_s": each, "mfu": each / 100} for row in rows(3) for each in [_rate(row) * row["batch"]]]
    chosen = more if "rate" not in (x, y) else [row for row in more if row["batch"] == 3]
    ((_, figure),) = pictures(chosen, ["rate"], [{"kind": "frontier", "x": x, "y": y}], "study")

    line = figure.axes[0].get_lines()[0].get_xydata()
    assert line[1:-1] == pytest.approx(np.array(steps))


def _rate(row: dict[str, Any]) -> float:
    return float(row["rate"].removesuffix("00Gbps"))


def test_runs_without_a_quantity_are_left_out_of_a_frontier_over_it() -> None:
    some = [*rows(2), {**rows(1)[0], "rate": None}]
    ((_, figure),) = pictures(some, ["rate"], [{"kind": "frontier", "x": "rate", "y": "batch"}], "study")

    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["100 Gb/s", "200 Gb/s"]
    assert len(figure.axes[0].collections[0].get_offsets()) == 4  # type: ignore[arg-type]  # of points


@pytest.mark.parametrize(("kind", "key"), [("lines", "y"), ("heat-map", "value"), ("frontier", "x")])
def test_words_in_place_of_numbers_are_refused(kind: str, key: str) -> None:
    wanted = {"kind": kind, "x": "rate", "y": "batch", "value": "batch", key: "status"}

    with pytest.raises(InputError, match=rf"pictures\[0\]\.{key}: 'status' has 'done', which is no number"):
        list(pictures(rows(2), ["rate", "batch"], [wanted], "study"))


def test_labels_of_neighbours_are_told_together() -> None:
    points = [(1.0, 1.0, "a", ""), (1.01, 1.01, "b", ""), (1.0, 2.0, "c", ""), (2.0, 1.0, "a", "")]

    assert _labels(points, 0.1, 0.1) == [(1.0, 2.0, "c"), (1.01, 1.01, "b, a"), (2.0, 1.0, "a")]


def test_a_layout_without_a_value_that_the_best_has_says_so() -> None:
    parts = dict.fromkeys(("exposed_communication_s", "bubble_s", "host_s"), 0.0)
    own = {**parts, "fabric.link_rate": None, "job.zero": 1, "iteration_time_s": 3.0, "compute_s": 2.0}
    best = {**own, "fabric.link_rate": "400Gbps", "compute_s": 1.0, "iteration_time_s": 2.0}

    told = better(own, best, ["fabric.link_rate", "job.zero"])

    assert told == "link_rate 400Gbps in place of no value set: compute -1 s"


def test_columns_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'batch'"):
        list(pictures(rows(2), ["rate"], [{"kind": "lines", "x": "batches", "y": "iteration_time_s"}], "study"))


def test_errors_that_are_alike_are_told_once() -> None:
    failed = [{"run": "r", "status": "failed", "a": number, "error": "no"} for number in range(4)]

    assert swept_text(failed, ["a"]) == ["failed: a = 0 and 3 more: no"]


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("cluster.hosts", "Hosts"),
        ("job.parallelism.tensor", "Tensor-parallel ranks"),
        ("fabric.uplink_rate", "Fabric uplink rate"),
        ("transport", "Transport"),
        ("busbw_bytes_per_s", "Bus bandwidth (GB/s)"),
        ("completion_time_s_p99", "Completion time, p99 (s)"),
    ],
)
def test_axes_have_words_and_units(key: str, label: str) -> None:
    assert str(axis_name(key)) == label


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("100Gbps", "100 Gb/s"),
        ("2MB", "2 MB"),
        ("18.7381742kB", "18.74 kB"),
        ("10000kB", "10000 kB"),
        ("tcp-10g", "tcp-10g"),
        (8, "8"),
        (None, "not set"),
    ],
)
def test_values_have_their_unit_apart(value: object, shown: str) -> None:
    assert value_name(value) == shown


def test_rates_are_no_times() -> None:
    row = {"status": "done", "error": "", "a": 1, "tokens": 2.0, "tokens_per_s": 261540.5, "iteration_time_s": 0.5}
    text = Text("\n").join(_plain(part) for part in searched_text([{**row, "mfu": 0.1, **_ZERO}], ["a"], 1, 1))

    assert "261,540" in text.plain


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("takes 1.2 s at least, and the best one 1 s", "The scenario's own layout is the best."),
        ("job.micro_batch: 3 divides nothing", "The scenario's own layout is the only one left; the commonest reason"),
    ],
)
def test_a_layout_that_beats_the_bounds_of_all_others_is_the_best(reason: str, said: str) -> None:
    row = {"status": "done", "error": "", "a": 1, "iteration_time_s": 1.0, "mfu": 0.1, "own": True, **_ZERO}
    out = {**row, "status": "out", "error": reason, "own": False, "bound_s": 1.2}
    text = Text("\n").join(_plain(part) for part in searched_text([row, out], ["a"], 2, 1))

    assert said in text.plain


_ZERO = {"exposed_communication_s": 0.0, "bound_s": 0.1}


def _plain(part: RenderableType) -> Text:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(part)
    return Text(captured.get())
