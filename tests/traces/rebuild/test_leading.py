"""Kernels at the beginning of a capture that were launched before it, and so say nothing of what they move."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fabricsim.errors import TraceError
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild.programs import Rebuilt, rebuild
from fabricsim.traces.trace import Communication, Recording
from tests.reference import captured_jobs as jobs

SAID = "communications at the beginning, of which the trace does not say what they move"
UNKNOWN = Communication("unknown")


def real(traces: Path, name: str) -> dict[str, dict[str, Any]]:
    """Files of a captured job, by name."""
    (file,) = (traces / "kineto").glob(f"{name}*")
    if not file.name.endswith(".tar.gz"):
        return {"rank0.json": json.loads(gzip.decompress(file.read_bytes()))}
    with tarfile.open(file) as archive:
        members = [member for member in archive if member.isfile()]
        return {Path(member.name).name: json.loads(archive.extractfile(member).read()) for member in members}  # type: ignore[union-attr]


def began_late(document: dict[str, Any], count: int) -> None:
    """Take away what a profiler that began after their launches would not have seen of the first kernels of NCCL."""
    events = document["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel" and "nccl" in event["name"]]
    first = sorted(kernels, key=lambda event: event["ts"])[:count]
    numbers = {event["args"]["correlation"] for event in first}
    for event in first:
        event["args"] = {key: event["args"][key] for key in ("device", "stream", "correlation")}
    calls = [
        event for event in events if event.get("cat") == "cuda_runtime" and event["args"].get("correlation") in numbers
    ]
    gone = {id(call) for call in calls}
    for call in calls:
        gone |= {
            id(event)
            for event in events
            if event.get("name") == "record_param_comms"
            and event["tid"] == call["tid"]
            and event["ts"] <= call["ts"] <= event["ts"] + event["dur"]
        }
    document["traceEvents"] = [event for event in events if id(event) not in gone]


def rebuilt(folder: Path, documents: dict[str, dict[str, Any]]) -> Rebuilt:
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    return rebuild(read([folder]))


@cache
def whole_sizes(file: Path) -> list[int]:
    return [call.size for call in rebuild(read([file])).program.calls]


@pytest.mark.slow
@pytest.mark.parametrize(("late", "count"), [(range(8), 3), ((0, 3), 1), ((7,), 3)])
def test_ranks_whose_capture_began_late_leave_out_what_they_had_launched(
    traces: Path, tmp_path: Path, late: range | tuple[int, ...], count: int
) -> None:
    """Each rank calls eight collectives; what one of them does not describe, none can do."""
    documents = real(traces, "dlrm")
    for name, document in documents.items():
        if int(name.removeprefix("worker")[0]) in late:
            began_late(document, count)
    cut = rebuilt(tmp_path, documents)
    assert [call.size for call in cut.program.calls] == whole_sizes(traces / "kineto" / "dlrm_kineto.tar.gz")[count:]
    assert sum(f"{count * len(late)} {SAID}" in line for line in cut.assumptions) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("count", "steps"), [(3, (5, 6)), (10, (6,))])
def test_steps_that_lack_communications_are_not_compared(
    traces: Path, tmp_path: Path, count: int, steps: tuple[int, ...]
) -> None:
    documents = real(traces, "nccl_parser")
    began_late(documents["rank0.json"], count)
    cut = rebuilt(tmp_path, documents)
    assert len(cut.program.calls) == 21 - count
    assert cut.step_numbers == steps
    aside = ", ".join(str(number) for number in (4, 5, 6) if number not in steps)
    assert f"steps in which communications are left out are not compared: {aside}" in cut.assumptions
    assert not any("capture with" in line and "communications" in line for line in cut.assumptions)


@pytest.mark.slow
def test_a_rank_that_describes_nothing_among_others_is_refused_by_name(traces: Path, tmp_path: Path) -> None:
    documents = real(traces, "dlrm")
    name = next(name for name in documents if name.startswith("worker3"))
    began_late(documents[name], 10)
    with pytest.raises(TraceError, match=r"worker3.*does not say what any of its communications moves.*--only"):
        rebuilt(tmp_path, documents)


def job(rank: int, *whats: tuple[int, Communication]) -> Recording:
    """One rank whose communications, each on a stream, follow one another."""
    captured = jobs.Captured(f"rank{rank}.json")
    for place, (stream, what) in enumerate(whats):
        captured.communicate(stream, 40 * place, 40 * place + 5, 20, what)
    return captured.recording(rank, 2)  # type: ignore[no-any-return]


def reduces(*sizes: int) -> list[tuple[int, Communication]]:
    return [(20, Communication("all_reduce", size=size)) for size in sizes]


def test_a_stream_may_lead_with_unknown_kernels_after_others_have_begun() -> None:
    last = (21, Communication("all_reduce", size=32))
    both = [job(rank, *reduces(8), (21, UNKNOWN), *reduces(16), last) for rank in (0, 1)]
    assert [call.size for call in rebuild(jobs.trace_of(*both)).program.calls] == [8, 16, 32]


def test_an_unknown_kernel_between_known_ones_is_refused_and_none_asks_for_what_is_there() -> None:
    both = [job(rank, *reduces(8), (20, UNKNOWN), *reduces(16)) for rank in (0, 1)]
    with pytest.raises(TraceError, match="others before it are described, so the capture is not whole"):
        rebuild(jobs.trace_of(*both))


def test_ranks_begin_at_different_communications_and_end_with_the_same() -> None:
    first = job(0, (20, UNKNOWN), *reduces(2, 3, 4))
    second = job(1, (20, UNKNOWN), (20, UNKNOWN), *reduces(3, 4))
    assert [call.size for call in rebuild(jobs.trace_of(first, second)).program.calls] == [3, 4]


def test_a_rank_that_lacks_more_than_it_leads_with_is_refused() -> None:
    first = job(0, *reduces(1, 2, 3, 4))
    second = job(1, (20, UNKNOWN), *reduces(3, 4))
    with pytest.raises(TraceError, match=r"1 of 2 ranks captured .* and rank 1 did not"):
        rebuild(jobs.trace_of(first, second))
