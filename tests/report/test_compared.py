from __future__ import annotations

import re
from typing import cast

import pytest
from rich.console import Console

from fabricsim.report import plots
from fabricsim.report.compared import SideBySide, compared
from fabricsim.report.difference_text import explained_text
from fabricsim.report.page.writer import page
from fabricsim.results.summary import Summary, summarise
from fabricsim.run.pipeline import load, simulate
from tests.reference import factory

LATE = {"red": {"ranks": "0-1", "start": "1s"}, "blue": {"ranks": "2-3", "start": "2s"}}
SMALL = {"extends": "gpt2-medium-dp", "cluster": {"hosts": 4}, "job": {"global_batch": 16, "parallelism": {"data": 2}}}


@pytest.mark.slow
def test_jobs_that_begin_later_are_compared_from_their_own_starts() -> None:
    """As if each of them ran alone, since no two share a wire."""
    names = ["tcp-10g", "rdma-100g"]
    runs = [simulate(load({**SMALL, "jobs": LATE, "transport": name})) for name in names]
    alone = [simulate(load({**SMALL, "transport": name})) for name in names]
    groups = compared(runs, names)

    assert [[row.name for row in group] for group in groups] == [
        [f"{name}, {job}" for name in names] for job in ("red", "blue")
    ]
    for group in groups:
        assert [row.summary["iteration_time_s"] for row in group] == [run.iteration / 1e12 for run in alone]
        assert [row.speed for row in group] == [1.0, alone[0].iteration / alone[1].iteration]
        assert all("idle" not in cause["cause"] for row in group for cause in row.summary["causes"])
    (axes,) = plots.comparison(runs).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for group in groups for row in group]
    assert "What makes rdma-100g, red differ from tcp-10g, red" in page([("a", runs[0]), ("b", runs[1])])


def test_jobs_that_begin_at_once_are_one_run() -> None:
    prompt = {name: {"ranks": job["ranks"]} for name, job in LATE.items()}
    run = simulate(load({**SMALL, "jobs": prompt}))

    (group,) = compared([run, run], ["a", "b"])
    assert [(row.name, row.speed) for row in group] == [("a", 1.0), ("b", 1.0)]


@pytest.mark.parametrize("small", [0.002, 0.02])
def test_what_causes_change_adds_up(small: float) -> None:
    """Three are named; what the others make is written if it is worth a word."""
    result = factory.pipeline()
    summary = summarise(result)
    first = {**summary, "iteration_time_s": 1.0, "causes": [_cause(f"cause {at}", 0.1) for at in range(6)]}
    times = [0.4, 0.3, 0.2, *[0.1 + small] * 3]
    second = {**first, "causes": [_cause(f"cause {at}", time) for at, time in enumerate(times)]}
    second["iteration_time_s"] = 1.0 + 0.6 + 3 * small
    rows = [SideBySide(name, result, cast("Summary", each), None) for name, each in (("a", first), ("b", second))]
    console = Console(width=200, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(explained_text(rows))

    told = [float(number) for number in re.findall(r"([+-][\d.]+) ms", capture.get())]
    assert told[0] == pytest.approx(sum(told[1:]))
    assert f"; +{3 * 1000 * small:g} ms others)" in capture.get()


def _cause(name: str, time: float) -> dict[str, object]:
    return {"cause": name, "resource": None, "of": "rank 0", "time_s": time}
