"""Commands that replay captured traces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from fabricsim.cli.common import (
    EngineOption,
    JsonOption,
    PcapOption,
    ResultOption,
    SettingsOption,
    TapOption,
    as_settings,
    check_output_file,
    finish,
    naming_options,
    preset,
    progress,
    save,
    show_comparison,
    watched,
)
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.engine.packet.recorder import Watch
    from fabricsim.results.result import RunRecord
    from fabricsim.scenario.load import LoadedScenario
    from fabricsim.traces.rebuild.programs import Rebuilt

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
FabricOption = Annotated[
    str,
    typer.Option(
        metavar="FABRIC",
        help="What to replay on: a scenario (its job is left aside), or a cluster (fabricsim list clusters), of which "
        "as many hosts are taken as the job needs.",
    ),
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
    int | None,
    typer.Option(metavar="N", min=1, help="Ranks of the captured job, where the trace does not say how many."),
]
RanksPerHostOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Ranks on each host of a Horovod timeline that does not show how many."),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="captured|FABRIC",
        help="Compare with what was captured (as is done anyway; an error where the trace has no times), or with a "
        "replay on another fabric.",
    ),
]
CAPTURED = "captured"


def replay(  # noqa: PLR0913  one parameter per option
    traces: TracesArgument,
    *,
    fabric: FabricOption,
    transport: TransportOption = None,
    gpu_speed: SpeedOption = 1.0,
    message_size: MessageSizeOption = 1.0,
    scale_to: ScaleOption = None,
    ranks: RanksOption = None,
    ranks_per_host: RanksPerHostOption = None,
    form: FormOption = None,
    only: OnlyOption = None,
    against: AgainstOption = None,
    settings: SettingsOption = None,
    engine: EngineOption = None,
    tap: TapOption = None,
    pcap: PcapOption = None,
    output: ResultOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the trace of a real job on a fabric, and compare with what was captured."""
    check_output_file(output)
    watch = watched(tap, pcap, output)
    rebuilding = Rebuilding(
        form=form,
        only=only,
        gpu_speed=gpu_speed,
        message_size=message_size,
        scale_to=scale_to,
        ranks=ranks,
        ranks_per_host=ranks_per_host,
    )
    rebuilt, name = rebuilt_from(traces, **rebuilding)
    if against == CAPTURED and not rebuilt.timed:
        msg = f"--against {CAPTURED}: the trace does not say when its operations ran; leave it out, or name a fabric"
        raise InputError(msg)
    loaded = load_on(fabric, rebuilt, transport, engine, settings or [])
    if against is None or against == CAPTURED:
        finish(replay_on(loaded, rebuilt, name, watch), output, as_json=as_json)
        return
    base = load_on(against, rebuilt, transport, engine, settings or [])
    results = [replay_on(base, rebuilt, name), replay_on(loaded, rebuilt, name, watch)]
    save(results[-1], output)
    show_comparison(results, as_json=as_json)


def compare_fabrics(  # noqa: PLR0913  what the options of `compare` gave
    traces: Sequence[Path],
    fabrics: Sequence[str],
    *,
    transports: Sequence[str | None],
    engine: str | None,
    settings: list[str],
    rebuilding: Rebuilding,
) -> list[RunRecord]:
    """Replay one trace on several fabrics, each with several transports."""
    rebuilt, form = rebuilt_from(traces, **rebuilding)
    loaded = [load_on(name, rebuilt, transport, engine, settings) for name in fabrics for transport in transports]
    return [replay_on(each, rebuilt, form) for each in loaded]


class Rebuilding(TypedDict, total=False):
    """Options that say how a trace is read and made into a program."""

    form: str | None
    only: str | None
    gpu_speed: float
    message_size: float
    scale_to: int | None
    ranks: int | None
    ranks_per_host: int | None


def rebuilt_from(  # noqa: PLR0913  one parameter per option
    traces: Sequence[Path],
    *,
    form: str | None = None,
    only: str | None = None,
    gpu_speed: float = 1.0,
    message_size: float = 1.0,
    scale_to: int | None = None,
    ranks: int | None = None,
    ranks_per_host: int | None = None,
) -> tuple[Rebuilt, str]:
    """Read a trace and make a program of it; also gives its form."""
    from fabricsim.scenario import library  # noqa: PLC0415  as above
    from fabricsim.traces.readers import read  # noqa: PLC0415  as above
    from fabricsim.traces.rebuild.programs import rebuild  # noqa: PLC0415  --help must not pay for it

    if not 0 < gpu_speed < math.inf:
        msg = f"--gpu-speed {gpu_speed}: kernels cannot run that many times faster; give a number above 0, such as 1.3"
        raise InputError(msg)
    traces = [library.trace(path) for path in traces]
    with progress("reading") as report:
        trace = read(traces, form, only=only, ranks_per_host=ranks_per_host, progress=report)
    rebuilt = rebuild(trace, gpu_speed=gpu_speed, message_size=message_size, scale_to=scale_to, ranks=ranks)
    return rebuilt, trace.form


def load_on(
    fabric: str, rebuilt: Rebuilt, transport: str | None, engine: str | None, settings: list[str]
) -> LoadedScenario:
    """Load the fabric of a replay, with `settings` and what options gave."""
    from fabricsim.run.pipeline import load_fabric  # noqa: PLC0415  --help must not pay for it

    options = {"engine": engine}
    with naming_options({**options, "transport": transport}):
        return load_fabric(fabric, rebuilt.program.ranks, transport, [*settings, *as_settings(dict(options))])


def replay_on(loaded: LoadedScenario, rebuilt: Rebuilt, form: str, watch: Watch | None = None) -> RunRecord:
    """Replay, with progress."""
    from fabricsim.run import pipeline  # noqa: PLC0415  --help must not pay for it

    with progress(f"{form} on {loaded.scenario.name}") as report:
        return pipeline.replay(loaded, rebuilt, form, watch=watch, progress=report)
