"""Traps that other simulators have fallen into, one test each.

Links carry 12.5e9 payload bytes/s after 500 ns unless a test says otherwise, so that the formulas
stand as they are.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import numpy as np
import pytest
import simpy

from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.reference import Reference
from fabricsim.results.summary import bus_factor
from fabricsim.scenario.scenario import Scenario
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call
from tests.reference.scenarios import ideal_scenario, measure

B = 12.5e9
LINK = 500e-9
MIB = 2**20


def _with(made: Scenario, **keys: object) -> Scenario:
    return made.model_copy(update={"collectives": made.collectives.model_copy(update=keys)})


# ---- 1: a non-blocking switch neither doubles nor quarters a ring -------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n", "milliseconds"), [(16, 10.096), (128, 10.908), (1024, 12.773)])
def test_trap_1_a_ring_on_a_star_takes_its_closed_form(n: int, milliseconds: float) -> None:
    took = measure(ideal_scenario(n), "all_reduce", range(n), 64 * MIB)
    assert took == pytest.approx(2 * (n - 1) * (64 * MIB / n / B + 2 * LINK), rel=1e-6)
    assert took * 1e3 == pytest.approx(milliseconds, abs=5e-4)


@pytest.mark.parametrize("pieces", [{"channels": 4}, {"chunk": "256KiB"}, {"channels": 4, "chunk": "256KiB"}])
def test_trap_1_pieces_leave_the_bandwidth_term(pieces: dict[str, Any]) -> None:
    n, size = 16, 64 * MIB
    bandwidth = 2 * (n - 1) * size / n / B
    whole = measure(ideal_scenario(n, cable="0m"), "all_reduce", range(n), size)
    cut = measure(ideal_scenario(n, cable="0m", **pieces), "all_reduce", range(n), size)
    assert [whole, cut] == pytest.approx([bandwidth, bandwidth], rel=1e-6)
    with_latency = measure(ideal_scenario(n, **pieces), "all_reduce", range(n), size)
    assert bandwidth <= with_latency < bandwidth * 1.06


# ---- 2: the sends of one rank share its NIC -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n", "milliseconds"), [(16, 5.03), (64, 5.285)])
def test_trap_2_direct_all_to_all_shares_the_network_adapters(n: int, milliseconds: float) -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(n))

    def rank(me: int) -> Generator[simpy.Event]:
        yield env.all_of([fabric.send(me, peer, 64 * MIB // n) for peer in range(n) if peer != me])

    env.run(env.all_of([env.process(rank(me)) for me in range(n)]))
    assert env.now == pytest.approx(64 * MIB * (n - 1) / n / B + 2 * LINK, rel=1e-6)
    assert env.now * 1e3 == pytest.approx(milliseconds, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "milliseconds"), [(16, 5.03), (128, 5.33)])
@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
def test_trap_2_so_does_the_collective(n: int, milliseconds: float, algorithm: str) -> None:
    env = simpy.Environment()
    env.run(Fabric(env, _with(ideal_scenario(n), algorithm=algorithm)).all_to_all(range(n), 64 * MIB))
    steps = 1 if algorithm == "direct" else n - 1
    assert env.now == pytest.approx(64 * MIB * (n - 1) / n / B + steps * 2 * LINK, rel=1e-6)
    assert env.now * 1e3 == pytest.approx(milliseconds + (steps - 1) * 2 * LINK * 1e3, abs=0.01)


# ---- 3: the receiver's link counts --------------------------------------------------------------


@pytest.mark.parametrize(("n", "milliseconds"), [(8, 42.95), (64, 343.6)])
def test_trap_3_incast_fills_the_receivers_link(n: int, milliseconds: float) -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(n + 1))
    env.run(env.all_of([fabric.send(sender, 0, 64 * MIB) for sender in range(1, n + 1)]))
    assert env.now == pytest.approx(n * 64 * MIB / B + 2 * LINK, rel=1e-6)
    assert env.now * 1e3 == pytest.approx(milliseconds, abs=0.05)


# ---- 4: messages of many steps between one pair match the right step ----------------------------


@pytest.mark.parametrize("n", [2, 8, 9, 16])
def test_trap_4_a_ring_of_many_rounds_ends_on_time(n: int) -> None:
    rounds, chunk = 20, 2**14
    took = measure(ideal_scenario(n, chunk="16KiB"), "all_reduce", range(n), rounds * n * chunk)
    assert took == pytest.approx(rounds * 2 * (n - 1) * (chunk / B + 2 * LINK), rel=1e-6)


def test_trap_4_sends_of_one_pair_end_in_the_order_of_their_steps() -> None:
    # Six messages both ways, each of another size; the receiver of each computes before it answers.
    sizes = [5 * MIB, MIB, 7 * MIB, 3 * MIB, 2 * MIB, 4 * MIB]
    pause = 10_000_000  # ps
    builder = ProgramBuilder(timers=["all"])
    for step, size in enumerate(sizes):
        pair = (step % 2, 1 - step % 2)
        call = builder.call(Call("send_recv", pair, size, "pipeline"))
        for rank in (0, 1):
            builder.join(call, rank, "all")
        builder.compute(pair[1], pause, "all")
    env = simpy.Environment()
    replay = cast("Replay", env.run(Fabric(env, ideal_scenario(2)).replay(builder.build())))
    steps = np.array([size / B + 2 * LINK for size in sizes])
    # The sender of a step computed after it received in the step before.
    starts = np.concatenate([[0.0], np.cumsum(steps[:-1] + pause * 1e-12)])
    assert replay.calls["ended"] * 1e-12 == pytest.approx(starts + steps, rel=1e-6)


# ---- 5: 100 Gb/s is 12.5e9 bytes/s --------------------------------------------------------------


def test_trap_5_a_hundred_gigabit_are_twelve_and_a_half_thousand_million_bytes() -> None:
    # Neither 2**30 nor a rounded number of ns per byte: 12.5e9 wire bytes take a second.
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(2, cable="0m", link_rate="100Gbps"))
    payload = 4096 * 3_000_000
    env.run(fabric.send(0, 1, payload))
    headers = 8 + 12 + 4 + 2  # LRH, BTH, ICRC, VCRC
    assert env.now == pytest.approx(payload * (4096 + headers) / 4096 / 12.5e9, rel=1e-12)


@pytest.mark.parametrize(("size", "picoseconds"), [(1, 80), (3, 240), (4096, 327_680), (10**12, 80 * 10**12)])
def test_trap_5_every_byte_counts(size: int, picoseconds: int) -> None:
    env = simpy.Environment()
    took = env.run(Fabric(env, ideal_scenario(2, cable="0m"), time_unit=1).send(0, 1, size))
    assert took == picoseconds


# ---- 6: zero delay is legal, and a run that ends, ends cleanly ----------------------------------


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_trap_6_zero_delay_is_legal(collective: str) -> None:
    n, size = 8, 8 * MIB
    messages = {"all_reduce": 2 * (n - 1) / n, "broadcast": n - 1}.get(collective, (n - 1) / n)
    took = measure(ideal_scenario(n, cable="0m"), collective, range(n), size)
    assert took == pytest.approx(messages * size / B, rel=1e-6)


def test_trap_6_the_environment_runs_dry() -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(4, cable="0m"))
    done = fabric.all_reduce(range(4), MIB)
    env.run()
    assert done.processed
    assert env.peek() == float("inf")
    assert env.now == done.value


# ---- 7: shares are max-min, whatever the round trip ---------------------------------------------


def test_trap_7_a_longer_round_trip_gets_no_smaller_share() -> None:
    # Both flows leave host 0; one stays under the leaf, the other crosses cables a hundred times longer.
    env = simpy.Environment()
    made = ideal_scenario(4, "leaf-spine", hosts_per_leaf=2, spines=1, switch_cable="10km")
    fabric = Fabric(env, made, time_unit=1)
    size = 125_000_000
    near, far = fabric.send(0, 1, size), fabric.send(0, 2, size)
    env.run()
    shared = 2 * size * 80  # ps
    assert near.value == shared + 2 * 500_000
    assert far.value == shared + 2 * 500_000 + 2 * 50_000_000


# ---- 8: a setting that is accepted has an effect ------------------------------------------------


def test_trap_8_channels_and_chunk_have_an_effect() -> None:
    def took(**pieces: object) -> float:
        return measure(ideal_scenario(8, **pieces), "all_reduce", range(8), 16 * MIB)

    assert took(chunk="64KiB") > 1.05 * took()
    assert took(chunk="64KiB", channels=4) < 0.95 * took(chunk="64KiB")


def test_trap_8_the_seed_has_an_effect() -> None:
    def finish_times(seed: int) -> list[object]:
        env = simpy.Environment()
        fabric = Fabric(env, ideal_scenario(16, "fat-tree", k=4, seed=seed))
        sends = [fabric.send(host, (host + 8) % 16, MIB) for host in range(16)]
        env.run()
        return [send.value for send in sends]

    assert finish_times(1) == finish_times(1)
    assert len({tuple(finish_times(seed)) for seed in range(5)}) > 1


def test_trap_8_the_weight_has_an_effect() -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(2, cable="0m"))
    heavy, light = fabric.send(0, 1, 3 * MIB, weight=3.0), fabric.send(0, 1, 3 * MIB)
    env.run()
    assert heavy.value == pytest.approx(4 * MIB / B, rel=1e-6)
    assert light.value == pytest.approx(6 * MIB / B, rel=1e-6)


def test_trap_8_the_step_times_have_an_effect() -> None:
    plain = ideal_scenario(4)
    slow = plain.model_copy(update={"collectives": plain.collectives.model_copy(update={"network_step": 3_000_000})})
    size = 4 * MIB
    added = measure(slow, "all_reduce", range(4), size) - measure(plain, "all_reduce", range(4), size)
    assert added == pytest.approx(2 * 3 * 3e-6, rel=1e-6)


def test_trap_8_the_algorithm_has_an_effect_on_time_and_links() -> None:
    names = ("ring", "tree", "halving_doubling", "recursive_doubling")
    took = [measure(_with(ideal_scenario(16), algorithm=name), "all_reduce", range(16), 64 * 1024) for name in names]
    assert len(set(took)) == len(names)


def test_trap_8_bus_bandwidth_counts_what_the_algorithm_sends() -> None:
    assert [bus_factor(name, 4) for name in ("all_reduce", "all_to_all", "reduce")] == [1.5, 0.75, 1.0]


# ---- the same with packets ----------------------------------------------------------------------

ACKS = 0.0075
"""Acknowledgements share the cables: 30 of 4152 wire bytes, where data go both ways."""


def _packets(made: Scenario) -> Scenario:
    return made.model_copy(update={"engine": "packet"})


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [{}, {"channels": 4}, {"chunk": "256KiB"}])
def test_trap_1_with_packets(pieces: dict[str, Any]) -> None:
    n, size = 16, 16 * MIB
    took = measure(_packets(ideal_scenario(n, cable="0m", **pieces)), "all_reduce", range(n), size)
    bandwidth = 2 * (n - 1) * size / n / B
    # The first packet of each message is stored nowhere, but its header is: 64 bytes at the switch.
    messages = 2 * (n - 1) * max(1, size // n // (2**18 if "chunk" in pieces else size))
    assert bandwidth <= took <= bandwidth * (1 + ACKS) + messages * 4152 / B


@pytest.mark.slow
@pytest.mark.parametrize(("n", "milliseconds"), [(16, 5.03), (64, 5.285)])
def test_trap_2_with_packets(n: int, milliseconds: float) -> None:
    took = measure(_packets(ideal_scenario(n)), "all_to_all", range(n), 64 * MIB)
    assert milliseconds * 0.999 <= took * 1e3 <= milliseconds * (1 + ACKS) + 0.005


@pytest.mark.slow
@pytest.mark.parametrize(("n", "milliseconds"), [(8, 42.95), (64, 343.6)])
def test_trap_3_with_packets(n: int, milliseconds: float) -> None:
    env = simpy.Environment()
    fabric = Fabric(env, _packets(ideal_scenario(n + 1)))
    size = 64 * MIB if n == 8 else 8 * MIB
    env.run(env.all_of([fabric.send(sender, 0, size) for sender in range(1, n + 1)]))
    assert env.now == pytest.approx(n * size / B + 2 * LINK, rel=1e-4)
    assert env.now * 1e3 == pytest.approx(milliseconds * size / (64 * MIB), rel=1e-3)


@pytest.mark.parametrize("n", [2, 8, 9, 16])
def test_trap_4_with_packets(n: int) -> None:
    rounds, chunk = 20, 2**14
    took = measure(_packets(ideal_scenario(n, chunk="16KiB")), "all_reduce", range(n), rounds * n * chunk)
    step = chunk / B + 2 * LINK
    assert rounds * 2 * (n - 1) * step <= took <= rounds * 2 * (n - 1) * step * 1.02


def test_trap_5_with_packets() -> None:
    env = simpy.Environment()
    fabric = Fabric(env, _packets(ideal_scenario(2, cable="0m", link_rate="100Gbps")))
    packets = 100_000
    env.run(fabric.send(0, 1, 4096 * packets))
    header = 64 / 12.5e9  # the switch waits for it before it forwards the first packet
    assert env.now == pytest.approx(packets * (4096 + 26) / 12.5e9 + header, rel=1e-9)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast", "reduce", "all_to_all"])
def test_trap_6_with_packets(collective: str) -> None:
    env = simpy.Environment()
    fabric = Fabric(env, _packets(ideal_scenario(4, cable="0m")))
    done = getattr(fabric, collective)(range(4), MIB)
    env.run()
    assert done.processed
    assert env.peek() == float("inf")


def test_trap_7_with_packets_without_congestion_control_queues_are_fair() -> None:
    # Two senders under one switch fill a third's link; round trips differ a hundred times.
    env = simpy.Environment()
    made = ideal_scenario(6, "leaf-spine", hosts_per_leaf=2, spines=1, switch_cable="1km")
    fabric = Fabric(env, _packets(made))
    size = 16 * MIB
    near, far = fabric.send(0, 1, size), fabric.send(2, 1, size)
    env.run()
    for took in (near.value, far.value):
        assert took == pytest.approx(2 * size / B, rel=0.01)


@pytest.mark.slow
def test_trap_8_with_packets_the_algorithm_has_an_effect() -> None:
    names = ("ring", "tree", "halving_doubling", "recursive_doubling")
    made = [_packets(_with(ideal_scenario(8), algorithm=name)) for name in names]
    assert len({measure(each, "all_reduce", range(8), 64 * 1024) for each in made}) == len(names)


# ---- and in the reference, which takes packet by packet in Python --------------------------------


def _reference(made: Scenario, sends: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """When each message was there, ps: in the reference, and in the compiled engine."""
    env = simpy.Environment()
    fabric = Fabric(env, _packets(made), time_unit=1)
    flows = []
    for source, target, _ in sends:
        route = fabric.wiring.route(source, target)
        fabric.wiring.prepare([route], awaited=True)
        flows.append(int(fabric.world.routes["flow"][route]))
    assert fabric.recorder is not None
    reference = Reference(fabric.recorder.network)
    for owner, (flow, (_, _, size)) in enumerate(zip(flows, sends, strict=True)):
        reference.post(0, flow, size, owner)
    reference.run(10**12)
    ended = [fabric.send(*send) for send in sends]
    env.run()
    there = {delivery.owner: delivery.time for delivery in reference.deliveries}
    return [there[owner] for owner in range(len(sends))], [int(event.value) for event in ended]


@pytest.mark.slow
def test_traps_2_5_6_and_7_in_the_reference() -> None:
    n, size = 6, 200_000
    sends = [(a, b, size) for a in range(n) for b in range(n) if a != b]
    for cable in ("0m", "100m"):
        reference, compiled = _reference(ideal_scenario(n, cable=cable), sends)
        assert reference == compiled
        least = (n - 1) * size / B + (0 if cable == "0m" else 2 * LINK)
        assert least <= max(reference) * 1e-12 <= least * (1 + ACKS) + 20 * 4152 / B
        assert min(reference) >= 0.9 * max(reference)


def test_trap_3_in_the_reference() -> None:
    n, size = 5, 400_000
    reference, compiled = _reference(ideal_scenario(n + 1), [(sender, 0, size) for sender in range(1, n + 1)])
    assert reference == compiled
    assert max(reference) * 1e-12 == pytest.approx(n * size / B + 2 * LINK, rel=0.01)


def test_trap_4_in_the_reference() -> None:
    sizes = [50_000, 1, 70_000, 4096, 8192, 3]
    reference, compiled = _reference(ideal_scenario(2), [(0, 1, size) for size in sizes])
    assert reference == compiled
    alone = [sum(sizes[: number + 1]) / B + 2 * LINK for number in range(len(sizes))]
    assert [time * 1e-12 for time in reference] == pytest.approx(alone, rel=0.03)
    assert reference == sorted(reference)
