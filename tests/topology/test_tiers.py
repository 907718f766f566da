"""A fabric in words: tiers, ports, rates, oversubscription."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabricsim.topology.tiers import describe, idle_tiers
from tests.reference.platforms import build
from tests.reference.scenarios import ideal_scenario

EDGE = "2 edge switches x"
UP = "down (100 Gb/s) / 2 up (100 Gb/s)"
TWO_EDGES = "2 aggregation switches x 2 down (100 Gb/s) / 2 up (100 Gb/s), 1:1; 4 core switches x 1 down (100 Gb/s)"


@pytest.mark.parametrize(
    ("hosts", "fabric", "said"),
    [
        (8, {"topology": "single-switch"}, "1 switch x 8 down (100 Gb/s)"),
        (
            16,
            {"topology": "leaf-spine", "hosts_per_leaf": 8, "spines": 2},
            "2 leaves x 8 down (100 Gb/s) / 2 up (100 Gb/s), 4:1; 2 spines x 2 down (100 Gb/s)",
        ),
        (
            5,
            {"topology": "leaf-spine", "hosts_per_leaf": 4, "spines": 1, "uplink_rate": "400Gbps"},
            "2 leaves x 1 to 4 down (100 Gb/s) / 1 up (400 Gb/s), 1:1.6; 1 spine x 2 down (400 Gb/s)",
        ),
        # one pod of four; the other edge switch of the second case has no hosts
        (
            4,
            {"topology": "fat-tree", "k": 4},
            f"{EDGE} 2 {UP}, 1:1; {TWO_EDGES}",
        ),
        (
            2,
            {"topology": "fat-tree", "k": 4},
            f"{EDGE} 0 to 2 {UP}, 1:2; {TWO_EDGES}",
        ),
    ],
)
def test_tiers_are_told(hosts: int, fabric: dict[str, Any], said: str) -> None:
    platform = build(ideal_scenario(hosts, link_rate="100Gbps", **fabric))

    assert describe(platform.wires, platform.nics) == said


def test_tiers_that_nothing_reaches() -> None:
    platform = build(ideal_scenario(8, "leaf-spine", hosts_per_leaf=4, spines=2))
    within, across = (np.array(platform.path(0, target).wires) for target in (1, 4))

    assert idle_tiers(platform.wires, platform.nics, within) == ["spines"]
    assert idle_tiers(platform.wires, platform.nics, across) == []
