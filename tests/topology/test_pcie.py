from __future__ import annotations

import pytest

from fabricsim.scenario.cluster import Pcie
from fabricsim.topology import pcie


@pytest.mark.parametrize(
    ("generation", "lanes", "raw"),
    [(1, 16, 4e9), (2, 8, 4e9), (3, 8, 7.877e9), (3, 16, 15.754e9), (4, 16, 31.508e9), (5, 16, 63.015e9)],
)
def test_a_link_keeps_its_share_of_the_raw_rate(generation: int, lanes: int, raw: float) -> None:
    # raw: transfers/s times lanes times the line code, as the specification's tables give it
    link = Pcie.model_validate({"generation": generation, "lanes": lanes})
    assert pcie.capacity(link) == pytest.approx(raw * 57.88 / 62.96, rel=1e-4)


def test_a_mirrored_access_swaps_the_directions() -> None:
    assert pcie.mirrored(pcie.DMA_READ) == (pcie.DMA_READ.down, pcie.DMA_READ.up)


@pytest.mark.parametrize("cost", [pcie.GPU_STORE, pcie.GPU_LOAD, pcie.DMA_READ, pcie.DMA_WRITE])
def test_every_access_moves_its_payload_and_headers(cost: pcie.Cost) -> None:
    assert max(cost) > 1.0
    assert min(cost) < 0.2
