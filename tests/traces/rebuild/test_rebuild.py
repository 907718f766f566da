"""Programs of captured jobs: who takes part in what, and what is captured of it."""

from __future__ import annotations

import pytest

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.traces.trace import Communication, Operation, Recording, Trace
from tests.reference import captured_jobs as jobs

US = 10**6
ALL = Communication("all_reduce", size=4096)


def reducing(rank: int, called: int, end: int, **about: object) -> Recording:
    """One rank that all-reduces once."""
    job = jobs.Captured(f"rank{rank}.json")
    job.host("begin", 0, 1)
    job.communicate(20, called, called + 5, end - called - 5, ALL)
    return job.recording(rank, 2, **about)


def test_a_transfer_lasts_from_the_last_start_to_the_last_end() -> None:
    trace = jobs.trace_of(reducing(0, 10, 131), reducing(1, 100, 130))
    rebuilt = rebuild(trace)
    assert [call.ranks for call in rebuilt.program.calls] == [(0, 1)]
    assert rebuilt.captured_transfers.tolist() == [(131 - 105) * US]
    assert rebuilt.names == (("all_reduce", "", 2, 4096),)
    assert rebuilt.assumptions == ()


def test_clocks_of_two_hosts_are_brought_together_by_common_ends() -> None:
    """The second host's clock is 7 ms ahead; without that its rank would begin 7 ms later."""
    plain = rebuild(jobs.trace_of(reducing(0, 10, 131), reducing(1, 100, 131)))
    ahead = reducing(1, 100, 131, origin=7_000_000)
    shifted = rebuild(jobs.trace_of(reducing(0, 10, 131), ahead))
    assert shifted.captured_transfers.tolist() == plain.captured_transfers.tolist()
    assert shifted.captured_span == plain.captured_span


def test_a_rank_that_was_not_captured_does_as_another() -> None:
    rebuilt = rebuild(Trace("kineto", (reducing(0, 10, 131),), 2))
    assert rebuilt.program.ranks == 2
    assert rebuilt.captured_transfers.tolist() == [(131 - 15) * US]  # at most: it may have waited for the other
    assert rebuilt.captured_parts.tolist() == [1]
    assert rebuilt.assumptions == ("1 of 2 ranks were captured (0); the others are assumed to do the same",)


@pytest.mark.parametrize(("operation", "captured"), [("broadcast", NONE), ("reduce", NONE), ("all_gather", 20 * US)])
def test_a_rank_that_may_leave_before_others_bounds_no_transfer(operation: Operation, captured: int) -> None:
    job = jobs.Captured("rank0.json")
    job.communicate(20, 0, 5, 20, Communication(operation, size=4096, peer=0))
    assert rebuild(Trace("kineto", (job.recording(0, 2),), 2)).captured_transfers.tolist() == [captured]


@pytest.mark.parametrize(("sent", "received", "size"), [(1000, 64_000, 1000), (0, 0, 1)])
def test_a_message_is_what_its_sender_sends_and_one_of_no_bytes_is_waited_for(
    sent: int, received: int, size: int
) -> None:
    sender, receiver = jobs.Captured("rank0.json"), jobs.Captured("rank1.json")
    sender.communicate(20, 0, 5, 20, Communication("send", size=sent, peer=1))
    receiver.communicate(20, 0, 5, 20, Communication("recv", size=received, peer=0))

    rebuilt = rebuild(jobs.trace_of(sender.recording(0, 2), receiver.recording(1, 2)))

    assert [call.size for call in rebuilt.program.calls] == [size]
    assert [name[3] for name in rebuilt.names] == [sent]


def test_an_all_gather_of_uneven_parts_moves_their_sum() -> None:
    recordings = []
    for rank, part in enumerate((25, 1, 1, 1)):
        job = jobs.Captured(f"rank{rank}.json")
        job.communicate(20, 0, 5, 20, Communication("all_gather", size=4 * part))
        recordings.append(job.recording(rank, 4))

    rebuilt = rebuild(jobs.trace_of(*recordings))

    assert [call.size for call in rebuilt.program.calls] == [28]
    assert rebuilt.names[0][3] == 28


def test_messages_of_a_rank_to_itself_are_said_to_take_no_time() -> None:
    job = jobs.Captured("rank0.json")
    job.communicate(20, 0, 5, 20, Communication("send", size=9, peer=0))
    job.communicate(21, 0, 5, 20, Communication("recv", size=9, peer=0))

    rebuilt = rebuild(Trace("kineto", (job.recording(0, 1),), 1))

    assert not len(rebuilt.program.calls)
    assert any("to itself" in assumption for assumption in rebuilt.assumptions)


def test_a_transfer_of_more_ranks_than_the_job_had_is_not_bounded_by_it() -> None:
    rebuilt = rebuild(jobs.trace_of(reducing(0, 10, 131), reducing(1, 100, 130)), scale_to=4)
    assert rebuilt.captured_transfers.tolist() == [NONE]


def test_a_trace_of_one_rank_without_communication_is_that_of_a_job_of_one() -> None:
    job = jobs.Captured("trace.json")
    job.host("step", 0, 10)
    rebuilt = rebuild(Trace("kineto", (job.recording(NONE, NONE),), NONE))
    assert rebuilt.program.ranks == 1
    assert "one (see ranks, --ranks)" in rebuilt.assumptions[0]


def test_a_job_is_scaled_by_its_data_parallel_groups() -> None:
    """Two tensor-parallel pairs, joined by data parallelism, twice as often."""
    job = jobs.Captured()
    tensor = job.builder.group("7", "tp", (0, 1), 2)
    data = job.builder.group("8", "dp", (0, 2), 2)
    job.communicate(20, 0, 5, 10, Communication("all_reduce", tensor, 64))
    job.communicate(20, 20, 25, 10, Communication("all_reduce", data, 128))
    rebuilt = rebuild(Trace("kineto", (job.recording(0, 4),), 4), scale_to=8)
    groups = {(call.dimension, call.ranks) for call in rebuilt.program.calls}
    assert groups == {
        *(("tp", (rank, rank + 1)) for rank in (0, 2, 4, 6)),
        ("dp", (0, 2, 4, 6)),
        ("dp", (1, 3, 5, 7)),
    }
    assert any("repeated 2 times" in line for line in rebuilt.assumptions)


def test_an_uneven_all_to_all_is_sent_pair_by_pair() -> None:
    sizes = ((1, 20, 300), (4, 50, 0), (7, 80, 900))
    recordings = []
    for rank, sent in enumerate(sizes):
        job = jobs.Captured(f"rank{rank}.json")
        received = tuple(row[rank] for row in sizes)
        what = Communication("all_to_all", size=sum(sent), sent=sent, received=received)
        job.communicate(20, 0, 5, 10, what)
        recordings.append(job.recording(rank, 3))
    calls = rebuild(jobs.trace_of(*recordings)).program.calls
    moved = {call.ranks: call.size for call in calls}
    assert moved == {(0, 1): 20, (0, 2): 300, (1, 0): 4, (2, 0): 7, (2, 1): 80}


def test_numbered_communications_need_not_begin_at_the_same_one() -> None:
    recordings = []
    for rank, numbers in enumerate(((4, 5, 6), (5, 6, 7))):
        builder = jobs.RecordingBuilder(f"rank{rank}.json")
        lane = builder.lane("stream", "stream 20")
        for number in numbers:
            builder.node(1, lane, "kernel", communication=ALL, sequence=number, start=number * US, duration=US)
        recordings.append(builder.build(rank, 2))
    rebuilt = rebuild(jobs.trace_of(*recordings))
    assert len(rebuilt.program.calls) == 2
    assert "2 communications that not all of their ranks captured are left out" in rebuilt.assumptions


def _sending(rank: int, what: Communication) -> Recording:
    job = jobs.Captured(f"rank{rank}.json")
    job.communicate(20, 0, 5, 10, what)
    return job.recording(rank, 2)


@pytest.mark.parametrize(
    ("one", "other", "problem"),
    [
        (
            ALL,
            Communication("broadcast", size=4096),
            r"rank 0 calls all_reduce as call 1 of group 'world', where rank 1 \(rank1.json\) calls broadcast",
        ),
        (
            ALL,
            Communication("send", size=8, peer=0),
            "1 of 2 ranks captured all_reduce number 1 of group '', and rank 1 did not",
        ),
        (Communication("all_reduce"), Communication("all_reduce"), "does not say how many bytes its all_reduce moves"),
        (Communication("send_recv"), Communication("send_recv"), "without saying what it does"),
        (Communication("send", size=8), ALL, "does not say where a send goes to"),
        (
            Communication("all_to_all", size=3, sent=(1, 2), received=(1, 5)),
            Communication("all_to_all", size=3, sent=(4, 2), received=(2, 2)),
            "rank 1 sends 4 bytes to rank 0, which expects 5",
        ),
    ],
)
def test_what_does_not_fit_together_is_said(one: Communication, other: Communication, problem: str) -> None:
    trace = jobs.trace_of(_sending(0, one), _sending(1, other))
    with pytest.raises(TraceError, match=problem):
        rebuild(trace)


def test_sends_cannot_be_taken_over_by_other_ranks() -> None:
    what = Communication("send", size=8, peer=1)
    with pytest.raises(TraceError, match="cannot be taken to do as rank 0 does; give the files of all 2 ranks"):
        rebuild(Trace("kineto", (_sending(0, what),), 2))


def test_a_circle_of_operations_is_refused() -> None:
    builder = jobs.RecordingBuilder("a.et")
    lane = builder.lane("any", "")
    first, second = builder.node(0, lane, "a", duration=1), builder.node(0, lane, "b", duration=1)
    builder.edge(first, second)
    builder.edge(second, first)
    with pytest.raises(TraceError, match="wait for one another in a circle"):
        rebuild(Trace("chakra", (builder.build(0, 1),), 1))


def test_how_many_ranks_there_are_must_be_known() -> None:
    builder = jobs.RecordingBuilder("a.log")
    builder.node(1, builder.lane("stream", "0"), "AllReduce", communication=ALL)
    trace = Trace("nccl_log", (builder.build(0),), NONE)
    with pytest.raises(TraceError, match=r"how many ranks the job has; say it by ranks \(--ranks N\)"):
        rebuild(trace)
    assert rebuild(trace, ranks=4).program.ranks == 4


def test_a_job_cannot_be_scaled_to_a_part_of_itself() -> None:
    trace = jobs.trace_of(reducing(0, 10, 131), reducing(1, 100, 130))
    with pytest.raises(TraceError, match="scaled to a multiple of that, not to 3"):
        rebuild(trace, scale_to=3)


def test_what_is_too_much_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    one = reducing(0, 10, 131)
    with pytest.raises(TraceError, match="is to be replayed on 2097152 ranks; at most 1048576 can be"):
        rebuild(Trace("kineto", (one,), 2**21))
    monkeypatch.setattr("fabricsim.traces.rebuild.programs.MOST_OPERATIONS", 9)
    with pytest.raises(TraceError, match="makes 12 operations on 4 ranks; at most 9 can be replayed"):
        rebuild(Trace("kineto", (one,), 2), scale_to=4)
    monkeypatch.setattr("fabricsim.traces.rebuild.matching.MOST_CALLS", 1)
    uneven = Communication("all_to_all", size=6, sent=(1, 5), received=(1, 5))
    with pytest.raises(TraceError, match="makes more than 1 calls"):
        rebuild(jobs.trace_of(_sending(0, uneven), _sending(1, uneven._replace(sent=(5, 1), received=(5, 1)))))


def test_many_ranks_of_which_only_a_file_says_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage makes 2 ranks into 42235 by a few letters, and a replay into minutes."""
    one = reducing(0, 10, 131)
    monkeypatch.setattr("fabricsim.traces.rebuild.programs.MOST_UNASKED", 20)
    with pytest.raises(TraceError, match=r"makes 24 operations on 8 ranks, of which 1 were captured; .*--ranks 8"):
        rebuild(Trace("kineto", (one,), 8))
    assert rebuild(Trace("kineto", (one,), 8), ranks=8).program.ranks == 8
    assert rebuild(Trace("kineto", (one,), 4)).program.ranks == 4
    monkeypatch.setattr("fabricsim.traces.rebuild.programs.MOST_UNASKED_RANKS", 3)
    with pytest.raises(TraceError, match="makes 12 operations on 4 ranks"):
        rebuild(Trace("kineto", (one,), 4))


@pytest.mark.slow
def test_all_to_alls_between_ranks_of_which_only_a_file_says_are_few() -> None:
    job = jobs.Captured("rank0.json")
    job.communicate(20, 10, 15, 100, Communication("all_to_all", size=4096))
    one = job.recording(0, 500)
    with pytest.raises(TraceError, match="all-to-alls between 250000 pairs on 500 ranks, of which 1 were captured"):
        rebuild(Trace("kineto", (one,), 500))
    assert rebuild(Trace("kineto", (one,), 500), ranks=500).program.ranks == 500


def test_a_group_of_unknown_ranks_is_asked_for() -> None:
    job = jobs.Captured("rank0.json")
    for name in ("7", "8"):
        job.communicate(20, 0, 5, 10, Communication("all_reduce", job.builder.group(name, size=2), 64))
    with pytest.raises(TraceError, match=r"does not list the ranks of group '7' of 2; give a JSON file"):
        rebuild(Trace("kineto", (job.recording(0, 4),), 4))


def test_groups_of_which_nothing_is_known_are_assumed_and_that_is_said() -> None:
    """Beside tensor-parallel pairs, data parallelism has one rank of each pair."""
    job = jobs.Captured("rank0.json")
    for group in (job.builder.group("TP", "", (0, 1), 2), job.builder.group("DP"), job.builder.group("EP")):
        job.communicate(20, 0, 5, 10, Communication("all_reduce", group, 64))
    rebuilt = rebuild(Trace("astrasim", (job.recording(0, 4),), 4))
    groups = {call.dimension: call.ranks for call in rebuilt.program.calls if 0 in call.ranks}
    assert groups == {"TP": (0, 1), "DP": (0, 2), "EP": (0, 1, 2, 3)}
    assert "group 'DP' has the 2 ranks 0, 2, which the trace does not say" in rebuilt.assumptions


def test_roots_move_along_with_their_group() -> None:
    job = jobs.Captured("rank0.json")
    group = job.builder.group("7", "tp", (0, 1), 2)
    data = job.builder.group("8", "dp", (0, 2), 2)
    job.communicate(20, 0, 5, 10, Communication("broadcast", group, 64, peer=1))
    job.communicate(20, 20, 25, 10, Communication("all_reduce", data, 64))
    rebuilt = rebuild(Trace("kineto", (job.recording(0, 4),), 4), scale_to=8)
    roots = {call.ranks for call in rebuilt.program.calls if call.collective == "broadcast"}
    assert roots == {(1, 0), (3, 2), (5, 4), (7, 6)}


def test_clocks_are_brought_together_through_ranks_in_between() -> None:
    """Ranks 0 and 3 do nothing together; the clock of the host of ranks 2 and 3 is a second ahead."""
    recordings = []
    for rank in range(4):
        job = jobs.Captured(f"rank{rank}.json")
        tensor = (0, 1) if rank < 2 else (2, 3)
        data = (0, 2) if rank % 2 == 0 else (1, 3)
        for place, ranks in enumerate((tensor, data)):
            group = job.builder.group(f"{ranks}", "", ranks, 2)
            job.communicate(20, 40 * place, 40 * place + 5, 30, Communication("all_reduce", group, 64))
        recordings.append(job.recording(rank, 4, origin=10**9 * (rank >= 2), host="ab"[rank >= 2]))
    assert rebuild(jobs.trace_of(*recordings)).captured_span == 75 * US


def test_messages_are_matched_by_their_ends_whatever_their_numbers() -> None:
    """PyTorch counts the sends of a process, whoever they go to."""
    recordings = []
    for rank, sequences in enumerate((((1, 0), (2, 1)), ((0, 0),), ((0, 0),))):
        builder = jobs.RecordingBuilder(f"rank{rank}.json")
        lane = builder.lane("stream", "stream 20")
        for peer, sequence in sequences:
            what = Communication("recv" if rank else "send", size=8, peer=peer)
            builder.node(1, lane, "kernel", communication=what, sequence=sequence, start=sequence * US, duration=US)
        recordings.append(builder.build(rank, 3))
    assert {call.ranks for call in rebuild(jobs.trace_of(*recordings)).program.calls} == {(0, 1), (0, 2)}


def test_steps_are_those_that_all_ranks_have_marked() -> None:
    recordings = []
    for rank, numbers in enumerate(((5, 6, 7), (6, 7))):
        job = jobs.Captured(f"rank{rank}.json")
        job.host("work", 0, 100)
        for place, number in enumerate(numbers):
            job.step(number, 10 * place, 10 * place + 5 + number)
        recordings.append(job.recording(rank, 2))
    rebuilt = rebuild(jobs.trace_of(*recordings))
    assert rebuilt.step_numbers == (6, 7)
    assert rebuilt.captured_steps.tolist() == [[11 * US, 12 * US], [11 * US, 12 * US]]


def test_a_rank_that_does_nothing_is_no_obstacle() -> None:
    empty = jobs.RecordingBuilder("rank2.json").build(2, 3)
    job = [jobs.Captured(f"rank{rank}.json") for rank in range(2)]
    for rank, each in enumerate(job):
        what = Communication("recv" if rank else "send", size=8, peer=1 - rank)
        each.communicate(20, 0, 5, 10, what)
    recordings = [each.recording(rank, 3) for rank, each in enumerate(job)]
    rebuilt = rebuild(jobs.trace_of(*recordings, empty))
    assert rebuilt.program.ranks == 3
    assert rebuilt.captured_span == 15 * US


def test_ranks_that_move_different_amounts_do_not_belong_together() -> None:
    trace = jobs.trace_of(_sending(0, ALL), _sending(1, ALL._replace(size=8192)))
    with pytest.raises(TraceError, match="move 4096 and 8192 bytes in what should be one all_reduce"):
        rebuild(trace)


def test_clocks_that_nothing_brings_together_are_refused() -> None:
    recordings = []
    for rank in range(2):
        job = jobs.Captured(f"rank{rank}.json")
        job.host("work", 0, 10)
        recordings.append(job.recording(rank, 2, origin=17 * 10**17 * rank))
    with pytest.raises(TraceError, match="more than an hour after the first rank"):
        rebuild(jobs.trace_of(*recordings))
