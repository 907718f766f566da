"""Traces of PyTorch's profiler (Kineto): Chrome JSON of one rank, of the events that a replay needs.

Kernels and copies stand on their streams, and on the threads of the host the calls that launched them, that wait, and
that record CUDA events or let a stream wait for one. Everything else of the host is a gap between those.

Which stream or event a wait was for is captured only with ``enable_cuda_sync_events``; a wait for a whole device, or a
copy that returns when it is done, is known without.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.dependencies import edges_of
from fabricsim.traces.device_libraries import library_of
from fabricsim.traces.form import Form
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.events import Events, read_events
from fabricsim.traces.kineto.job import CapturedJob
from fabricsim.traces.kineto.joins import Streams, calls_by_correlation, notes_of_kernels
from fabricsim.traces.kineto.messages import Note, communication, operation_of_kernel
from fabricsim.traces.kineto.waits import WAITS, Waits
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    LAUNCH,
    NODE,
    WAIT,
    Communication,
    LaneKind,
    Recording,
    RecordingBuilder,
)
from fabricsim.units import PS_PER_US, human_percent

_NS_PER_US = 1000

_NOTES = re.compile(r"(?:cuda|cu|hip)(?:EventRecord|StreamWaitEvent|EventQuery|StreamQuery)(?:WithFlags)?(?:_\w+)?")
_BLOCKING_CALL = re.compile(r"(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|WithStream)?(?:_v\w+)?")
_TO_PAGEABLE = re.compile(r".*-> Pageable.*")
"""Such a copy is done when its call returns: "API synchronization behavior" in the CUDA runtime's manual."""


def recognises(name: str, head: bytes) -> bool:
    """Whether a file that begins with `head` is of this form, whatever its name."""
    del name
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"[":
        return b'"ph"' in head and b'"cat"' in head
    return start == b"{" and any(key in head for key in (b'"traceEvents"', b'"deviceProperties"'))


def read(source: Source) -> Iterator[Recording]:
    """Read a file.

    `source`: the file: one rank.
    Yields: of that rank.
    Raises TraceError if it is no such file, is cut or damaged, or holds nothing that ran on a device.
    """
    events = read_events(source)
    if not np.isin(events.rows["category"], (scanner.KERNEL, scanner.COPY)).any():
        msg = (
            "holds no kernels of a device (hpu_op and mtia events are not read); capture with ProfilerActivity.CUDA or "
        )
        msg += ".XPU, and while the job computes"
        raise TraceError(source.label, msg)
    _refuse_repeated(source, events)
    yield _Reading(source, events).recording()


def _refuse_repeated(source: Source, events: Events) -> None:
    """Refuse a file in which most kernels and copies stand twice, though a stream runs one at a time.

    Some may be alike: kernels of one graph have one correlation, and older files whole microseconds.
    """
    rows = events.rows[np.isin(events.rows["category"], (scanner.KERNEL, scanner.COPY))]
    keys = rows[["place", "correlation", "name", "start", "duration"]]
    known = (rows["duration"] > 0) & (rows["correlation"] != NONE)
    rows, keys = rows[known], keys[known]
    _, first, times = np.unique(keys, return_index=True, return_counts=True)
    if 2 * int(times[times > 1].sum()) > len(rows):
        row = rows[first[np.argmax(times > 1)]]
        at = f"{events.names[row['name']]!r} at {events.origin + row['start'] / PS_PER_US:.3f} us"
        msg = f"has {int((times - 1).sum())} kernels and copies twice, such as {at}; give each event once"
        raise TraceError(source.label, msg)


class _Reading:
    """Makes a recording of events."""

    def __init__(self, source: Source, events: Events) -> None:
        self.source, self.events, self.rows = source, events, events.rows
        self.builder = RecordingBuilder(source.label)
        self.job = CapturedJob(source, events.head)
        category = self.rows["category"]
        self.on_device = np.isin(category, (scanner.KERNEL, scanner.COPY))
        self.launches = np.full(len(self.rows), NONE, np.int64)
        launches = calls_by_correlation(self.rows, self.rows["correlation"][self.on_device])
        self.launches[self.on_device] = np.where(self._named(WAITS)[launches], NONE, launches)
        self.streams = Streams(self.rows, self.launches)
        self.kinds = self._kinds()
        self.shared: int = 0
        self.unknown_waits: int = 0

    def _kinds(self) -> NDArray[np.int8]:
        """Kind of the node of each row; NONE if it makes none."""
        rows, names = self.rows, self.events.names
        calls = rows["category"] == scanner.CALL
        kinds = np.full(len(rows), NONE, np.int8)
        kinds[calls & self._named(_NOTES)] = HOST
        kinds[calls & self._named(WAITS)] = WAIT
        kinds[self.launches[self.launches != NONE]] = LAUNCH
        kinds[rows["category"] == scanner.COPY] = COPY
        kernels = rows["category"] == scanner.KERNEL
        is_message = np.array([operation_of_kernel(name) is not None for name in names])[rows["name"]]
        kinds[kernels] = np.where(is_message[kernels], COMMUNICATION, COMPUTE)
        foreign = np.flatnonzero(kernels & ~is_message & self._of_other_libraries())
        kinds[foreign[self._noted(foreign)]] = COMMUNICATION
        return kinds

    def _of_other_libraries(self) -> NDArray[np.bool_]:
        """Say of each row whether it has the name of a kernel that communicates without NCCL."""
        known = np.array([library_of(name) is not None for name in self.events.names], bool)
        return np.take(known, self.rows["name"])

    def _noted(self, kernels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say of kernels whether what they do and how much they send is noted, as of collectives of PyTorch."""
        around = notes_of_kernels(self.events, kernels, self.launches[kernels])
        good = np.zeros(len(kernels), bool)
        for place, rows in enumerate(zip(kernels.tolist(), *(found.tolist() for found in around), strict=True)):
            note = Note()
            for row in rows:
                note = note if row == NONE else note.completed_by(self.events.notes[self.rows["note"][row]])
            good[place] = note.operation is not None and note.handed_in != NONE
        return good

    def _named(self, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
        """Say of each row whether its name matches."""
        matches = np.array([bool(pattern.fullmatch(name)) for name in self.events.names], bool)
        return np.take(matches, self.rows["name"])

    def recording(self) -> Recording:
        """Put everything together."""
        builder, events = self.builder, self.events
        copies = self._blocking_copies()
        counts = (self.kinds != NONE).astype(np.int64)
        counts[self.launches[copies]] += 1
        first = np.cumsum(counts) - counts
        nodes = self._nodes(np.repeat(np.arange(len(self.rows)), counts))
        self._split(nodes, copies, first)
        self._messages(nodes, first)
        edges = np.concatenate([*self._edges(nodes, copies, first)])
        builder.steps.extend(events.steps)
        self._say_what_is_missing(nodes)
        origin, nodes["start"] = self._origin(nodes)
        device = self.job.device(events.device_of(self.on_device))
        built = builder.build(self.job.rank, self.job.world, origin=origin, host=self.job.host, device=device)
        return replace(built, nodes=nodes, edges=edges, names=tuple(events.names))

    def _origin(self, nodes: NDArray[np.void]) -> tuple[int, NDArray[np.int64]]:
        """Count times from the first one, so that none is negative."""
        times = [int(nodes["start"].min()), *(start for _, start, _ in self.builder.steps)]
        us = min(times) // 1_000_000
        shift = us * 1_000_000
        self.builder.steps[:] = [(number, start - shift, end - shift) for number, start, end in self.builder.steps]
        return self.job.base + (self.events.origin + us) * _NS_PER_US, nodes["start"] - shift

    def _blocking_copies(self) -> NDArray[np.int64]:
        """Rows of copies whose calls returned when they were done."""
        rows = self.rows
        copies = np.flatnonzero((rows["category"] == scanner.COPY) & (self.launches != NONE))
        calls = self.launches[copies]
        alone = np.bincount(self.launches[self.launches != NONE], minlength=len(rows))[calls] == 1
        done = _ends(rows, copies) <= _ends(rows, calls)
        found: NDArray[np.int64] = copies[
            alone & done & (self._named(_BLOCKING_CALL)[calls] | self._named(_TO_PAGEABLE)[copies])
        ]
        return found

    def _nodes(self, of: NDArray[np.int64]) -> NDArray[np.void]:
        """Make nodes of rows."""
        rows, nodes = self.rows, np.empty(len(of), NODE)
        nodes["kind"] = self.kinds[of]
        nodes["lane"] = self._lanes(of)[rows["place"][of]]
        for column in ("name", "start", "duration", "sequence"):
            nodes[column] = rows[column][of]
        nodes["bytes"] = np.where(nodes["kind"] == COPY, rows["bytes"][of], NONE)
        nodes["communication"] = nodes["flops"] = NONE
        return nodes

    def _lanes(self, of: NDArray[np.int64]) -> NDArray[np.int32]:
        """Lane of each place that has nodes."""
        used = np.unique(self.rows["place"][of]).tolist()
        places = self.events.places
        several = {
            on_device: len({places[i].first for i in used if places[i].on_device == on_device}) > 1
            for on_device in (False, True)
        }
        lanes = np.full(len(places), NONE, np.int32)
        for i in sorted(used, key=lambda i: (not places[i].on_device, places[i])):
            on_device, first, second = places[i]
            kind: LaneKind = "stream" if on_device else "thread"
            within = f"{'device' if on_device else 'process'} {first} " * several[on_device]
            lanes[i] = self.builder.lane(kind, f"{within}{kind} {second}")
        return lanes

    def _split(self, nodes: NDArray[np.void], copies: NDArray[np.int64], first: NDArray[np.int64]) -> None:
        """Make a launch and a wait of each call that copies and waits: the wait begins with the copy."""
        launch = first[self.launches[copies]]
        ends = _ends(self.rows, self.launches[copies])
        begins = np.maximum(self.rows["start"][copies], nodes["start"][launch])
        nodes["duration"][launch] = begins - nodes["start"][launch]
        nodes["kind"][launch + 1] = WAIT
        nodes["start"][launch + 1] = begins
        nodes["duration"][launch + 1] = ends - begins

    def _edges(
        self, nodes: NDArray[np.void], copies: NDArray[np.int64], first: NDArray[np.int64]
    ) -> Iterator[NDArray[np.void]]:
        launched = np.flatnonzero(self.launches != NONE)
        before, after = first[self.launches[launched]], first[launched]
        overlap = nodes["start"][after] < nodes["start"][before] + nodes["duration"][before]
        yield edges_of(before, after, on_start=overlap)
        yield edges_of(first[copies], first[self.launches[copies]] + 1)
        ends = [first[self.launches[copies]] + 1]
        for awaited, waiting in Waits(self.events, self.kinds, self.streams).pairs():
            yield edges_of(first[awaited], first[waiting])
            ends.append(first[waiting])
        all_waits = np.flatnonzero(nodes["kind"] == WAIT)
        self.unknown_waits = len(np.setdiff1d(all_waits, np.concatenate(ends)))

    def _messages(self, nodes: NDArray[np.void], first: NDArray[np.int64]) -> None:
        """Say of each kernel of NCCL what it moves."""
        rows, numbers = self.rows, self.builder.communications
        kernels = np.flatnonzero(self.kinds == COMMUNICATION)
        around = [found.tolist() for found in notes_of_kernels(self.events, kernels, self.launches[kernels])]
        known: dict[tuple[int, ...], Communication] = {}
        counted: set[int] = set()
        for kernel, parameters, annotation in zip(kernels.tolist(), *around, strict=True):
            noted = [row for row in (kernel, parameters, annotation) if row != NONE]
            key = (int(rows["name"][kernel]), *rows["note"][noted].tolist())
            if key not in known:
                known[key] = self._communication(*key)
            what = known[key]
            if parameters in counted and what.size > 0:
                what = what._replace(size=0, sent=(), received=())
                self.shared += 1
            counted |= {parameters} - {NONE}
            nodes["communication"][first[kernel]] = numbers.setdefault(what, len(numbers))
            nodes["sequence"][first[kernel]] = max(rows["sequence"][noted].tolist())

    def _communication(self, name: int, *notes: int) -> Communication:
        note = Note()
        for number in notes:
            note = note.completed_by(self.events.notes[number])
        group, ranks, size = self.job.group(self.builder, note)
        operation = note.operation or operation_of_kernel(self.events.names[name]) or "unknown"
        return communication(note, operation, group, ranks, size)

    def _unmodelled(self) -> str:
        """Describe kernels that communicate without NCCL, of which no size is noted; empty if there are none."""
        rows = np.flatnonzero((self.kinds == COMPUTE) & self._of_other_libraries())
        if not len(rows):
            return ""
        libraries = {str(library_of(self.events.names[name])) for name in np.unique(self.rows["name"][rows])}
        taken, whole = (int(self.rows["duration"][which].sum()) for which in (rows, self.on_device))
        what = f"what {len(rows)} kernels of {' and '.join(sorted(libraries))} send, and to whom"
        return f"{what}: as captured on any fabric, {human_percent(taken / max(whole, 1))} of the time of all kernels"

    def _say_what_is_missing(self, nodes: NDArray[np.void]) -> None:
        what = [*self.builder.communications]
        used = nodes["communication"][nodes["communication"] != NONE]
        sizeless = np.count_nonzero(np.array([one.size == one.share == NONE for one in what], bool)[used])
        groupless = np.count_nonzero(np.array([one.group == NONE for one in what], bool)[used])
        unlaunched = np.count_nonzero(self.on_device & (self.launches == NONE))
        later = "capture with PyTorch 2.2 or newer"
        shapes = f" ({later}, or with record_shapes)" if sizeless == len(used) else ""
        members = f" ({later})" if groupless == len(used) else ""
        unmodelled = self._unmodelled()
        for count, sentence in (
            (self.job.rank == NONE, "its rank (put it into the file's name, such as rank3.json)"),
            (sizeless, f"the size of {sizeless} of {len(used)} communications{shapes}"),
            (groupless, f"the ranks that take part in {groupless} of {len(used)} communications{members}"),
            (self.shared, f"the size of {self.shared} kernels, which is counted with the first of the same collective"),
            (unmodelled, unmodelled),
            (
                unlaunched,
                f"the call that launched {unlaunched} of {np.count_nonzero(self.on_device)} kernels and copies",
            ),
            (
                self.unknown_waits,
                f"what {self.unknown_waits} waits of the host were for (capture with enable_cuda_sync_events)",
            ),
            (not self.builder.steps, "where iterations begin and end (call step() of the profiler after each)"),
            (self.events.negative, f"the duration of {self.events.negative} events, which is below 0 and taken as 0"),
        ):
            if count:
                self.builder.missing[sentence] = None


def _ends(rows: NDArray[np.void], which: NDArray[np.int64]) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = rows["start"][which] + rows["duration"][which]
    return ends


FORM = Form("kineto", "PyTorch profiler (Kineto): Chrome JSON, one file per rank", recognises, read)
