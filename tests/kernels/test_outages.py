from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.engine.flow.kernels.flows import settle
from fabricsim.engine.flow.kernels.outages import begin_again, go_on, park, set_capacity
from fabricsim.engine.program.dispatch import HORIZON
from tests.reference import filling, worlds

GIGA = 1e9
MS = 10**9  # ps
ways = st.sets(st.integers(0, 4), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    flows=st.lists(ways, min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 2.0, 5.0])), min_size=1, max_size=6),
)
def test_rates_stay_max_min_while_capacities_change(flows: list[set[int]], changes: list[tuple[int, float]]) -> None:
    capacities = [GIGA * (1 + resource) for resource in range(5)]
    bare = worlds.BareWorld(capacities)
    messages = [bare.send(bare.route(dict.fromkeys(way, 1.0)), 10**12) for way in flows]
    assert bare.run(until=0) == HORIZON
    model = [filling.Flow(1.0, dict.fromkeys(way, 1.0)) for way in flows]
    for turn, (resource, capacity) in enumerate(changes, 1):
        bare.run(until=turn * MS)
        bare.world.world["now"] = turn * MS
        capacities[resource] = capacity * GIGA
        set_capacity(bare.world, resource, capacities[resource])
        table = bare.world.flows
        for flow in [
            at for at, row in enumerate(table) if row.owner >= 0 and resource in flows[messages.index(row.owner)]
        ]:
            begin_again(bare.world, flow)
        settle(bare.world)
        rates = {int(row.owner): float(row.rate) for row in table if row.owner >= 0}
        expected = filling.progressive_filling(capacities, model)
        assert [rates[message] for message in messages] == pytest.approx(expected, rel=1e-9)


def test_a_flow_is_booked_where_it_went() -> None:
    bare = worlds.BareWorld([GIGA, 2 * GIGA, GIGA])
    first, other = bare.route({0: 1.0}), bare.route({1: 2.0})
    message = bare.send(first, 3_000_000)
    bare.run(until=MS)
    world = bare.world
    world.world["now"] = MS
    (flow,) = [at for at, row in enumerate(world.flows) if row.owner == message]
    park(world, flow)
    settle(world)
    assert bare.run(until=2 * MS) != HORIZON  # nothing moves
    world.world["now"] = 2 * MS
    for column in ("first_hop", "hops"):
        world.routes[column][first] = world.routes[column][other]
    go_on(world, flow)
    settle(world)
    bare.run()
    assert bare.finished[message] == 4 * MS  # 1 MB in the first millisecond, nothing in the second, then 2 MB
    assert world.resources["payload"].tolist() == [1_000_000, 2_000_000, 0]
    assert world.resources["load"].tolist() == [1_000_000, 4_000_000, 0]
