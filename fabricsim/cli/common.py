"""What several commands share: options, printing, progress, output paths."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fabricsim.errors import InputError, ScenarioError
from fabricsim.files.atomic import whole
from fabricsim.report.style import FULL_WIDTH, paper
from fabricsim.units import Dimension, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.progress import Progress

    from fabricsim.engine.packet.recorder import Watch
    from fabricsim.results.result import RunRecord
    from fabricsim.results.traffic import TrafficRecord
    from fabricsim.results.uncertainty import Uncertainty

SETTINGS_HELP = "Override a setting, such as cluster.hosts=16; may be repeated."


def names_of(*kinds: str) -> Callable[[str], list[str]]:
    """Complete names of presets for a shell, which itself completes names of files where none fits."""

    def complete(incomplete: str) -> list[str]:
        from fabricsim.scenario import library  # noqa: PLC0415  --help must not pay for it

        return [name for kind in kinds for name in library.names(kind) if name.startswith(incomplete)]

    return complete


def preset(kind: str, what: str) -> Any:  # noqa: ANN401  as typer.Option itself
    """Declare an option that names a preset of a kind."""
    return typer.Option(metavar="NAME", help=what, autocompletion=names_of(kind))


ScenarioArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="TOML file, or name of a shipped scenario (fabricsim list scenarios).",
        autocompletion=names_of("scenarios"),
    ),
]


def _each_key_once(settings: list[str] | None) -> list[str] | None:
    """Give settings as they are. Raises InputError if two of them have one key, of which the first had no effect."""
    first: dict[str, str] = {}
    for text in settings or ():
        key = text.partition("=")[0].strip()
        if key in first:
            raise InputError(f"--set {first[key]} and --set {text} both say what {key} is; take one of them out")
        first[key] = text
    return settings


SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SETTINGS_HELP, callback=_each_key_once)
]
UncertaintyOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=10, max=100_000, help="Interval of the iteration by N runs whose parameters are drawn."
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
FolderOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write the pictures into this folder.")
]

TapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tap",
        metavar="KIND:GLOB",
        help="Record queue or rate of wires, or flows, over time, such as 'queue:switch0->*' or 'flow:*'; needs -o and "
        "the packet engine; may be repeated.",
    ),
]
PcapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pcap",
        metavar="GLOB",
        help="Write the packets of these wires as pcapng; needs -o and the packet engine; may be repeated.",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Engine: flow (the default, fast), packet or reference.",
        autocompletion=lambda: ["flow", "packet", "reference"],
    ),
]

TracesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="TRACE...",
        help="Files, folders or tar archives of one job, packed or not; or one that ships (fabricsim list traces).",
    ),
]
FormOption = Annotated[
    str | None,
    typer.Option(
        "--form", metavar="NAME", help="Form of the trace, if its contents do not show it; or FILE.py that reads it."
    ),
]
OnlyOption = Annotated[
    str | None, typer.Option("--only", metavar="GLOB", help="Read only files or members whose names match.")
]
TransportOption = Annotated[
    str | None, preset("transports", "Transport (fabricsim list transports) in place of the scenario's.")
]
SpeedOption = Annotated[
    float, typer.Option(metavar="X", help="How many times faster kernels run than they were captured.")
]
MessageSizeOption = Annotated[
    float, typer.Option(metavar="X", help="How many times as many bytes each communication moves as was captured.")
]
ScaleOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Ranks of the job to replay: repeats the captured one, data-parallel."),
]
RanksOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Ranks of the captured job, if the trace does not say how many.")
]
RanksPerHostOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Ranks on each host of a Horovod timeline that does not show how many."),
]
SizeOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Size of each flow, or a distribution: websearch, hadoop, ...")
]
FlowsOption = Annotated[int | None, typer.Option(metavar="N", help="Flows of incast, permutation or poisson.")]
LoadOption = Annotated[float | None, typer.Option(metavar="L", help="Load of poisson, relative to the hosts' links.")]
SeedOption = Annotated[int | None, typer.Option(metavar="N", help="Seed of all random choices, such as paths.")]


_ENDINGS = {".h5", ".html", ".json", ".pb", ".pdf", ".pftrace", ".png", ".svg", ".toml", ".txt"}


def check_ending(file: Path | None, what: str, ending: str) -> Path | None:
    """Refuse a file called like one of another form, which its content would not be.

    `what`: is written, such as ``"a result is HDF5"``. `ending`: of such files.
    Raises InputError with a name that suits.
    """
    if file is not None and file.suffix.lower() in _ENDINGS - {ending}:
        raise InputError(f"-o {file}: {what}; name it {file.with_suffix(ending)}")
    return file


def _check_result(file: Path | None) -> Path | None:
    return check_ending(file, "a result is written as HDF5, and --json goes to standard output", ".h5")


ResultOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", callback=_check_result, help="Write the result as HDF5."),
]

_WidthOption = Annotated[
    float | None,
    typer.Option(
        metavar="INCHES",
        min=2.5,
        max=20.0,
        show_default=f"{FULL_WIDTH}",
        help="Width of pictures; a column of a paper has about 3.3.",
    ),
]

Labels = tuple[str, list[str]]
"""What runs differ in, and what each is called."""
Options = dict[str, str | int | None]
"""What options of the same name as a key of a scenario gave; None if they were not given."""
_WIDTH = 120
"""Columns of output that goes elsewhere than to a terminal, unless COLUMNS says otherwise."""
_NARROWEST = 20
"""Columns below which nobody reads: who says so has not said anything, as a terminal of 0 columns."""
_NUMBER = re.compile(r"\d{1,6}", re.ASCII)
_PATIENCE = 2.0
"""Seconds of work after which progress is shown."""


def on_paper(command: Callable[..., None], *, always: bool = False) -> Callable[..., None]:
    """Give a command that draws the option of how wide its pictures are; `always`: whether it draws without ``-o``."""

    @wraps(command)
    def drawn(*values: Any, width: float | None = None, **options: Any) -> None:  # noqa: ANN401  as typer calls it
        if width is not None and options["output"] is None and not always:
            msg = f"--width {width:g} has no effect without -o, which says where pictures go; give both, or neither"
            raise InputError(msg)
        with paper(width or FULL_WIDTH):
            command(*values, **options)

    own, named = signature(command, eval_str=True), cast("Any", drawn)
    width = Parameter("width", Parameter.KEYWORD_ONLY, default=None, annotation=_WidthOption)
    named.__signature__ = own.replace(parameters=[*own.parameters.values(), width])  # typer's way to learn of it
    return drawn


def show(*renderables: RenderableType) -> None:
    """Print tables and text to standard output; a string as it is, since it may hold what users wrote."""
    from rich.text import Text  # noqa: PLC0415  slow to import; not needed for --help and --json

    from fabricsim.report.console import ReportConsole  # noqa: PLC0415  as above

    # without emoji, names of files such as "host:on:1" stay as they are
    console = ReportConsole(width=columns(), highlight=False, soft_wrap=False, emoji=False)
    for renderable in renderables:
        console.print(_Plain(Text(renderable) if isinstance(renderable, str) else renderable))


def columns() -> int:
    """Columns of standard output: of COLUMNS or the terminal, if they tell such as hold a word, else 120."""
    told = os.environ.get("COLUMNS", "")  # by rich's rule, also when standard output is no terminal
    widths = (int(told) if _NUMBER.fullmatch(told) else 0, _columns_of_terminal())
    return next((width for width in widths if width >= _NARROWEST), _WIDTH)


def _columns_of_terminal() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):  # it is none
        return 0


class _Plain:
    """Text of files without what a terminal would obey: control characters become replacement characters."""

    def __init__(self, renderable: RenderableType) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment  # noqa: PLC0415  as in `show`

        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else text.translate(_CONTROLS), style, control)


_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\ufffd") | {ord("\n"): "\n"}


def say(text: str) -> None:
    """Print a plain line, such as JSON, to standard output."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def json_text(value: object) -> str:
    """Write JSON. Raises ValueError if a number is not finite: JSON has no word for it."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def say_json(value: object) -> None:
    """Print JSON to standard output; raises as `json_text`."""
    say(json_text(value))


def note(text: str) -> None:
    """Tell the user something beside the results, on standard error."""
    sys.stderr.write(f"{text.translate(_CONTROLS)}\n")


def as_settings(options: Options) -> list[str]:
    """Write what options of the same name as a key gave as settings; those not given are left out."""
    from fabricsim.scenario.toml_text import settings  # noqa: PLC0415  --help must not pay for it

    # quoted as in TOML, so that --engine 3 is a name and no number
    return settings({key: value for key, value in options.items() if value is not None})


def quantity(option: str, text: str, dimension: Dimension) -> int | float:
    """Read what an option gave. Raises InputError if it is no quantity of that dimension."""
    try:
        return parse(text, dimension)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error


def refuse_twice(options: Options, settings: Iterable[str], named: str = "") -> None:
    """Raise InputError if a setting says what an option says, too.

    `options`: by the key that each gives. `named`: their name if it is not the key; a setting of the table that the key
        is in is refused as well then, since the option takes its place.
    """
    for setting in settings:
        said = setting.partition("=")[0].strip().replace('"', "")
        for key in (key for key, value in options.items() if value is not None):
            if said == key or (named and said == key.rpartition(".")[0]):
                option = f"--{named or key} {options[key]}"
                raise InputError(f"{option} and --set {setting} both say what {key} is; take one of them out")


@contextmanager
def naming_options(options: Options, settings: Iterable[str]) -> Iterator[None]:
    """Name the option in mistakes of a scenario whose key was given by an option, which no setting may give, too."""
    refuse_twice(options, settings)
    try:
        yield
    except ScenarioError as error:
        given = {key for key, value in options.items() if value is not None}
        mistakes = [
            replace(mistake, key=f"--{mistake.key}", where="") if mistake.key in given else mistake
            for mistake in error.mistakes
        ]
        raise ScenarioError(mistakes) from error


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on standard error once the work has taken two seconds; what is yielded takes the share done."""
    began = time.monotonic()
    seen = sys.stderr.isatty()  # nobody sees a bar elsewhere, and to import it takes time
    bar: Progress | None = None

    def report(share: float) -> None:
        nonlocal bar
        if bar is None and seen and time.monotonic() - began > _PATIENCE:
            bar = _started_bar(label)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=min(share, 1.0))

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


def _started_bar(label: str) -> Progress:
    from rich.console import Console  # noqa: PLC0415  as in `show`
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415  as above

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(label, total=1.0)
    bar.start()
    return bar


_COMPILE_SECONDS = {"flow": 15, "packet": 40, "reference": 10}
"""What compiling the kernels of an engine takes on one core, about."""


def announce_compilation(engine: str) -> None:
    """Say on standard error that kernels are compiled, which takes long, or why they cannot be kept."""
    from fabricsim.jit.cache import can_keep  # noqa: PLC0415  imports numba

    if can_keep():
        seconds = _COMPILE_SECONDS[engine]
        note(f"compiling kernels of the {engine} engine, once (about {seconds} s; later runs start at once) ...")


def watched(taps: list[str] | None, captures: list[str] | None, output: Path | None) -> Watch | None:
    """Read ``--tap`` and ``--pcap``; None if neither is given.

    Raises InputError if one is malformed, or there is no ``-o`` to say where the recording goes.
    """
    if not taps and not captures:
        return None
    from fabricsim.engine.packet.recorder import Watch  # noqa: PLC0415  --help must not pay for it

    watch = Watch.parse(taps or (), captures or ())
    if output is None:
        raise InputError(f"{'--tap' if taps else '--pcap'} records into files: say where with -o")
    return watch


def check_output_file(file: Path | None, *inputs: str | Path | None) -> None:
    """Find out before a long run whether its result can be written.

    `file`: what ``-o`` gave, if anything.
    `inputs`: what is read besides: files, folders of traces, or names, of which a folder of that name is none.
    Raises InputError if something else than a file is in the way, it is one of the inputs or in one, or the folder is
        missing or read-only.
    """
    if file is None:
        return
    problem = _in_the_way_of_a_file(file)
    if not problem and any(_holds(each, file) for each in inputs if each is not None):
        problem = "is what is read, and would be lost; name another file"
    if problem:
        raise InputError(f"-o {file}: {problem}")


def check_free(files: Iterable[Path], *, force: bool) -> None:
    """Refuse to replace files that users edit, if they are there, without ``--force``."""
    there = next((file for file in files if file.exists() or file.is_symlink()), None)
    if there is not None and not force:
        raise InputError(f"-o: {there} is there already; add --force to replace it, or name another place")
    if there is not None and not there.is_file():
        raise InputError(f"-o: {there} is not a regular file; name another place")


def check_output_files(folder: Path | None, names: Iterable[str], *inputs: str | Path | None) -> None:
    """Find out before a long run whether files of these names, in a folder, can be written; raises as above.

    `folder`: what ``-o`` gave, if anything.
    """
    if folder is not None and folder.is_dir():
        for name in names:
            check_output_file(folder / name, *inputs)


def _in_the_way_of_a_file(file: Path) -> str:
    try:
        if file.is_dir():
            return "is a directory; name the file to write"
        if file.exists() and not file.is_file():  # a device would be replaced by the result
            return "is not a regular file; name another"
        if not file.parent.is_dir():
            return f"there is no folder {file.parent}; make it first, or name another file"
        return "" if os.access(file.parent, os.W_OK) else f"the folder {file.parent} is read-only; name another file"
    except OSError as error:  # such as a name that is too long
        return f"cannot be a file: {error.strerror}"


def _holds(given: str | Path, file: Path) -> bool:
    """Whether a file that is there is what was given, or within that, if it is the path of a folder."""
    path = Path(given)
    try:
        read = path.is_file() or (isinstance(given, Path) and path.is_dir())
        return read and file.exists() and file.resolve().is_relative_to(path.resolve())
    except OSError:  # such as a name that is too long
        return False


def check_output_folder(folder: Path | None) -> None:
    """Find out before a long run whether a folder for its output is there or can be made.

    `folder`: what ``-o`` gave, if anything.
    Raises InputError if a file is in the way, or nothing can be written there.
    """
    if folder is None:
        return
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if not there.is_dir():
        raise _unusable(folder, f"{there} is not a folder")
    if not os.access(there, os.W_OK):
        raise _unusable(folder, f"{there} is read-only")


def output_folder(folder: Path) -> Path:
    """Make a folder for output, its parents included.

    Raises InputError if a file is in the way or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    return folder


def _unusable(folder: Path, reason: str) -> InputError:
    return InputError(f"-o {folder}: cannot be used as output folder: {reason}; name another")


def write_text(path: Path, text: str) -> None:
    """Write a text file. Raises InputError if it cannot be written; nothing is left then."""
    with whole(path, "name another folder with -o") as part:
        part.write_text(text, encoding="utf-8")


def finish(result: RunRecord, output: Path | None, *, as_json: bool, uncertainty: Uncertainty | None = None) -> None:
    """Write a result if wanted, and print its summary."""
    from fabricsim.results.summary import summarise, to_json  # noqa: PLC0415  --help must not pay for it

    summary = summarise(result)
    if uncertainty is not None:
        summary["uncertainty"] = uncertainty.to_dict()
    save(result, output)
    if as_json:
        say(to_json(summary))
        return
    from fabricsim.report.text import summary_text  # noqa: PLC0415  imports rich, which JSON does not need

    show(summary_text(summary))


def show_traffic(result: TrafficRecord, *, as_json: bool) -> None:
    """Print the completion times of a traffic run."""
    from fabricsim.results.traffic import summarise_traffic  # noqa: PLC0415  --help must not pay for it

    summary = summarise_traffic(result)
    if as_json:
        say_json(summary)
        return
    from fabricsim.report.traffic_text import traffic_text  # noqa: PLC0415  as above

    show(traffic_text(summary))


def save(result: RunRecord | TrafficRecord, output: Path | None) -> None:
    """Write a result, and the packets that were captured, if wanted."""
    if output is None:
        return
    from fabricsim.results.hdf5 import write  # noqa: PLC0415  --help must not pay for it

    write(result, output)
    note(f"wrote {output}")
    if result.packets is not None and result.packets.log is not None:
        from fabricsim.results import pcapng  # noqa: PLC0415  as above

        capture = output.with_name(f"{output.name.removesuffix('.h5')}.pcapng")
        pcapng.write(result.packets.log, capture)
        note(f"wrote {capture}")


def show_comparison(results: Sequence[RunRecord], labels: Labels | None = None, *, as_json: bool) -> None:
    """Print several runs side by side, and what changed against the first."""
    from fabricsim.report.difference_text import comparison_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.summary import summarise  # noqa: PLC0415  as above

    if as_json:
        summaries = [summarise(result) for result in results]
        names = [{}] * len(summaries) if labels is None else [{"compared": label} for label in labels[1]]
        say_json([{**name, **summary} for name, summary in zip(names, summaries, strict=True)])
    else:
        show(*comparison_text(results, labels))
