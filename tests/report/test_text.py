from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from fabricsim.errors import ResultError
from fabricsim.report.text import ROWS, comparison_table, human_rate, summary_text
from fabricsim.results.summary import summarise

if TYPE_CHECKING:
    from types import ModuleType

    from rich.console import RenderableType

    from fabricsim.results.result import Result


def _print(what: RenderableType, width: int = 120) -> str:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def _line(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def test_summary_says_what_where_and_who_is_to_blame(two_ranks: Result) -> None:
    text = _print(summary_text(summarise(two_ranks)))
    assert "Iteration time 11 s, 36.4 % of it in communication" in text
    assert _line(text, "compute")[1:] == ["7", "s", "63.6", "%"]
    assert _line(text, "exposed communication, data")[-4:] == ["4", "s", "36.4", "%"]
    assert _line(text, "communication behind compute")[-4:] == ["2", "s", "18.2", "%"]
    assert _line(text, "params-all-reduce") == ["params-all-reduce", "6", "s"]
    assert "data all_reduce" in text
    assert "83.3 %" in _print(summary_text(summarise(two_ranks)))
    assert "Hottest: host0 proxy, 80.0 % used over the iteration" in text
    assert "12 messages, 34 events" in text
    assert "seed 7" in text


def test_hottest_link_names_what_crosses_it(two_ranks: Result) -> None:
    summary = summarise(two_ranks)
    summary["links"] = summary["links"][1:]
    assert "crossed by data all_reduce, pipeline send_recv" in _print(summary_text(summary))


def test_markup_in_names_is_shown_as_written(two_ranks: Result) -> None:
    summary = summarise(two_ranks)
    summary["name"] = "[bold]x[/nonsense]"
    summary["links"][0]["name"] = "[/a]"
    text = _print(summary_text(summary))
    assert "[bold]x[/nonsense]" in text
    assert "[/a]" in text
    assert "[/a]" in _print(comparison_table([summary]))


def test_many_kinds_of_collectives_are_cut(two_ranks: Result) -> None:
    summary = summarise(two_ranks)
    summary["collectives"] = summary["collectives"] * ROWS
    assert f"{ROWS} of {2 * ROWS} kinds" in _print(summary_text(summary))


def test_everything_fits_a_terminal_of_eighty_columns(pipeline: Result) -> None:
    summary = summarise(pipeline)
    text = _print(summary_text(summary), width=80) + _print(comparison_table([summary]), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text


def test_comparison_is_against_the_slowest(factory: ModuleType) -> None:
    summaries = [summarise(factory.pipeline(transport=name, slow=slow)) for name, slow in (("fast", 1), ("slow", 8))]
    text = _print(comparison_table(summaries))
    ratio = summaries[1]["iteration_time_s"] / summaries[0]["iteration_time_s"]
    assert f"{ratio:.2f}x" in _line(text, "fast")
    assert "1.00x" in _line(text, "slow")
    assert "host0 proxy (80.0 %)" in text


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ResultError, match="no run to compare"):
        comparison_table([])


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0 B/s"), (1500.0, "1.5 kB/s"), (1.25e9, "1.25 GB/s"), (2e13, "20 TB/s")],
)
def test_human_rate(value: float | None, text: str) -> None:
    assert human_rate(value) == text
