"""The `fabricsim` command: its subcommands, and the one place where errors become exit codes."""

from __future__ import annotations

import sys

import typer

from fabricsim.cli import library, runs, studies
from fabricsim.errors import FabricsimError

app = typer.Typer(
    name="fabricsim",
    help="What would this training job do on that fabric?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (runs, studies, library):
    module.register(app)


def main() -> None:
    """Run the command line; exit 2 with one message where the user can mend something."""
    try:
        app()
    except FabricsimError as error:
        print(f"fabricsim: {error}", file=sys.stderr)  # noqa: T201  the program's own voice
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)  # as a shell reports a program that wrote to a closed pipe
