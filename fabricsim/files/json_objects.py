"""The objects of a list in a JSON file, one after the other, so that a file need not fit into memory."""

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source

Decoded = TypeVar("Decoded")

MOST_OBJECT = 16 * 2**20
"""Bytes of the largest object of a list."""

_CHUNK = 2**20
_DEEPEST = 500
# possessive: a string that the text cuts is not tried again in other ways
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TO_BRACE = re.compile(rb'(?:[^"{}]++|%b)*+([{}])' % _STRING, re.DOTALL)


def _object(levels: int) -> bytes:
    within = rb"|%b" % _object(levels - 1) if levels else b""
    return rb'\{(?:[^"{}]++|%b%b)*+\}' % (_STRING, within)


_SHALLOW = re.compile(_object(4), re.DOTALL)
_BETWEEN = re.compile(rb"[\s,]*+")
_PROBLEMS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)


class ObjectList:
    """A list of objects within a file.

    `source`: the file; it is read to its end once all objects are taken.
    `opening`: matches what is before the first object, the bracket that opens the list included.
    `may_end`: whether the list may lack its closing bracket, and its last object be cut, because its writer was
        stopped.
    `around`: most bytes of what is before and after the list.
    `head`, `rest`: the text before the list, and after it as far as `around` goes.
    `cut`: whether the list ended without its closing bracket.
    Raises TraceError if there is no such list.
    """

    def __init__(
        self, source: Source, opening: re.Pattern[bytes], *, may_end: bool = False, around: int = 2**16
    ) -> None:
        self.source, self.may_end, self.around = source, may_end, around
        self.head = self.rest = b""
        self.cut = False
        self._text = b""
        match = None
        while match is None and len(self._text) < around and self._more():
            match = opening.match(self._text[:around])
        if match is None:
            raise TraceError(source.label, "has no list of events or operations; copy it again, or name another form")
        self.head, self._place = match[0], match.end()

    def _more(self) -> bool:
        """Read on, as much again as there is, so that a long object is not gone over many times."""
        chunk = self.source.stream.read(max(_CHUNK, len(self._text)))
        self._text += chunk
        return bool(chunk)

    def _forget(self) -> None:
        self._text, self._place = self._text[self._place :], 0

    def __iter__(self) -> Iterator[bytes]:
        """Give each object as text, its braces balanced and else unchecked."""
        count = 0
        while self._at_object(count):
            end = self._end_of_object(count)
            if end is None:
                return
            count += 1
            yield self._text[self._place : end]
            self._place = end
        if not self.cut:
            self._finish()

    def _at_object(self, count: int) -> bool:
        """Go on to the next object; False at the end of the list."""
        while True:
            match = _BETWEEN.match(self._text, self._place)
            self._place = match.end() if match else self._place
            if self._place < len(self._text):
                break
            self._forget()
            if not self._more():
                self._end_early(count)
                return False
        byte = self._text[self._place : self._place + 1]
        if byte == b"{":
            return True
        if byte != b"]":
            raise TraceError(self.source.label, f"item {count} of its list is no object; copy the file again")
        self._place += 1
        return False

    def _end_of_object(self, count: int) -> int | None:
        """Find where the object ends; None if the list ends early."""
        shallow = _SHALLOW.match(self._text, self._place)
        if shallow:
            return shallow.end()
        depth, seen = 0, 0  # braces that are open, and bytes of the object that are gone over
        while True:
            while match := _TO_BRACE.match(self._text, self._place + seen):
                depth += 1 if match[1] == b"{" else -1
                seen = match.end() - self._place
                if depth == 0:
                    return match.end()
                if depth > _DEEPEST:
                    msg = f"item {count} of its list is nested too deep; the file is damaged, copy it again"
                    raise TraceError(self.source.label, msg)
            self._forget()
            if len(self._text) > MOST_OBJECT:
                msg = f"item {count} of its list is of more than {MOST_OBJECT // 2**20} MiB: no writer makes such ones"
                raise TraceError(self.source.label, msg)
            if not self._more():
                self._end_early(count)
                return None

    def _end_early(self, count: int) -> None:
        if not self.may_end:
            raise TraceError(self.source.label, f"is cut after item {count} of its list; copy it again")
        self.cut = True

    def _finish(self) -> None:
        """Read to the end, so that damage of the packing shows."""
        self._forget()
        while len(self._text) < self.around and self._more():
            pass
        self.rest, self._text = self._text[: self.around], b""
        while self.source.stream.read(_CHUNK):
            pass


def decoded(decode: Callable[[bytes], Decoded], text: bytes, label: str, place: str) -> Decoded:
    """Decode an object of a file.

    `decode`: such as a method of `msgspec.json.Decoder`.
    `label`: name of the file.
    `place`: of the object in the file, such as ``"node 3"``.
    Raises TraceError if it is no JSON, has a value of a wrong type, or is nested too deep.
    """
    try:
        return decode(text)
    except _PROBLEMS as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise TraceError(label, f"{place} cannot be read: {why}; the file is damaged, copy it again") from error
