"""Everything fabricsim raises on purpose.

::

    FabricsimError              exit code 2 on the command line
    ├── InputError              what the user wrote cannot be used
    │   ├── ScenarioError       one or more mistakes in a scenario, listed together
    │   ├── TraceError          a trace or log file that cannot be read
    │   ├── AbsentTracesError   measured tables that are not part of fabricsim and are not there
    │   └── ResultError         a result file that cannot be read
    └── SimulationError         the run itself cannot go on (unreachable rank, deadlock, nothing delivered)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_LONG = re.compile(r"""(?<!\w)(['"])(?:(?!\1)[^\n]){80,}\1(?!\w)|[^\s/'"]{200,}""")
"""What files and users write and a message repeats: a long quotation, or what has no spaces and is no path."""
_SHORT = 60
_HEAD, _TAIL = 4000, 400
"""Letters kept of the beginning, and of the way out at the end, of a message that is far too long."""


def brief(message: str) -> str:
    """Shorten the values that a message repeats, and escape what cannot be printed, as Python does."""
    if len(message) > _HEAD + _TAIL:
        message = f"{message[:_HEAD]} ... {message[-_TAIL:]}"
    if not message.replace("\n", "").isprintable():
        message = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in message)
    return _LONG.sub(lambda match: f"{match[0][:_SHORT]}...{match[1] or ''}", message)


class FabricsimError(Exception):
    """Base of every error that a user can mend; the message says how.

    Parameters
    ----------
    message
        Long values in it are shortened (`brief`).
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(brief(message))


class FabricsimWarning(UserWarning):
    """What the user wrote can be simulated, and probably is not what was meant; the message says how to mend it."""


class InputError(FabricsimError):
    """Something the user wrote or named cannot be used."""


class AbsentTracesError(InputError):
    """Measured tables that a study needs, and that are not part of fabricsim, are not there."""


class SimulationError(FabricsimError):
    """The run cannot go on."""


@dataclass(frozen=True)
class Mistake:
    """One mistake in a scenario.

    Parameters
    ----------
    key
        Dotted path of the setting, such as ``"job.micro_batch"``.
    problem
        What is wrong with it, the value included.
    way_out
        What to write instead.
    where
        ``"file.toml:12"`` or ``"--set"``; empty if the place is not known.
    against
        Dotted path of another setting that it does not go with, whose place is named, too.
    """

    key: str
    problem: str
    way_out: str = ""
    where: str = ""
    against: str = ""

    def __str__(self) -> str:
        """Write place, key, problem and way out on one line."""
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.way_out})" if self.way_out else ""
        return brief(f"{place}{self.key}: {self.problem}{hint}")


class ScenarioError(InputError):
    """A scenario with mistakes, all of them at once.

    Parameters
    ----------
    mistakes
        At least one.
    place
        What has them, for people.
    """

    def __init__(self, mistakes: Sequence[Mistake], place: str = "the scenario") -> None:
        self.mistakes = tuple(mistakes)
        count = len(self.mistakes)
        head = f"1 mistake in {place}" if count == 1 else f"{count} mistakes in {place}"
        super().__init__("\n".join([f"{head}:", *_listed(self.mistakes)]))


_MOST_LISTED = 12


def _listed(mistakes: Sequence[Mistake]) -> Iterator[str]:
    """Yield a line for each of the first mistakes; what helps with several is said with the first of them."""
    said = set()
    for mistake in mistakes[:_MOST_LISTED]:
        yield f"  {replace(mistake, way_out='') if mistake.way_out in said else mistake}"
        said.add(mistake.way_out)
    if len(mistakes) > _MOST_LISTED:
        yield f"  and {len(mistakes) - _MOST_LISTED} more"


class TraceError(InputError):
    """A trace or log file that cannot be read.

    Its message is one line of text, whatever stands in the file.

    Parameters
    ----------
    path
        The file.
    problem
        What is wrong with it, and the way out.
    line
        Line number from 1, where one line is to blame.
    """

    def __init__(self, path: Path | str, problem: str, line: int | None = None) -> None:
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {problem}".replace("\n", "\\n"))


class ResultError(InputError):
    """A result file that cannot be read or was not written by fabricsim."""
