"""Commands that replay captured traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fabricsim.cli import common
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.engine.packet.recorder import Watch
    from fabricsim.results.result import RunRecord
    from fabricsim.scenario.load import LoadedScenario
    from fabricsim.traces.rebuild.programs import Rebuilt
    from fabricsim.traces.trace import Trace

FabricOption = Annotated[
    str,
    typer.Option(
        metavar="FABRIC",
        help="What to replay on: a scenario (its job is left aside), or a cluster (fabricsim list clusters), of which "
        "as many hosts are taken as the job needs.",
    ),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="captured|FABRIC",
        help="Compare with what was captured (as is done anyway; an error if the trace has no times), or with a "
        "replay on another fabric.",
    ),
]
CAPTURED = "captured"


def replay(  # noqa: PLR0913  one parameter per option
    traces: common.TracesArgument,
    *,
    fabric: FabricOption,
    transport: common.TransportOption = None,
    gpu_speed: common.SpeedOption = 1.0,
    message_size: common.MessageSizeOption = 1.0,
    scale_to: common.ScaleOption = None,
    ranks: common.RanksOption = None,
    ranks_per_host: common.RanksPerHostOption = None,
    form: common.FormOption = None,
    only: common.OnlyOption = None,
    against: AgainstOption = None,
    settings: common.SettingsOption = None,
    engine: common.EngineOption = None,
    tap: common.TapOption = None,
    pcap: common.PcapOption = None,
    output: common.ResultOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Replay the trace of a real job on a fabric.

    What was captured stands beside it.
    """
    common.check_output_file(output, *traces, fabric, against)
    watch = common.watched(tap, pcap, output)
    rebuilding = Rebuilding(form, only, gpu_speed, message_size, scale_to, ranks, ranks_per_host)
    rebuilt, name = rebuilt_from(traces, rebuilding)
    if against == CAPTURED and not rebuilt.timed:
        msg = f"--against {CAPTURED}: the trace does not say when its operations ran; leave it out, or name a fabric"
        raise InputError(msg)
    loaded = load_on(fabric, rebuilt, transport, engine, settings or [])
    common.check_output_file(output, *loaded.files)
    if against is None or against == CAPTURED:
        common.finish(replay_on(loaded, rebuilt, name, watch), output, as_json=as_json)
        return
    base = load_on(against, rebuilt, transport, engine, settings or [])
    common.check_output_file(output, *base.files)
    results = [replay_on(base, rebuilt, name), replay_on(loaded, rebuilt, name, watch)]
    common.save(results[-1], output)
    common.show_comparison(results, as_json=as_json)


class Rebuilding(NamedTuple):
    """Options that say how a trace is read and made into a program."""

    form: str | None = None
    only: str | None = None
    gpu_speed: float = 1.0
    message_size: float = 1.0
    scale_to: int | None = None
    ranks: int | None = None
    ranks_per_host: int | None = None


def rebuilt_from(traces: Sequence[Path], asked: Rebuilding) -> tuple[Rebuilt, str]:
    """Read a trace and make a program of it; also gives its form."""
    from fabricsim.traces.rebuild.programs import rebuild  # noqa: PLC0415  --help must not pay for it

    form, only, gpu_speed, message_size, scale_to, ranks, ranks_per_host = asked
    trace = read_trace(traces, form, only, ranks_per_host)
    rebuilt = rebuild(trace, gpu_speed=gpu_speed, message_size=message_size, scale_to=scale_to, ranks=ranks)
    return rebuilt, trace.form


def read_trace(paths: Sequence[Path], form: str | None, only: str | None, ranks_per_host: int | None) -> Trace:
    """Read a trace, with progress."""
    from fabricsim.scenario import library  # noqa: PLC0415  --help must not pay for it
    from fabricsim.traces.readers import read  # noqa: PLC0415  as above

    files = [library.trace(path) for path in paths]
    with common.progress("reading") as report:
        return read(files, form, only=only, ranks_per_host=ranks_per_host, progress=report)


def load_on(
    fabric: str, rebuilt: Rebuilt, transport: str | None, engine: str | None, settings: list[str]
) -> LoadedScenario:
    """Load the fabric of a replay, with `settings` and what options gave."""
    from fabricsim.run.pipeline import load_fabric  # noqa: PLC0415  --help must not pay for it

    options = {"engine": engine}
    with common.naming_options({**options, "transport": transport}, settings):
        return load_fabric(fabric, rebuilt.program.ranks, transport, [*settings, *common.as_settings(dict(options))])


def replay_on(loaded: LoadedScenario, rebuilt: Rebuilt, form: str, watch: Watch | None = None) -> RunRecord:
    """Replay, with progress."""
    from fabricsim.run import pipeline  # noqa: PLC0415  --help must not pay for it

    with common.progress(f"{form} on {loaded.scenario.name}") as report:
        return pipeline.replay(loaded, rebuilt, form, watch=watch, progress=report)
