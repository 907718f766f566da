"""Commands about what can be run: check, list, warmup."""

from __future__ import annotations

from typing import Annotated

import typer

from fabricsim.cli.common import ScenarioArgument, SettingsOption, announce_compilation, note, say, show
from fabricsim.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(check)
    app.command(name="list")(list_)
    app.command()(warmup)


def check(scenario: ScenarioArgument, settings: SettingsOption = None) -> None:
    """Read and check a scenario without running it."""
    from fabricsim.spec.load import load  # noqa: PLC0415  --help must not pay for it

    found = load(scenario, list(settings or [])).scenario
    cluster, job = found.cluster, found.job
    work = "no job" if job is None else f"{job.model.name}, {job.parallelism.data} x data, {job.parallelism.pipeline} x pipeline"
    say(f"{found.name}: no mistakes; {cluster.hosts} x {cluster.gpus_per_host} {cluster.gpu.name}, {work}, {found.transport.name}")


def list_(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="Only this kind, such as scenarios.")] = None,
) -> None:
    """Name what the library holds: scenarios, models, GPUs, transports and the rest."""
    from rich.table import Table  # noqa: PLC0415  --help must not pay for it

    from fabricsim.spec.library import listing  # noqa: PLC0415  as above

    kinds = dict(listing())
    if kind is not None and kind not in kinds:
        msg = f"there is no kind {kind!r} in the library; the kinds are {', '.join(sorted(kinds))}"
        raise InputError(msg)
    for name in sorted(kinds) if kind is None else [kind]:
        table = Table(title=name, title_justify="left", box=None, show_header=False, pad_edge=False)
        for entry, description in kinds[name]:
            table.add_row(entry, description)
        show(table)


def warmup() -> None:
    """Compile all kernels now, so that the first run starts at once."""
    import time  # noqa: PLC0415  only this command needs it

    from fabricsim.kernels._jit import cache_directory, is_compiled  # noqa: PLC0415  imports numba
    from fabricsim.pipeline import load, simulate  # noqa: PLC0415  as above

    if is_compiled():
        note("kernels are compiled already")
    announce_compilation()
    began = time.monotonic()
    simulate(load("gpt2-medium-dp"))
    note(f"ready after {time.monotonic() - began:.1f} s; compiled kernels are in {cache_directory()}")
