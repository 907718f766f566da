"""Processes that cancel transfers, and cables that fail for good: every event ends, and so does every run."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

import fabricsim as fs

Process = Generator[simpy.Event, Any, None]

TRANSPORTS = ["ideal-100g", "tcp-10g", "roce-100g", "peers-roce", "roce-100g-hpcc", "rdma-100g", "uec-100g"]
LINKS = ["host0-leaf0", "host1->leaf0", "leaf0->spine0", "leaf0-spine1", "spine0->leaf1", "leaf1->host3"]
PAIRS = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] != pair[1])
US = 1e-6


def _fabric(env: simpy.Environment, transport: str, failures: str = "") -> fs.Fabric:
    shape = f'fabric={{topology="leaf-spine", hosts_per_leaf=2, spines=2, failures=[{failures}]}}'
    return fs.Fabric(env, fs.load("ideal-16", [f"transport={transport}", shape, "cluster.hosts=4", "engine=packet"]))


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
@settings(max_examples=15)
@given(
    sends=st.lists(
        # pair, bytes, port, start and time until it is cancelled, us; 1000: it is not
        st.tuples(
            PAIRS, st.integers(1, 2_000_000), st.integers(0, 1), st.integers(0, 50), st.sampled_from([0, 9, 80, 1000])
        ),
        min_size=1,
        max_size=12,
    )
)
def test_what_is_not_cancelled_arrives_and_senders_come_to_rest(
    transport: str, sends: list[tuple[tuple[int, int], int, int, int, int]]
) -> None:
    env = simpy.Environment()
    fabric = _fabric(env, transport)
    kept = []

    def user(pair: tuple[int, int], size: int, port: int, start: int, patience: int) -> Process:
        yield env.timeout(start * US)
        sent = fabric.send(*pair, size, port=port)
        if patience == 1000:
            kept.append(sent)
        else:
            yield env.timeout(patience * US)
            sent.cancel()

    for send in sends:
        env.process(user(*send))
    env.run()

    network = fabric.world.network  # type: ignore[attr-defined]  # of the packet engine
    flows = network.flows[: network.used["flows"]]
    assert all(sent.ok for sent in kept)
    assert (flows["acknowledged"] == flows["posted"]).all()
    assert not any(flows[name].any() for name in ("lost", "in_flight", "ready"))


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
@settings(max_examples=15)
@given(
    failed=st.lists(st.tuples(st.sampled_from(LINKS), st.integers(0, 60)), min_size=1, max_size=4),
    users=st.lists(
        # all-reduce over all, or a send; bytes, pause before, us
        st.lists(st.tuples(st.one_of(st.none(), PAIRS), st.integers(1, 500_000), st.integers(0, 50)), max_size=3),
        max_size=4,
    ),
)
def test_every_event_is_done_or_fails_with_the_cables_that_are_down(
    transport: str,
    failed: list[tuple[str, int]],
    users: list[list[tuple[tuple[int, int] | None, int, int]]],
) -> None:
    env = simpy.Environment()
    fabric = _fabric(env, transport, ", ".join(f'{{link="{link}", from="{begin}us"}}' for link, begin in failed))
    ended, said = [], []

    def user(works: list[tuple[tuple[int, int] | None, int, int]]) -> Process:
        for pair, size, pause in works:
            yield env.timeout(pause * US)
            try:
                yield fabric.all_reduce(range(4), size) if pair is None else fabric.send(*pair, size)
            except fs.SimulationError as error:
                said.append(str(error))
            ended.append(pair)

    for works in users:
        env.process(user(works))
    env.run()
    assert len(ended) == sum(map(len, users))
    assert all("is down for good since" in each for each in said)
