from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.errors import SimulationError
from fabricsim.tables import OVERLAPPED_STREAM
from fabricsim.workload.program import Call, Program, ProgramBuilder

if TYPE_CHECKING:
    from conftest import Replay


def edges(program: Program) -> set[tuple[int, int]]:
    firsts, counts = program.ops["first_successor"], program.ops["successors"]
    return {
        (op, int(successor))
        for op in range(len(program.ops))
        for successor in program.successors[firsts[op] : firsts[op] + counts[op]]
    }


def exchange() -> Program:
    """Two ranks that send to each other at once, with work before and behind."""
    builder = ProgramBuilder(["work", "exchange"])
    there = builder.call(Call("send_recv", (0, 1), 8, "pipeline"))
    back = builder.call(Call("send_recv", (1, 0), 8, "pipeline"))
    for rank, calls in enumerate([(there, back), (back, there)]):
        builder.compute(rank, 10 * (rank + 1), "work")
        builder.join_all(calls, rank, "exchange")
        builder.compute(rank, 5, "work")
    return builder.build()


def test_calls_joined_at_once_share_predecessors_and_successors() -> None:
    assert edges(exchange()) == {(0, 1), (0, 2), (1, 3), (2, 3), (4, 5), (4, 6), (5, 7), (6, 7)}


def test_crossing_sends_joined_at_once_do_not_deadlock(replay: Replay) -> None:
    _, end = replay(exchange())

    assert end.tolist() == [10, 20, 20, 25, 20, 20, 20, 25]


def test_joining_nothing_leaves_the_main_stream_as_it_is() -> None:
    builder = ProgramBuilder(["work"])
    builder.compute(0, 1, "work")

    assert builder.join_all([], 0, "work") == []
    builder.compute(0, 1, "work")
    assert edges(builder.build()) == {(0, 1)}


def test_overlapped_ops_run_beside_the_main_stream() -> None:
    builder = ProgramBuilder(["work", "bucket"])
    call = builder.call(Call("all_reduce", (0,), 8, "data"))
    first = builder.compute(0, 1, "work")
    bucket = builder.join(call, 0, "bucket", stream=OVERLAPPED_STREAM, after=[first])
    builder.compute(0, 1, "work")
    builder.compute(0, 1, "work", after=[bucket])

    assert edges(builder.build()) == {(0, 1), (0, 2), (1, 3), (2, 3)}


def test_a_call_that_a_rank_forgot_is_an_error() -> None:
    builder = ProgramBuilder(["all-reduce"])
    call = builder.call(Call("all_reduce", (0, 1), 8, "data"))
    builder.join(call, 0, "all-reduce")

    with pytest.raises(SimulationError, match="all_reduce over 2 ranks was joined 1 times"):
        builder.build()
