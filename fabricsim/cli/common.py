"""What several commands share: printing, progress, output paths."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

SETTINGS_HELP = "Override a setting, such as cluster.hosts=16; may be repeated."

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="TOML file or name of a shipped scenario.")]
SettingsOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SETTINGS_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
FolderOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write the pictures into this folder.")
]

_PATIENCE = 2.0
"""Seconds of work after which progress is shown."""


def show(*renderables: RenderableType) -> None:
    """Print tables and text to standard output."""
    from rich.console import Console  # noqa: PLC0415  slow to import; not needed for --help and --json

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, soft_wrap=False)
    for renderable in renderables:
        console.print(renderable)


def say(text: str) -> None:
    """Print a plain line, such as JSON, to standard output."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def note(text: str) -> None:
    """Tell the user something beside the results, on standard error."""
    sys.stderr.write(f"{text}\n")


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error for work that takes over two seconds; the argument is the share done."""
    from rich.console import Console  # noqa: PLC0415  as in `show`
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  as above

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=1.0)
    began = time.monotonic()

    def report(share: float) -> None:
        if time.monotonic() - began > _PATIENCE:
            bar.start()
            bar.update(task, completed=min(share, 1.0))

    try:
        yield report
    finally:
        bar.stop()


def announce_compilation() -> None:
    """Say on standard error that kernels are being compiled, where they are for the first time."""
    from fabricsim.kernels._jit import is_compiled  # noqa: PLC0415  imports numba

    if not is_compiled():
        note("compiling kernels, once (about 15 s; later runs start at once) ...")


def output_folder(folder: Path) -> Path:
    """Make a folder for output.

    Raises
    ------
    InputError
        Where a file is in the way or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder}: cannot be used as output folder: {error.strerror}; name another with -o"
        raise InputError(msg) from error
    return folder
