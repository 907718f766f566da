from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from fabricsim.errors import ResultError
from fabricsim.report.sweeps import volume_sweeps
from fabricsim.report.volumes_text import volumes_text
from fabricsim.workload.tally import EqualCalls, tally
from fabricsim.workload.volume_summary import summarise_volumes

FORMULA = [EqualCalls("data", "all_reduce", 4, 1000, 2), EqualCalls("tensor", "all_gather", 4, 64, 8)]


def _print(what: RenderableType) -> str:
    console = Console(width=120, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def _row(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def _text(*counted: EqualCalls) -> str:
    return _print(volumes_text(summarise_volumes("job", 4, tally(counted), tally(FORMULA))))


def test_agreement_is_said() -> None:
    text = _text(*FORMULA)

    assert "agree exactly" in text
    assert _row(text, "data all_reduce")[-1] == "0"
    assert _row(text, "all ")[1] == "10"


@pytest.mark.parametrize(
    ("counted", "off"),
    [
        (EqualCalls("data", "all_reduce", 4, 999, 2), "-12 B"),
        (EqualCalls("data", "all_reduce", 4, 2000, 1), "-1 calls"),
        (EqualCalls("data", "all_reduce", 3, 1500, 2), "sizes"),
    ],
)
def test_a_difference_is_named_with_its_row(counted: EqualCalls, off: str) -> None:
    text = _text(counted, FORMULA[1])

    assert "differ in data all_reduce." in text
    assert " ".join(_row(text, "data all_reduce")).endswith(off)
    assert _row(text, "tensor all_gather")[-1] == "0"


def test_histogram_has_a_row_per_power_of_two() -> None:
    text = _text(*FORMULA)

    rows = [line.split()[-3:] for line in text.split("Calls by size")[1].splitlines()]
    assert ["64", "B", "8"] in rows
    assert ["512", "B", "2"] in rows


def test_nothing_counted_is_no_picture() -> None:
    with pytest.raises(ResultError, match="no job to draw"):
        volume_sweeps([], ["data"], "all three")
