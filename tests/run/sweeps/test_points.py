from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import InputError
from fabricsim.run.sweeps.points import flat, points
from fabricsim.scenario.swept import Sample, SweptScenario


def swept(**keys: Any) -> SweptScenario:  # noqa: ANN401  as in the file
    return SweptScenario.model_validate({"scenario": "gpt2-medium-dp", **keys})


def test_a_grid_has_every_combination_and_its_last_key_changes_first() -> None:
    found = points(swept(grid={"a": [1, 2], "b": {"c": ["x", "y"]}}))

    assert found == [{"a": 1, "b.c": "x"}, {"a": 1, "b.c": "y"}, {"a": 2, "b.c": "x"}, {"a": 2, "b.c": "y"}]


def test_points_that_are_written_out_are_combined_with_the_grid() -> None:
    found = points(swept(grid={"a": [1, 2]}, points=[{"b": 1, "c": 2}, {"b": 2, "c": 1}]))

    assert [(each["a"], each["b"], each["c"]) for each in found] == [(1, 1, 2), (2, 1, 2), (1, 2, 1), (2, 2, 1)]


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ({"from": 1, "to": 9, "step": 4}, [1, 5, 9]),
        ({"from": 1, "to": 8, "factor": 2}, [1, 2, 4, 8]),
        ({"from": 2, "to": 5, "count": 4}, [2, 3, 4, 5]),
        ({"from": -3, "to": 3, "count": 7}, [-3, -2, -1, 0, 1, 2, 3]),
        ({"from": 1, "to": 1000, "count": 4, "scale": "log"}, [1, 10, 100, 1000]),
        ({"from": 1.0, "to": 2.0, "count": 3}, [1.0, 1.5, 2.0]),
        ({"from": "100Gbps", "to": "400Gbps", "factor": 2}, ["100Gbps", "200Gbps", "400Gbps"]),
        ({"from": "1us", "to": "100us", "count": 3, "scale": "log"}, ["1us", "10us", "100us"]),
        ({"from": 0.1, "to": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),
    ],
)
def test_ranges_end_where_they_say(table: dict[str, Any], values: list[Any]) -> None:
    assert [each["a"] for each in points(swept(grid={"a": table}))] == values


@given(st.integers(1, 60), st.integers(0, 2**31))
def test_a_sample_has_one_point_in_each_stratum(count: int, seed: int) -> None:
    """That is what makes it a Latin hypercube."""
    keys = {"a": {"from": 0.0, "to": 1.0}, "b": {"from": 1.0, "to": 1024.0, "scale": "log"}, "c": ["x", "y"]}
    found = points(swept(sample=Sample(count=count, seed=seed, keys=keys)))

    assert sorted(int(each["a"] * count * (1 - 1e-11)) for each in found) == list(range(count))
    assert all(1 <= each["b"] <= 1024 for each in found)
    assert abs(2 * sum(each["c"] == "x" for each in found) - count) <= 1


def test_a_key_more_leaves_the_others_as_drawn() -> None:
    one = points(swept(sample=Sample(count=9, keys={"a": {"from": 0.0, "to": 1.0}})))
    two = points(swept(sample=Sample(count=9, keys={"b": [1, 2], "a": {"from": 0.0, "to": 1.0}})))

    assert [each["a"] for each in one] == [each["a"] for each in two]


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({}, "nothing is varied"),
        ({"grid": {"a": []}}, "empty"),
        ({"grid": {"a": 4}}, "no list"),
        ({"grid": {"a": {"from": 1, "to": 4}}}, "one of step, factor and count"),
        ({"grid": {"a": {"from": 1, "to": 4, "stepp": 1}}}, "did you mean 'step'"),
        ({"grid": {"a": {"from": 4, "to": 1, "step": 1}}}, "swap"),
        ({"grid": {"a": {"from": "1us", "to": "1ms", "count": 3}}}, "different units"),
        ({"grid": {"a": {"from": 1, "to": 4, "step": 0}}}, "above 0"),
        ({"grid": {"a": {"from": 0, "to": 4, "factor": 2}}}, "above 0"),
        ({"grid": {"a": {"from": 0, "to": 1, "step": 1e-9}}}, "more than"),
        (
            {"grid": {"a": {"from": 2, "to": 5, "count": 3}}},
            r"a: from 2 to 5 by count = 3 has 3.5, .* take count = 4,",
        ),
        (
            {"grid": {"a": {"from": 1, "to": 9, "factor": 1.5}}},
            r"factor = 1.5 has 1.5, .* take a list such as \[1, 2, 3,",
        ),
        ({"grid": {"a": list(range(1000)), "b": list(range(1000))}}, "1,000,000 runs"),
        ({"grid": {"a": [1]}, "points": [{"a": 2}]}, "varied twice"),
        ({"grid": {"a": [1, 2, 1]}}, r"grid\.a\[2\]: 1 is there already, as grid\.a\[0\]; take one out"),
        ({"points": [{"a": 2, "b": 1}, {"a": 2, "b": 1}]}, r"points\[1\]: what is written is there already"),
        ({"sample": {"count": 3, "keys": {"a": {"from": 0, "to": 1, "step": 1}}}}, "no effect"),
    ],
)
def test_what_cannot_be_varied_is_refused(keys: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        points(swept(**keys))


def test_presets_with_changes_are_values() -> None:
    assert flat({"cluster": {"include": "dgx-a100", "hosts": 4}, "job": {"micro_batch": 2}}) == {
        "cluster": {"include": "dgx-a100", "hosts": 4},
        "job.micro_batch": 2,
    }
