"""Finds out what files hold, traces or not, and puts it into numbers."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypedDict

from fabricsim.errors import TraceError
from fabricsim.files.lines import lines
from fabricsim.files.sources import Source, sources
from fabricsim.traces.form import FORMS, form_named
from fabricsim.traces.inspection import TraceSummary, summarise_trace
from fabricsim.traces.log_views import VIEWS, LogSummary, summarise_logs
from fabricsim.traces.readers import form_of, read
from fabricsim.traces.strangers import said_of

_LAST = "nccl_log"
_LATER = (_LAST, "megatron")  # views that a text is tried as whose beginning does not show them


class Inspection(TypedDict):
    """What files hold: a trace, or what logs say, or both where a log of NCCL has calls."""

    trace: TraceSummary | None
    logs: list[LogSummary]


def inspect(
    paths: Collection[Path | str],
    form: str | None = None,
    *,
    only: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Inspection:
    """Say what is in files.

    `paths`, `only`, `progress`: as of `fabricsim.traces.readers.read`.
    `form`: of `FORMS` or `VIEWS`; if left out, as each file shows.
    Raises TraceError if a file is of no form that is known, or cannot be read; InputError if `form` is none.
    """
    if form is not None and form not in VIEWS:
        form_named(form, VIEWS)
    logs = [] if form is not None and form not in VIEWS else _logs(paths, form, only)
    if logs and not any(log["nccl"] and log["nccl"]["calls"] for log in logs):
        return {"trace": None, "logs": logs}
    try:
        trace = read(paths, _LAST if logs else form, only=only, progress=progress)
    except TraceError as error:
        trained = [log for log in logs if log["megatron"] is not None]
        if not trained:
            raise
        trained[0]["problems"].append(f"as a trace: {error}")
        return {"trace": None, "logs": logs}
    return {"trace": summarise_trace(trace), "logs": logs}


def _logs(paths: Collection[Path | str], form: str | None, only: str | None) -> list[LogSummary]:
    """Look at files as logs; none if the first of them is a trace."""
    found = []
    for source in sources(paths, only):
        if form is None and _is_trace(source):
            return []
        names = [form] if form else [name for name, view in VIEWS.items() if view.recognises(source.head)]
        found.append(_seen(source, names, form))
    return found


def _is_trace(source: Source) -> bool:
    try:
        return form_of(source) not in VIEWS
    except TraceError:
        return False


def _seen(source: Source, names: Sequence[str], form: str | None) -> LogSummary:
    """Give all views of a file its lines, and keep those that find something.

    A text whose beginning shows nothing may still be the log of a job whose NCCL or iterations come later.
    """
    known = bool(names)
    tried = names if form else [name for name in VIEWS if name in (*names, *_LATER)]
    views = {name: VIEWS[name].collector(source.label) for name in tried}
    if not known and (b"\0" in source.head or source.head.lstrip()[:1] in {b"{", b"["}):
        raise _unknown(source)
    found: dict[str, Any] = {}
    errors: dict[str, TraceError] = {}
    for number, line in lines(source):
        for name, view in views.items():
            try:
                if name not in errors:
                    view.take(number, line)
            except TraceError as error:
                errors[name] = error
    for name, view in views.items():
        try:
            if name not in errors:
                found[name] = view.finish()
        except TraceError as error:
            errors[name] = error
    if not found:
        raise next(iter(errors.values())) if known else _unknown(source)
    problems = [str(error) for name, error in errors.items() if name in names]
    return summarise_logs(source.label, found, problems)


def _unknown(source: Source) -> TraceError:
    names = ", ".join({**FORMS.all(), **VIEWS})
    otherwise = f"is no trace or log of a form that is known ({names}); say its form (--form) if it is one"
    return TraceError(source.label, said_of(source.head) or otherwise)
