"""What is done with traces that have been read, for `fuzz_readers`: writing them in another form, rebuilding their DAG.

What a command prints must be text, as what stands in a file ends up in it.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.cli.convert import convert
from fabricsim.collectives import lowering
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild import matching, programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

WRITTEN = "written"
"""Name of what is written into the output folder, or its beginning."""


class Use(NamedTuple):
    """Something that is done with a trace; given its file, its form, the output folder, and what decides options."""

    name: str
    run: Callable[[Path, str, Path, Random], None]


def _convert(file: Path, form: str, output: Path, chance: Random) -> None:
    lower, to = chance.choice(((False, "chakra"), (True, "chakra"), (True, "goal"), (False, "goal")))
    said = io.StringIO()
    with redirect_stderr(said):
        ranks, path = chance.choice(_RANKS), str(output / WRITTEN)
        convert([str(file)], output=path, to=to, lower=lower, form=form, ranks=ranks, force=True)
    if not all(line.isprintable() for line in said.getvalue().split("\n")):
        raise ValueError(f"says what is no text: {said.getvalue()[:300]!r}")


def _rebuild(file: Path, form: str, output: Path, chance: Random) -> None:  # noqa: ARG001  as all uses
    trace = read([file], form)
    ranks = chance.choice(_RANKS)
    known = trace.world if trace.world > 0 else ranks or 1
    scale_to = chance.choice((None, None, 2 * known, 5))
    rebuilt = programs.rebuild(trace, gpu_speed=chance.choice((1.0, 1.3)), scale_to=scale_to, ranks=ranks)
    if not all(line.isprintable() for line in rebuilt.assumptions):
        raise ValueError(f"assumes what is no text: {rebuilt.assumptions!r}")


_RANKS = (None, None, 2, 8)


def lessen() -> None:
    """Allow less than a user may have, so that what is just allowed does not take most of the time."""
    programs.MOST_OPERATIONS, matching.MOST_CALLS, lowering.MOST_MESSAGES = 2**11, 2**11, 2**12


USES = (Use("converted", _convert), Use("rebuilt", _rebuild))
