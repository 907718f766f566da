"""The events of a Kineto file that a replay needs, as columns."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.device_libraries import library_of
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.file import KinetoFile, Window, decoded
from fabricsim.traces.kineto.inputs import Inputs, inputs_of
from fabricsim.traces.kineto.messages import Note, note_of, operation_of_kernel
from fabricsim.traces.kineto.trace_events import Arguments, Event
from fabricsim.units import PS_PER_US

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
        ("duration", np.int64),  # ps
        ("correlation", np.int64),  # NONE if not there, as all that follow
        ("external", np.int64),
        ("bytes", np.int64),
        ("sequence", np.int64),
        ("awaited_stream", np.int64),
        ("awaited_record", np.int64),  # correlation of the call that recorded the event that is waited for
    ],
    align=True,
)
"""An event that matters."""

_ON_DEVICE = (scanner.KERNEL, scanner.COPY, scanner.SYNC)
_STEP = re.compile(r"ProfilerStep\s?#(\d{1,15})")


class Timeline(NamedTuple):
    """Where events happen: a stream of a device, or a thread of a process."""

    on_device: bool
    first: int  # device or process
    second: int  # stream or thread


@dataclass
class Events:
    """What is in a file.

    `rows`: ``ROW`` records in the order of the file.
    `names`, `places`, `notes`: what they refer to.
    `steps`: number, start and end of each step.
    `origin`: us of the file's clock where times are counted from.
    `negative`: how many durations are below 0.
    `inputs`: what operators were called with, if that was asked for.
    """

    rows: NDArray[np.void]
    names: list[str]
    places: list[Timeline]
    notes: list[Note]
    steps: list[tuple[int, int, int]]
    head: dict[str, Any]
    origin: int
    negative: int
    inputs: list[Inputs] = field(default_factory=list)

    def device_of(self, chosen: NDArray[np.bool_]) -> int:
        """Give the device that most of some rows, which are on devices, are of."""
        return self.places[int(np.bincount(self.rows["place"][chosen]).argmax())].first


def read_events(source: Source, operators: Callable[[str], bool] | None = None) -> Events:
    """Read a file.

    `operators`: whether the inputs of operators of a name matter; if it is not given, plain operators are left out.
    """
    file = KinetoFile(Window(source))
    collector = _Collector(source.label, file, operators)
    for piece in file.pieces():
        collector.take(piece)
    return collector.finish()


@dataclass
class _Collector:
    label: str
    file: KinetoFile
    operators: Callable[[str], bool] | None = None
    rows: list[NDArray[np.void]] = field(default_factory=list)
    count: int = 0
    names: dict[str, int] = field(default_factory=dict)
    is_message: list[bool] = field(default_factory=list)  # whether a kernel of that name is NCCL's
    has_inputs: list[bool] = field(default_factory=list)  # whether the inputs of an operator of that name matter
    name_bytes: int = 0
    places: dict[Timeline, int] = field(default_factory=dict)
    notes: dict[Note, int] = field(default_factory=dict)
    inputs: dict[Inputs, int] = field(default_factory=dict)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    negative: int = 0
    origin: int | None = None  # us

    def take(self, piece: list[Event]) -> None:
        """Keep what matters of some events."""
        rows = []
        plain = scanner.OPERATOR + (self.operators is not None)  # of this category on, plain ones do not matter
        for number, event in enumerate(piece):
            if event.ph != "X" or event.name is None or event.cat not in scanner.CATEGORIES:
                continue
            category, mark = scanner.CATEGORIES[event.cat], scanner.PLAIN
            if category >= scanner.OPERATOR:
                mark = scanner.mark_of(event.name)
                if mark == scanner.PLAIN and category >= plain:
                    continue
            times = self._times(event, number)
            if mark == scanner.STEP:
                if match := _STEP.fullmatch(event.name):
                    self.steps.append((int(match[1]), times[0], sum(times)))
            else:
                rows.append(self._row(event, category, mark, times))
        self.rows.append(np.array(rows, ROW))
        self.count += len(rows)
        if self.count > MOST_EVENTS:
            raise TraceError(self.label, f"more than {MOST_EVENTS} events; capture fewer iterations")

    def _times(self, event: Event, number: int) -> tuple[int, int]:
        """Read start and duration in ps; `number` is that of the event in its piece."""
        start, duration = scanner.picoseconds(event.ts), scanner.picoseconds(event.dur)
        if start is not None:
            if self.origin is None:
                self.origin = start // PS_PER_US
            start -= self.origin * PS_PER_US
        if start is None or not scanner.is_near(start):
            self._refuse(event, number, "ts")
        if duration is None or not scanner.is_near(duration):
            self._refuse(event, number, "dur")
        self.negative += duration < 0
        return start, max(duration, 0)

    def _refuse(self, event: Event, number: int, key: str) -> NoReturn:
        begin, _ = next(islice(self.file.spans(), number, None))
        what = f"the {key} of the event {str(event.name)!r} is missing, no number of us, or out of range"
        raise TraceError(self.label, f"at byte {self.file.window.offset + begin}: {what}; capture again")

    def _row(self, event: Event, category: int, mark: int, times: tuple[int, int]) -> tuple[int, ...]:
        name, numbers = self._name(str(event.name)), scanner.arguments_of(event)
        on_device = category in _ON_DEVICE
        note = sequence = NONE
        if (category == scanner.KERNEL and self.is_message[name]) or mark != scanner.PLAIN:
            note, sequence = self._note(event, mark)
        elif category == scanner.OPERATOR and self.has_inputs[name]:
            note = self._inputs(event)
        external = numbers.external if numbers.external_too == NONE else numbers.external_too
        rest = (external, numbers.bytes, sequence, numbers.wait_on_stream, numbers.wait_on_cuda_event_record_corr_id)
        place = self._place(event, numbers, on_device=on_device)
        return category, mark, name, place, note, *times, *map(scanner.integer, (numbers.correlation, *rest))

    def _name(self, name: str) -> int:
        number = self.names.get(name)
        if number is None:
            number = self.names[name] = len(self.names)
            self.is_message.append(operation_of_kernel(name) is not None or library_of(name) is not None)
            self.has_inputs.append(self.operators is not None and self.operators(name))
            self.name_bytes += len(name)
            if self.name_bytes > MOST_NAMES:
                raise TraceError(self.label, f"more than {MOST_NAMES // 2**20} MiB of names; this is no trace of a job")
        return number

    def _place(self, event: Event, numbers: Arguments, *, on_device: bool) -> int:
        first = scanner.integer(numbers.device) if on_device else NONE
        second = scanner.integer(numbers.stream) if on_device else NONE
        first = scanner.integer_of(event.pid) if first == NONE else first
        second = scanner.integer_of(event.tid) if second == NONE else second
        return self.places.setdefault(Timeline(on_device, first, second), len(self.places))

    def _inputs(self, event: Event) -> int:
        found = inputs_of(self._arguments(event))
        if found is None:
            return NONE
        number = self.inputs.setdefault(found, len(self.inputs))
        if number == MOST_NOTES:
            raise TraceError(self.label, f"more than {MOST_NOTES} shapes of operators; capture fewer iterations")
        return number

    def _arguments(self, event: Event) -> dict[str, Any]:
        try:
            found = decoded(bytes(event.args))
        except ValueError as error:
            what = f"the args of the event {str(event.name)!r} cannot be read ({error}); copy the file again"
            raise TraceError(self.label, what) from error
        return found if isinstance(found, dict) else {}

    def _note(self, event: Event, mark: int) -> tuple[int, int]:
        """Decode arguments; gives the number of the note and the sequence number that it has."""
        arguments = self._arguments(event)
        note = note_of(arguments, str(event.name) if mark == scanner.COLLECTIVE else "")
        noted = self.notes.setdefault(note, len(self.notes))
        if noted == MOST_NOTES:
            raise TraceError(self.label, f"more than {MOST_NOTES} different collectives; capture fewer iterations")
        sequence = arguments.get("Seq", NONE)
        return noted, sequence if type(sequence) is int and 0 <= sequence < 2**62 else NONE

    def finish(self) -> Events:
        rows = np.concatenate(self.rows) if self.rows else np.empty(0, ROW)
        self.rows.clear()
        return Events(
            rows,
            list(self.names),
            list(self.places),
            list(self.notes),
            self.steps,
            self.file.head,
            self.origin or 0,
            self.negative,
            list(self.inputs),
        )
