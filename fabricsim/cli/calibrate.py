"""The command that fits a transport to measured tables, or GPUs to measured kernels or an iteration: calibrate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fabricsim.cli import common
from fabricsim.cli.calibrate_gpu import are_kernel_traces, calibrate_gpu
from fabricsim.cli.calibrate_iteration import calibrate_iteration
from fabricsim.errors import InputError
from fabricsim.units import BYTES, human_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from fabricsim.calibration.calibrate import Calibration
    from fabricsim.calibration.halves import Half
    from fabricsim.calibration.measurements import Measurement

_BASE = "hkbu"  # scenario that the options are laid over: its fabric is one switch
_OLDEST = (2, 5)  # first version of NCCL that chooses by cost


LogsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="nccl-tests logs, osu_latency or osu_bw tables, or names of measured tables that ship; "
        "or the profiler's (Kineto) traces of a job, with shapes; with --iteration the scenario of a job.",
    ),
]
ClusterOption = Annotated[
    str | None, common.preset("clusters", "Cluster of the library; the log says its hosts and GPUs.")
]
TransportOption = Annotated[
    str | None, common.preset("transports", "Transport to begin with: of the library, or a file.")
]
GpuOption = Annotated[
    str | None, common.preset("gpus", "GPU that the kernels of traces are laid over: of the library, or a file.")
]
IterationOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Measured time of an iteration of the job, which calibrates the GPUs' speed."),
]
PresetOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="PRESET", help="Write preset.toml, and pictures of a fit beside it."),
]
HoldOutOption = Annotated[
    str | None,
    typer.Option(metavar="WHICH", help="Fit the rest and predict these: half, other-half, or a number to draw by."),
]
HalvesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, help="Fit both alternate halves and N random ones, and say how well each tells the other."
    ),
]
TestOption = Annotated[str | None, typer.Option(metavar="NAME", help="Collective of logs that do not name it.")]
CollectivesOption = Annotated[
    str | None, common.preset("collectives", "Collectives of the library; by default NCCL as the log says.")
]
SmallestOption = Annotated[str, typer.Option("--min-bytes", metavar="SIZE", help="Smallest size that counts.")]
LargestOption = Annotated[str, typer.Option("--max-bytes", metavar="SIZE", help="Largest size that counts.")]


@common.on_paper
def calibrate(  # noqa: PLR0913  one parameter per option
    logs: LogsArgument,
    *,
    cluster: ClusterOption = None,
    transport: TransportOption = None,
    gpu: GpuOption = None,
    iteration: IterationOption = None,
    output: PresetOption = None,
    force: common.ForceOption = False,
    hold_out: HoldOutOption = None,
    halves: HalvesOption = None,
    test: TestOption = None,
    collectives: CollectivesOption = None,
    smallest: SmallestOption = "1B",
    largest: LargestOption = "1TiB",
    settings: common.SettingsOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Fit a transport to measured tables.

    Its latency, bandwidth and host costs are written as a preset.

    Of traces it takes the times of kernels, and writes them as a preset of a GPU. With --iteration it finds the speed
    of GPUs with which a job takes the measured time.
    """
    from fabricsim.calibration import preset  # noqa: PLC0415  --help must not pay for it

    _check_target(output, *map(Path, logs), cluster, transport, gpu, collectives, force=force)
    given: dict[str, object] = {"cluster": cluster, "transport": transport, "hold-out": hold_out}
    given |= {"halves": halves is not None, "test": test, "collectives": collectives}
    unused = [f"--{option}" for option, value in given.items() if value]
    if iteration is not None:
        unused += ["--gpu"] * (gpu is not None)
        calibrate_iteration(logs, iteration, settings or [], output, unused=unused, as_json=as_json)
        return
    if are_kernel_traces(logs):
        unused += ["--set"] * bool(settings)
        calibrate_gpu(logs, gpu, output, unused=unused, as_json=as_json)
        return
    if gpu is not None:
        raise InputError(f"--gpu {gpu}: of no use with a log, since it is for traces of kernels; leave it out")
    if cluster is None or transport is None:
        raise InputError("a log needs --cluster and --transport, of which the latter is fitted; give both")
    tables = _tables(logs, test, smallest, largest)
    if output is not None:
        common.check_free(_pictures(output, tables).values(), force=force)
    chosen = [f"cluster={cluster}", f"transport={json.dumps(transport)}", *_collectives(collectives, tables)]
    chosen += settings or []
    if halves is not None:
        from fabricsim.cli.calibrate_halves import show_halves  # noqa: PLC0415  --help must not pay for it

        _check_halves(hold_out, output)
        show_halves(_halves(chosen, tables, halves), as_json=as_json)
        return
    found = _fitted(chosen, tables, hold_out)
    _show(found, as_json=as_json)
    if output is not None:
        preset.write(output, _BASE, chosen, transport, found)
        for written in (output, *_draw(found, output)):
            common.note(f"wrote {written}")


def _check_target(output: Path | None, *inputs: str | Path | None, force: bool) -> None:
    """Refuse a file that is none of a preset, that is read, or that is there already, without ``--force``."""
    from fabricsim.calibration import preset  # noqa: PLC0415  --help must not pay for it

    if output is not None:
        preset.check_target(output)
        common.check_output_file(output, *inputs)
        common.check_free([output], force=force)
    elif force:
        raise InputError("--force has no effect without -o, which names the preset to replace; give both, or neither")


def _tables(logs: Sequence[str], test: str | None, smallest: str, largest: str) -> list[Measurement]:
    from fabricsim.calibration.measurements import between, read  # noqa: PLC0415  --help must not pay for it

    options = (("--min-bytes", smallest), ("--max-bytes", largest))
    least, most = (int(common.quantity(option, text, BYTES)) for option, text in options)
    return [between(read(log, test), least, most) for log in logs]


def _fitted(chosen: Sequence[str], tables: Sequence[Measurement], hold_out: str | None) -> Calibration:
    from fabricsim.calibration import calibrate as fitting  # noqa: PLC0415  --help must not pay for it

    with common.progress("calibrate") as report:
        return fitting.calibrate(_BASE, chosen, tables, hold_out, report)


def _check_halves(hold_out: str | None, output: Path | None) -> None:
    for option, given in (("--hold-out", hold_out), ("--output", output)):
        if given is not None:
            msg = f"--halves fits many halves, each of which is held out once, and gives no preset; leave {option} out"
            raise InputError(msg)


def _halves(chosen: Sequence[str], tables: Sequence[Measurement], count: int) -> list[Half]:
    from fabricsim.calibration import halves  # noqa: PLC0415  --help must not pay for it

    with common.progress("calibrate") as report:
        return halves.halves(_BASE, chosen, tables, count, report)


def _show(found: Calibration, *, as_json: bool) -> None:
    if as_json:
        common.say_json(_as_json(found))
        return
    common.show(_table(found))
    common.show(*_comparison(found))
    for warning in found.warnings:
        common.note(f"warning: {warning}")


def _collectives(named: str | None, tables: list[Measurement]) -> list[str]:
    """Choose settings of collectives: the user's, or the version that the logs name."""
    from fabricsim.scenario.toml_text import Setting  # noqa: PLC0415  --help must not pay for it

    if named is not None:
        return [Setting(f"collectives={named}", "--collectives")]
    of_collectives = [table for table in tables if table.kind == "collective"]
    if not of_collectives:
        return []
    versions = {_version(table) for table in of_collectives}
    if len(versions) > 1 or None in versions:
        said = ", ".join(f"{table.name}: {table.nccl or 'none'}" for table in of_collectives)
        msg = (
            "which NCCL ran decides what is simulated, and the logs name no one version from 2.5 on "
            f"({said}); say so with --collectives nccl-2.6 or --collectives nccl --set collectives.nccl=2.18"
        )
        raise InputError(msg)
    return ["collectives=nccl", f"collectives.nccl='{versions.pop()}'"]


def _version(table: Measurement) -> str | None:
    parts = table.nccl.split("+")[0].split(".")[:2]
    numbers = tuple(int(part) for part in parts if part.isascii() and part.isdigit())
    return ".".join(parts) if len(numbers) == len(_OLDEST) and numbers >= _OLDEST else None


def _table(found: Calibration) -> Table:
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  imports rich

    words = ["95 % interval", "Determined"]
    table = FittedTable("Calibrated parameter", ["Value"], words=words, least=["Determined", "95 % interval"])
    for estimate in found.fit.estimates:
        text = estimate.parameter.text
        interval = f"{text(estimate.low)} to {text(estimate.high)}"
        cells = (estimate.parameter.name, text(estimate.value), interval, "yes" if estimate.determined else "no")
        table.add(*cells)
    return table


def _comparison(found: Calibration) -> list[RenderableType]:
    from rich.text import Text  # noqa: PLC0415  slow to import

    from fabricsim.report.validation import table  # noqa: PLC0415  --help must not pay for it

    held = found.validation()
    figures = (f"{name} {human_percent(value)}" for name, value in held.summary.items() if isinstance(value, float))
    sources = (f"[{number}] {said}" for number, said in enumerate(held.sources(), 1))
    below = map(Text, ["; ".join(figures), *sources])
    return ["", Text(f"rows {held.summary['rows']}"), table(held), *below]


def _as_json(found: Calibration) -> dict[str, Any]:
    units = {"time": "s", "time per byte": "s/B", "share": "1"}
    parameters = [
        {
            "name": estimate.parameter.name,
            "unit": units[estimate.parameter.unit],
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "determined": estimate.determined,
        }
        for estimate in found.fit.estimates
    ]
    return {**found.validation().to_dict(), "parameters": parameters, "warnings": list(found.warnings)}


def _draw(found: Calibration, output: Path) -> list[Path]:
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.report.calibrated import CalibratedRows, calibration  # noqa: PLC0415  as above

    named = _pictures(output, [each.measurement for each in found.compared])
    for name, path in named.items():
        rows = [each for each in found.compared if each.measurement.name == name]
        series = [
            CalibratedRows(
                each.measurement.sizes.tolist(),
                each.measurement.undisturbed.tolist(),
                each.predicted.tolist(),
                each.held_out,
            )
            for each in rows
        ]
        plots.save(calibration(series, f"{rows[0].measurement.test}, {Path(name).name}"), path)
    return list(named.values())


def _pictures(output: Path, tables: Sequence[Measurement]) -> dict[str, Path]:
    """Name the pictures that are drawn beside a preset, by the measurements that they show."""
    names = list(dict.fromkeys(table.name for table in tables))
    if len(names) == 1:
        return {names[0]: output.with_suffix(".png")}
    return {name: output.with_name(f"{output.stem}-{number}.png") for number, name in enumerate(names, start=1)}
