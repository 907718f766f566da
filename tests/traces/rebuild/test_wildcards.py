"""Receives of any rank or tag in GOAL schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.traces import readers
from fabricsim.traces.rebuild.programs import Rebuilt, rebuild
from fabricsim.traces.rebuild.wildcards import settled
from fabricsim.traces.trace import Trace


def read(folder: Path, *ranks: str) -> Trace:
    file = folder / "job.goal"
    blocks = [f"rank {rank} {{\n{text}\n}}\n" for rank, text in enumerate(ranks)]
    file.write_text(f"num_ranks {len(ranks)}\n" + "".join(blocks))
    return readers.read([file])


def ends(trace: Trace, rank: int) -> list[tuple[int, int]]:
    recording = trace.recordings[rank]
    received = [recording.communications[number] for number in recording.nodes["communication"].tolist()]
    return [(what.peer, what.tag) for what in received if what.operation == "recv"]


def assumed(rebuilt: Rebuilt) -> list[str]:
    return [line for line in rebuilt.assumptions if line.startswith("the trace does not say which of several sends")]


def test_what_named_receives_leave_is_what_others_take(tmp_path: Path) -> None:
    receives = "recv 8b from -1 tag -1\nrecv 8b from 2 tag 7\nrecv 8b from 1 tag 4"
    trace = read(tmp_path, receives, "send 8b to 0 tag 4\nsend 8b to 0 tag 5", "send 8b to 0 tag 7")

    assert ends(settled(trace), 0) == [(1, 5), (2, 7), (1, 4)]
    rebuilt = rebuild(trace)
    assert sorted(call.ranks for call in rebuilt.program.calls) == [(1, 0), (1, 0), (2, 0)]
    assert assumed(rebuilt) == []


def test_several_ranks_take_turns_and_that_is_said(tmp_path: Path) -> None:
    twice = "send 8b to 0 tag 1\nsend 8b to 0 tag 2"
    trace = read(tmp_path, "\n".join(["recv 8b from -1 tag -1"] * 4), twice, twice)

    assert ends(settled(trace), 0) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert assumed(rebuild(trace)) == ["the trace does not say which of several sends 4 receives of rank 0 took"]


def test_what_leaves_less_open_goes_first(tmp_path: Path) -> None:
    receives = "recv 8b from -1 tag -1\nrecv 8b from -1 tag 3\nrecv 8b from 2 tag -1\nrecv 16b from -1 tag 3"
    trace = read(
        tmp_path, receives, "send 8b to 0 tag 3\nsend 16b to 0 tag 3", "send 8b to 0 tag 9\nsend 8b to 0 tag 9"
    )

    assert ends(settled(trace), 0) == [(2, 9), (1, 3), (2, 9), (1, 3)]
    assert assumed(rebuild(trace)) == []


@pytest.mark.parametrize(
    ("receive", "problem"),
    [
        ("recv 9b from -1 tag 3", r"rank 0 receives 9 bytes of any rank, and no send to it is left for that; give"),
        ("recv 8b from 1 tag -1\nrecv 8b from 1 tag -1", "receives 8 bytes of rank 1 with any tag, and no send"),
    ],
)
def test_receives_of_what_nobody_sends_are_refused(tmp_path: Path, receive: str, problem: str) -> None:
    with pytest.raises(TraceError, match=problem):
        rebuild(read(tmp_path, receive, "send 8b to 0 tag 3"))


@pytest.mark.slow
@given(data=st.data())
def test_named_receives_and_open_ones_take_all_sends_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whichever receives are open, each send is taken once."""
    sends = data.draw(
        st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.sampled_from((8, 16))), min_size=1, max_size=8)
    )
    order = data.draw(st.permutations(sends))
    # opening both leaves what is open enough for all: one that names more might find its message gone
    receives = [
        f"recv {size}b from -1 tag -1" if data.draw(st.booleans()) else f"recv {size}b from {source} tag {tag}"
        for source, tag, size in order
    ]
    texts = [
        "\n".join(f"send {size}b to 0 tag {tag}" for source, tag, size in sends if source == rank) for rank in (1, 2, 3)
    ]
    trace = settled(read(tmp_path_factory.mktemp("goal"), "\n".join(receives), *texts))

    assert sorted(ends(trace, 0)) == sorted((source, tag) for source, tag, _ in sends)
