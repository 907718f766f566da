"""The JSON of a Kineto file as a stream: a few values of its head, and its events piece by piece."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.traces.kineto.trace_events import Event

MOST_VALUE = 64 * 2**20
"""Bytes of the largest event or value."""
MOST_NESTED = 62
"""Brackets within brackets."""
CUT, NO_JSON, TOO_DEEP = -1, -2, -3
"""In place of a position: the text ends too early, is no JSON, is too deeply nested."""

_CHUNK = 4 * 2**20
_EVENTS = "traceEvents"
_WANTED = ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "hostname", "host_name")
_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE = b'":,{}'
_OPEN_LIST, _CLOSE_LIST = b"[]"
_BOM = b"\xef\xbb\xbf"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|%b)*+' % _STRING, re.DOTALL)
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_PLAIN = re.compile(rb'[^\s,:\[\]{}"]*+')
_GAP = re.compile(rb"[\x00-\x20]*+")
_BETWEEN = re.compile(rb"[\s,]*+")
_NEXT_EVENT = re.compile(rb"\s*+,\s*+\{")
_DECODER = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)
_ANYTHING = msgspec.json.Decoder()


def past_value(text: bytes, position: int) -> int:
    """Give the place after a value, or one of CUT, NO_JSON and TOO_DEEP; `position` is at its first byte."""
    if text[position] == _QUOTE:
        string = _WHOLE_STRING.match(text, position)
        return string.end() if string else CUT
    if text[position] in b"[{":
        return _past_brackets(text, position)
    end = _PLAIN.match(text, position).end()  # type: ignore[union-attr]  # it may be empty
    if end == len(text):
        return CUT
    return end if end > position and text[end] not in b'[{":' else NO_JSON


def _past_brackets(text: bytes, position: int) -> int:
    closing: list[int] = []
    while True:
        bracket = text[position]
        if bracket in b"[{":
            if len(closing) > MOST_NESTED:
                return TOO_DEEP
            closing.append(_CLOSE_LIST if bracket == _OPEN_LIST else _CLOSE)
        elif closing.pop() != bracket:
            return NO_JSON
        position += 1
        if not closing:
            return position
        position = _TO_BRACKET.match(text, position).end()  # type: ignore[union-attr]  # it may be empty
        if position == len(text) or text[position] == _QUOTE:
            return CUT


@dataclass
class Window:
    """Part of a file: what is read and not yet used."""

    source: Source
    data: bytes = b""
    begin: int = 0
    offset: int = 0  # of data[0] in the file

    @property
    def left(self) -> int:
        """Bytes that are read and not yet used."""
        return len(self.data) - self.begin

    def more(self) -> bool:
        """Read on, keeping what is not yet used; whether there was more."""
        if self.left > MOST_VALUE:
            self.fail(f"an event or value of more than {MOST_VALUE // 2**20} MiB", "no trace has one; capture again")
        read = self.source.stream.read(max(_CHUNK, self.left))
        self.data, self.offset, self.begin = self.data[self.begin :] + read, self.offset + self.begin, 0
        return bool(read)

    def peek(self) -> int:
        """Go to the next byte that is no space."""
        while True:
            self.begin = _GAP.match(self.data, self.begin).end()  # type: ignore[union-attr]  # it may be empty
            if self.left:
                return self.data[self.begin]
            if not self.more():
                self.cut()

    def value(self) -> bytes:
        """Read the value that is next."""
        self.peek()
        while (after := past_value(self.data, self.begin)) == CUT:
            if not self.more():
                self.cut()
        if after < 0:
            self.broken(after)
        value = self.data[self.begin : after]
        self.begin = after
        return value

    def cut(self) -> NoReturn:
        """Raise what a file that ends too early deserves."""
        way_out = "the job was killed while it wrote, or the copy is cut: copy it again or capture again"
        self.fail("the file ends before its JSON does", way_out)

    def broken(self, code: int) -> NoReturn:
        """Raise what is wrong with the JSON here."""
        if code == TOO_DEEP:
            self.fail(f"more than {MOST_NESTED} brackets within brackets", "no trace has them; capture again")
        self.fail("this is no JSON, or none that a trace has here", "the file is damaged; copy it again")

    def fail(self, problem: str, way_out: str) -> NoReturn:
        """Raise an error that names this place."""
        raise TraceError(self.source.label, f"at byte {self.offset + self.begin}: {problem}; {way_out}")


@dataclass
class KinetoFile:
    """A file being read.

    `head`: values beside the events, by key; all of them once `pieces` has ended.
    `seen`: events of the pieces before.
    """

    window: Window
    head: dict[str, Any] = field(default_factory=dict)
    seen: int = 0

    def pieces(self) -> Iterator[list[Event]]:
        """Give the events of the file, some thousands at a time.

        Raises TraceError if the file is no JSON, or has no ``traceEvents``.
        """
        window = self.window
        window.more()
        window.begin = len(_BOM) if window.data.startswith(_BOM) else 0
        first = window.peek()
        if first == _OPEN_LIST:
            yield from self._events()
        elif first == _OPEN:
            yield from self._object()
        else:
            window.broken(NO_JSON)
        self._finish()

    def _finish(self) -> None:
        window = self.window
        while window.left or window.more():
            window.begin = _GAP.match(window.data, window.begin).end()  # type: ignore[union-attr]  # as above
            if window.left:
                window.fail("more text after the end of the JSON", "two files were joined; give each alone")

    def _object(self) -> Iterator[list[Event]]:
        window = self.window
        window.begin += 1
        found = False
        while (byte := window.peek()) != _CLOSE:
            if byte == _COMMA:
                window.begin += 1
                continue
            if byte != _QUOTE:
                window.broken(NO_JSON)
            key = self._decoded("a key", window.value())
            if window.peek() != _COLON:
                window.broken(NO_JSON)
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

    def _events(self) -> Iterator[list[Event]]:
        window = self.window
        window.begin += 1
        while True:
            if window.left < _CHUNK:
                window.more()
            events, end = self._at_once()
            if not events:
                events, end = self._one_by_one()
            if events:
                yield events
                self.seen += len(events)
                window.begin = end
                continue
            window.begin = end
            if window.left and window.data[end] == _CLOSE_LIST:
                window.begin += 1
                return
            if not window.more():
                way_out = "the job was killed while it wrote, or the copy is cut: copy it again, or cut it there"
                window.fail(f"the file ends in or after event {self.seen + 1}", f"{way_out} and append ]}}")

    def _at_once(self) -> tuple[list[Event], int]:
        """Decode up to the last event that begins here; none if that is none of this list, or not as msgspec has it."""
        data, begin = self.window.data, self.window.begin
        first = _BETWEEN.match(data, begin).end()  # type: ignore[union-attr]  # as above
        cut = data.rfind(b"}", first)
        for _ in range(_BRACES):
            if cut < 0 or _NEXT_EVENT.match(data, cut + 1):
                break
            cut = data.rfind(b"}", first, cut)
        try:
            return _DECODER.decode(b"[%b]" % data[first : cut + 1]), cut + 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [], begin

    def spans(self) -> Iterator[tuple[int, int]]:
        """Give begin and end of each whole event that is there, then where that list ends, as an empty one."""
        window, at = self.window, self.window.begin
        while True:
            at = _BETWEEN.match(window.data, at).end()  # type: ignore[union-attr]  # as above
            if at == len(window.data) or window.data[at] == _CLOSE_LIST:
                break
            after = past_value(window.data, at) if window.data[at] == _OPEN else NO_JSON
            if after == CUT:
                break
            if after < 0:
                window.begin = at
                window.broken(after)
            yield at, after
            at = after
        yield at, at

    def _one_by_one(self) -> tuple[list[Event], int]:
        events, end = [], self.window.begin
        for begin, end in self.spans():
            if end > begin:
                events.append(self._event(begin, end))
        return events, end

    def _event(self, begin: int, end: int) -> Event:
        text = self.window.data[begin:end]
        try:
            return _event(text)
        except ValueError:
            mended = _ODD.sub(_mended, text) if len(text) < _MOST_MENDED else text
        try:
            return _event(mended)
        except ValueError as error:
            self.window.begin = begin
            self.window.fail(f"this event is no JSON ({error})", "the file is damaged; copy it again")


def _event(text: bytes) -> Event:
    try:
        return _ONE.decode(text)
    except msgspec.ValidationError:  # its name is a number, or the like: it does not matter
        return Event()


_BRACES = 64  # closing brackets that are looked at for one between two events
_MOST_MENDED = 2**20  # bytes of an event that is mended; it takes many times as many of memory
_ODD = re.compile(rb"%b|-?\b(?:nan|NaN|inf|Infinity)\b" % _STRING, re.DOTALL)
"""Strings, and numbers that JSON does not have."""


def _mended(part: re.Match[bytes]) -> bytes:
    """Write a string as JSON has it: PyTorch writes names as they are."""
    if part[0][0] != _QUOTE:
        return b"null"
    try:
        text = decoded(part[0])
    except ValueError:  # \ of a path
        text = part[0][1:-1].decode(errors="replace")
    return json.dumps(text).encode()


def decoded(value: bytes) -> Any:  # noqa: ANN401  any JSON
    """Decode JSON; ValueError if it is none.

    Control characters and what is no UTF-8 occur in strings. Half a pair of surrogates, which no file can be written
    with, becomes a replacement character.
    """
    try:
        return _ANYTHING.decode(value)
    except (ValueError, RecursionError):  # none, or not as msgspec has it
        pass
    text = value.decode(errors="replace")
    if _HALF.search(text):
        text = _ESCAPE.sub(lambda match: r"\ufffd" if _HALF.fullmatch(match[0]) else match[0], text)
    try:
        return json.loads(text, strict=False)
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error


_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
