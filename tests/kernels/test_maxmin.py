from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.engine.program.dispatch import IDLE
from tests.reference import filling, worlds

SECOND = 10**12  # ps
GIGA = 1e9

Flows = list[tuple[float, dict[int, float]]]
Network = tuple[list[float], Flows]
"""Capacities, and the weight and the cost per resource of each flow."""

costs = st.sampled_from([0.5, 1.0, 1.0, 1.0, 1.25, 2.0])
weights = st.sampled_from([0.25, 1.0, 1.0, 1.0, 3.0])


@st.composite
def _networks(draw: st.DrawFn) -> Network:
    resources = draw(st.integers(1, 6))
    capacities = draw(st.lists(st.integers(1, 8).map(float), min_size=resources, max_size=resources))
    crossed = st.dictionaries(st.integers(0, resources - 1), costs, min_size=1, max_size=resources)
    return [c * GIGA for c in capacities], draw(st.lists(st.tuples(weights, crossed), min_size=1, max_size=10))


def _model(flows: Flows) -> list[Any]:
    return [filling.Flow(weight, crossed) for weight, crossed in flows]


@pytest.mark.slow
@settings(max_examples=80)
@given(network=_networks())
def test_rates_equal_progressive_filling(network: Network) -> None:
    capacities, flows = network
    bare = worlds.BareWorld(capacities)
    messages = [bare.send(bare.route(crossed), 10**9, weight=weight) for weight, crossed in flows]
    bare.run(until=0)
    rates = [bare.rates()[message] for message in messages]
    expected = filling.progressive_filling(capacities, _model(flows))
    assert rates == pytest.approx(expected, rel=1e-9)
    assert not filling.violations(capacities, _model(flows), rates)


@pytest.mark.slow
@settings(max_examples=80)
@given(network=_networks(), data=st.data())
def test_rates_stay_max_min_through_arrivals_and_departures(network: Network, data: st.DataObject) -> None:
    capacities, flows = network
    size = st.integers(1, 40).map(lambda k: k * 50_000_000)
    start = st.integers(0, 8).map(lambda k: k * SECOND // 40)
    sizes = data.draw(st.lists(size, min_size=len(flows), max_size=len(flows)))
    starts = data.draw(st.lists(start, min_size=len(flows), max_size=len(flows)))
    bare = worlds.BareWorld(capacities)
    model = _model(flows)
    posted = zip(flows, sizes, starts, strict=True)
    messages = [bare.send(bare.route(crossed), size, weight=w, at=at) for (w, crossed), size, at in posted]
    number = {message: index for index, message in enumerate(messages)}
    now, code = 0, None
    while code != IDLE:
        code = bare.run(until=now)
        rates = bare.rates()
        present = [model[number[message]] for message in rates]
        assert not filling.violations(capacities, present, list(rates.values()))
        assert list(rates.values()) == pytest.approx(filling.progressive_filling(capacities, present), rel=1e-9)
        now += SECOND // 80
    expected = filling.finish_times(capacities, model, [at / SECOND for at in starts], sizes)
    # Each departure is rounded up to a whole ps, which moves those that follow by as much.
    assert [bare.finished[m] / SECOND for m in messages] == pytest.approx(expected, rel=1e-9, abs=50e-12)


@pytest.mark.slow
@settings(max_examples=40)
@given(network=_networks())
def test_every_resource_is_empty_when_all_is_delivered(network: Network) -> None:
    capacities, flows = network
    bare = worlds.BareWorld(capacities)
    for weight, crossed in flows:
        bare.send(bare.route(crossed), 1_000_000, weight=weight)
    assert bare.run() == IDLE
    assert bare.world.world[0].active == 0
    assert not bare.world.resources["flows"].any()
    assert (bare.world.resources["first"] == -1).all()
    load = np.zeros(len(capacities))
    for _, crossed in flows:
        for resource, cost in crossed.items():
            load[resource] += cost * 1_000_000
    assert bare.world.resources["load"] == pytest.approx(load)


def test_only_flows_that_feel_a_change_are_touched() -> None:
    bare = worlds.BareWorld([GIGA] * 10)
    for resource in range(10):
        for _ in range(10):
            bare.send(bare.route({resource: 1.0}), 10**9)
    bare.run(until=0)
    before = int(bare.world.world[0].rate_updates)
    bare.send(bare.route({0: 1.0}), 10**9, at=SECOND // 10)
    bare.run(until=SECOND // 10)
    assert bare.world.world[0].rate_updates - before == 11  # those of resource 0 and the new one


def test_a_flow_alone_runs_at_its_narrowest_resource() -> None:
    bare = worlds.BareWorld([4 * GIGA, 3 * GIGA, GIGA])
    message = bare.send(bare.route({0: 1.0, 1: 2.0}), 10**9)
    bare.run(until=0)
    assert bare.rates() == {message: 1.5 * GIGA}


def test_a_heavy_flow_gets_its_multiple() -> None:
    bare = worlds.BareWorld([4 * GIGA])
    route = bare.route({0: 1.0})
    heavy, light = bare.send(route, 10**9, weight=3.0), bare.send(route, 10**9)
    bare.run(until=0)
    assert bare.rates() == {heavy: 3 * GIGA, light: GIGA}


def test_routes_widen_while_flows_are_in_transfer() -> None:
    bare = worlds.BareWorld([GIGA] * 8)
    early = [bare.send(bare.route({0: 1.0, 1: 1.0}), 10**9) for _ in range(3)]
    bare.run(until=SECOND)
    wide = bare.send(bare.route(dict.fromkeys(range(8), 1.0)), 10**9, at=SECOND)
    bare.run(until=SECOND)
    assert bare.rates() == pytest.approx(dict.fromkeys([*early, wide], GIGA / 4))
    bare.run()
    # A third of a GB is gone after 1 s each; the four share what is left.
    assert [bare.finished[m] for m in early] == pytest.approx([SECOND + 8 * SECOND // 3] * 3, abs=3)
    assert bare.finished[wide] == pytest.approx(4 * SECOND, abs=3)
