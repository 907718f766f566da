"""The warning where a law aims at round trips that are shorter than those of idle links."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import FabricsimWarning
from fabricsim.results.traffic import DEMAND, Matrix
from fabricsim.run import traffic
from fabricsim.run.pipeline import load

LAW = "transport.congestion_control"
FAR = ("fabric=fat-tree-k8", "fabric.k=4", "fabric.switch_cable=1km", "transport.switch.pfc.headroom=1MB")


def _slowdown(transport: str, size: int, *more: str) -> float:
    """Of one flow across a fat tree with long cables, in the packet engine."""
    matrix = np.zeros(1, DEMAND)
    matrix[0] = (1, 0, 15, size, 0)
    settings = [*FAR, f"transport={transport}", "engine=packet", *more]
    return float(traffic.simulate(load("ideal-16", settings).scenario, Matrix(matrix, 16, "one")).slowdown[0])


def _warned(transport: str, size: int, *more: str) -> tuple[float, str]:
    with pytest.warns(FabricsimWarning) as caught:
        slowdown = _slowdown(transport, size, *more)
    assert len(caught) == 1
    return slowdown, str(caught[0].message)


# Four cables of 1 km and two of 5 m take 20.05 us each way; the switches add 300 ns five times, the wires what a packet
# of 4178 B and an acknowledgement take.
def test_a_flow_that_swift_slows_down_on_idle_links_is_warned_of_and_runs_freely_as_advised() -> None:
    slowdown, text = _warned("roce-100g-swift", 2_000_000)
    assert slowdown > 5
    assert text.startswith(f"{LAW}.low: roce-100g-swift aims at a round trip of 38.32 us at most; that from host0 ")
    assert re.search(r"to host15 takes 43\.\d+ us on idle links already", text)

    low, window = re.findall(r"raise it to (\d+us) or more, and initial_window towards (\d+),", text)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advised = _slowdown("roce-100g-swift", 2_000_000, f"{LAW}.low={low}", f"{LAW}.initial_window={window}")
    assert advised == pytest.approx(1.0, abs=1e-3)


def test_timely_is_warned_of_by_its_upper_threshold() -> None:
    slowdown, text = _warned("roce-100g-timely", 20_000_000, f"{LAW}.low=10us", f"{LAW}.high=43us")
    assert slowdown > 5
    assert f"{LAW}.high: roce-100g-timely aims at a round trip of 43 us at most" in text
    assert text.endswith("raise it to 44us or more")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _slowdown("roce-100g-timely", 20_000_000, f"{LAW}.low=10us", f"{LAW}.high=44us") < 1.01


def test_the_flow_with_the_longest_round_trip_is_named_once() -> None:
    env = simpy.Environment()
    fabric = Fabric(env, load("ideal-16", [*FAR, "transport=roce-100g-swift", "engine=packet"]).scenario)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fabric.send(0, 1, 10_000)  # one switch
        fabric.send(0, fabric.host_memory(0), 10_000)  # no wire
        env.run()
    for target in (2, 9, 4):
        fabric.send(3, target, 10_000)
    with pytest.warns(FabricsimWarning, match="from host3 to host9"):
        env.run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fabric.send(4, 12, 10_000)
        env.run()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["roce-100g-swift", "roce-100g-timely"])
@pytest.mark.parametrize("place", [["fabric=fat-tree-k8"], ["cluster=pinnacles"], ["fabric.link_rate=1Gbps"]])
def test_shipped_presets_are_not_warned_of_on_ordinary_fabrics(transport: str, place: list[str]) -> None:
    env = simpy.Environment()
    scenario = load("ideal-16", [f"transport={transport}", "engine=packet", *place]).scenario
    fabric = Fabric(env, scenario)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="transport.congestion_control")
        fabric.send(0, scenario.cluster.ranks - 1, 100_000)
        env.run()
