"""Traces written as GOAL text."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, TextIO

from fabricsim.errors import InputError
from fabricsim.files.atomic import whole
from fabricsim.records.program import NONE
from fabricsim.traces.trace import COMMUNICATION, HOST, KINDS, WAIT, Communication, Lane, Recording, Trace
from fabricsim.units import PS_PER_NS

"""GOAL counts nanoseconds."""
MOST_OPTION = 2**32 - 2
"""Largest tag, CPU and adapter: 32 bits, whose last value stands for any."""


def write(trace: Trace, path: Path | str) -> tuple[str, ...]:
    """Write a schedule that holds what the trace says of messages, work and their order.

    `trace`: all ranks of a job, with no communication but sends and receives. Nodes that have a stream or thread wait
        for the one before them there; each lane becomes a CPU.
    `path`: the file; what was there is lost.
    Returns: what of this trace GOAL has no room for, a sentence each, without a full stop; empty if nothing is lost.
    Raises InputError if a rank, a duration, a size or the other end of a message is not known, or there is a
        collective.
    """
    ranks = _ranks(trace)
    absent = sorted(set(range(ranks)) - {recording.rank for recording in trace.recordings})
    if absent or trace.recordings[0].rank == NONE:
        what = f"rank {absent[0]} is" if absent else "its ranks are"
        raise InputError(f"GOAL needs the schedule of each rank, and {what} not known; give the traces of all ranks")
    lost: dict[str, None] = {}
    with whole(Path(path), "name another place") as part, part.open("w", encoding="ascii", newline="\n") as file:
        file.write(f"num_ranks {ranks}\n")
        for recording in trace.recordings:
            _write_rank(file, recording, lost)
    return tuple(lost)


def _ranks(trace: Trace) -> int:
    return trace.world if trace.world != NONE else 1 + max(recording.rank for recording in trace.recordings)


def _write_rank(file: TextIO, recording: Recording, lost: dict[str, None]) -> None:
    _note_losses(recording, lost)
    cpus = _cpus(recording.lanes)
    file.write(f"\nrank {recording.rank} {{\n")
    columns = (recording.nodes[key].tolist() for key in ("kind", "lane", "communication", "duration"))
    for number, (kind, lane, communication, duration) in enumerate(zip(*columns, strict=True)):
        cpu = f" cpu {cpus[lane]}" if cpus[lane] else ""
        if kind == COMMUNICATION:
            tag, nic = _message(recording, communication)
            file.write(f"l{number}: {tag}{cpu}{nic}\n")
        else:
            file.write(f"l{number}: calc {_calc(recording, number, kind, duration)}{cpu}\n")
    edges = recording.edges.tolist()
    file.writelines(f"l{after} {'i' * on_start}requires l{before}\n" for before, after, on_start in edges)
    file.writelines(f"l{after} requires l{before}\n" for before, after in _orders(recording))
    file.write("}\n")


def _cpus(lanes: tuple[Lane, ...]) -> list[int]:
    """CPU of each lane: its own of a GOAL schedule, else the lanes counted."""
    numbers = [int(name) if (name := lane.name.removeprefix("cpu ")).isdecimal() else NONE for lane in lanes]
    own = all(lane.kind == "cpu" for lane in lanes) and NONE not in numbers
    return numbers if own else list(range(len(lanes)))


def _message(recording: Recording, communication: int) -> tuple[str, str]:
    """Write a send or receive as GOAL has it, up to its tag, and its adapter."""
    what = recording.communications[communication] if communication != NONE else Communication("unknown")
    if what.operation not in {"send", "recv"}:
        _refuse(
            recording, f"has {what.operation!r}, and GOAL only sends and receives; write the messages it is made of"
        )
    receives = what.operation == "recv"
    if what.size == NONE or (what.peer == NONE and not receives):
        lacking = "size" if what.size == NONE else "receiver"
        _refuse(recording, f"has a {what.operation} of no known {lacking}, and GOAL needs one; capture it")
    if what.tag > MOST_OPTION or what.tag < NONE:
        _refuse(recording, f"has a {what.operation} with tag {what.tag}; GOAL has tags from 0 to {MOST_OPTION}")
    tag = f" tag {what.tag}" if what.tag else ""
    nic = f" nic {what.nic}" if what.nic != NONE else ""
    return f"{what.operation} {what.size}b {'from' if receives else 'to'} {what.peer}{tag}", nic


def _calc(recording: Recording, number: int, kind: int, duration: int) -> int:
    """Nanoseconds of work; none of a wait, whose time others make."""
    if kind == WAIT:
        return 0
    if duration == NONE:
        name = recording.names[int(recording.nodes[number]["name"])]
        _refuse(recording, f"has {KINDS[kind]} {name!r} of no known duration; join it with a trace that has times")
    return round(duration / PS_PER_NS)


def _refuse(recording: Recording, problem: str) -> NoReturn:
    raise InputError(f"{recording.source}: rank {recording.rank} {problem}")


def _orders(recording: Recording) -> Iterator[tuple[int, int]]:
    """Pairs of nodes that follow each other in a stream or thread."""
    for number, lane in enumerate(recording.lanes):
        if lane.kind in {"stream", "thread"}:
            own = (recording.nodes["lane"] == number).nonzero()[0]
            starts = recording.nodes["start"][own]
            ordered = own[starts.argsort(kind="stable")].tolist()
            yield from pairwise(ordered)


def _note_losses(recording: Recording, lost: dict[str, None]) -> None:
    nodes = recording.nodes
    durations = nodes["duration"][nodes["kind"] != COMMUNICATION]
    own = {"send", "recv", "calc"}
    checks = {
        "names of operations are left out": not own.issuperset(recording.names),
        "times at which operations began are left out": bool((nodes["start"] != NONE).any()),
        "floating-point operations and bytes of kernels are left out": bool(
            ((nodes["flops"] != NONE) | (nodes["bytes"] != NONE)).any()
        ),
        "durations are rounded to whole nanoseconds": bool((durations % PS_PER_NS != 0).any()),
        "marks of iterations are left out": bool(recording.steps.size),
        "work of hosts becomes that of devices": bool(((nodes["kind"] == HOST) & (nodes["duration"] > 0)).any()),
        "operations without an order take turns on one CPU": any(lane.kind == "any" for lane in recording.lanes),
    }
    lost.update({sentence: None for sentence, happens in checks.items() if happens})
