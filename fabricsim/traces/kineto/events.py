"""The events of a Kineto file that a replay needs, as columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.device_libraries import library_of
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.file import KinetoFile, Window, decoded
from fabricsim.traces.kineto.inputs import Inputs, inputs_of
from fabricsim.traces.kineto.messages import Note, note_of, operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fabricsim.files.sources import Source

MOST_EVENTS = 50_000_000
"""Events of the largest file that matter."""
MOST_NAMES = 256 * 2**20
"""Bytes of all names of kernels and calls, each counted once."""
MOST_NOTES = 2**20
"""Collectives that differ in size, group or splits."""

ROW = np.dtype(
    [
        ("category", np.int8),
        ("mark", np.int8),
        ("name", np.int32),  # index into Events.names
        ("place", np.int32),  # index into Events.places
        ("note", np.int32),  # index into Events.notes, of a plain operator into Events.inputs; NONE if there is none
        ("start", np.int64),  # ps after Events.origin
        ("duration", np.int64),
        ("correlation", np.int64),
        ("external", np.int64),
        ("bytes", np.int64),
        ("sequence", np.int64),
        ("awaited_stream", np.int64),
        ("awaited_record", np.int64),
    ],
    align=True,
)
"""An event that matters; as ``TRACE_EVENT`` if not said otherwise."""

_ON_DEVICE = (scanner.KERNEL, scanner.COPY, scanner.SYNC)
_STEP = re.compile(r"ProfilerStep\s?#(\d{1,15})")


class Place(NamedTuple):
    """Where events happen: a stream of a device, or a thread of a process."""

    on_device: bool
    first: int  # device or process
    second: int  # stream or thread


@dataclass
class Events:
    """What is in a file.

    Attributes
    ----------
    rows
        ``ROW`` records in the order of the file.
    names, places, notes
        What they refer to.
    steps
        Number, start and end of each step.
    head
        Values beside the events.
    origin
        us of the file's clock where times are counted from.
    negative
        How many durations are below 0.
    inputs
        What operators were called with, if that was asked for.
    """

    rows: NDArray[np.void]
    names: list[str]
    places: list[Place]
    notes: list[Note]
    steps: list[tuple[int, int, int]]
    head: dict[str, Any]
    origin: int
    negative: int
    inputs: list[Inputs] = field(default_factory=list)


def read_events(source: Source, operators: Callable[[str], bool] | None = None) -> Events:
    """Read a file.

    Parameters
    ----------
    source
        The file.
    operators
        Whether the inputs of operators of a name matter; if it is not given, plain operators are left out.
    """
    file = KinetoFile(Window(source))
    file.scan["operators"] = operators is not None
    collector = _Collector(source.label, file, operators)
    for batch in file.batches():
        collector.take(batch)
    return collector.finish()


@dataclass
class _Collector:
    label: str
    file: KinetoFile
    operators: Callable[[str], bool] | None = None
    rows: list[NDArray[np.void]] = field(default_factory=list)
    count: int = 0
    names: dict[int, int] = field(default_factory=dict)  # by hash
    texts: list[str] = field(default_factory=list)
    is_message: list[bool] = field(default_factory=list)  # whether a kernel of that name is NCCL's
    has_inputs: list[bool] = field(default_factory=list)  # whether the inputs of an operator of that name matter
    name_bytes: int = 0
    places: dict[Place, int] = field(default_factory=dict)
    notes: dict[Note, int] = field(default_factory=dict)
    inputs: dict[Inputs, int] = field(default_factory=dict)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    negative: int = 0

    def take(self, batch: NDArray[np.void]) -> None:
        """Keep what matters of a batch."""
        self._check(batch)
        rows = np.empty(len(batch), ROW)
        for column in ROW.names or ():
            if column in (scanner.TRACE_EVENT.names or ()) and column != "name":
                rows[column] = batch[column]
        rows["name"] = self._names(batch)
        rows["place"] = self._places(batch)
        rows["note"] = rows["sequence"] = NONE
        kernels = (rows["category"] == scanner.KERNEL) & np.array(self.is_message)[rows["name"]]
        noted = kernels | (rows["mark"] == scanner.PARAMETERS) | (rows["mark"] == scanner.COLLECTIVE)
        found = np.flatnonzero(noted)
        columns = (rows["name"][found], batch["mark"][found], batch["arguments"][found], batch["arguments_end"][found])
        notes = [self._note(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]
        if notes:
            rows["note"][found], rows["sequence"][found] = zip(*notes, strict=True)
        if self.operators is not None:
            self._take_inputs(rows, batch)
        for row in rows[rows["mark"] == scanner.STEP]:
            self._step(row)
        self.rows.append(rows[rows["mark"] != scanner.STEP])
        self.count += len(rows)
        if self.count > MOST_EVENTS:
            raise TraceError(self.label, f"more than {MOST_EVENTS} events; capture fewer iterations")

    def _check(self, batch: NDArray[np.void]) -> None:
        defects = batch["defects"]
        bad = np.flatnonzero(defects & (scanner.BAD_START | scanner.BAD_DURATION))
        if len(bad):
            event = batch[bad[0]]
            key = "ts" if event["defects"] & scanner.BAD_START else "dur"
            name = self._text(event["name"], event["name_end"])
            what = f"the {key} of the event {name[:80]!r} is missing, no number of us, or out of range"
            raise TraceError(
                self.label, f"near byte {self.file.window.offset + int(event['name'])}: {what}; capture again"
            )
        self.negative += int(np.count_nonzero(defects & scanner.NEGATIVE))

    def _text(self, begin: int, end: int) -> str:
        raw = self.file.window.data[begin:end].tobytes()
        try:
            return str(decoded(b'"%b"' % raw)) if b"\\" in raw else raw.decode(errors="replace")
        except ValueError:
            return raw.decode(errors="replace")

    def _names(self, batch: NDArray[np.void]) -> NDArray[np.int32]:
        hashes, firsts, indices = np.unique(batch["name_hash"], return_index=True, return_inverse=True)
        numbers = np.empty(len(hashes), np.int32)
        for i, (key, first) in enumerate(zip(hashes.tolist(), firsts.tolist(), strict=True)):
            number = self.names.get(key)
            if number is None:
                number = self.names[key] = len(self.names)
                text = self._text(batch["name"][first], batch["name_end"][first])
                self.texts.append(text)
                self.is_message.append(operation_of_kernel(text) is not None or library_of(text) is not None)
                self.has_inputs.append(self.operators is not None and self.operators(text))
                self.name_bytes += len(text)
            numbers[i] = number
        if self.name_bytes > MOST_NAMES:
            raise TraceError(self.label, f"more than {MOST_NAMES // 2**20} MiB of names; this is no trace of a job")
        return numbers[indices]

    def _places(self, batch: NDArray[np.void]) -> NDArray[np.int32]:
        on_device = np.isin(batch["category"], _ON_DEVICE)
        first = np.where(on_device & (batch["device"] != NONE), batch["device"], batch["pid"])
        second = np.where(on_device & (batch["stream"] != NONE), batch["stream"], batch["tid"])
        mixed = (first * 0x9E3779B97F4A7C1 + second) * 2 + on_device  # wraps around: tells places apart all the same
        _, firsts, indices = np.unique(mixed, return_index=True, return_inverse=True)
        numbers = [
            self.places.setdefault(Place(bool(on_device[i]), int(first[i]), int(second[i])), len(self.places))
            for i in firsts
        ]
        return np.array(numbers, np.int32)[indices]

    def _take_inputs(self, rows: NDArray[np.void], batch: NDArray[np.void]) -> None:
        plain = (rows["category"] == scanner.OPERATOR) & (rows["mark"] == scanner.PLAIN)
        for at in np.flatnonzero(plain & np.array(self.has_inputs)[rows["name"]]).tolist():
            event = batch[at]
            found = inputs_of(self._arguments(rows["name"][at], event["arguments"], event["arguments_end"]))
            if found is not None:
                rows["note"][at] = self.inputs.setdefault(found, len(self.inputs))
            if len(self.inputs) > MOST_NOTES:
                raise TraceError(self.label, f"more than {MOST_NOTES} shapes of operators; capture fewer iterations")

    def _arguments(self, number: int, begin: int, end: int) -> dict[str, Any]:
        name, raw = self.texts[number], self.file.window.data[begin:end].tobytes()
        try:
            return cast("dict[str, Any]", decoded(raw) if raw else {})
        except ValueError as error:
            what = f"the args of the event {name[:80]!r} are no JSON ({error}); copy the file again"
            raise TraceError(self.label, f"at byte {self.file.window.offset + begin}: {what}") from error

    def _note(self, number: int, mark: int, begin: int, end: int) -> tuple[int, int]:
        """Decode arguments; gives the number of the note and the sequence number that it has."""
        name, arguments = self.texts[number], self._arguments(number, begin, end)
        note = note_of(arguments, name if mark == scanner.COLLECTIVE else "")
        noted = self.notes.setdefault(note, len(self.notes))
        if noted == MOST_NOTES:
            raise TraceError(self.label, f"more than {MOST_NOTES} different collectives; capture fewer iterations")
        sequence = arguments.get("Seq", NONE)
        return noted, sequence if type(sequence) is int and 0 <= sequence < 2**62 else NONE

    def _step(self, row: NDArray[np.void]) -> None:
        match = _STEP.fullmatch(self.texts[row["name"]])
        if match:
            start, duration = int(row["start"]), int(row["duration"])
            self.steps.append((int(match[1]), start, start + duration))

    def finish(self) -> Events:
        rows = np.concatenate(self.rows) if self.rows else np.empty(0, ROW)
        self.rows.clear()
        origin = int(self.file.scan["origin"][0])
        return Events(
            rows,
            self.texts,
            list(self.places),
            list(self.notes),
            self.steps,
            self.file.head,
            origin,
            self.negative,
            list(self.inputs),
        )
