from __future__ import annotations

import numpy as np
import pytest

from fabricsim.errors import ResultError
from fabricsim.report.plots import heat_map
from fabricsim.results.pairs import Pairs


def ring(ranks: int, size: int) -> Pairs:
    own = np.arange(ranks, dtype=np.int32)
    each = np.full(ranks, size, np.int64)
    return Pairs(ranks, 1, ("data",), own, (own + 1) % ranks, np.zeros(ranks, np.int8), each)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "cells"), [(5, 5), (512, 512), (1025, 342)])
def test_a_cell_has_the_bytes_of_its_busiest_pair(ranks: int, cells: int) -> None:
    image = heat_map(ring(ranks, 2**20), "ring").axes[0].images[0].get_array()

    assert image.shape == (cells, cells)
    assert np.ma.max(image) == 2**20
    assert image[cells - 1, 0] == 2**20  # the last sends to the first
    assert np.ma.getmaskarray(image)[0, 2]


def test_no_traffic_is_no_picture() -> None:
    with pytest.raises(ResultError, match="no rank sends"):
        heat_map(ring(4, 0), "nothing")
