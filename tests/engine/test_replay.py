"""Programs: a DAG of computation and collectives, replayed."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import simpy

from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError
from fabricsim.records.program import OVERLAPPED_STREAM
from fabricsim.scenario.scenario import Scenario
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, CollectiveName, Program
from tests.reference.scenarios import ideal_scenario

US = 10**6  # ps
BYTES_PER_US = 12_500


def _run(made: Scenario, program: Program) -> Replay:
    env = simpy.Environment()
    return cast("Replay", env.run(Fabric(env, made).replay(program)))


def _call(builder: ProgramBuilder, ranks: tuple[int, ...], size: int, collective: CollectiveName = "all_reduce") -> int:
    return builder.call(Call(collective, ranks, size, "data"))


def test_ops_of_a_rank_run_one_after_the_other() -> None:
    builder = ProgramBuilder(timers=["all"])
    for duration in (5, 0, 7):
        builder.compute(0, duration * US, "all")
    replay = _run(ideal_scenario(1), builder.build())
    assert replay.spans["start"].tolist() == [0, 5 * US, 5 * US]
    assert replay.spans["end"].tolist() == [5 * US, 5 * US, 12 * US]
    assert (replay.start, replay.end) == (0, 12 * US)


def test_an_op_waits_for_all_that_it_comes_after() -> None:
    builder = ProgramBuilder(timers=["all"])
    first = builder.compute(0, 5 * US, "all")
    second = builder.compute(1, 9 * US, "all")
    last = builder.compute(2, 1 * US, "all", after=[first, second])
    replay = _run(ideal_scenario(3), builder.build())
    assert replay.spans[last].tolist() == (9 * US, 10 * US)


def test_a_call_starts_with_its_last_rank_and_keeps_the_first_ones_waiting() -> None:
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1), 2 * BYTES_PER_US)
    for rank, duration in ((0, 3), (1, 10)):
        builder.compute(rank, duration * US, "all")
        builder.join(call, rank, "all")
    replay = _run(ideal_scenario(2, cable="0m"), builder.build())
    assert replay.calls["started"].tolist() == [10 * US]
    assert replay.calls["ended"].tolist() == [12 * US]
    joins = replay.spans[[1, 3]]
    assert joins["start"].tolist() == [3 * US, 10 * US]
    assert joins["end"].tolist() == [12 * US, 12 * US]


def test_the_overlapped_stream_runs_beside_computation() -> None:
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1), 20 * BYTES_PER_US)
    for rank in (0, 1):
        first = builder.compute(rank, 5 * US, "all")
        builder.join(call, rank, "all", stream=OVERLAPPED_STREAM, after=[first])
        builder.compute(rank, 12 * US, "all")
    replay = _run(ideal_scenario(2, cable="0m"), builder.build())
    assert replay.calls["ended"].tolist() == [25 * US]
    assert replay.spans["end"][[2, 5]].tolist() == [17 * US, 17 * US]
    assert replay.end == 25 * US


def test_calls_joined_at_once_share_the_wire() -> None:
    builder = ProgramBuilder(timers=["all"])
    calls = [_call(builder, (0, 1), 10 * BYTES_PER_US, "send_recv") for _ in range(2)]
    for rank in (0, 1):
        builder.join_all(calls, rank, "all")
    assert _run(ideal_scenario(2, cable="0m"), builder.build()).end == 20 * US


def test_a_sender_need_not_wait_for_its_receiver_beyond_the_join() -> None:
    # Ten pieces of 1 us, of which the FIFO holds eight: the last is in it when the second has arrived, at 3 us.
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1), 10 * BYTES_PER_US, "send_recv")
    ops = [builder.join(call, rank, "all") for rank in (0, 1)]
    spans = _run(ideal_scenario(2, send_chunk=f"{BYTES_PER_US}B"), builder.build()).spans
    assert spans["end"][ops].tolist() == [3 * US, 11 * US]


def test_a_send_that_fits_its_fifo_keeps_the_sender_no_time() -> None:
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1), 10 * BYTES_PER_US, "send_recv")
    ops = [builder.join(call, rank, "all") for rank in (0, 1)]
    spans = _run(ideal_scenario(2, send_chunk=f"{5 * BYTES_PER_US}B"), builder.build()).spans
    assert spans["end"][ops].tolist() == [0, 11 * US]


def test_two_programs_at_once_share_the_fabric() -> None:
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1), 10 * BYTES_PER_US, "send_recv")
    for rank in (0, 1):
        builder.join(call, rank, "all")
    program = builder.build()
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(2, cable="0m"))
    both = [fabric.replay(program), fabric.replay(program)]
    env.run(env.all_of(both))
    assert [cast("Replay", replay.value).end for replay in both] == [20 * US, 20 * US]


def test_a_program_may_be_replayed_again_and_leaves_itself_unchanged() -> None:
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1, 2), 30 * BYTES_PER_US)
    for rank in range(3):
        builder.compute(rank, (rank + 1) * US, "all")
        builder.join(call, rank, "all")
    program = builder.build()
    before = program.ops.copy()
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(3))
    first = cast("Replay", env.run(fabric.replay(program)))
    second = cast("Replay", env.run(fabric.replay(program)))
    assert (program.ops == before).all()
    assert second.start == first.end
    for name in ("start", "end"):
        assert (second.spans[name] - second.start == first.spans[name]).all()


def test_every_node_is_counted_and_ends_after_its_predecessors() -> None:
    generator = np.random.default_rng(11)
    builder = ProgramBuilder(timers=["all"])
    edges: list[tuple[int, int]] = []
    for number in range(200):
        after = {int(op) for op in generator.integers(0, number, 2)} if number else set()
        rank, duration = int(generator.integers(0, 4)), int(generator.integers(0, 5 * US))
        op = builder.compute(rank, duration, "all", after=after)
        edges.extend((before, op) for before in after)
    program = builder.build()
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(4))
    spans = cast("Replay", env.run(fabric.replay(program))).spans
    assert all(spans["end"][before] <= spans["start"][op] for before, op in edges)
    assert (spans["end"] - spans["start"] == program.ops["duration"]).all()
    assert fabric.world.world[0].dag_nodes == len(program.ops)


@pytest.mark.slow
def test_the_number_of_nodes_done_is_reported() -> None:
    seen: list[int] = []
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(64, channels=2, chunk="1KiB"), progress=seen.append)
    builder = ProgramBuilder(timers=["all"])
    for _ in range(3):
        call = _call(builder, tuple(range(64)), 64 * 2 * 1024 * 60)
        for rank in range(64):
            builder.join(call, rank, "all")
    env.run(fabric.replay(builder.build()))
    assert seen
    assert seen == sorted(seen)


# ---- mistakes -----------------------------------------------------------------------------------


def test_calls_joined_in_opposite_orders_are_a_deadlock() -> None:
    builder = ProgramBuilder(timers=["all"])
    one, other = (_call(builder, (0, 1), 1000) for _ in range(2))
    for rank, calls in ((0, (one, other)), (1, (other, one))):
        for call in calls:
            builder.join(call, rank, "all")
    env = simpy.Environment()
    replay = Fabric(env, ideal_scenario(2)).replay(builder.build())
    with pytest.raises(
        SimulationError,
        match=r"yet 1 of all jobs and messages is not done \(ranks 0, 1; rank 0 has done \d of \d operations\)",
    ):
        env.run(replay)


def test_a_deadlock_that_nobody_waits_for_is_not_silent() -> None:
    builder = ProgramBuilder(timers=["all"])
    one, other = (_call(builder, (0, 1), 1000) for _ in range(2))
    for rank, calls in ((0, (one, other)), (1, (other, one))):
        for call in calls:
            builder.join(call, rank, "all")
    env = simpy.Environment()
    Fabric(env, ideal_scenario(2)).replay(builder.build())
    with pytest.raises(SimulationError, match="nothing can happen any more"):
        env.run()


def test_a_program_larger_than_the_cluster_is_refused() -> None:
    builder = ProgramBuilder(timers=["all"])
    builder.compute(4, US, "all")
    with pytest.raises(SimulationError, match="the program runs on 5 ranks, the cluster has 4"):
        Fabric(simpy.Environment(), ideal_scenario(4)).replay(builder.build())


@pytest.mark.parametrize("size", [0, -5])
def test_a_call_that_moves_nothing_is_refused(size: int) -> None:
    builder = ProgramBuilder(timers=["all"])
    call = _call(builder, (0, 1), size)
    for rank in (0, 1):
        builder.join(call, rank, "all")
    with pytest.raises(SimulationError, match=f"{size} bytes moves nothing"):
        Fabric(simpy.Environment(), ideal_scenario(2)).replay(builder.build())
