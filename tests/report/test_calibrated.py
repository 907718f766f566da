from __future__ import annotations

import pytest

from fabricsim.errors import ResultError
from fabricsim.report.calibrated import CalibratedRows, calibration


def test_fitted_and_held_out_rows_are_drawn_apart_with_their_errors() -> None:
    fitted = CalibratedRows([1024, 4096], [1e-4, 2e-4], [1.1e-4, 2e-4], held_out=False)
    held = CalibratedRows([2048], [1.6e-4], [1.2e-4], held_out=True)
    figure = calibration([fitted, held], "all_reduce")
    times, errors = figure.axes

    assert [line.get_label() for line in times.lines] == ["predicted", "measured, fitted", "measured, held out"]
    assert times.lines[0].get_xdata().tolist() == [1024, 2048, 4096]
    assert errors.lines[0].get_ydata().tolist() == pytest.approx([10.0, 0.0])
    assert errors.lines[1].get_ydata().tolist() == pytest.approx([-25.0])
    assert [label.get_text() for label in errors.get_xticklabels()] == ["1 KiB", "2 KiB", "4 KiB"]
    told = ["predicted", "measured, fitted", "measured, held out", "±10 %"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == told


def test_no_row_is_no_picture() -> None:
    with pytest.raises(ResultError, match="no row"):
        calibration([], "all_reduce")
