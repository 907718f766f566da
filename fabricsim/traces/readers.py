"""The forms of traces: which there are, how each is known, and the one way to read any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from fabricsim.errors import TraceError
from fabricsim.tables import NONE
from fabricsim.traces.joined import join
from fabricsim.traces.sources import sources
from fabricsim.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from fabricsim.traces.sources import Source
    from fabricsim.traces.trace import Recording


class Reader(Protocol):
    """What the module of a form offers."""

    def recognises(self, name: str, head: bytes) -> bool:
        """Whether a file of this name that begins with `head` (up to 64 KiB) is of this form."""

    def read(self, source: Source) -> Iterator[Recording]:
        """Give the recordings of a file, one per rank; raises `TraceError` where it cannot be read."""


class Form(NamedTuple):
    """A form of traces.

    Attributes
    ----------
    module
        Where its reader is: a module of `fabricsim.traces`.
    description
        What writes it.
    """

    module: str
    description: str


FORMS: dict[str, Form] = {
    "kineto": Form("kineto", "PyTorch profiler (Kineto): Chrome JSON, one file per rank"),
    "pytorch_et": Form("pytorch_et", "execution traces of PyTorch's ExecutionTraceObserver, and of chakra_trace_link"),
}
"""All forms by name, in the order in which they are tried."""


def reader(form: str) -> Reader:
    """Return the reader of a form."""
    return cast("Reader", import_module(f"fabricsim.traces.{FORMS[form].module}"))


def form_of(source: Source) -> str:
    """Name the form of a file.

    Raises
    ------
    TraceError
        Where it is none that is known.
    """
    for name in FORMS:
        if reader(name).recognises(source.name, source.head):
            return name
    msg = f"is no trace of a form that is known ({', '.join(FORMS)}); name its form with --form if it is one"
    raise TraceError(source.label, msg)


def _form_among(source: Source, known: Collection[str]) -> str:
    """Name the form of a further file: where it cannot be told, it is as the first."""
    try:
        return form_of(source)
    except TraceError:
        if not known:
            raise
        return next(iter(known))


def read(
    paths: Collection[Path | str],
    form: str | None = None,
    *,
    only: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """Read a trace and all its files: of one form, or Kineto traces with execution traces of the same ranks.

    Parameters
    ----------
    paths
        Files, folders or archives, packed or not.
    form
        Name in `FORMS`, of all files; where left out, as each file shows.
    only
        Pattern that names must match, as of `fabricsim.traces.sources.sources`.
    progress
        Called with the name of each file before it is read.

    Raises
    ------
    TraceError
        Where a file cannot be read, two have the same rank, or they contradict each other.
    """
    found: dict[str, list[Recording]] = {}
    for source in sources(paths, only):
        if progress is not None:
            progress(source.label)
        name = form or _form_among(source, found)
        found.setdefault(name, []).extend(reader(name).read(source))
    ordered = {name: _ordered(recordings) for name, recordings in found.items() if recordings}
    if not ordered:
        msg = "holds no operations; capture at least one iteration"
        raise TraceError(", ".join(map(str, paths)), msg)
    for recordings in ordered.values():
        _world(recordings)
    if ordered.keys() == {"kineto", "pytorch_et"}:
        ordered = {"kineto": _ordered(join(ordered["kineto"], ordered["pytorch_et"]))}
    if len(ordered) > 1:
        one, other = list(ordered)[:2]
        msg = (
            f"is of form {other}, but {ordered[one][0].source} of {one}; give files of one form, or name it with --form"
        )
        raise TraceError(ordered[other][0].source, msg)
    name, recordings = next(iter(ordered.items()))
    return Trace(name, recordings, _world(recordings))


def _ordered(recordings: Sequence[Recording]) -> tuple[Recording, ...]:
    seen: dict[int, Recording] = {}
    for recording in recordings:
        other = seen.setdefault(recording.rank, recording)
        if other is not recording:
            what = f"rank {recording.rank}" if recording.rank != NONE else "a file that does not say its rank"
            msg = f"{what} is in {other.source}, too; give each rank once"
            raise TraceError(recording.source, msg)
    return tuple(sorted(recordings, key=lambda recording: recording.rank))


def _world(recordings: Sequence[Recording]) -> int:
    sizes = {recording.world: recording for recording in recordings if recording.world != NONE}
    if len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        msg = f"is of a job of {one} ranks, but {second.source} of one of {other}; give the files of one job"
        raise TraceError(first.source, msg)
    world = next(iter(sizes), NONE)
    highest = recordings[-1] if world == NONE else max(recordings, key=lambda recording: recording.rank)
    if world != NONE and highest.rank >= world:
        raise TraceError(highest.source, f"is of rank {highest.rank}, but the job has {world} ranks")
    return world
