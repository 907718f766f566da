"""Commands that show a result in other programs: a page for browsers, a timeline for viewers of traces."""

from pathlib import Path
from typing import Annotated

import typer

from fabricsim.cli.common import check_ending, check_output_file, check_output_folder, note, output_folder
from fabricsim.errors import InputError

ResultArgument = Annotated[Path, typer.Argument(metavar="RESULT", help="HDF5 file of fabricsim run or replay.")]
ResultsArgument = Annotated[list[Path], typer.Argument(metavar="RESULT...", help="HDF5 files that fabricsim wrote.")]
PageOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")]
TraceOption = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", help="File to write, packed if it ends with .gz; with --per-rank a folder."
    ),
]


def report(results: ResultsArgument, *, output: PageOption) -> None:
    """Write the report of a result as one HTML page.

    Of several jobs it says what makes them differ.
    """
    from fabricsim.report.page.writer import write_page  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.hdf5 import read_any  # noqa: PLC0415  as above

    check_ending(output, "a report is written as HTML", ".html")
    check_output_file(output, *results)
    write_page([(path.name, read_any(path)) for path in results], output)
    note(f"wrote {output}")


def timeline(
    result: ResultArgument,
    *,
    output: TraceOption,
    per_rank: Annotated[
        bool, typer.Option("--per-rank", help="Write a file for each rank, as PyTorch's profiler does.")
    ] = False,
) -> None:
    """Write the timeline of a result as PyTorch's profiler does.

    It is for Perfetto, chrome://tracing or HTA.
    """
    from fabricsim.report.trace_events.writer import write_timeline, write_timelines  # noqa: PLC0415  quick --help
    from fabricsim.results.hdf5 import read  # noqa: PLC0415  as above

    if not per_rank:
        check_ending(output, "a timeline is written as JSON", ".json")
        check_output_file(output, result)
        write_timeline(read(result), output)
        note(f"wrote {output}")
        return
    if output.suffix.lower() in {".json", ".gz"} and not output.is_dir():
        folder = output.name.partition(".")[0] or "ranks"
        msg = f"-o {output}: is called like a file, and --per-rank writes one for each rank into a folder"
        raise InputError(f"{msg}; name it {output.with_name(folder)}")
    check_output_folder(output)
    files = write_timelines(read(result), output_folder(output))
    note(f"wrote {files} files into {output}")
