"""The program `fabricsim`: its commands and its exit codes."""

import atexit
import functools
import gc
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TextIO

import typer

from fabricsim.cli import (
    bench,
    calibrate,
    convert,
    doctor,
    goodput,
    inspect,
    library,
    replay,
    report,
    runs,
    search,
    studies,
    sweep,
    topology,
    traffic,
)
from fabricsim.cli.common import announce_compilation, note
from fabricsim.cli.interrupt import ending_at_once
from fabricsim.errors import FabricsimError, FabricsimWarning
from fabricsim.jit import engines

app = typer.Typer(
    name="fabricsim",
    help="What would this training job do on that fabric? Begin with: fabricsim run gpt2-medium-dp",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:  # noqa: FBT001  as typer calls it
    if wanted:
        from fabricsim.provenance import version  # noqa: PLC0415  reads the package's metadata

        print(f"fabricsim {version()}")  # noqa: T201  the program's own voice
        raise typer.Exit


@app.callback()
def _program(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Hold the options of the program itself."""


for each in (
    runs.run,
    runs.compare,
    runs.rerun,
    runs.plot,
    replay.replay,
    report.report,
    report.timeline,
    inspect.inspect,
    convert.convert,
    calibrate.calibrate,
    studies.validate,
    sweep.sweep,
    search.search,
    bench.bench,
    traffic.traffic,
    goodput.goodput,
    library.check,
    library.volumes,
    library.list_,
    library.show_,
    library.warmup,
    topology.topology,
    doctor.doctor,
):
    app.command(each.__name__.rstrip("_"))(each)


@functools.cache
def command() -> Callable[..., Any]:
    """Make the commands out of their functions' signatures; typer would do it at each call."""
    return typer.main.get_command(app)


_OBJECTS = 50_000  # new objects after which circles of objects are looked for: a run makes many objects and few circles
_CLOSED_PIPE = 1  # as typer ends if it is the first to meet a closed pipe


def _warn(  # noqa: PLR0913, PLR0917  as of the standard library
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001  as above
    line: str | None = None,
) -> None:
    """Write a warning as a note; one of another package with its place."""
    ours = issubclass(category, FabricsimWarning)
    note(f"warning: {message}" if ours else warnings.formatwarning(message, category, filename, lineno, line).rstrip())


def _require_streams() -> None:
    """See that there is somewhere to write: Python has None for a stream that was closed when it started."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  stays open as a stream does
    if sys.stdout is None:
        print("fabricsim: standard output is closed; send it to a file or to /dev/null", file=sys.stderr)  # noqa: T201  the program's own voice
        sys.exit(2)


def main() -> None:
    """Run the command line; exit 2 with one message if the user can mend something."""
    _require_streams()
    gc.set_threshold(_OBJECTS, 20, 20)
    atexit.register(gc.freeze)  # all memory goes with the process: to look for circles in it takes 0.3 s of CPU
    try:
        try:
            with ending_at_once(), warnings.catch_warnings():
                warnings.simplefilter("once", FabricsimWarning)
                warnings.showwarning = _warn
                engines.announce = announce_compilation
                command()(prog_name="fabricsim")  # ends in SystemExit
        finally:
            sys.stdout.flush()  # at interpreter exit nobody could catch what it raises
    except FabricsimError as error:
        print(f"fabricsim: {error}", file=sys.stderr)  # noqa: T201  the program's own voice
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has no reader
        sys.exit(_CLOSED_PIPE)
    except OSError as error:
        if error.filename is not None:  # not of a standard stream: nobody foresaw it, so show all of it
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has no place
        print(f"fabricsim: standard output cannot be written: {error.strerror}", file=sys.stderr)  # noqa: T201  as above
        sys.exit(2)
