from __future__ import annotations

import pytest

from fabricsim.errors import SimulationError
from fabricsim.records.program import OVERLAPPED_STREAM
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, Program
from tests.reference.jobs import replay
from tests.reference.whole_program import WholeProgram


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


def test_crossing_sends_joined_at_once_do_not_deadlock() -> None:
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


# ---- programs of some ranks ---------------------------------------------------------------------


def pair(representatives: tuple[int, ...] | None, joining: tuple[int, ...]) -> Program:
    """Two ranks of four in one call, written out for some."""
    builder = ProgramBuilder(["work"], ranks=4, representatives=representatives)
    call = builder.call(Call("all_reduce", (2, 0), 8, "data"))
    for rank in joining:
        builder.compute(rank, 1, "work")
        builder.join(call, rank, "work")
    return builder.build()


def test_members_keep_their_places_where_only_some_have_ops() -> None:
    program = pair((0, 1), (0,))

    assert (program.ranks, program.representatives) == (4, (0, 1))
    assert program.ops["member"].tolist() == [-1, 1]


def test_each_of_a_calls_ranks_that_has_ops_joins_it_once() -> None:
    with pytest.raises(SimulationError, match="all_reduce over 2 ranks was joined 1 times, not 2"):
        pair((0, 2), (0,))
    with pytest.raises(SimulationError, match="all_reduce over 2 ranks was joined 2 times, not 1"):
        pair((0,), (0, 0))


def test_ranks_that_others_stand_for_have_no_ops() -> None:
    with pytest.raises(SimulationError, match="rank 2 has operations, yet another rank stands for it"):
        pair((0,), (0, 2))


def test_a_programs_ops_of_some_ranks() -> None:
    whole = exchange()

    some = whole.of([1])

    assert (some.ranks, some.representatives, some.timers) == (2, (1,), whole.timers)
    assert some.ops["rank"].tolist() == [1] * 4
    assert edges(some) == {(0, 1), (0, 2), (1, 3), (2, 3)}
    assert [some.calls[call].ranks for call in some.ops["call"] if call >= 0] == [(1, 0), (0, 1)]
    assert whole.of([0, 1]).ops.tolist() == whole.ops.tolist()


def test_ranks_that_wait_for_one_another_cannot_be_taken_apart() -> None:
    builder = ProgramBuilder(["work"])
    first = builder.compute(0, 1, "work")
    builder.compute(1, 1, "work", after=[first])
    whole = builder.build()

    with pytest.raises(SimulationError, match="an operation of one rank waits for one of another"):
        whole.of([1])
    assert WholeProgram(whole).colours.tolist() == [0, 1]


def test_ranks_with_the_same_ops_have_one_colour() -> None:
    plan = WholeProgram(exchange())

    assert plan.colours.tolist() == [0, 1]  # their first ops take 10 and 20 ps
    assert [groups.members.tolist() for groups in plan.groups] == [[[0, 1], [1, 0]]]
    assert plan.program(None) is plan.whole
    assert WholeProgram(pair(None, (0, 2))).colours.tolist() == [0, 1, 0, 1]
