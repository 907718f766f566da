"""The SimPy face: processes of any kind send and reduce, and share links by max-min."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError
from fabricsim.scenario.scenario import Scenario
from fabricsim.units import PS_PER_S
from tests.reference import filling
from tests.reference.scenarios import ideal_scenario

Process = Generator[simpy.Event, Any, None]

B = 12.5e9
MB = 10**6
SECOND = 10**12  # ps
FAST = {"cable": "0m"}  # no latency: times are bytes over rate


def _fabric(made: Scenario, time_unit: int = PS_PER_S) -> tuple[simpy.Environment, Fabric]:
    env = simpy.Environment()
    return env, Fabric(env, made, time_unit=time_unit)


# ---- values and clocks --------------------------------------------------------------------------


def test_an_event_carries_the_time_taken_in_the_units_of_its_environment() -> None:
    env = simpy.Environment(initial_time=3.0)
    fabric = Fabric(env, ideal_scenario(2))
    assert env.run(fabric.send(0, 1, 12_500)) == pytest.approx(2e-6, rel=1e-9)
    assert env.now == pytest.approx(3.000_002, rel=1e-12)


def test_an_environment_may_count_picoseconds() -> None:
    env, fabric = _fabric(ideal_scenario(2), time_unit=1)
    assert env.run(fabric.send(0, 1, 12_501)) == 2_000_080
    assert env.now == 2_000_080
    assert env.run(fabric.all_reduce(range(2), 25_000)) == 2 * 2_000_000
    assert env.now == 6_000_080


def test_an_environment_may_count_microseconds() -> None:
    env, fabric = _fabric(ideal_scenario(2), time_unit=10**6)
    assert env.run(fabric.send(0, 1, 12_500)) == pytest.approx(2.0)


def test_processes_take_turns_with_the_fabric() -> None:
    env, fabric = _fabric(ideal_scenario(4, **FAST))
    log = []

    def user() -> Process:
        yield env.timeout(0.5)
        took = yield fabric.send(0, 1, 12_500 * MB)
        log.append((env.now, took))
        yield env.timeout(1.0)
        took = yield fabric.all_reduce(range(4), 12_500 * MB)
        log.append((env.now, took))

    env.run(env.process(user()))
    assert [time for pair in log for time in pair] == pytest.approx([1.5, 1.0, 4.0, 1.5])


def test_events_of_other_processes_change_nothing() -> None:
    def end(*, ticks: bool) -> float:
        env, fabric = _fabric(ideal_scenario(4))

        def ticker() -> Process:
            while True:
                yield env.timeout(1.7e-6)

        if ticks:
            env.process(ticker())
        env.run(env.all_of([fabric.all_reduce(range(4), 10 * MB), fabric.send(0, 2, MB)]))
        return float(env.now)

    assert end(ticks=True) == pytest.approx(end(ticks=False), abs=2e-12)


def test_a_run_may_stop_anywhere_and_go_on() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST))
    sent = fabric.send(0, 1, 12_500 * MB)
    for stop in (0.1, 0.25, 0.999):
        env.run(until=stop)
        assert not sent.triggered
    assert env.run(sent) == pytest.approx(1.0, rel=1e-12)


def test_a_long_idle_time_costs_nothing_and_keeps_the_clock() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST), time_unit=1)
    env.run(fabric.send(0, 1, 12_500))
    before = int(fabric.world.world[0].events)
    env.run(until=1_000_000 * SECOND)  # eleven days
    assert fabric.world.world[0].events == before
    # a float of picoseconds is good to 128 ps here
    assert env.run(fabric.send(0, 1, 12_500)) == pytest.approx(1_000_000, abs=256)


def test_what_nobody_waits_for_still_happens() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST))
    sent = fabric.send(0, 1, 12_500 * MB)
    env.run()
    assert sent.processed
    assert env.now == pytest.approx(1.0)


def test_two_fabrics_live_in_one_environment() -> None:
    env = simpy.Environment()
    one, other = Fabric(env, ideal_scenario(2, **FAST)), Fabric(env, ideal_scenario(2, **FAST))
    sends = [one.send(0, 1, 12_500 * MB), other.send(0, 1, 25_000 * MB)]
    env.run(env.all_of(sends))
    assert [send.value for send in sends] == pytest.approx([1.0, 2.0])


# ---- sharing ------------------------------------------------------------------------------------


def test_a_flow_that_joins_later_takes_half() -> None:
    env, fabric = _fabric(ideal_scenario(3, **FAST))
    size = 12_500 * MB  # a second alone
    ends = {}

    def user(name: str, delay: float, target: int) -> Process:
        yield env.timeout(delay)
        yield fabric.send(0, target, size)
        ends[name] = env.now

    env.process(user("early", 0.0, 1))
    env.process(user("late", 0.4, 2))
    env.run()
    # Early: 0.4 alone, then 0.6 s of work at half rate. Late: what is left of the link until it is done.
    assert ends == pytest.approx({"early": 0.4 + 2 * 0.6, "late": 2.0})


def test_flows_that_meet_nowhere_do_not_slow_each_other() -> None:
    env, fabric = _fabric(ideal_scenario(4, **FAST))
    sends = [fabric.send(0, 1, 12_500 * MB), fabric.send(2, 3, 12_500 * MB), fabric.send(1, 0, 12_500 * MB)]
    env.run(env.all_of(sends))
    assert [send.value for send in sends] == pytest.approx([1.0] * 3)


def test_three_flows_share_a_parking_lot_by_max_min() -> None:
    # Into host 2: flows from 0, 1 and 3 get a third each; the second flow of host 0 gets what is left there.
    env, fabric = _fabric(ideal_scenario(5, **FAST), time_unit=1)
    size = 12_500 * MB
    shared = [fabric.send(source, 2, size) for source in (0, 1, 3)]
    beside = fabric.send(0, 4, size)
    env.run()
    assert beside.value == pytest.approx(1.5 * SECOND)  # 2/3 of the link
    assert [send.value for send in shared] == pytest.approx([3.0 * SECOND] * 3)


def test_a_collective_beside_a_send_gets_half_of_what_they_share() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST))
    size = 12_500 * MB
    ring, send = fabric.all_reduce(range(2), size), fabric.send(0, 1, 3 * size)
    env.run()
    # Two steps of half the buffer at half rate; by then a third of the send is through.
    assert ring.value == pytest.approx(2.0, rel=1e-6)
    assert send.value == pytest.approx(4.0, rel=1e-6)


def test_two_jobs_on_the_same_links_take_twice_as_long() -> None:
    env, fabric = _fabric(ideal_scenario(4, **FAST))
    both = [fabric.all_reduce(range(4), 100 * MB) for _ in range(2)]
    env.run(env.all_of(both))
    alone = 2 * 3 * 25 * MB / B
    assert [ring.value for ring in both] == pytest.approx([2 * alone] * 2, rel=1e-6)


def test_posts_of_one_instant_are_treated_alike() -> None:
    env, fabric = _fabric(ideal_scenario(2, **FAST))

    took: list[float] = []

    def user() -> Process:
        yield env.timeout(1.0)
        took.append((yield fabric.send(0, 1, 125 * MB)))

    for _ in range(20):
        env.process(user())
    env.run()
    assert took == pytest.approx([20 * 0.01] * 20, rel=1e-9)


def test_a_message_posted_at_an_arrival_joins_at_that_instant() -> None:
    env, fabric = _fabric(ideal_scenario(3, **FAST), time_unit=1)
    size = 12_500 * MB
    long = fabric.send(0, 1, 3 * size)

    def user() -> Process:
        yield fabric.send(0, 2, size)
        yield fabric.send(0, 2, size)

    chain = env.process(user())
    env.run(chain)
    assert env.now == 4 * SECOND
    assert env.run(long) == pytest.approx(5 * SECOND, abs=2)  # each change of rate rounds up to a ps


def test_a_weight_is_a_share() -> None:
    env, fabric = _fabric(ideal_scenario(3, **FAST))
    heavy, light = fabric.send(0, 1, 12_500 * MB, weight=4.0), fabric.send(0, 2, 12_500 * MB)
    env.run()
    assert heavy.value == pytest.approx(1.25)
    assert light.value == pytest.approx(2.0)


def test_the_packet_engine_refuses_a_weight() -> None:
    env, fabric = _fabric(ideal_scenario(2).model_copy(update={"engine": "packet"}))
    with pytest.raises(SimulationError, match=r"a weight of 2.0 has no effect in the packet engine: leave it out"):
        fabric.send(0, 1, MB, weight=2.0)
    assert env.run(fabric.send(0, 1, MB, weight=1)) > 0


@pytest.mark.slow
@settings(max_examples=25)
@given(
    sends=st.lists(
        st.tuples(
            st.integers(0, 4), st.integers(0, 4), st.integers(1, 40 * MB), st.integers(0, 20).map(lambda t: t * 1e-3)
        ).filter(lambda s: s[0] != s[1]),
        min_size=1,
        max_size=10,
    )
)
def test_processes_get_what_the_plain_model_gives_them(sends: list[tuple[int, int, int, float]]) -> None:
    env, fabric = _fabric(ideal_scenario(5, **FAST))
    ends = [0.0] * len(sends)

    def user(number: int, source: int, target: int, size: int, delay: float) -> Process:
        yield env.timeout(delay)
        yield fabric.send(source, target, size)
        ends[number] = env.now

    for number, send in enumerate(sends):
        env.process(user(number, *send))
    env.run()
    # on a star a flow crosses its sender's link and its receiver's
    flows = [filling.Flow(1.0, {source: 1.0, 5 + target: 1.0}) for source, target, _, _ in sends]
    expected = filling.finish_times([B] * 10, flows, [delay for *_, delay in sends], [size for _, _, size, _ in sends])
    assert ends == pytest.approx(expected, rel=1e-6, abs=1e-10)


# ---- determinism and memory ---------------------------------------------------------------------


def test_the_same_run_twice_gives_the_same_times() -> None:
    def times() -> list[object]:
        env, fabric = _fabric(ideal_scenario(16, "fat-tree", k=4, channels=2, chunk="256KiB", seed=5))
        events = [fabric.send(a, (a * 7 + 3) % 16, MB + a) for a in range(16) if a != (a * 7 + 3) % 16]
        events += [fabric.all_reduce(range(16), 8 * MB), fabric.all_reduce(range(0, 16, 2), 5 * MB)]
        env.run(env.all_of(events))
        return [event.value for event in events]

    assert times() == times()


@pytest.mark.slow
def test_tables_do_not_grow_with_the_number_of_calls() -> None:
    env, fabric = _fabric(ideal_scenario(4, channels=2))

    def lengths() -> dict[str, int]:
        world = fabric.world
        return {name: len(getattr(world, name)) for name in world.TABLES}

    def user(calls: int) -> Process:
        for _ in range(calls):
            yield fabric.all_reduce(range(4), 4096)
            yield fabric.send(0, 1, 100)

    env.run(env.process(user(3)))
    before = lengths()
    env.run(env.process(user(1000)))
    assert lengths() == before


# ---- mistakes -----------------------------------------------------------------------------------


NAMES = ("source", "target", "bytes", "start")


def _messages(count: int, **values: float) -> np.ndarray[Any, Any]:
    """From rank 0 to rank 1, of 8 bytes now, but for `values`."""
    made = np.zeros(count, [(name, type(values.get(name, 0))) for name in NAMES])
    for name, value in {"target": 1, "bytes": 8, **values}.items():
        made[name] = value
    return made


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.send(0, 9, 8), "rank 9 cannot be reached: the cluster has ranks 0 to 3"),
        (lambda f: f.send(-1, 0, 8), "rank -1 cannot be reached"),
        (lambda f: f.send(2, 2, 8), "rank 2 cannot send to itself"),
        (lambda f: f.send(0, 1, 0), "0 bytes moves nothing"),
        (lambda f: f.send(0, 1, -1), "-1 bytes moves nothing"),
        (lambda f: f.send(0, 1, 8, weight=0.0), "weight of 0.0 gives no share"),
        (lambda f: f.send(0, 1, 8, weight=float("nan")), "weight of nan"),
        (lambda f: f.send(0, 1, 8, weight=float("inf")), "weight of inf"),
        (lambda f: f.all_reduce(range(4), 0), "0 bytes moves nothing"),
        (lambda f: f.all_reduce([], 8), "at least one rank"),
        (lambda f: f.broadcast([1, 2, 1], 8), "each rank once"),
        (lambda f: f.all_gather([0, 4096], 8), "rank 4096 cannot be reached"),
        (lambda f: f.send(0, 1, 10**30), "too large"),
        (lambda f: f.send(0, 1, float("nan")), "the size of a transfer, in bytes, is a whole number, not nan"),
        (lambda f: f.send(0, 1, float("inf")), "in bytes, is a whole number, not inf"),
        (lambda f: f.send(0, 1, 10**400), "too large"),
        (lambda f: f.send(0, 1, 1e300), "too large"),
        (lambda f: f.send(0, 1, 1.5), "in bytes, is a whole number, not 1.5"),
        (lambda f: f.send(0, 1, "1MB"), "in bytes, is a whole number, not '1MB'"),
        (lambda f: f.all_reduce(range(4), "1MB"), "the size of all_reduce over 4 ranks, in bytes, is a whole number"),
        (lambda f: f.all_reduce(range(4), 99.5), "is a whole number, not 99.5"),
        (lambda f: f.send("a", 1, 8), "a rank is a whole number, not 'a'"),
        (lambda f: f.send(0.5, 1, 8), "a rank is a whole number, not 0.5"),
        (lambda f: f.send(0, None, 8), "a rank is a whole number, not None"),
        (lambda f: f.all_reduce([0, 1.9], 8), "a rank is a whole number, not 1.9"),
        (lambda f: f.broadcast("ab", 8), "a rank is a whole number, not 'a'"),
        (lambda f: f.all_reduce(4, 8), "a group is several ranks, such as range.8., not 4"),
        (lambda f: f.send(0, 1, 8, port=-1), "a port is 0 to 2147483647, not -1"),
        (lambda f: f.send(0, 1, 8, port=2**31), "a port is 0 to 2147483647, not 2147483648"),
        (lambda f: f.send(0, 1, 8, port=0.5), "a port is a whole number, not 0.5"),
        (lambda f: f.send(0, 1, 8, latency=0.5), "a latency in ps is a whole number, not 0.5"),
        (lambda f: f.send(0, 1, 8, weight=10**400), "gives no share"),
        (lambda f: f.send(0, 1, 8, weight="2"), "weight of '2' gives no share"),
        (lambda f: f.send(0, f.host_memory(4), 8), "host 4 is not there: the cluster has hosts 0 to 3"),
        (lambda f: f.send(0, f.host_memory(-1), 8), "host -1 is not there"),
        (lambda f: f.send(0, f.host_memory(1.5), 8), "a host is a whole number, not 1.5"),
        (lambda f: f.send(0, 1, 8, latency=-5_000_000), "latency of -5000000 ps"),
        (lambda f: f.all_reduce([99], 8), "rank 99 cannot be reached"),
        (lambda f: f.reduce_scatter(range(4), 2**62), "too large"),
        (lambda f: f.set_loss("host0-switch0", "x"), "a bit error rate of 'x': give the share of wrong bits"),
        (lambda f: f.set_loss("host0-switch0", None), "a bit error rate of None"),
        (lambda f: f.set_rate("host0-switch0", None), "a rate of None"),
        (lambda f: f.fail(3), 'what fails has a name, such as "leaf0-spine1", "host3" or "gpu24", and is not 3'),
        (lambda f: f.restore(None), "has a name, .* and is not None"),
        (lambda f: f.replay("gpt2-medium-dp"), "a program is what fabricsim.program gives, not 'gpt2-medium-dp'"),
        (lambda f: f.send_all([]), r"one array of records with source, target, bytes and start, not \[\]"),
        (lambda f: f.send_all(np.zeros(2)), "one array of records"),
        (lambda f: f.send_all(_messages(2)[["source", "target", "bytes"]]), "these lack start"),
        (lambda f: f.set_rate("host0-switch0", 10**400), "a rate of 10"),
        (lambda f: f.send_all(np.array([(0, 1, 2**63 + 5, 0)], [(name, "u8") for name in NAMES])), "is above 2"),
        (lambda f: f.send_all(np.zeros(2, [(name, "i8", (2,)) for name in NAMES])), "several values of source in each"),
        (lambda f: f.send_all(_messages(2, bytes=0)), "a transfer of 0 bytes moves nothing"),
        (lambda f: f.send_all(_messages(2, bytes=1.5)), "bytes of a message is a whole number, not 1.5"),
        (lambda f: f.send_all(_messages(2, start=float("nan"))), "start of a message is a whole number, not nan"),
        (lambda f: f.send_all(_messages(2, start=-5)), "a message that starts 5 ps ago"),
        (lambda f: f.send_all(_messages(2), [1]), r"ports are one for each of 2 messages, not \[1\]"),
        (lambda f: f.send_all(_messages(2), 7), "ports are one for each of 2 messages, not 7"),
        (lambda f: f.send_all(_messages(2), [0, -1]), "a port is 0 to"),
    ],
)
def test_a_mistake_is_said_at_once_and_leaves_the_fabric_as_it_was(
    call: Callable[[Fabric], simpy.Event], message: str
) -> None:
    env, fabric = _fabric(ideal_scenario(4, **FAST))
    with pytest.raises(SimulationError, match=message):
        call(fabric)
    assert env.run(fabric.all_reduce(range(4), 12_500)) == pytest.approx(1.5e-6)


def test_no_messages_are_delivered_at_once() -> None:
    env, fabric = _fabric(ideal_scenario(4, **FAST))
    delivered = env.run(fabric.send_all(_messages(0)))

    assert (len(delivered), env.now) == (0, 0)


def test_messages_may_be_of_any_whole_numbers() -> None:
    times = []
    for dtype in (np.int64, np.uint8, np.float64):
        env, fabric = _fabric(ideal_scenario(4, **FAST))
        times.append(env.run(fabric.send_all(_messages(2, bytes=200).astype([(n, dtype) for n in NAMES]))).tolist())

    assert times[0] == times[1] == times[2]


def test_whole_numbers_may_be_of_any_type() -> None:
    env, fabric = _fabric(ideal_scenario(4, **FAST), time_unit=1)
    same = [
        env.run(fabric.send(np.int32(0), 1.0, 1e6, port=np.float32(0), weight=np.float64(1))),
        env.run(fabric.send(0, 1, 10**6, weight=2)),
        env.run(fabric.send(fabric.host_memory(0.0), fabric.host_memory(np.int8(1)), np.float32(1e6), port=2**31 - 1)),
    ]
    assert same == [80 * MB] * 3
    assert env.run(fabric.all_reduce(np.arange(4.0), 4e6)) == env.run(fabric.all_reduce(range(4), 4_000_000))


@pytest.mark.parametrize("unit", [0, -1, 0.5, float("nan"), "1", 10**30])
def test_a_time_unit_that_is_no_time_is_refused(unit: Any) -> None:  # noqa: ANN401  the mistake
    with pytest.raises(SimulationError, match=r"time_unit, picoseconds per unit of the environment's time, is"):
        Fabric(simpy.Environment(), ideal_scenario(2), time_unit=unit)


def test_an_environment_outside_the_clock_is_refused() -> None:
    for start in (-5.0, 1e7):
        env = simpy.Environment(initial_time=start)
        fabric = Fabric(env, ideal_scenario(2, **FAST))
        with pytest.raises(SimulationError, match="start it at 0"):
            fabric.send(0, 1, 8)


def test_a_message_that_ends_after_the_clock_is_an_error_not_a_time() -> None:
    env, fabric = _fabric(ideal_scenario(2, link_rate="1Mbps"))
    with pytest.raises(SimulationError, match="nothing can happen any more"):
        env.run(fabric.send(0, 1, 2**50))
