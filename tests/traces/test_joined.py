from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces import readers
from fabricsim.traces.joined import join
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    LAUNCH,
    Communication,
    Operation,
    ProcessGroup,
    Recording,
    RecordingBuilder,
)

Told = list[tuple["Operation", int]]


def timed(operations: Told, rank: int = 0, world: int = 4) -> Recording:
    builder = RecordingBuilder("kineto.json")
    for number, (operation, size) in enumerate(operations):
        # kernels run in the reverse order of their launches, each on a stream of its own
        launch = builder.node(LAUNCH, builder.lane("thread", "1"), "call", start=number, duration=1)
        node = builder.node(
            COMMUNICATION,
            builder.lane("stream", str(number)),
            "ncclDevKernel",
            communication=Communication(operation, size=size),
            start=1000 - number,
            duration=5,
        )
        builder.edge(launch, node)
    builder.missing["the size of 2 of 2 communications (capture with another PyTorch)"] = None
    builder.missing["something else"] = None
    return builder.build(rank, world)


def described(operations: Told, rank: int = 0, world: int = 4, ranks: tuple[int, ...] = ()) -> Recording:
    builder = RecordingBuilder("et.json")
    group = builder.group("0", "", ranks, len(ranks) or 4)
    for number, (operation, size) in enumerate(operations):
        builder.node(COMPUTE, builder.lane("thread", "1"), "aten::mm")
        builder.node(
            COMMUNICATION,
            builder.lane("stream", "all"),
            operation,
            communication=Communication(operation, group, size, "float32"),
            sequence=number + 10,
        )
    return builder.build(rank, world)


def sizes(recording: Recording) -> list[int]:
    return [recording.communications[number].size for number in recording.nodes["communication"] if number != NONE]


class TestJoin:
    def test_by_the_order_of_launches(self) -> None:
        [joined] = join(
            [timed([("send_recv", NONE), ("all_reduce", NONE), ("unknown", NONE)])],
            [described([("all_to_all", 8), ("all_reduce", 16), ("broadcast", 24)])],
        )
        found = [joined.communications[number] for number in joined.nodes["communication"] if number != NONE]
        assert [(one.operation, one.size) for one in found] == [
            ("all_to_all", 8),
            ("all_reduce", 16),
            ("broadcast", 24),
        ]
        messages = joined.nodes[joined.nodes["kind"] == COMMUNICATION]
        assert messages["sequence"].tolist() == [10, 11, 12]
        assert messages["start"].tolist() == [1000, 999, 998]
        assert joined.missing == ("something else",)

    def test_a_group_as_large_as_the_job_has_all_ranks(self) -> None:
        [joined] = join([timed([("all_reduce", NONE)])], [described([("all_reduce", 16)], world=NONE)])
        assert joined.groups == (ProcessGroup("0", "", (0, 1, 2, 3), 4),)

    def test_by_operation_where_only_one_of_them_has_the_others(self) -> None:
        [joined] = join(
            [timed([("broadcast", NONE), ("send_recv", NONE), ("all_reduce", NONE)])],
            [described([("all_reduce", 16), ("send", 1), ("recv", 2), ("broadcast", 24)])],
        )
        assert sizes(joined) == [24, NONE, 16]
        assert any("size of 1 communications" in sentence for sentence in joined.missing)

    def test_a_barrier_is_an_all_reduce_that_the_host_calls_so(self) -> None:
        [joined] = join([timed([("all_reduce", 4)])], [described([("barrier", NONE)])])
        assert joined.communications[0].operation == "barrier"

    def test_further_kernels_of_one_record_have_no_bytes_of_their_own(self) -> None:
        [joined] = join(
            [timed([("all_reduce", NONE), ("all_reduce", 0), ("all_reduce", NONE)])],
            [described([("all_reduce", 16), ("all_reduce", 32)])],
        )
        assert sizes(joined) == [16, 0, 32]

    def test_ranks_without_an_execution_trace_stay_as_they_are(self) -> None:
        one, other = timed([("all_reduce", NONE)]), timed([("all_reduce", NONE)], rank=1)
        joined = join([one, other], [described([("all_reduce", 16)])])
        assert joined[1] is other
        assert sizes(joined[0]) == [16]

    @pytest.mark.parametrize(
        ("operations", "world", "rank", "ranks", "says"),
        [
            ([("all_reduce", 16)], 4, 0, (), "has 1 communications all_reduce, but kineto.json has 2"),
            ([("all_reduce", 16), ("all_reduce", 8)], 4, 0, (), "of 8 bytes, but of 32 in kineto.json"),
            ([("all_reduce", 16), ("all_reduce", 32)], 8, 0, (), "a job of 8 ranks"),
            ([("all_reduce", 16), ("all_reduce", 32)], 4, 2, (), "no Kineto trace"),
        ],
    )
    def test_contradictions(self, operations: Told, world: int, rank: int, ranks: tuple[int, ...], says: str) -> None:
        with pytest.raises(TraceError, match=says):
            join([timed([("all_reduce", NONE), ("all_reduce", 32)])], [described(operations, rank, world, ranks)])

    def test_groups_that_contradict_each_other(self) -> None:
        one = join([timed([("all_reduce", NONE)])], [described([("all_reduce", 16)], ranks=(0, 1))])
        with pytest.raises(TraceError, match=r"'0' has ranks \(0, 2\), but \(0, 1\)"):
            join(one, [described([("all_reduce", 16)], ranks=(0, 2))])

    @given(st.lists(st.sampled_from(["all_reduce", "all_gather", "broadcast", "all_to_all"]), max_size=30), st.data())
    def test_what_one_says_the_joined_says(self, operations: list[Operation], data: st.DataObject) -> None:
        told: Told = [(operation, 8 * number) for number, operation in enumerate(operations)]
        hidden: Told = [(operation, size if data.draw(st.booleans()) else NONE) for operation, size in told]
        [joined] = join([timed(hidden)], [described(told)])
        assert sizes(joined) == [size for _, size in told]


@pytest.mark.slow
def test_dlrm_has_times_sizes_and_splits_of_all_ranks(traces: Path) -> None:
    paths = [traces / "kineto" / "dlrm_kineto.tar.gz", traces / "pytorch_et" / "dlrm_pytorch_et.tar.gz"]
    alone, trace = readers.read(paths[:1]), readers.read(paths)
    assert (trace.form, trace.world) == ("kineto", 8)
    found = []
    for before, recording in zip(alone.recordings, trace.recordings, strict=True):
        messages = recording.nodes[recording.nodes["kind"] == COMMUNICATION]
        assert (messages["start"] == before.nodes["start"][before.nodes["kind"] == COMMUNICATION]).all()
        assert messages["sequence"].tolist() == list(range(147, 155))
        found.append([recording.communications[number] for number in messages["communication"]])
        assert recording.groups == (ProcessGroup("0", "", tuple(range(8)), 8),)
        assert not any("communications" in sentence for sentence in recording.missing)
    assert all(one.size > 0 for rank in found for one in rank)
    for number, splits in enumerate(zip(*found, strict=True)):
        if number in {0, 2, 3, 5}:  # all_to_allv
            for i, sender in enumerate(splits):
                assert sum(sender.sent) == sender.size
                assert [receiver.received[i] for receiver in splits] == list(sender.sent)


def test_files_of_forms_that_do_not_belong_together(tmp_path: Path) -> None:
    header = '"header": {"rank": 0, "n_ranks": 2}, "metadata": {"inspector_output_format_version": "v4.0"}'
    (tmp_path / "a.log").write_text(f'{{{header}, "coll_perf": {{"coll": "AllReduce"}}}}\n')
    (tmp_path / "b.json").write_text('{"entries": [{"profiling_name": "nccl:all_reduce"}], "version": "2.10"}')
    with pytest.raises(TraceError, match=r"b\.json: is of form flight_recorder, but .*a\.log of inspector"):
        readers.read([tmp_path])
