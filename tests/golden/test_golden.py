"""Shipped scenarios give what they gave before; `summaries` says how to move a figure on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import summaries

FOLDER = Path(__file__).resolve().parent


def differences(path: str, found: Any, golden: Any) -> list[str]:  # noqa: ANN401  JSON values are of many types
    """Places where two JSON values differ: floats by more than 1e-9 of their size, all else at all."""
    if isinstance(found, dict) and isinstance(golden, dict):
        keys = {*found, *golden}
        return [
            line
            for key in sorted(keys)
            for line in differences(f"{path}.{key}", found.get(key, "nothing"), golden.get(key, "nothing"))
        ]
    if isinstance(found, list) and isinstance(golden, list) and len(found) == len(golden):
        pairs = enumerate(zip(found, golden, strict=True))
        return [line for index, (one, other) in pairs for line in differences(f"{path}[{index}]", one, other)]
    same = found == pytest.approx(golden, rel=1e-9, abs=0) if isinstance(found, float) else found == golden
    return [] if same else [f"{path}: {found}, was {golden}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", summaries.names())
def test_scenario_gives_what_it_gave(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))

    assert differences(name, json.loads(json.dumps(summaries.summary(name))), golden) == []


def test_no_golden_file_is_left_over() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.json")) == sorted(summaries.names())


def test_differences_are_found() -> None:
    golden = {"a": [1.0, {"b": 2}], "c": None}

    assert differences("x", {"a": [1.0 + 1e-12, {"b": 2}], "c": None}, golden) == []
    assert differences("x", {"a": [1.0 + 1e-8, {"b": 3}]}, golden) == [
        "x.a[0]: 1.00000001, was 1.0",
        "x.a[1].b: 3, was 2",
        "x.c: nothing, was None",
    ]
    assert differences("x", {"a": [1.0], "c": None}, golden) == ["x.a: [1.0], was [1.0, {'b': 2}]"]
