"""Commands about what can be run: check, volumes, list, show, warmup."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli import common
from fabricsim.errors import InputError
from fabricsim.studies import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from fabricsim.scenario.job import Job
    from fabricsim.scenario.load import LoadedScenario


def check(scenario: common.ScenarioArgument, settings: common.SettingsOption = None) -> None:
    """Read a scenario, and refuse what a run would refuse.

    Its fabric is built, and nothing is run.
    """
    from rich.text import Text  # noqa: PLC0415  --help must not pay for it

    from fabricsim.run import pipeline  # noqa: PLC0415  as above

    loaded = pipeline.load(scenario, list(settings or []))
    found, built = loaded.scenario, pipeline.check(loaded)
    machine = f"{found.cluster.hosts} x {found.cluster.gpus_per_host} {found.cluster.gpu.name}"
    head = f"{found.name}: no mistakes; {machine}, {_work(found.job)}, {found.transport.name}"
    common.show(*(Text(line) for line in (head, *built)))


def _work(job: Job | None) -> str:
    if job is None:
        return "no job"
    degrees = {name: getattr(job.parallelism, name) for name in ("tensor", "context", "expert")}
    more = "".join(f", {degree} x {name}" for name, degree in degrees.items() if degree > 1)
    return f"{job.model.name}, {job.parallelism.data} x data, {job.parallelism.pipeline} x pipeline{more}"


@common.on_paper
def volumes(
    scenario: common.ScenarioArgument,
    settings: common.SettingsOption = None,
    *,
    as_json: common.JsonOption = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Count bytes between pairs of ranks.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="With --matrix: write CSV and heat map here."),
    ] = None,
) -> None:
    """Count what one iteration of a job sends.

    The formulas stand beside it; nothing is simulated.
    """
    if output is not None and not matrix:
        raise InputError("-o is for the matrix of ranks: add --matrix")
    common.check_output_folder(output)
    from fabricsim.run.pipeline import load  # noqa: PLC0415  --help must not pay for it

    loaded = load(scenario, list(settings or []))
    summary, text = _matrix(loaded, output) if matrix else _volumes(loaded)
    if as_json:
        common.say_json(summary)
    else:
        common.show(text())


def _volumes(loaded: LoadedScenario) -> tuple[object, Callable[[], RenderableType]]:
    from fabricsim.run.pipeline import counted_plan  # noqa: PLC0415  --help must not pay for it
    from fabricsim.workload.dispatcher import load  # noqa: PLC0415  as above
    from fabricsim.workload.tally import plan_calls, tally  # noqa: PLC0415  as above
    from fabricsim.workload.volume_summary import summarise_volumes  # noqa: PLC0415  as above
    from fabricsim.workload.volumes import closed_forms  # noqa: PLC0415  as above

    plan, job = counted_plan(loaded), loaded.scenario.job
    counted, formula = tally(plan_calls(plan)), tally(closed_forms(plan.job, plan.placement.expert_hosts))
    uneven = job is not None and job.model.experts is not None and not job.pad_to_capacity
    busiest = load(job) if job is not None and uneven else 1.0
    summary = summarise_volumes(loaded.scenario.name, plan.ranks, counted, formula, busiest)

    def text() -> RenderableType:
        from fabricsim.report.volumes_text import volumes_text  # noqa: PLC0415  imports rich, which JSON does not need

        return volumes_text(summary)

    return summary, text


def _matrix(loaded: LoadedScenario, output: Path | None) -> tuple[object, Callable[[], RenderableType]]:
    from fabricsim.results.pairs import summarise_pairs  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.pipeline import pairs_of  # noqa: PLC0415  as above

    common.check_output_files(output, ["matrix.csv", "matrix.png"], *loaded.files)
    pairs = pairs_of(loaded)
    summary = {"name": loaded.scenario.name, **summarise_pairs(pairs)}
    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  as above

        folder = common.output_folder(output)
        source, target, carried = (column.tolist() for column in pairs.merged())
        rows = (f"{a},{b},{size}" for a, b, size in zip(source, target, carried, strict=True) if size)
        common.write_text(folder / "matrix.csv", "\n".join(["src,dst,bytes", *rows, ""]))
        plots.save(plots.heat_map(pairs, loaded.scenario.name), folder / "matrix.png")
        common.note(f"wrote {folder / 'matrix.csv'} and {folder / 'matrix.png'}")

    def text() -> RenderableType:
        from fabricsim.report.pairs_text import pairs_text  # noqa: PLC0415  imports rich, which JSON does not need

        return pairs_text(loaded.scenario.name, summarise_pairs(pairs))

    return summary, text


def list_(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="Only this kind, such as scenarios.")] = None,
) -> None:
    """Name the scenarios, models, GPUs and transports there are.

    Also algorithms of collectives, traces and all else that ships.
    """
    from rich.table import Table  # noqa: PLC0415  --help must not pay for it
    from rich.text import Text  # noqa: PLC0415  as above

    from fabricsim.scenario import library  # noqa: PLC0415  as above
    from fabricsim.scenario.suggest import did_you_mean  # noqa: PLC0415  as above

    listing: dict[str, Callable[[], dict[str, str]]] = {
        "algorithms": _algorithms,
        "measured": _measured,
        "studies": _studies,
    }
    listing |= {each: partial(library.described, each) for each in library.KINDS}
    listing |= {each: partial(_declared, each) for each in _DECLARED}
    if kind is not None and kind not in listing:
        raise InputError(f"there is nothing of kind {kind!r} to list; {did_you_mean(kind, sorted(listing))}")
    for name in sorted(listing) if kind is None else [kind]:
        table = Table(title=name, title_justify="left", box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        for entry, description in listing[name]().items():
            table.add_row(Text(entry), Text(description))
        common.show(table)


_DECLARED = {
    "topologies": ("scenario.fabric", "TOPOLOGIES", "__doc__"),
    "schedules": ("scenario.schedule", "SCHEDULES", "steps.__doc__"),
    "laws": ("scenario.congestion", "LAWS", "__doc__"),
    "load-balancing": ("scenario.balancing", "RULES", "__doc__"),
    "forms": ("traces.form", "FORMS", "about"),
}
"""Kinds of what modules declare: the module and name of the registry, and what one of them says of itself."""


def _declared(kind: str) -> dict[str, str]:
    """First line of what each declaration of a kind says of itself, fabricsim's own and installed ones, by name."""
    module, registry, text = _DECLARED[kind]
    every = getattr(import_module(f"fabricsim.{module}"), registry).all()
    return {name: (attrgetter(text)(each) or "").partition("\n")[0] for name, each in every.items()}


def _algorithms() -> dict[str, str]:
    from fabricsim.scenario.collectives import DEFAULTS, algorithms  # noqa: PLC0415  --help must not pay for it

    return {collective: ", ".join(algorithms(collective)) for collective in DEFAULTS}


def _measured() -> dict[str, str]:
    from fabricsim import measured  # noqa: PLC0415  --help must not pay for it

    return {name: measured.load(name).title for name in measured.names()}


def _studies() -> dict[str, str]:
    from fabricsim.studies.frame.study import STUDIES  # noqa: PLC0415  --help must not pay for it

    installed = {name: study.about.partition("\n")[0] for name, study in STUDIES.installed.items()}
    return {name: _title(name) for name in names()} | installed


def _title(study: str) -> str:
    """Read the first line of a study's module: to import it takes the engines."""
    spec = find_spec(f"fabricsim.studies.{study.replace('-', '_')}")
    return "" if spec is None else Path(spec.origin or "").read_text(encoding="utf-8").partition("\n")[0].strip('"')


def show_(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A scenario or preset, or a TOML file of one.")],
    settings: common.SettingsOption = None,
) -> None:
    """Print a scenario or preset with all that it includes.

    Beside each value stands where it is from.
    """
    from fabricsim.scenario.sourced import show as written  # noqa: PLC0415  --help must not pay for it

    common.say(written(name, settings or [], common.columns()))


def warmup() -> None:
    """Compile all kernels now, so that the first run starts at once."""
    import time  # noqa: PLC0415  only this command needs it

    from fabricsim.jit.cache import cache_directory, can_keep  # noqa: PLC0415  imports numba
    from fabricsim.jit.compile import is_compiled  # noqa: PLC0415  as above
    from fabricsim.run.warm import compile_kernels  # noqa: PLC0415  as above

    if is_compiled("flow") and is_compiled("packet"):
        common.note("kernels are compiled already")
    began = time.monotonic()
    for engine in ("flow", "packet"):
        compile_kernels(engine)
    kept = f"; compiled kernels are in {cache_directory()}" if can_keep() else ""
    common.note(f"ready after {time.monotonic() - began:.1f} s{kept}")
