"""Jobs of several hosts of which some ranks were captured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.records.program import COMPUTE
from fabricsim.traces.rebuild.programs import Rebuilt, rebuild
from fabricsim.traces.rebuild.roles import resemble
from fabricsim.traces.trace import Communication, Recording, RecordingBuilder, Trace
from tests.reference import captured_jobs as jobs

US = 10**6
HOST, WORLD = 4, 8

Layout = dict[str, tuple[int, int]]
"""Stride and size of groups by their names."""
TENSOR_PIPELINE: Layout = {"tp": (1, 4), "pp": (4, 2)}
TENSOR_DATA: Layout = {"tp": (1, 4), "dp": (4, 2)}
UNNAMED: Layout = {"3": (1, 4), "4": (4, 2)}


def groups(builder: RecordingBuilder, rank: int, layout: Layout) -> dict[str, int]:
    made = {}
    for name, (stride, size) in layout.items():
        first = rank // (stride * size) * (stride * size) + rank % stride
        made[name] = builder.group(name, "", tuple(range(first, first + stride * size, stride)), size)
    return made


def computing(rank: int, layout: Layout) -> Recording:
    """One rank of two hosts of 4 that works for so many microseconds as its number says, and reduces in each group."""
    job = jobs.Captured(f"rank{rank}.json")
    job.launch(7, 0, 5, 10 + rank)
    for number, (name, group) in enumerate(groups(job.builder, rank, layout).items()):
        size = 64 if name == "dp" or len(layout) < 2 else 64 + number
        job.communicate(20, 100 * number + 50, 100 * number + 55, 10, Communication("all_reduce", group, size))
    return job.recording(rank, WORLD)


def staged(rank: int) -> Recording:
    """One rank of two pipeline stages, a host each: the first sends to the second, and both reduce in their host."""
    job = jobs.Captured(f"rank{rank}.json")
    made = groups(job.builder, rank, TENSOR_PIPELINE)
    stage = rank // HOST
    for turn in range(1 + stage):  # the second stage has a layer more
        job.communicate(20, 10 * turn, 10 * turn + 5, 4, Communication("all_reduce", made["tp"], 1000 + stage))
    peer = (rank + HOST) % WORLD
    what = Communication("recv" if stage else "send", made["pp"], 5000, peer=peer)
    job.communicate(21, 60, 65, 4, what)
    return job.recording(rank, WORLD)


def likeness(rebuilt: Rebuilt) -> list[int]:
    """Whom each rank does as, by how long its kernel takes."""
    kernels = rebuilt.program.ops[rebuilt.program.ops["kind"] == COMPUTE]
    assert kernels["rank"].tolist() == list(range(WORLD))
    return [int(duration) // US - 10 for duration in kernels["duration"]]


def test_one_rank_of_each_host_stands_for_the_ranks_of_its_stage() -> None:
    rebuilt = rebuild(Trace("kineto", (staged(0), staged(4)), WORLD))

    calls = sorted((call.collective, call.ranks, call.size) for call in rebuilt.program.calls)
    assert calls == [
        ("all_reduce", (0, 1, 2, 3), 1000),
        *[("all_reduce", (4, 5, 6, 7), 1001)] * 2,
        *(("send_recv", (rank, rank + 4), 5000) for rank in range(4)),
    ]
    chosen = "with their places in groups 'pp', 'tp', as far as there is one, of several that before them"
    assert rebuilt.assumptions[0].startswith("2 of 8 ranks were captured (0, 4); others are assumed to do as")
    assert rebuilt.assumptions[0].endswith(f" the captured one {chosen}: 1, 2, 3 as 0; 5, 6, 7 as 4")
    assert rebuilt.assumptions[1] == "ranks that were not captured send to the same places of their groups"


def test_stages_of_which_no_rank_was_captured_cannot_send() -> None:
    with pytest.raises(TraceError, match=r"rank 4 cannot be taken to do as rank 0 does; give the files of all 8 ranks"):
        rebuild(Trace("kineto", tuple(staged(rank) for rank in range(HOST)), WORLD))


@pytest.mark.parametrize("layout", [TENSOR_PIPELINE, TENSOR_DATA, UNNAMED, {"dp": (1, 8)}, {"tp": (1, 2)}])
@pytest.mark.parametrize(
    ("captured", "wanted"),
    [((0, 4), [0, 0, 0, 0, 4, 4, 4, 4]), (range(HOST), [0, 1, 2, 3] * 2), (range(HOST, WORLD), [4, 5, 6, 7] * 2)],
    ids=["one of each host", "the first host", "the second host"],
)
def test_ranks_do_as_those_with_their_place(captured: tuple[int, ...], wanted: list[int], layout: Layout) -> None:
    rebuilt = rebuild(Trace("kineto", tuple(computing(rank, layout) for rank in captured), WORLD))

    assert likeness(rebuilt) == wanted
    (said,) = (line for line in rebuilt.assumptions if line.startswith(f"{len(captured)} of 8 ranks were captured"))
    pairs = [f"{rank} as {other}" for rank, other in enumerate(wanted) if rank != other]
    assert said.endswith("1, 2, 3 as 0; 5, 6, 7 as 4" if len(captured) == 2 else "; ".join(pairs))


def test_the_stage_decides_before_the_host() -> None:
    """Tensor-parallel pairs and two stages in each host, which are those of ranks 0 and 6."""
    layout = {"tp": (1, 2), "pp": (2, 2), "dp": (4, 2)}
    recordings = tuple(computing(rank, layout) for rank in (0, 6))
    # stages differ in what they do, so that only likeness is asked for
    assert resemble({one.rank: one for one in recordings}, WORLD).of == (0, 0, 6, 6, 0, 0, 6, 6)


@pytest.mark.slow
@given(data=st.data())
def test_whoever_was_captured_does_as_it_did(data: st.DataObject) -> None:
    """Each rank does as a captured one, whatever groups there are; itself if it was."""
    world = data.draw(st.integers(2, 24))
    captured = data.draw(st.sets(st.integers(0, world - 1), min_size=1))
    ranks = st.lists(st.integers(0, world - 1), unique=True, max_size=6).map(tuple)
    recordings = {}
    for rank in captured:
        builder = RecordingBuilder("r")
        for name in ("tp", "pp", "dp", "5"):
            builder.group(name, "", data.draw(ranks))
        recordings[rank] = builder.build(rank, world)
    like = resemble(recordings, world)

    assert len(like.of) == world
    assert all(other in captured for other in like.of)
    assert all(like.of[rank] == rank for rank in captured)
    assert bool(like.assumption) == (len(captured) < world)
    assert len(like.assumption) < 600
