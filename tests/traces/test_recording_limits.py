"""What no reader may let pass, whatever its files say."""

from __future__ import annotations

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
    ("start", "duration", "says"),
    [
        (0, 2**63, "file: has an operation whose times or counts are numbers of more than 64 bits"),
        (CLOCK_END, 1, "file: operation 'gemm' ends after the 92 days"),
        (2**62, 2**62, "file: operation 'gemm' ends after the 92 days"),
    ],
)
def test_times_end_with_the_clock(start: int, duration: int, says: str) -> None:
    made = builder()
    made.node(COMPUTE, 0, "first", start=0, duration=1)
    made.node(COMPUTE, 0, "gemm", start=start, duration=duration)
    with pytest.raises(TraceError, match=says):
        made.build(0)


def test_a_communication_has_a_size_that_can_be() -> None:
    made = builder()
    made.node(COMMUNICATION, 0, "sum", communication=Communication("all_reduce", size=MOST_SIZE))
    with pytest.raises(TraceError, match="has a send of 9007199254740993 bytes"):
        made.node(COMMUNICATION, 0, "sum", communication=Communication("send", size=MOST_SIZE + 1))


def test_an_error_is_one_line_of_text() -> None:
    assert str(TraceError("a\nb", "group 'x\x7f\u202e\u00e9' is none")) == "a\\nb: group 'x\\x7f\\u202e\u00e9' is none"


def test_a_job_has_a_rank() -> None:
    with pytest.raises(TraceError, match="file: is of a job of 0 ranks"):
        builder().build(0, 0)


def test_groups_have_so_many_ranks_in_all() -> None:
    made = builder()
    for number in range(4):
        for _ in range(3):
            made.group(str(number), "", strided(MOST_LISTED // 4))
    with pytest.raises(TraceError, match="more than 4194304 ranks in all"):
        made.group("one more", "", (0,))
