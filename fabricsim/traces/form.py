"""What a form of traces is, and which there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim import extensions
from fabricsim.errors import InputError
from fabricsim.extensions import Registry, require_functions
from fabricsim.scenario.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fabricsim.traces.trace import GroupList, Recording


@dataclass(frozen=True)
class Form:
    """A form of traces.

    Attributes
    ----------
    name
        As ``--form`` has it; that of a user's file is its path.
    about
        What writes it.
    recognises
        Whether a file of a name that begins with some bytes, up to 64 KiB, is of this form; no file is of two.
    read
        Gives the recordings of a file, one per rank, or what it says of all recordings. It raises a TraceError if the
        file cannot be read.
    whole
        Whether files of ranks 0 to n - 1, two at least, are those of a whole job if nothing says how many ranks it has.
    per_host
        Whether `read` also takes how many ranks a host has.
    """

    name: str
    about: str
    recognises: Callable[[str, bytes], bool]
    read: Callable[..., Iterator[Recording | GroupList]]
    whole: bool = False
    per_host: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be called."""
        require_functions(f"form {self.name!r}", recognises=self.recognises, read=self.read)


FORMS: Registry[Form] = Registry("traces", "fabricsim.traces", "FORM", Form)
"""All forms; those of other distributions are tried last."""


def form_named(name: str, others: Iterable[str] = ()) -> Form:
    """Return a form by its name, or that of a user's Python file.

    `others`: names that would do as well here, for the message.
    Raises InputError if there is no such form, or the file cannot be run.
    """
    if extensions.is_file(name):
        extensions.run(name)
    found = FORMS.find(name)
    if found is None:
        msg = f"form {name!r}: there is no such form of traces; {did_you_mean(name, [*FORMS.all(), *others])}"
        raise InputError(msg)
    return found
