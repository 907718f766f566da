from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from fabricsim.errors import ResultError
from fabricsim.report.text import ROWS, comparison_table, summary_text
from fabricsim.results.result import RunRecord
from fabricsim.results.speed_up import speed_ups
from fabricsim.results.summary import summarise
from fabricsim.units import human_seconds
from tests.reference import factory


def _print(what: RenderableType, width: int = 120) -> str:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def _line(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def test_summary_says_what_where_and_who_is_to_blame(two_ranks: RunRecord) -> None:
    text = _print(summary_text(summarise(two_ranks)))
    assert "Iteration time 11 s: compute 63.6 %, exposed communication 36.4 %, bubble 0.0 %" in text
    assert _line(text, "compute")[1:] == ["7", "s", "63.6", "%"]
    assert _line(text, "exposed communication, data")[-4:] == ["4", "s", "36.4", "%"]
    assert _line(text, "communication behind compute")[-4:] == ["2", "s", "18.2", "%"]
    assert _line(text, "params-all-reduce") == ["params-all-reduce", "6", "s"]
    assert "data all_reduce" in text
    assert "83.3 %" in _print(summary_text(summarise(two_ranks)))
    assert "First cause: compute, rank 1, 63.6 % of the iteration" in text
    assert _line(text, "thread host* proxy") == [
        "thread",
        "host*",
        "proxy",
        "1",
        "80.0",
        "%",
        "80.0",
        "%",
        "host0",
        "proxy",
    ]
    assert "12 messages, 34 events" in text
    assert "seed 7" in text


def test_a_last_rank_that_takes_longer_than_the_mean_is_told(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    summary["iteration_time_s"] = 9.0  # as of a replay, whose other ranks took less

    assert "First cause: compute, rank 1, 63.6 % of the 11 s of the last rank" in _print(summary_text(summary))


def test_markup_in_names_is_shown_as_written(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    summary["name"] = "[bold]x[/nonsense]"
    summary["causes"][0]["of"] = summary["resources"][0]["busiest"] = "[/a]"
    text = _print(summary_text(summary))
    assert "[bold]x[/nonsense]" in text
    assert "[/a]" in text
    assert "[/a]" in _print(comparison_table([summary], [1.0], factory.by_transport(summary)))


def test_many_kinds_of_collectives_are_cut(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    summary["collectives"] = summary["collectives"] * ROWS
    assert f"{ROWS} of {2 * ROWS} kinds" in _print(summary_text(summary))


def test_everything_fits_a_terminal_of_eighty_columns(pipeline: RunRecord) -> None:
    summary = summarise(pipeline)
    text = _print(summary_text(summary), width=80) + _print(
        comparison_table([summary], [1.0], factory.by_transport(summary)), width=80
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text


def test_comparison_is_against_the_slowest() -> None:
    runs = [factory.pipeline(transport=name, slow=slow) for name, slow in (("fast", 1), ("slow", 8))]
    summaries = [summarise(run) for run in runs]
    text = _print(comparison_table(summaries, speed_ups(runs), factory.by_transport(*summaries)))
    ratio = summaries[1]["iteration_time_s"] / summaries[0]["iteration_time_s"]
    assert f"{ratio:.2f}x" in _line(text, "fast")
    assert "1.00x" in _line(text, "slow")
    first = summaries[0]["causes"][0]
    assert f"{first['cause']}, {first['of']}" in text


def test_what_cannot_be_compared_has_no_speed_up() -> None:
    summary = summarise(factory.pipeline())
    assert " - " in " ".join(
        _line(
            _print(comparison_table([summary, summary], [None, None], factory.by_transport(summary, summary))),
            summary["transport"],
        )
    )


def test_times_of_a_compared_run_add_up() -> None:
    summary = summarise(factory.pipeline())
    assert summary["breakdown_s"]["bubble"] > 0
    cells = _line(_print(comparison_table([summary], [1.0], factory.by_transport(summary))), summary["transport"])
    iteration, compute, exposed, bubble = (f"{cells[at]} {cells[at + 1]}" for at in (1, 4, 6, 8))
    parts = summary["breakdown_s"]["compute"], summary["exposed_communication_s"], summary["breakdown_s"]["bubble"]
    assert (compute, exposed, bubble) == tuple(map(human_seconds, parts))
    assert iteration == human_seconds(sum(parts))


def test_comparison_of_long_names_fits_a_terminal_of_eighty_columns(pipeline: RunRecord) -> None:
    summary = summarise(pipeline)
    summary["transport"] = "ipoib-100g"
    summary["iteration_time_s"] = 0.4055
    summary["breakdown_s"]["bubble"] = summary["exposed_communication_s"] = 0.1234
    summary["causes"][0].update({"cause": "proxy thread", "of": "embedding all_reduce"})
    lines = _print(comparison_table([summary], [1.0], factory.by_transport(summary)), width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("ipoib-100g") and line.rstrip().count("proxy thread") for line in lines)


def test_sizes_that_print_alike_are_told_apart_to_the_byte(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    (row,) = (row for row in summary["collectives"] if row["collective"] == "all_reduce")
    assert "3.725 GiB" in _print(summary_text(summary))
    summary["collectives"].append({**row, "size_bytes": row["size_bytes"] + 4})
    text = _print(summary_text(summary))
    assert "4,000,000,000 B" in text
    assert "4,000,000,004 B" in text
    assert "GiB" not in text


def test_slowdown_of_messages_says_that_channels_count(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    why = "of their time alone (channels of one collective share their NIC, which counts)"
    assert why in _print(summary_text(summary))
    summary["collectives"] = [row for row in summary["collectives"] if row["collective"] == "send_recv"]
    text = _print(summary_text(summary))
    assert "of their time alone\n" in text.replace(" \n", "\n")
    assert "share their NIC" not in text


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ResultError, match="no run to compare"):
        comparison_table([], [], factory.by_transport())


def test_a_network_that_limits_nothing_is_said_to(two_ranks: RunRecord) -> None:
    summary = summarise(two_ranks)
    said = "nothing in the network limits it"
    assert said not in _print(summary_text(summary))  # 36 % of the path is latency
    summary["causes"] = [row for row in summary["causes"] if row["cause"] == "compute"]
    assert said in _print(summary_text(summary))
