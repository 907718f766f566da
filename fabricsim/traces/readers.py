"""The one way to read traces of any form."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from fabricsim.errors import InputError, TraceError
from fabricsim.extensions import answer, answers
from fabricsim.files.sources import Source, sources
from fabricsim.records.program import NONE
from fabricsim.traces import megatron_log
from fabricsim.traces.form import FORMS, form_named
from fabricsim.traces.groups import completed, united
from fabricsim.traces.joined import join
from fabricsim.traces.strangers import said_of
from fabricsim.traces.trace import GroupList, Recording, Trace


def form_of(source: Source) -> str:
    """Name the form of a file. Raises TraceError if it is none that is known."""
    known = FORMS.all()
    for name, form in known.items():
        if answer(form.recognises, object, source.name, source.head):
            return name
    if megatron_log.recognises(source.head):
        msg = "is a training log of Megatron-LM: it has times of iterations, and no operations that could be replayed;"
        raise TraceError(source.label, f"{msg} `fabricsim inspect` reads it")
    if stranger := said_of(source.head):
        raise TraceError(source.label, stranger)
    msg = f"is no trace of a form that is known ({', '.join(known)}); say its form (--form) if it is one"
    raise TraceError(source.label, f"{msg}, or see what `fabricsim inspect` finds in it")


def _form_among(source: Source, known: Collection[str]) -> str:
    """Name the form of a further file: if it cannot be told, it is as the first."""
    try:
        return form_of(source)
    except TraceError:
        if not known or said_of(source.head):
            raise
        return next(iter(known))


def read(
    paths: Collection[Path | str],
    form: str | None = None,
    *,
    only: str | None = None,
    ranks_per_host: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Trace:
    """Read a trace and all its files: of one form, or Kineto traces with execution traces of the same ranks.

    `paths`: files, folders or archives, packed or not.
    `form`: name in `FORMS`, of all files; if left out, as each file shows.
    `only`: pattern that names must match, as of `fabricsim.files.sources.sources`.
    `ranks_per_host`: of a Horovod timeline whose hierarchical all-reduces do not show it.
    `progress`: called now and then with the share of all bytes that has been read.
    Raises TraceError if a file cannot be read, two have the same rank, or they contradict each other.
    """
    found: dict[str, list[Recording]] = {}
    lists: list[GroupList] = []
    for source in sources(paths, only, progress):
        name = form or _form_among(source, found)
        recordings = found.setdefault(name, [])
        for part in _parts(name, source, ranks_per_host):
            if isinstance(part, GroupList):
                lists.append(part)
            else:
                recordings.append(part)
    name, recordings = _one_form({name: _ordered(some) for name, some in found.items() if some}, paths)
    world, listed = _world(recordings), united(lists)
    if world == NONE and form_named(name).whole:
        world = _implied_world(recordings, listed)
    return Trace(name, tuple(completed(recording, listed, world) for recording in recordings), world)


def _parts(form: str, source: Source, ranks_per_host: int | None) -> Iterator[Recording | GroupList]:
    if ranks_per_host is None:
        return answers(form_named(form).read, (Recording, GroupList), source)
    if not form_named(form).per_host:
        given = f"ranks_per_host {ranks_per_host} (--ranks-per-host)"
        raise InputError(f"{given}: {source.label} is of form {form}, which does without; leave it out")
    return answers(form_named(form).read, (Recording, GroupList), source, ranks_per_host)


def _one_form(found: dict[str, list[Recording]], paths: Collection[Path | str]) -> tuple[str, list[Recording]]:
    """Give the recordings and their form; those of a Kineto and an execution trace of one rank are joined."""
    if not found:
        raise TraceError(", ".join(map(str, paths)), "holds no operations; capture at least one iteration")
    if found.keys() == {"kineto", "pytorch_et"}:
        return "kineto", _ordered(join(found["kineto"], found["pytorch_et"]))
    if len(found) > 1:
        one, other = list(found)[:2]
        msg = f"is of form {other}, but {found[one][0].source} of {one}"
        raise TraceError(
            found[other][0].source, f"{msg}; give files of one form, or choose by a pattern as only (--only)"
        )
    return next(iter(found.items()))


def _ordered(recordings: Sequence[Recording]) -> list[Recording]:
    ordered = sorted(recordings, key=lambda recording: recording.rank)
    for one, other in pairwise(ordered):
        if one.rank == other.rank:
            what = f"rank {one.rank}" if one.rank != NONE else "a file that does not say its rank"
            msg = f"{what} is in {one.source}, too; give each rank once, or choose by a pattern as only (--only)"
            raise TraceError(other.source, msg)
    return ordered


def _implied_world(recordings: list[Recording], listed: Mapping[str, tuple[int, ...]]) -> int:
    """Count the files where they are those of a whole job; NONE if a rank is named that has none."""
    count = len(recordings)
    groups = [*listed.values(), *(group.ranks for recording in recordings for group in recording.groups)]
    peers = {what.peer for recording in recordings for what in recording.communications}
    highest = max([recordings[-1].rank, *peers, *(max(ranks) for ranks in groups if ranks)])
    return count if count > 1 and recordings[0].rank == 0 and highest == count - 1 else NONE


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
