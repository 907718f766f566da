from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from fabricsim.errors import ResultError
from fabricsim.records.program import HOST, HOST_STREAM, OP, SPAN
from fabricsim.report import plots, style
from fabricsim.results.result import CallRecords, Limits, RunRecord, Series
from fabricsim.results.use_over_time import use_over_time
from fabricsim.workload.pipeline_parallel import TIMERS
from tests.reference import factory

ROWS = [
    {"quantity": "gain", "unit": "x", "measured": 2.5, "predicted": 2.4, "relative_error": -0.04, "source": "paper"},
    {
        "quantity": "peak",
        "unit": "Gb/s",
        "measured": 60.0,
        "predicted": 63.0,
        "relative_error": 0.05,
        "source": "paper",
    },
    {"quantity": "rest", "unit": "Gb/s", "measured": 9.0, "predicted": 9.0, "relative_error": None, "source": "paper"},
]
SIZES = [2**power for power in range(10, 30)]
RATES = [1e9 * size / (size + 1e6) for size in SIZES]


def _bus(_: RunRecord) -> Figure:
    return plots.bus_bandwidth(SIZES, RATES, [0.9 * rate for rate in RATES], "all_reduce")


def _agreement(_: RunRecord) -> Figure:
    return plots.measured_against_predicted(ROWS, "study")


def _comparison(result: RunRecord) -> Figure:
    return plots.comparison([result, dataclasses.replace(result, transport="rdma-100g")])


ALL = [plots.breakdown, plots.timeline, plots.utilisation, _comparison, _agreement, _bus]


def _lengths(axes: Axes, label: str) -> list[float]:
    bars = next(container for container in axes.containers if container.get_label() == label)
    return [bar.get_width() for bar in bars]


def _legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.slow
@pytest.mark.parametrize("draw", ALL)
def test_every_plot_is_saved_whole(pipeline: RunRecord, tmp_path: Path, draw: Callable[[RunRecord], Figure]) -> None:
    figure = draw(pipeline)
    plots.save(figure, tmp_path / "plot.png")
    plots.save(figure, tmp_path / "plot.svg")
    plots.save(figure, tmp_path / "plot.pdf")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "plot.pdf").read_bytes().startswith(b"%PDF")
    assert ET.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")  # noqa: S314  drawn here
    assert {path.name for path in tmp_path.iterdir()} == {"plot.png", "plot.svg", "plot.pdf"}


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.3, 7.0])
@pytest.mark.parametrize("draw", ALL)
def test_nothing_is_clipped(pipeline: RunRecord, draw: Callable[[RunRecord], Figure], width: float) -> None:
    with plots.paper(width):
        figure = draw(dataclasses.replace(pipeline, name="a rather long name, with many words in it"))
    assert figure.get_figwidth() <= width
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    width, height = figure.get_size_inches() * figure.dpi
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [text.get_window_extent(renderer) for text in figure.texts]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
    for legend in figure.legends:
        assert not any(
            legend.get_window_extent(renderer).overlaps(axes.get_tightbbox(renderer)) for axes in figure.axes
        )


@pytest.mark.slow
@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_plot_has_the_same_bytes(
    pipeline: RunRecord, tmp_path: Path, draw: Callable[[RunRecord], Figure], suffix: str
) -> None:
    for name in ("first", "second"):
        plots.save(draw(pipeline), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"first.{suffix}").read_bytes() == (tmp_path / f"second.{suffix}").read_bytes()


@pytest.mark.slow
def test_a_name_is_no_formula(two_ranks: RunRecord, tmp_path: Path) -> None:
    result = dataclasses.replace(two_ranks, name=r"a$\frac$b", timers=tuple(f"${name}$^" for name in two_ranks.timers))
    figure = plots.timeline(result)
    plots.save(figure, tmp_path / "plot.svg")

    named = [text for text in figure.findobj(Text) if "$" in text.get_text()]
    (title,) = (text for text in named if text.get_wrap())
    assert r"a\$\frac\$b" in title.get_text()
    assert len(named) > 1
    assert not any(text.get_parse_math() for text in named if text is not title)


def test_breakdown_stacks_each_rank_up_to_the_iteration(two_ranks: RunRecord) -> None:
    (axes,) = plots.breakdown(two_ranks).axes
    assert axes.get_xlabel() == "Time in the iteration (s)"
    assert axes.get_ylabel() == "Rank"
    assert _lengths(axes, "compute") == [5.0, 7.0]
    assert _lengths(axes, "exposed, data") == [4.0, 4.0]
    assert _lengths(axes, "bubble") == [2.0, 0.0]
    assert _lengths(axes, "communication behind compute") == [2.0, 2.0]


@pytest.mark.slow
def test_the_legend_has_no_part_that_cannot_be_seen() -> None:
    for sending, parts in ((10**10, 3), (10**9, 3), (10**11, 4)):  # of 11 s
        labels = _legend(plots.breakdown(factory.two_ranks(sending)))
        assert len(labels) == parts
        assert ("communication behind compute" in labels) == (parts == 4)


@pytest.mark.slow
def test_many_ranks_are_thinned_and_the_axis_says_so() -> None:
    result = factory.pipeline(ranks=20, batches=2)
    for figure in (plots.breakdown(result), plots.timeline(result)):
        assert figure.axes[0].get_ylabel() == "Rank (16 of 20)"
    (axes,) = plots.timeline(result).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 16
    assert (labels[0], labels[-1]) == ("0", "19")


def test_comparison_labels_speed_up_over_the_slowest() -> None:
    slow, fast = factory.pipeline(slow=8), factory.pipeline(transport="rdma-100g")
    (axes,) = plots.comparison([slow, fast]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["tcp-10g", "rdma-100g"]
    labels = [text.get_text() for text in axes.texts]
    assert labels[0].endswith("(1.00x)")
    assert labels[1].endswith(f"({slow.iteration / fast.iteration:.2f}x)")


@pytest.mark.slow
@pytest.mark.parametrize("wide", [3.3, 7.0])
@pytest.mark.parametrize("name", ["averyvery" * 30, "W" * 90, f"words and {'x' * 120} more words", "short"])
def test_titles_of_one_long_word_are_within_the_picture(name: str, wide: float, tmp_path: Path) -> None:
    with plots.paper(wide):
        figure = plots.breakdown(dataclasses.replace(factory.pipeline(), name=name))
    plots.save(figure, tmp_path / "a.png")

    box = figure.axes[0].title.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


@pytest.mark.slow
def test_panels_of_use_end_at_the_same_height_whatever_was_used(two_ranks: RunRecord) -> None:
    series = dataclasses.replace(two_ranks.series, rate=two_ranks.series.rate / 10)
    for each in (two_ranks, dataclasses.replace(two_ranks, series=series)):
        assert plots.payload_rates(each.series, each.iteration, "a").axes[0].get_ylim() == (0, 105)


@pytest.mark.slow
@pytest.mark.parametrize("wide", [3.3, 7.0])
def test_speed_ups_of_a_comparison_fit_beside_their_bars(wide: float) -> None:
    runs = [factory.pipeline(slow=8), factory.pipeline(transport="rdma-100g")]
    with plots.paper(wide):
        figure = plots.comparison(runs, ("what they differ in", ["a fabric with a rather long name", "b"]))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes

    right = axes.get_window_extent().x1
    assert all(text.get_window_extent(canvas.get_renderer()).x1 <= right for text in axes.texts)


def test_timeline_has_a_box_for_every_op_of_a_timer(two_ranks: RunRecord) -> None:
    (axes,) = plots.timeline(two_ranks).axes
    assert axes.get_xlabel() == "Time (s)"
    boxes = {collection.get_label(): collection.get_paths() for collection in axes.collections}
    assert set(boxes) == set(two_ranks.timers)
    spans = sorted(tuple(path.vertices[:, 0][[0, 2]]) for path in boxes["params-all-reduce"])
    assert spans == [(4.0, 10.0), (6.0, 10.0)]


def test_collectives_within_a_timer_of_computation_have_the_colour_of_their_dimension(two_ranks: RunRecord) -> None:
    ops = two_ranks.ops.copy()
    ops["timer"] = two_ranks.timers.index("forward-compute")
    (axes,) = plots.timeline(dataclasses.replace(two_ranks, ops=ops)).axes
    colours = style.dimension_colours(["data", "pipeline"])
    looks = {f"{name} communication": (2, colours[name]) for name in ("data", "pipeline")}

    drawn = {each.get_label(): (len(each.get_paths()), each.get_facecolor()) for each in axes.collections}

    found = {label: (count, to_hex(colour[0]).upper()) for label, (count, colour) in drawn.items()}
    assert found == looks | {"forward-compute": (4, style.COMPUTE_COLOUR)}


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_timeline_of_timers_without_names_has_no_legend(two_ranks: RunRecord, tmp_path: Path) -> None:
    figure = plots.timeline(dataclasses.replace(two_ranks, timers=("_",) * len(two_ranks.timers)))
    plots.save(figure, tmp_path / "plot.svg")
    assert figure.legends == []


def test_a_timer_keeps_its_colour_where_another_is_missing(two_ranks: RunRecord) -> None:
    whole = {c.get_label(): c.get_facecolor().tolist() for c in plots.timeline(two_ranks).axes[0].collections}
    kept = two_ranks.ops["timer"] != 0
    fewer = dataclasses.replace(two_ranks, ops=two_ranks.ops[kept], spans=two_ranks.spans[kept])
    collections = plots.timeline(fewer).axes[0].collections
    assert len(collections)
    for collection in collections:
        assert collection.get_facecolor().tolist() == whole[collection.get_label()]


@pytest.mark.slow
def test_a_timeline_of_many_thousand_ops_is_raster_in_svg(two_ranks: RunRecord, tmp_path: Path) -> None:
    count = 6000
    ops, spans = np.zeros(count, OP), np.zeros(count, SPAN)
    ops["call"], ops["rank"] = -1, np.arange(count) % 2
    spans["start"] = np.arange(count) * 1000
    spans["end"] = spans["start"] + 900
    result = dataclasses.replace(two_ranks, ops=ops, spans=spans, iteration=int(spans["end"].max()))
    plots.save(plots.timeline(result), tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 200_000


def test_utilisation_is_a_share_of_the_capacity_a_panel_for_each_tier(two_ranks: RunRecord) -> None:
    figure = plots.utilisation(two_ranks)
    assert figure.get_supylabel() == "Use (%)"
    assert figure.axes[-1].get_xlabel() == "Time (s)"
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "host* > leaf*"
    mean = axes.patches[-1].get_data()
    rate = two_ranks.series.rate / two_ranks.series.capacity[:, None]
    whole = two_ranks.iteration / two_ranks.series.interval
    assert np.average(mean.values, weights=np.diff(mean.edges)) == pytest.approx(100 * rate.sum(axis=1).mean() / whole)


def test_a_tier_whose_links_differ_has_a_band(two_ranks: RunRecord) -> None:
    rate = two_ranks.series.rate.copy()
    rate[1] = rate[0] / 2
    figure = plots.utilisation(dataclasses.replace(two_ranks, series=dataclasses.replace(two_ranks.series, rate=rate)))
    band, mean = (patch.get_data() for patch in figure.axes[0].patches)
    np.testing.assert_allclose(band.baseline, band.values / 2)
    np.testing.assert_allclose(mean.values, band.values * 0.75)
    assert _legend(figure) == ["least to most used of the tier", "mean"]


@pytest.mark.slow
def test_what_held_calls_is_shown_though_it_is_not_recorded(two_ranks: RunRecord) -> None:
    links = (*two_ranks.links, two_ranks.links[0]._replace(name="host0/gpu0/proxy", kind="proxy thread"))
    calls = two_ranks.calls
    limits = Limits(*(np.full(len(calls), value) for value in (len(links) - 1, 0.8, 0, -1, 0.0)))
    held = dataclasses.replace(two_ranks, links=links, calls=dataclasses.replace(calls, limits=limits))
    _, tiers = use_over_time(held)
    (thread,) = [use for use in tiers if use.held]
    assert (thread.kind, thread.busiest, thread.alike) == ("proxy thread", "host0/gpu0/proxy", 1)
    busy = sum(call.end - call.start for call in calls) / two_ranks.iteration
    assert thread.most.mean() == pytest.approx(0.8 * busy)
    assert "what held each call, mean use while it ran" in _legend(plots.utilisation(held))


def test_no_two_timers_of_a_pipeline_look_alike() -> None:
    looks = style.timer_colours(TIMERS, dict.fromkeys(range(len(TIMERS)), "pipeline"), [], ["pipeline"])

    assert len(set(looks)) == len(set(map(style.shade, looks))) == len(TIMERS)
    assert style.shade(looks[0]) == looks[0][0].lower()


def test_what_hosts_do_is_a_bar_of_its_own(two_ranks: RunRecord) -> None:
    ops = two_ranks.ops.copy()
    ops["kind"][:2], ops["stream"][:2] = HOST, HOST_STREAM
    figure = plots.timeline(dataclasses.replace(two_ranks, ops=ops))

    drawn = {each.get_label(): each for each in figure.axes[0].collections}
    assert to_hex(drawn["host"].get_facecolor()[0]) == style.HOST_COLOUR
    assert len(drawn["host"].get_paths()) == 2
    assert _legend(figure).count("host") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("wide", "columns"), [(3.3, 2), (7.0, 3)])
def test_a_legend_has_as_many_columns_as_fit(wide: float, columns: int) -> None:
    with plots.paper(wide):
        (axes,) = (figure := style.new_figure()).subplots(1, 1, squeeze=False)[0]
    for number in range(6):
        axes.plot([0], [0], label=f"{'a long label ' * (1 + number % 3 % 2)}{number}")
    style.legend(figure)

    FigureCanvasAgg(figure).draw()
    assert len({round(text.get_window_extent().x0) for text in figure.legends[0].get_texts()}) == columns


def test_measured_and_predicted_stand_side_by_side() -> None:
    figure = plots.measured_against_predicted(ROWS, "study")
    assert figure.get_suptitle() == "study"
    assert [axes.get_xlabel() for axes in figure.axes] == ["Value (x)", "Value (Gb/s)"]
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert texts == ["2.5", "2.4 (-4.0 %)", "60", "63 (+5.0 %)", "9", "9"]


@pytest.mark.slow
def test_bus_bandwidth_is_logarithmic_with_its_error_below() -> None:
    upper, lower = plots.bus_bandwidth(SIZES, RATES, [0.9 * rate for rate in RATES], "all_reduce").axes
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("Bus bandwidth (GB/s)", "Error (%)")
    assert (upper.get_xscale(), upper.get_yscale()) == ("log", "log")
    np.testing.assert_allclose(lower.lines[1].get_ydata(), -10.0)


@pytest.mark.slow
def test_bus_bandwidth_without_a_measurement_has_one_panel() -> None:
    figure = plots.bus_bandwidth([0, *SIZES], [], [0.0, *RATES], "all_reduce")
    (axes,) = figure.axes
    assert len(axes.lines[0].get_xdata()) == len(SIZES)


def test_nothing_to_draw_is_an_error(two_ranks: RunRecord) -> None:
    empty = dataclasses.replace(
        two_ranks,
        ops=np.zeros(0, OP),
        spans=np.zeros(0, SPAN),
        series=Series(1, (), np.zeros((0, 4)), np.zeros(0)),
        calls=CallRecords.of([]),
    )
    for draw in (plots.breakdown, plots.timeline, plots.utilisation):
        with pytest.raises(ResultError, match="to draw"):
            draw(empty)
    with pytest.raises(ResultError, match="to draw"):
        plots.comparison([])
    with pytest.raises(ResultError, match="to draw"):
        plots.measured_against_predicted([], "study")
    with pytest.raises(ResultError, match="to draw"):
        plots.bus_bandwidth([0], [], [0.0], "all_reduce")


def test_what_held_calls_and_was_not_used_is_not_drawn(two_ranks: RunRecord) -> None:
    many = len(two_ranks.calls.kind)
    limits = Limits(*(np.full(many, value) for value in (len(two_ranks.links) - 1, 0.0, 0, -1, 0.0)))
    unused = dataclasses.replace(
        two_ranks,
        series=Series(1, (), np.zeros((0, 4)), np.zeros(0)),
        calls=dataclasses.replace(two_ranks.calls, limits=limits),
    )
    with pytest.raises(ResultError, match="to draw"):
        plots.utilisation(unused)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plot.gif", "plot"])
def test_other_formats_are_refused(two_ranks: RunRecord, tmp_path: Path, name: str) -> None:
    with pytest.raises(ResultError, match=r"use \.png, \.svg or \.pdf"):
        plots.save(plots.breakdown(two_ranks), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_refused(two_ranks: RunRecord, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be written"):
        plots.save(plots.breakdown(two_ranks), tmp_path / "missing" / "plot.png")


def test_dimensions_keep_their_colours_and_strangers_get_others() -> None:
    some = style.dimension_colours(["pipeline", "tensor", "expert"])
    assert some["pipeline"] == style.dimension_colours(["data", "pipeline"])["pipeline"]
    assert len(set(some.values())) == 3


def test_colours_of_dimensions_do_not_depend_on_their_order() -> None:
    names = ["red data", "tensor", "blue data", "context", "data", "expert"]
    assert style.dimension_colours(names) == style.dimension_colours(names[::-1])
    assert len(set(style.dimension_colours(names).values())) == len(names)


def test_pictures_of_one_run_have_the_same_colours(two_ranks: RunRecord) -> None:
    """Of two jobs, whose dimensions come in another order in each picture."""
    kinds = tuple(
        kind._replace(dimension=f"{name} data") for kind, name in zip(two_ranks.calls.kinds, "ba", strict=False)
    )
    calls = dataclasses.replace(two_ranks.calls, kinds=kinds)
    run = dataclasses.replace(two_ranks, calls=calls)
    (bars,), (lines,) = plots.breakdown(run).axes, plots.timeline(run).axes
    colours = style.dimension_colours(["a data", "b data"])

    drawn = {each.get_label(): each.patches[0].get_facecolor() for each in bars.containers}
    in_bars = {name: to_hex(drawn[f"exposed, {name}"]).upper() for name in colours if f"exposed, {name}" in drawn}
    assert in_bars
    assert in_bars.items() <= colours.items()
    of_timers = {to_hex(each.get_facecolor()[0]).upper() for each in lines.collections}
    assert set(in_bars.values()) <= of_timers


def test_no_two_timers_of_computation_have_one_colour() -> None:
    timers = ["forward-compute", "backward-compute", "weight-compute", "else", "optimizer"]
    looks = style.timer_colours(timers, {}, [], [])
    assert len({colour for colour, _ in looks}) == len(timers)


@pytest.mark.parametrize(("count", "most", "chosen"), [(3, 16, [0, 1, 2]), (5, 3, [0, 2, 4]), (100, 2, [0, 99])])
def test_evenly(count: int, most: int, chosen: list[int]) -> None:
    assert style.evenly(count, most) == chosen


@pytest.mark.slow
def test_reports_load_neither_matplotlib_nor_hdf5_before_they_are_used() -> None:
    code = (
        "import sys, fabricsim.report.plots, fabricsim.report.text, fabricsim.results.hdf5; "
        "sys.exit(bool({'matplotlib', 'h5py', 'numba', 'networkx'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603  our own code


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_no_news() -> None:
    code = "from fabricsim.report.style import new_figure; new_figure()"
    environment = {**os.environ, "HOME": "/dev/null", "XDG_CONFIG_HOME": "", "MPLCONFIGDIR": ""}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert run.stderr == ""


@pytest.mark.parametrize("sizes", [[2**step for step in range(3, 34)], [step * 2**30 for step in range(1, 26)]])
def test_sizes_on_an_axis_are_apart_and_the_largest_is_among_them(sizes: list[int]) -> None:
    figure = style.new_figure(2.0)
    axes = figure.subplots()

    style.size_axis(axes, sizes, "Size")

    shown = axes.get_xticks().tolist()
    assert shown[-1] == max(sizes)
    assert set(shown) <= set(sizes)
    steps = np.diff(np.log2(shown))
    assert steps.min() > 0.99 * np.log2(max(sizes) / min(sizes)) / 11
