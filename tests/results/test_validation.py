from __future__ import annotations

import json

import numpy as np
import pytest

from fabricsim.errors import SimulationError
from fabricsim.report.validation import to_text
from fabricsim.results.validation import Validation, ValidationRow

ROW = ValidationRow("busbw [32 ranks], 64 MiB", "GB/s", 1.25, 1.0, "some log", "captured")


def test_relative_error_is_of_the_measured_figure() -> None:
    assert ROW.relative_error == pytest.approx(-0.2)
    assert ValidationRow("drops", "1", 0, 3, "log", "captured").relative_error is None


def test_json_object_has_the_promised_keys() -> None:
    row = ValidationRow("time", "s", np.float64(2.0), np.float64(2.5), "log", "captured")
    study = Validation("hkbu", [row], {"largest": np.float64(0.25)}, {"hosts": np.int64(8), "rates": np.array([1.0])})

    content = json.loads(study.to_json())

    assert content == {
        "study": "hkbu",
        "rows": [
            {
                "quantity": "time",
                "unit": "s",
                "measured": 2.0,
                "predicted": 2.5,
                "relative_error": 0.25,
                "source": "log",
                "certainty": "captured",
            }
        ],
        "summary": {"largest": 0.25},
        "parameters": {"hosts": 8, "rates": [1.0]},
    }
    assert list(content) == ["study", "rows", "summary", "parameters"]


def test_json_refuses_what_it_cannot_say() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Validation("s", [ROW], {"error": float("nan")}).to_json()
    with pytest.raises(TypeError, match="no JSON form"):
        Validation("s", [ROW], {"error": object()}).to_json()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_figures_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(SimulationError, match=r"time: measured 1\.0, predicted"):
        ValidationRow("time", "s", 1.0, value, "log", "captured")


def test_no_figure_is_a_power_of_ten() -> None:
    rows = [
        ValidationRow(str(value), "us", value, value, "log", "captured") for value in (123456.7, 0.00001234, 1009.4)
    ]
    text = to_text(Validation("hkbu", rows, {"largest error": 0.00002}, {}))

    assert [line.split()[1] for line in text.splitlines() if " us " in line] == ["123,457", "0.00001234", "1009"]
    assert "largest error: 0.00002" in text


def test_text_shows_every_figure_and_keeps_brackets() -> None:
    study = Validation("hkbu", [ROW], {"largest error": 0.2}, {"seed": 1})

    text = to_text(study, width=140)

    assert "validate hkbu" in text
    line = next(line for line in text.splitlines() if "busbw" in line)
    for part in ("busbw [32 ranks], 64 MiB", "GB/s", "1.25", "-20.0 %", "captured", "[1]"):
        assert part in line
    assert "  [1] some log\n" in text
    assert "largest error: 0.2" in text
    assert "seed: 1" in text
    assert max(map(len, text.splitlines())) <= 140
