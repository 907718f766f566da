"""Cables that fail for a time, in the packet engine."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import simpy

from fabricsim import load
from fabricsim.engine import failures
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError
from fabricsim.results.traffic import DEMAND

Process = Generator[simpy.Event, Any, None]

SOON = (
    "transport.packet.initial_timeout=1ms",
    "transport.packet.minimum_timeout=1ms",
)  # an ideal fabric waits for 100 ms
SIZE = 40_960  # ten packets of 4096 bytes without headers


def _fabric(env: simpy.Environment, *failures: str) -> Fabric:
    settings = ["engine=packet", "cluster.hosts=2", f"fabric.failures=[{', '.join(failures)}]"]
    return Fabric(env, load("ideal-16", settings).scenario)


def _errors(fabric: Fabric) -> dict[str, int]:
    counts = fabric.world.network.links["errors"].tolist()
    return {name: count for name, count in zip(fabric.platform.wires.names, counts, strict=True) if count}


def test_what_is_sent_while_a_link_is_down_is_lost_and_sent_again() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0-switch0', until = '50us' }")

    taken = env.run(fabric.send(0, 1, SIZE))

    assert set(_errors(fabric)) == {"host0->switch0"}
    assert taken > 1e-3  # the timeout of the ideal transport


@pytest.mark.parametrize("name", ["switch0-host1", "switch0->host1"])
def test_a_cable_fails_in_both_directions(name: str) -> None:
    env = simpy.Environment()
    fabric = _fabric(env, f"{{ link = '{name}', until = '50us' }}")

    env.run(env.all_of([fabric.send(0, 1, SIZE), fabric.send(1, 0, SIZE)]))

    assert set(_errors(fabric)) == {"switch0->host1", "host1->switch0"}


def test_a_failure_that_is_over_changes_nothing() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0-switch0', from = '1s', until = '2s' }")

    assert env.run(fabric.send(0, 1, SIZE)) < 1e-4
    assert not _errors(fabric)


def test_an_unknown_link_is_refused_with_the_way_out() -> None:
    with pytest.raises(SimulationError, match=r"no link 'host0-switch9'.*host0-switch0"):
        _fabric(simpy.Environment(), "{ link = 'host0-switch9' }")


def test_a_nic_sends_into_a_failed_link_at_its_rate_and_no_faster() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0->switch0', until = '50us' }")

    env.run(fabric.send(0, 1, 400 * 4096))

    # 50 us at 100 Gb/s are 152.6 packets of 4096 bytes.
    assert _errors(fabric) == {"host0->switch0": 153}


def test_messages_of_a_broadcast_are_kept_while_their_acknowledgements_wait() -> None:
    env = simpy.Environment()
    failure = "fabric.failures=[{ link = 'host1->switch0', until = '200us', rate = '10Mbps' }]"
    settings = ["engine=packet", "cluster.hosts=2", "collectives.chunk=4KiB", failure]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    env.run(fabric.broadcast(range(2), 4 * 2**20))

    network = fabric.world.network
    assert 0 < network.world["transfers_left"][0] < len(network.transfers) - 32  # two at most are kept otherwise


def test_adaptive_switches_go_round_a_cable_that_has_failed() -> None:
    env = simpy.Environment()
    fabric = 'fabric={topology="leaf-spine", hosts_per_leaf=2, spines=2, failures=[{link="leaf0->spine1"}]}'
    transport = ["transport.load_balancing.kind=adaptive", "transport.packet.recovery=selective", *SOON]
    settings = ["engine=packet", "cluster.hosts=4", fabric, *transport]
    network = Fabric(env, load("ideal-16", settings).scenario)

    env.run(env.all_of([network.send(0, 2, SIZE), network.send(1, 3, SIZE)]))

    assert not _errors(network)


# A cable that fails for good would have its senders send again until the clock ends, in 92 days.


@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("routing", ["valiant", "ugal"])
def test_detours_leave_out_groups_that_only_failed_cables_reach(engine: str, routing: str) -> None:
    env = simpy.Environment()
    mesh = f"fabric={{topology='full-mesh',hosts_per_switch=2,parallel=2,routing='{routing}'}}"
    down = "fabric.failures=[{ switch = 'switch0', from = '1us' }]"
    settings = [f"engine={engine}", "cluster.hosts=6", mesh, down, "fabric.reconvergence=100us", *SOON]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    sent = [fabric.send(2, 4, 5_000_000, port=port) for port in range(4)]

    env.run(env.all_of(sent))

    assert all(each.ok for each in sent)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp-10g", "rdma-100g", "roce-100g", "uec-100g", "ideal-100g"])
def test_what_a_failure_cuts_off_for_good_is_named(transport: str) -> None:
    failure = "fabric.failures=[{ link = 'host0-switch0', from = '2us' }]"
    env = simpy.Environment()
    soon = ["transport.packet.initial_timeout=1ms", "transport.packet.minimum_timeout=1ms"]
    settings = [
        "engine=packet",
        "cluster.hosts=4",
        failure,
        f"transport={transport}",
        *(soon if transport == "ideal-100g" else []),
    ]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    said = r"from rank 0 \(host0\) to rank 1 \(host1\): .*host0->switch0 is down for good since 2 us; write until"
    with pytest.raises(SimulationError, match=said):
        env.run(env.all_of([fabric.send(0, 1, 10 * SIZE), fabric.send(2, 3, SIZE)]))


def test_what_goes_on_beside_a_failure_is_waited_for() -> None:
    env = simpy.Environment()
    failures = "fabric.failures=[{ link = 'host2-switch0', from = '1s' }, { link = 'host1-switch0', until = '2s' }]"
    fabric = Fabric(env, load("ideal-16", ["engine=packet", "cluster.hosts=3", failures]).scenario)

    assert env.run(fabric.send(1, 0, SIZE)) > 2
    assert env.now < 5


# ---- what processes see of a partition ----------------------------------------------------------


def _partitioned(transport: str = "ideal-100g", engine: str = "packet") -> tuple[simpy.Environment, Fabric]:
    env = simpy.Environment()
    failure = "fabric.failures=[{ link = 'host0-switch0', from = '2us' }]"
    settings = [f"engine={engine}", "cluster.hosts=4", failure, f"transport={transport}", "fabric.reconvergence=5ms"]
    settings += SOON if transport == "ideal-100g" else ()
    return env, Fabric(env, load("ideal-16", settings).scenario)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp-10g", "ideal-100g", "uec-100g"])
def test_a_process_can_catch_a_partition_and_go_on(transport: str) -> None:
    said = _gone_on(transport, "packet")
    assert ["host0->switch0 is down for good" in str(each) for each in said[:2]] == [True, True]
    assert 0 < float(said[2]) < 10
    assert _gone_on(transport, "reference") == said


def _gone_on(transport: str, engine: str) -> list[str]:
    env, fabric = _partitioned(transport, engine)
    said: list[str] = []

    def user() -> Process:
        for event in (lambda: fabric.send(0, 1, 10 * SIZE), lambda: fabric.all_reduce(range(4), SIZE)):
            try:
                yield event()
            except SimulationError as error:
                said.append(str(error))
        said.append(str((yield fabric.all_reduce(range(1, 4), SIZE))))

    env.run(env.process(user()))
    env.run()  # ends: nobody sends into the failed cable any more
    assert env.now < 10
    return said


@pytest.mark.slow
def test_a_partition_is_told_while_others_go_on() -> None:
    env, fabric = _partitioned()
    lost = fabric.send(0, 1, 10 * SIZE)
    beside = fabric.all_reduce(range(1, 4), 500_000_000)  # some 50 ms

    with pytest.raises(SimulationError, match="down for good"):
        env.run(lost)
    assert not beside.triggered
    began = env.now
    env.run(beside)
    assert env.now > began


def test_all_that_crosses_the_failed_cable_fails_and_nothing_else() -> None:
    env, fabric = _partitioned()
    sends = np.zeros(2, DEMAND)
    sends["source"], sends["target"], sends["bytes"] = (1, 0), 2, 10 * SIZE
    events = {
        "ring": fabric.all_reduce(range(4), SIZE),
        "batch": fabric.send_all(sends, [0, 0]),
        "others": fabric.all_reduce(range(1, 4), SIZE),
    }
    caught = []

    def user(name: str, event: simpy.Event) -> Process:
        try:
            yield event
        except SimulationError:
            caught.append(name)

    for item in events.items():
        env.process(user(*item))
    env.run()
    assert sorted(caught) == ["batch", "ring"]


def test_what_is_sprayed_is_cut_off_where_no_way_is_left() -> None:
    def told(*links: str) -> bool:
        env = simpy.Environment()
        failures = ", ".join(f"{{link='{link}'}}" for link in links)
        fabric = f"fabric={{topology='leaf-spine', hosts_per_leaf=2, spines=2, failures=[{failures}]}}"
        transport = ["transport.load_balancing.kind=spray", "transport.packet.recovery=selective", *SOON]
        network = Fabric(env, load("ideal-16", ["engine=packet", "cluster.hosts=4", fabric, *transport]).scenario)
        sent = network.send(0, 2, SIZE)
        sent.defused = True
        env.run(until=1.0)
        return not sent.ok

    assert not told("leaf0->spine0", "spine0->leaf1")
    assert told("leaf0->spine0", "spine1->leaf1")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("often", ["until='1ns', every='2ns'", "mtbf='1ns', mttr='1ns'"])
def test_failures_that_come_again_without_end_are_refused(
    engine: str, often: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MOST_AGAIN", 100)
    env = simpy.Environment()
    settings = [f"engine={engine}", f"fabric.failures=[{{ link = 'host0-switch0', {often} }}]"]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    with pytest.raises(SimulationError, match=r"came again 100 times within .* that of host0-switch0 last"):
        env.run(fabric.send(0, 1, SIZE))


def test_failures_that_end_and_stay_away_do_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_AGAIN", 0)
    env = simpy.Environment()
    settings = ["fabric.failures=[{ link = 'host*', until = '1us' }]"]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    assert env.run(fabric.send(0, 1, SIZE)) > 0
    assert len(fabric.failures.outages) == 2 * 16
