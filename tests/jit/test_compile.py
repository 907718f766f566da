from __future__ import annotations

import numpy as np
import pytest
from numba.core.errors import TypingError
from numpy.typing import NDArray

from fabricsim.jit.compile import inlined, kernel


@kernel
def halve(values: NDArray[np.float64], index: int) -> float:
    values[index] /= 2.0
    return values[index]


@inlined
def add(left: float, right: float) -> float:
    return left + right


@kernel
def halve_all(values: NDArray[np.float64]) -> float:
    total = 0.0
    for index in range(len(values)):
        total = add(total, halve(values, index))
    return total


def test_a_kernel_is_part_of_others_and_a_program_of_its_own() -> None:
    values = np.array([2.0, 4.0, 8.0])

    assert halve_all(values) == 7.0
    assert halve(values, 2) == 2.0
    assert add(1, 2) == 3
    assert values.tolist() == [1.0, 2.0, 2.0]


def test_a_kernel_keeps_name_and_documentation() -> None:
    assert kernel(test_a_kernel_keeps_name_and_documentation).__name__ == "test_a_kernel_keeps_name_and_documentation"


@pytest.mark.slow
def test_a_kernel_refuses_what_it_cannot_compute() -> None:
    with pytest.raises((TypingError, TypeError)):  # the latter if nothing is compiled
        halve("text", 0)
