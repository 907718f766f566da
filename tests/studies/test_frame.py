"""A study of single figures: rows in their order, groups in that of the summary, progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fabricsim.errors import InputError
from fabricsim.report.validation import to_text
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.studies.frame.study import Published, Study, by_row


def published() -> list[Published]:
    return [
        Published("a", "s", 2.0, "paper", "published", lambda: 3.0, ("old",)),
        Published("b", "s", 4.0, "paper", "published", lambda: 4.0, ("new",)),
    ]


def study(first: tuple[str, ...]) -> Study:
    return by_row(
        "mine",
        "Mine.",
        published,
        statistics=lambda rows: {"mean": sum(row.error for row in rows) / len(rows)},
        parameters=lambda: {"fitted": "nothing"},
        pictures=lambda _: (),
        first=first,
    )


def test_rows_are_predicted_one_after_the_other() -> None:
    seen: list[float] = []

    found = study(("all",)).validate(seen.append)

    assert [(row.quantity, row.measured, row.predicted) for row in found.rows] == [("a", 2.0, 3.0), ("b", 4.0, 4.0)]
    assert found.summary == {"agreement": {"all": {"mean": 0.25}, "old": {"mean": 0.5}, "new": {"mean": 0.0}}}
    assert found.parameters == {"fitted": "nothing"}
    assert seen == [0.5, 1.0]


def test_rows_with_runs_have_intervals_that_the_summary_counts() -> None:
    first, second = published()
    rows = [replace(first, drawn=lambda _: [2.1]), replace(second, drawn=lambda _: [9.0])]

    found = by_row(
        "mine", "Mine.", lambda: rows, statistics=lambda _: {}, parameters=dict, pictures=lambda _: ()
    ).validate(uncertainty=1)

    assert [row.inside for row in found.rows] == [True, False]
    assert found.summary["inside_their_interval"] == 0.5
    assert "80 % interval" in to_text(found)


def test_what_is_not_predicted_says_why() -> None:
    rows = [*published(), Published("c", "s", 1.0, "paper", "published", lambda: 1.0, missing="no batch")]
    only = by_row(
        "mine",
        "Mine.",
        lambda: rows,
        statistics=lambda found: {"runs": float(len(found))},
        parameters=dict,
        pictures=lambda _: (),
    ).validate()

    assert [row.quantity for row in only.rows] == ["a", "b"]
    assert only.left_out == only.to_dict()["left_out"] == {"c [paper]": "no batch"}
    assert "no batch" in to_text(only)


def test_series_in_a_table_of_cases_are_counted() -> None:
    found = Validation("mine", [], {"rates": {"tcp-10g": {"interval_s": 0.25, "gbps": [1.0, 2.0, 3.0]}}}, {})

    (line,) = [line for line in to_text(found).splitlines() if line.startswith("tcp-10g")]
    assert line.split() == ["tcp-10g", "0.25", "3", "entries,", "in", "--json"]


def test_rows_that_are_none_are_refused_where_they_are_given() -> None:
    with pytest.raises(TypeError, match=r"the study mine has the row \('a', 1\); it should be a ValidationRow"):
        Validation("mine", [("a", 1)])  # type: ignore[list-item]


@pytest.mark.parametrize("key", ["summary", "parameters", "left_out"])
def test_tables_of_a_study_are_tables(key: str) -> None:
    with pytest.raises(TypeError, match=f"the study mine has the {key} 5; it should be a dict"):
        Validation("mine", [], **{key: 5})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["quantity", "unit", "source", "certainty"])
def test_names_in_a_row_are_text(key: str) -> None:
    names: dict[str, Any] = {"quantity": "a", "unit": "s", "source": "log", "certainty": "captured", key: 5}
    with pytest.raises(TypeError, match=f": {key} is 5; it should be a text"):
        ValidationRow(measured=1.0, predicted=1.0, **names)


def test_groups_come_in_the_order_that_the_study_gives() -> None:
    agreement = study(("new", "nowhere")).validate().summary["agreement"]

    assert list(agreement) == ["new", "old"]


def test_a_study_without_runs_by_an_engine_names_those_that_it_has() -> None:
    with pytest.raises(InputError, match="has no runs by engine 'packet'; it has flow"):
        study(("all",)).on("packet")
