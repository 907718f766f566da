from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fabricsim.report import plots
from fabricsim.report.page.writer import page
from fabricsim.results.result import RunRecord
from fabricsim.results.speed_up import speed_ups
from fabricsim.results.throughput import IterationWork
from tests.reference import factory


def _run(slow: int, batch: int, model: str = "a", sequence: int = 10) -> RunRecord:
    job: dict[str, Any] = {"model": {"name": model}, "global_batch": batch, "sequence": sequence}
    work = IterationWork(batch * sequence, 1.0, 1.0, None)
    return replace(factory.pipeline(slow=slow), work=work, resolved={"job": job})


def test_runs_of_different_batches_are_compared_by_tokens_per_second() -> None:
    """Twice the tokens in less than twice the time is faster, though the iteration takes longer."""
    small, large = _run(1, 8), _run(2, 64)
    assert large.iteration > small.iteration

    rates = [run.work.tokens / run.iteration for run in (small, large) if run.work is not None and run.work.tokens]
    assert speed_ups([small, large]) == pytest.approx([1.0, rates[1] / rates[0]])
    assert rates[1] > rates[0]


def test_runs_of_the_same_work_are_compared_by_iterations() -> None:
    assert speed_ups([_run(1, 8), _run(8, 8)]) == [_run(8, 8).iteration / _run(1, 8).iteration, 1.0]


def test_what_is_not_the_same_work_has_no_speed_up() -> None:
    several = [
        replace(_run(1, 8), work=None, resolved={"jobs": {"a": {"model": {}, "global_batch": n}}}) for n in (1, 2)
    ]

    assert speed_ups([_run(1, 8), _run(1, 8, "b")]) == [None, None]
    assert speed_ups(several) == [None, None]
    assert speed_ups(several[:1] * 2) == [1.0, 1.0]


def test_picture_and_page_leave_out_the_speed_up_of_different_models() -> None:
    runs = [_run(1, 8), replace(_run(8, 8, "b"), transport="rdma-100g")]
    (axes,) = plots.comparison(runs).axes

    assert [text.get_text() for text in axes.texts if "x)" in text.get_text()] == []
    (compared,) = re.findall("<table>.*?Speed-up.*?</table>", page([("a", runs[0]), ("b", runs[1])]), re.DOTALL)
    assert re.findall(r"[\d.]+x|>-<", compared).count(">-<") >= len(runs)
    assert not re.search(r"\d\.\d\dx", compared)
