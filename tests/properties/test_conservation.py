"""What must hold of any run: bytes are kept, links are never over capacity, memory comes back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.scenario import Scenario
from tests.reference.scenarios import ideal_scenario

Make = Callable[..., Scenario]

RINGS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
"""Collectives on a ring, and how often each shard goes round."""


@dataclass(frozen=True)
class Load:
    """A random cluster and what is sent on it."""

    hosts: int
    keys: dict[str, Any]
    sends: list[tuple[int, int, int, int]]
    calls: list[tuple[str, tuple[int, ...], int]]


TOPOLOGIES = st.one_of(
    st.just({"topology": "single-switch"}),
    st.fixed_dictionaries(
        {"topology": st.just("leaf-spine"), "hosts_per_leaf": st.integers(1, 3), "spines": st.integers(1, 3)}
    ),
    st.just({"topology": "fat-tree"}),
)
COPYING = {"kind": "tcp", "mtu": 1500, "send_copy": "0.2ns/B", "receive_copy": "0.3ns/B"}


@st.composite
def _loads(draw: st.DrawFn) -> Load:
    hosts, gpus = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    channels = draw(st.integers(1, 3))
    keys = {
        **draw(TOPOLOGIES),
        "channels": channels,
        "transport": draw(st.sampled_from([None, {"kind": "roce", "latency": "2us"}, COPYING])),
        "cluster": {
            "gpus_per_host": gpus,
            "join": draw(st.sampled_from(["ideal", "pcie"])),
            "intra_host": draw(st.sampled_from(["shared-memory", "nvlink"])),
        },
        "seed": draw(st.integers(0, 99)),
    }
    rank = st.integers(0, hosts * gpus - 1)
    send = st.tuples(rank, rank, st.integers(1, 10**7), st.integers(0, 3)).filter(lambda s: s[0] != s[1])
    calls = []
    for group in draw(st.lists(st.lists(rank, min_size=2, max_size=6, unique=True), max_size=3)):
        # equal shards, so that what each connection carries can be said
        size = len(group) * channels * draw(st.integers(1, 10**6))
        calls.append((draw(st.sampled_from([*RINGS, "broadcast"])), tuple(group), size))
    return Load(hosts, keys, draw(st.lists(send, min_size=1, max_size=8)), calls)


def _run(make: Make, load: Load) -> tuple[Fabric, list[float]]:
    env = simpy.Environment()
    fabric = Fabric(env, make(load.hosts, **load.keys), taps=True)
    events = [fabric.send(source, target, size, port=port) for source, target, size, port in load.sends]
    events += [getattr(fabric, name)(group, size) for name, group, size in load.calls]
    env.run(env.all_of(events))
    return fabric, [cast("float", event.value) for event in events]


def _messages(load: Load) -> list[tuple[int, int, int, float]]:
    """Source, target, port and bytes of every connection."""
    sent = [(source, target, port, float(size)) for source, target, size, port in load.sends]
    channels = load.keys["channels"]
    for name, group, size in load.calls:
        pairs = [*pairwise(group)]
        carried = size / channels
        if name in RINGS:
            pairs.append((group[-1], group[0]))
            carried *= RINGS[name] * (len(group) - 1) / len(group)
        sent += [(source, target, channel, carried) for source, target in pairs for channel in range(channels)]
    return sent


@pytest.mark.slow
@settings(max_examples=60)
@given(load=_loads())
def test_every_resource_books_the_bytes_of_the_messages_that_cross_it(load: Load) -> None:
    fabric, _ = _run(ideal_scenario, load)
    payload: dict[int, float] = defaultdict(float)
    units: dict[int, float] = defaultdict(float)
    for source, target, port, size in _messages(load):
        for resource, cost in fabric.platform.path(source, target, port).hops:
            payload[resource] += size
            units[resource] += cost * size
    resources = fabric.world.resources
    numbers = range(len(resources))
    assert resources["payload"] == pytest.approx([payload[i] for i in numbers], rel=1e-9)
    assert resources["load"] == pytest.approx([units[i] for i in numbers], rel=1e-9)


@pytest.mark.slow
@settings(max_examples=60)
@given(load=_loads())
def test_recorded_rates_keep_to_capacity_and_add_up(load: Load) -> None:
    fabric, _ = _run(ideal_scenario, load)
    world = fabric.world
    taps = list(fabric.taps)
    series = world.series["bytes"]
    capacity = world.resources["capacity"][taps] / fabric.model.costs.wire  # payload bytes/s
    # A message ends at a whole picosecond: its last rate is booked for up to one too many.
    rounding = int(world.world[0].messages) * 1e-12 * capacity.max()
    payload = world.resources["payload"][taps]
    assert (np.abs(series.sum(axis=1) - payload) <= rounding + 1e-9 * payload).all()
    most = capacity * int(world.world[0].bin) * 1e-12
    assert (series <= most[:, None] * (1 + 1e-9)).all()
    assert (series >= 0.0).all()


@pytest.mark.slow
@settings(max_examples=60)
@given(load=_loads())
def test_nothing_arrives_before_its_bytes_and_the_light_can(load: Load) -> None:
    fabric, took = _run(ideal_scenario, load)
    capacities = fabric.platform.resources.capacities
    for (source, target, size, port), seconds in zip(load.sends, took, strict=False):
        path = fabric.platform.path(source, target, port)
        software = fabric.model.latency if path.network else 0
        least = size / min(capacities[resource] / cost for resource, cost in path.hops)
        assert seconds >= (least + (path.latency + software) * 1e-12) * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=60)
@given(load=_loads())
def test_all_memory_is_free_again_at_the_end(load: Load) -> None:
    fabric, _ = _run(ideal_scenario, load)
    world = fabric.world
    scalars: Any = world.world[0]
    assert scalars.active == 0
    assert not world.resources["flows"].any()
    assert _chain(world.flows["next_free"], int(scalars.free_flow)) == len(world.flows)
    assert _chain(world.events["next"], int(scalars.free_event)) == len(world.events)
    assert _chain(world.buckets["chain"], int(scalars.free_bucket)) == len(world.buckets)
    free_lanes, free_inboxes = world.free_blocks.reshape(2, -1).tolist()
    assert sum(_chain(world.lanes["call"], first) << c for c, first in enumerate(free_lanes)) == scalars.next_lane
    assert sum(_chain(world.inboxes["sent"], first) << c for c, first in enumerate(free_inboxes)) == scalars.next_inbox
    assert world.op_arena.size == world.edge_arena.size == world.call_arena.size == 0


def _chain(following: NDArray[np.integer], first: int) -> int:
    """Length of a free list."""
    seen = np.zeros(len(following), np.bool_)
    while 0 <= first < len(following):
        assert not seen[first]
        seen[first] = True
        first = int(following[first])
    return int(seen.sum())


@pytest.mark.slow
@settings(max_examples=20)
@given(load=_loads())
def test_a_run_repeats_itself(load: Load) -> None:
    one, other = _run(ideal_scenario, load), _run(ideal_scenario, load)
    assert one[1] == other[1]
    assert (one[0].world.series == other[0].world.series).all()
    assert (one[0].world.resources["load"] == other[0].world.resources["load"]).all()
