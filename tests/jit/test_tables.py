"""Tables that kernels take as one pointer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fabricsim.jit.compile import DISABLED, kernel
from fabricsim.jit.tables import Tables

_PAIR = np.dtype([("left", np.int32), ("right", np.float64)], align=True)
_ROWS = np.dtype((np.record, _PAIR))


class _Numbers(Tables):
    TABLES: ClassVar[dict[str, np.dtype[Any]]] = {"pairs": _PAIR, "counts": np.dtype(np.int64)}
    pairs: NDArray[Any]
    counts: NDArray[np.int64]
    name: str


@kernel
def _add(numbers: _Numbers, index: int) -> int:
    numbers.counts[index] += numbers.pairs[index].left
    numbers.pairs[index].right = 0.5
    return len(numbers.counts)


def test_a_kernel_reads_and_writes_all_tables() -> None:
    numbers = _Numbers(pairs=np.array([(1, 2.0), (3, 4.0)], _ROWS), counts=np.array([10, 20, 30]))
    assert _add(numbers, np.int64(1)) == 3
    assert numbers.counts.tolist() == [10, 23, 30]
    assert numbers.pairs.tolist() == [(1, 2.0), (3, 0.5)]


def test_a_kernel_finds_a_table_that_took_the_place_of_another() -> None:
    numbers = _Numbers(pairs=np.array([(1, 2.0)], _ROWS), counts=np.array([10]))
    _add(numbers, np.int64(0))
    numbers.counts, before = np.array([100, 200]), numbers.counts
    assert _add(numbers, np.int64(0)) == 2
    assert (before.tolist(), numbers.counts.tolist()) == ([11], [101, 200])


def test_other_attributes_are_no_tables() -> None:
    numbers = _Numbers()
    numbers.name = "any"
    assert numbers.name == "any"
    with pytest.raises(AttributeError, match="counts"):
        _ = numbers.counts


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
def test_a_table_that_has_not_been_assigned_has_no_rows() -> None:
    @kernel
    def length(numbers: _Numbers) -> int:
        return len(numbers.pairs)

    assert length(_Numbers()) == 0


@pytest.mark.parametrize("counts", [np.zeros(2, np.int32), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)[::2]])
def test_a_table_of_another_kind_is_refused(counts: NDArray[Any]) -> None:
    numbers = _Numbers(counts=np.zeros(1, np.int64))
    with pytest.raises(TypeError, match="counts is a contiguous row of int64, not "):
        numbers.counts = counts
    assert numbers.counts.tolist() == [0]
