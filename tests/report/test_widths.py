"""Reports hold at any width: no line is longer, no word is broken, no figure is cut."""

from __future__ import annotations

import re

import pytest
from rich.console import Console, RenderableType

from fabricsim.pipeline import build_plan, load, simulate
from fabricsim.report.tables import FittedTable
from fabricsim.report.text import comparison_table, summary_text
from fabricsim.report.volumes_text import volumes_text
from fabricsim.results.summary import summarise
from fabricsim.spec import library
from fabricsim.workload.tally import plan_calls, tally
from fabricsim.workload.volume_summary import summarise_volumes
from fabricsim.workload.volumes import closed_forms

WIDTHS = (60, 80, 200)
WIDE = 1000
SMALL = {"gpt3-175b": ["job.global_batch=256"], "what-if-leaf-spine": ["job.global_batch=8", "job.model.layers=4"]}


def printed(what: RenderableType, width: int) -> str:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\s─]+", text))


def assert_holds(what: RenderableType) -> None:
    all_words = words(printed(what, WIDE))
    for width in WIDTHS:
        text = printed(what, width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        assert words(text) <= all_words


@pytest.mark.parametrize("name", [name for name in library.names("scenarios") if load(name).scenario.job is not None])
def test_reports_of_shipped_scenarios_hold(name: str) -> None:
    loaded = load(name, SMALL.get(name, []))
    summary = summarise(simulate(loaded))
    plan = build_plan(loaded)
    volumes = summarise_volumes(name, plan.ranks, tally(plan_calls(plan)), tally(closed_forms(plan.job)))

    assert_holds(summary_text(summary))
    assert_holds(comparison_table([summary, {**summary, "transport": "ipoib-100g"}]))
    assert_holds(volumes_text(volumes))


def test_packets_hold() -> None:
    incast = ["cluster.hosts=3", "job.parallelism.data=3", "job.global_batch=24", "job.model.layers=1"]
    assert_holds(summary_text(summarise(simulate(load("gpt2-medium-dp", [*incast, "engine=packet"])))))


def test_columns_are_given_up_from_the_least_important() -> None:
    table = FittedTable("Name", ["A", "B"], words=["C"], least=["B", "C"])
    table.add_row("one two", "1234567", "1234567", "some words")

    assert words(printed(table, 40)) == {"Name", "one", "two", "A", "B", "C", "1234567", "some", "words"}
    assert words(printed(table, 24)) == {"Name", "one", "two", "A", "C", "1234567", "some", "words"}
    assert words(printed(table, 14)) == {"Name", "one", "two", "A", "1234567"}
