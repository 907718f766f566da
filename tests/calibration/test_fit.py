from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.calibration.fit import fit, students_quantile
from fabricsim.calibration.parameters import Parameter

SIZES = np.array([2.0**power for power in range(2, 28)])
LATENCY = Parameter("nccl.ll.latency", ("nccl.ll.latency",), "time", "latency", 1e-7, 1e-1, 2e-5, 0.7)
SHARE = Parameter("efficiency", ("efficiency",), "share", "bandwidth", 0.01, 1.0, 0.9, 0.3)
IDLE = Parameter("host_efficiency", ("host_efficiency",), "share", "bandwidth", 0.01, 1.25, 1.0, 0.3)


def _line(values: Sequence[float], sizes: NDArray[np.float64] = SIZES) -> NDArray[np.float64]:
    """A message's time: a latency and a share of 1.25 GB/s; what follows plays no part."""
    return values[0] + sizes / (1.25e9 * values[1])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(latency=st.floats(5e-6, 1e-4), share=st.floats(0.3, 0.95))
def test_what_made_the_data_is_found_again(latency: float, share: float) -> None:
    found = fit([LATENCY, SHARE, IDLE], _line([latency, share]), _line)

    assert found.values[:2] == pytest.approx([latency, share], rel=0.02)
    assert found.values[2] == pytest.approx(1.0)
    assert [estimate.determined for estimate in found.estimates] == [True, True, False]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    truth, inside = [3e-5, 0.7], 0
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(0.0, 0.04, len(SIZES))
        found = fit([LATENCY, SHARE], _line(truth) * np.exp(noise), _line)
        inside += sum(
            estimate.low <= value <= estimate.high for estimate, value in zip(found.estimates, truth, strict=True)
        )
    assert 0.88 * 120 <= inside <= 0.995 * 120


def test_rows_that_others_disturbed_do_not_move_the_fit() -> None:
    disturbed = _line([3e-5, 0.7])
    disturbed[[5, 20]] *= 3

    assert fit([LATENCY, SHARE], disturbed, _line).values == pytest.approx([3e-5, 0.7], rel=0.03)


@pytest.mark.parametrize(("rows", "told"), [(slice(0, 8), [True, False]), (slice(20, None), [False, True])])
def test_what_the_sizes_cannot_tell_is_said(rows: slice, told: list[bool]) -> None:
    """Small messages tell no bandwidth, large ones no latency."""
    sizes = SIZES[rows]
    found = fit([LATENCY, SHARE], _line([3e-5, 0.7], sizes), lambda values: _line(values, sizes))

    assert [estimate.determined for estimate in found.estimates] == told


def test_an_end_of_the_range_is_said() -> None:
    found = fit([LATENCY, SHARE], _line([3e-5, 1.4]), _line)

    assert (found.estimates[1].value, found.estimates[1].at_bound) == (pytest.approx(1.0), True)


@pytest.mark.parametrize(
    ("free", "quantile"), [(1, 12.706), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (500, 1.965)]
)
def test_students_quantile_is_that_of_the_tables(free: int, quantile: float) -> None:
    assert students_quantile(free) == pytest.approx(quantile, rel=2e-3)


@given(value=st.floats(1e-7, 1e-1))
def test_values_are_written_to_five_digits(value: float) -> None:
    text = LATENCY.text(value)

    assert float(text.removesuffix("us")) * 1e-6 == pytest.approx(value, rel=1e-4)
    assert not math.isnan(float(text.removesuffix("us")))
