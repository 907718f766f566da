"""Cables that fail for a time, in the packet engine."""

from __future__ import annotations

import pytest
import simpy

from fabricsim import load
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError

SIZE = 40_960  # ten packets of 4096 bytes without headers


def _fabric(env: simpy.Environment, *failures: str) -> Fabric:
    settings = ["engine=packet", "cluster.hosts=2", f"fabric.failures=[{', '.join(failures)}]"]
    return Fabric(env, load("ideal-16", settings).scenario)


def _errors(fabric: Fabric) -> dict[str, int]:
    counts = fabric.world.network.links["errors"].tolist()
    return {name: count for name, count in zip(fabric.platform.wires.names, counts, strict=True) if count}


def test_what_is_sent_while_a_link_is_down_is_lost_and_sent_again() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0->switch0', until = '50us' }")

    taken = env.run(fabric.send(0, 1, SIZE))

    assert set(_errors(fabric)) == {"host0->switch0"}
    assert taken > 1e-3  # the timeout of the ideal transport


def test_a_cable_fails_in_both_directions() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'switch0-host1', until = '50us' }")

    env.run(env.all_of([fabric.send(0, 1, SIZE), fabric.send(1, 0, SIZE)]))

    assert set(_errors(fabric)) == {"switch0->host1", "host1->switch0"}


def test_a_failure_that_is_over_changes_nothing() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0-switch0', from = '1s', until = '2s' }")

    assert env.run(fabric.send(0, 1, SIZE)) < 1e-4
    assert not _errors(fabric)


def test_an_unknown_link_is_refused_with_the_way_out() -> None:
    with pytest.raises(SimulationError, match=r"no link 'host0-switch9'.*host0->switch0"):
        _fabric(simpy.Environment(), "{ link = 'host0-switch9' }")


def test_a_nic_sends_into_a_failed_link_at_its_rate_and_no_faster() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0->switch0', until = '50us' }")

    env.run(fabric.send(0, 1, 400 * 4096))

    # 50 us at 100 Gb/s are 152.6 packets of 4096 bytes.
    assert _errors(fabric) == {"host0->switch0": 153}


def test_messages_of_a_broadcast_are_kept_while_their_acknowledgements_are_lost() -> None:
    env = simpy.Environment()
    failure = "fabric.failures=[{ link = 'host1->switch0', until = '200us' }]"
    settings = ["engine=packet", "cluster.hosts=2", "collectives.chunk=4KiB", failure]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    env.run(fabric.broadcast(range(2), 4 * 2**20))

    assert _errors(fabric)["host1->switch0"] > 32
    assert fabric.world.network.world["transfers_left"][0] > 0


def test_adaptive_switches_go_round_a_cable_that_has_failed() -> None:
    env = simpy.Environment()
    fabric = 'fabric={topology="leaf-spine", hosts_per_leaf=2, spines=2, failures=[{link="leaf0->spine1"}]}'
    transport = ["transport.load_balancing.kind=adaptive", "transport.packet.recovery=selective"]
    settings = ["engine=packet", "cluster.hosts=4", fabric, *transport]
    network = Fabric(env, load("ideal-16", settings).scenario)

    env.run(env.all_of([network.send(0, 2, SIZE), network.send(1, 3, SIZE)]))

    assert not _errors(network)


# A cable that fails for good would have its senders send again until the clock ends, in 92 days.


@pytest.mark.parametrize("transport", ["tcp-10g", "rdma-100g", "roce-100g", "uec-100g", "ideal-100g"])
def test_what_a_failure_cuts_off_for_good_is_named(transport: str) -> None:
    failure = "fabric.failures=[{ link = 'host0-switch0', from = '2us' }]"
    env = simpy.Environment()
    settings = ["engine=packet", "cluster.hosts=4", failure, f"transport={transport}"]
    fabric = Fabric(env, load("ideal-16", settings).scenario)

    said = r"from host0 to host1, .*: host0->switch0 is down for good since 2 us.*failures.until"
    with pytest.raises(SimulationError, match=said):
        env.run(env.all_of([fabric.send(0, 1, 10 * SIZE), fabric.send(2, 3, SIZE)]))


def test_what_goes_on_beside_a_failure_is_waited_for() -> None:
    env = simpy.Environment()
    fabric = _fabric(env, "{ link = 'host0->switch0', from = '2s' }", "{ link = 'host1->switch0', until = '2s' }")

    assert env.run(fabric.send(1, 0, SIZE)) > 2
    assert env.now < 5
