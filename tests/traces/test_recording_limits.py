"""What no reader may let pass, whatever its files say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabricsim.errors import TraceError
from fabricsim.records.program import CLOCK_END
from fabricsim.traces.rank_groups import MOST_LISTED, strided
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, MOST_SIZE, Communication, RecordingBuilder


def builder() -> RecordingBuilder:
    made = RecordingBuilder("file")
    made.lane("stream", "7")
    return made


@pytest.mark.parametrize(
    ("start", "duration"),
    [(CLOCK_END, 1), (2**62, 2**62)],
)
def test_times_end_with_the_clock(start: int, duration: int) -> None:
    made = builder()
    made.node(COMPUTE, 0, "first", start=0, duration=1)
    made.node(COMPUTE, 0, "gemm", start=start, duration=duration)
    with pytest.raises(TraceError, match="file: operation 'gemm' ends after the 92 days"):
        made.build(0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"duration": 2**63}, "the duration 9223372036854775808; it is a whole number from -1 to 9223372036854775807"),
        ({"duration": -5}, "the duration -5; it is a whole number from -1"),
        ({"duration": 1.5}, r"the duration 1\.5; it is a whole number"),
        ({"duration": "1"}, "the duration '1'; it is a whole number"),
        ({"start": -5}, "the start -5;"),
        ({"lane": 1}, "the lane 1; it is a whole number from 0 to 0"),
        ({"lane": -1}, "the lane -1;"),
        ({"kind": 6}, "the kind 6; it is a whole number from 0 to 5"),
        ({"work": (-2, 0)}, "the flops -2;"),
    ],
)
def test_numbers_of_an_operation_are_some_that_can_be(changed: dict[str, Any], says: str) -> None:
    made = builder()
    made.node(COMPUTE, 0, "first", start=0, duration=1)
    made.node(**{"kind": COMPUTE, "lane": 0, "name": "gemm", **changed})
    with pytest.raises(TraceError, match=f"file: operation 'gemm' has {says}"):
        made.build(0)


def test_numbers_of_numpy_are_numbers() -> None:
    made = builder()
    made.node(COMPUTE, 0, "gemm", start=np.int32(3), duration=np.uint64(5))  # type: ignore[arg-type]
    nodes = made.build(0).nodes
    assert (nodes["start"].tolist(), nodes["duration"].tolist()) == ([3], [5])


@pytest.mark.parametrize(
    ("communication", "says"),
    [
        (Communication("send", size=MOST_SIZE + 1), "has a send of 9007199254740993 bytes"),
        (Communication("send", size=-1000), "has a send of -1000 bytes; a whole number of at most"),
        (Communication("send", size=0.5), r"has a send of 0\.5 bytes"),  # type: ignore[arg-type]
        (Communication("all_to_all", 0, 8, sent=(4, -4)), "has a all_to_all of -4 bytes"),
        (Communication("all_reduce", 5, 8), "has a all_reduce of group 5, but there are 1 groups"),
        (Communication("allreduce", 0, 8), "has a communication 'allreduce'; there are all_reduce, reduce_scatter"),  # type: ignore[arg-type]
    ],
)
def test_a_communication_is_one_that_can_be(communication: Communication, says: str) -> None:
    made = builder()
    made.group("all", "", (0, 1), 2)
    made.node(COMMUNICATION, 0, "sum", communication=Communication("all_reduce", size=MOST_SIZE))
    with pytest.raises(TraceError, match=f"file: {says}"):
        made.node(COMMUNICATION, 0, "sum", communication=communication)


def test_an_error_is_one_line_of_text() -> None:
    assert str(TraceError("a\nb", "group 'x\x7f\u202e\u00e9' is none")) == "a\\nb: group 'x\\x7f\\u202e\u00e9' is none"


def test_a_job_has_a_rank() -> None:
    with pytest.raises(TraceError, match="file: is of a job of 0 ranks"):
        builder().build(0, 0)


@pytest.mark.slow
def test_groups_have_so_many_ranks_in_all() -> None:
    made = builder()
    for number in range(4):
        for _ in range(3):
            made.group(str(number), "", strided(MOST_LISTED // 4))
    with pytest.raises(TraceError, match="more than 4194304 ranks in all"):
        made.group("one more", "", (0,))
