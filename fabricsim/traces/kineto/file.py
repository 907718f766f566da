"""The JSON of a Kineto file as a stream: a few values of its head, and its events batch by batch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.traces.kineto import json_text
from fabricsim.traces.kineto import trace_events as scanner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import RawIOBase

    from numpy.typing import NDArray

MOST_VALUE = 64 * 2**20
"""Bytes of the largest event or value."""

_CHUNK = 4 * 2**20
_BATCH = 2**14
_EVENTS = "traceEvents"
_WANTED = ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "hostname", "host_name")
_QUOTE, _COLON, _COMMA, _SPACE = b'":, '
_OPEN_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = b"[{}"
_NEAR = 64  # bytes that are looked at one by one: more spaces in a row are rare
_BOM = b"\xef\xbb\xbf"


@dataclass
class Window:
    """Part of a file: what is read and not yet used."""

    source: Source
    data: NDArray[np.uint8] = field(default_factory=lambda: np.empty(2 * _CHUNK, np.uint8))
    begin: int = 0
    end: int = 0
    offset: int = 0  # of data[0] in the file

    @property
    def place(self) -> int:
        """Bytes of the file before `begin`."""
        return self.offset + self.begin

    def more(self) -> bool:
        """Read on, keeping what is not yet used; whether there was more."""
        kept = self.end - self.begin
        if len(self.data) - kept < _CHUNK:
            if kept > MOST_VALUE:
                self.fail(
                    f"an event or value of more than {MOST_VALUE // 2**20} MiB", "no trace has one; capture again"
                )
            data = np.empty(2 * len(self.data), np.uint8)
        else:
            data = self.data
        data[:kept] = self.data[self.begin : self.end]
        self.data, self.offset, self.begin = data, self.offset + self.begin, 0
        read = cast("BufferedReader[RawIOBase]", self.source.stream).readinto(data.data[kept:])
        self.end = kept + read
        return bool(read)

    def peek(self) -> int:
        """Go to the next byte that is no space."""
        while True:
            near = min(self.begin + _NEAR, self.end)
            while self.begin < near:
                byte = int(self.data[self.begin])
                if byte > _SPACE:
                    return byte
                self.begin += 1
            rest = self.data[self.begin : self.end] > _SPACE
            self.begin += int(rest.argmax()) if rest.any() else len(rest)
            if self.begin == self.end and not self.more():
                self.cut()

    def value(self) -> bytes:
        """Read the value that is next."""
        self.peek()
        while (after := json_text.past_value(self.data, self.begin, self.end)) == json_text.CUT:
            if not self.more():
                self.cut()
        if after < 0:
            self.broken(after)
        value = self.data[self.begin : after].tobytes()
        self.begin = int(after)
        return value

    def cut(self) -> None:
        """Raise what a file that ends too early deserves."""
        way_out = "the job was killed while it wrote, or the copy is cut: copy it again or capture again"
        self.fail("the file ends before its JSON does", way_out)

    def broken(self, code: int) -> None:
        """Raise what is wrong with the JSON here."""
        if code == json_text.TOO_DEEP:
            self.fail(f"more than {json_text.MOST_NESTED} brackets within brackets", "no trace has them; capture again")
        self.fail("this is no JSON", "the file is damaged; copy it again")

    def fail(self, problem: str, way_out: str) -> None:
        """Raise an error that names this place."""
        raise TraceError(self.source.label, f"at byte {self.place}: {problem}; {way_out}")


@dataclass
class KinetoFile:
    """A file being read.

    Attributes
    ----------
    window
        What is read of it.
    head
        Values beside the events, decoded, by their keys: all of them only once `batches` has come to its end.
    scan
        ``TRACE_SCAN``.
    """

    window: Window
    head: dict[str, Any] = field(default_factory=dict)
    scan: NDArray[np.void] = field(default_factory=lambda: np.zeros(1, scanner.TRACE_SCAN))

    def batches(self) -> Iterator[NDArray[np.void]]:
        """Give ``TRACE_EVENT`` records that are good, as `Window.data` is, until the next ones are asked for."""
        window = self.window
        if window.source.head.startswith(_BOM):
            window.more()
            window.begin += len(_BOM)
        first = window.peek()
        if first == _OPEN_LIST:
            yield from self._events()
        elif first == _OPEN_OBJECT:
            yield from self._object()
        else:
            window.broken(json_text.NO_JSON)
        self._finish()

    def _finish(self) -> None:
        window = self.window
        while window.begin < window.end or window.more():
            if window.data[window.begin] > _SPACE:
                window.fail("more text after the end of the JSON", "two files were joined; give each alone")
            window.begin += 1

    def _object(self) -> Iterator[NDArray[np.void]]:
        window = self.window
        window.begin += 1
        found = False
        while (byte := window.peek()) != _CLOSE_OBJECT:
            if byte == _COMMA:
                window.begin += 1
                continue
            if byte != _QUOTE:
                window.broken(json_text.NO_JSON)
            key = self._decoded("a key", window.value())
            if window.peek() != _COLON:
                window.broken(json_text.NO_JSON)
            window.begin += 1
            if key == _EVENTS:
                if found or window.peek() != _OPEN_LIST:
                    window.fail("traceEvents is there twice, or no list", "the file is damaged; capture again")
                found = True
                yield from self._events()
            elif key in _WANTED:
                self.head[key] = self._decoded(key, window.value())
            else:
                window.value()
        window.begin += 1
        if not found:
            msg = "has no traceEvents, so it is no trace of PyTorch's profiler; give what export_chrome_trace wrote"
            raise TraceError(window.source.label, msg)

    def _decoded(self, what: str, value: bytes) -> Any:  # noqa: ANN401  any JSON
        try:
            return decoded(value)
        except ValueError as error:
            raise TraceError(self.window.source.label, f"{what} is no JSON ({error}); copy the file again") from error

    def _events(self) -> Iterator[NDArray[np.void]]:
        window, events = self.window, np.empty(_BATCH, scanner.TRACE_EVENT)
        window.begin += 1
        while True:
            state = self.scan[0]
            window.begin = int(scanner.scan(window.data, window.begin, window.end, events, self.scan))
            if state["count"]:
                yield events[: state["count"]]
            if state["status"] == scanner.END:
                return
            if state["status"] < 0:
                window.broken(state["status"])
            if state["status"] == scanner.MORE and not window.more():
                way_out = "the job was killed while it wrote, or the copy is cut: copy it again, or cut it there"
                window.fail(f"the file ends in or after event {state['seen'] + 1}", f"{way_out} and append ]}}")


def decoded(value: bytes) -> Any:  # noqa: ANN401  any JSON
    """Decode JSON that the scanner has walked over, so that its nesting is bounded; ValueError if it is none.

    PyTorch writes names as they are: control characters and what is no UTF-8 occur in strings. Half a pair of
    surrogates, which no file can be written with, becomes a replacement character.
    """
    text = value.decode(errors="replace")
    if _HALF.search(text):
        text = _ESCAPE.sub(lambda match: r"\ufffd" if _HALF.fullmatch(match[0]) else match[0], text)
    return json.loads(text, strict=False)


_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)


_TINY = (
    b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 0, "args": {}}]}'
)


def compile_scanner() -> None:
    """Compile what reads Kineto traces, by reading one of one event."""
    source = Source(Path("warmup"), "", _TINY, cast("BinaryIO", BufferedReader(cast("RawIOBase", BytesIO(_TINY)))))
    for _ in KinetoFile(Window(source)).batches():
        pass
