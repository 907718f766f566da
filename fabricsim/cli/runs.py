"""Commands that simulate scenarios: run, compare, rerun, plot."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fabricsim.cli import common
from fabricsim.cli.replay import Rebuilding, load_on, rebuilt_from, replay_on
from fabricsim.cli.variants import axes, is_scenario, variants
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from fabricsim.engine.packet.recorder import Watch
    from fabricsim.results.result import RunRecord
    from fabricsim.results.traffic import TrafficRecord
    from fabricsim.results.uncertainty import Uncertainty
    from fabricsim.scenario.load import LoadedScenario

ComparedArgument = Annotated[
    list[str],
    typer.Argument(metavar="SCENARIO|TRACE...", help="Scenarios; or with --fabric the files of a captured trace."),
]
FabricsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Fabrics to compare: presets, files, scenarios that have them; of a trace what it is replayed on.",
    ),
]
PatternOption = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Compare this pattern or matrix file in place of jobs.")
]
_BOTH = 2  # engines
_COMPARISON = "comparison.png"
ExtensionOption = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="Python file that the result was made with. May be repeated.")
]
MatrixOption = Annotated[
    bool, typer.Option("--matrix", help="Count bytes between pairs of ranks, too; with -o they are in the result.")
]
ResultArgument = Annotated[Path, typer.Argument(metavar="RESULT", help="HDF5 file that fabricsim wrote.")]


def run(  # noqa: PLR0913  one parameter per option
    scenario: common.ScenarioArgument,
    *,
    settings: common.SettingsOption = None,
    transport: common.TransportOption = None,
    engine: common.EngineOption = None,
    seed: common.SeedOption = None,
    tap: common.TapOption = None,
    pcap: common.PcapOption = None,
    uncertainty: common.UncertaintyOption = None,
    matrix: MatrixOption = False,
    output: common.ResultOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Simulate one iteration and print where the time goes.

    With --uncertainty the parameters that presets do not know exactly vary; those that the time owes most to are named.
    """
    common.check_output_file(output, scenario)
    watch = common.watched(tap, pcap, output)
    loaded = _load(scenario, settings or [], {"transport": transport, "engine": engine, "seed": seed})
    common.check_output_file(output, *loaded.files)
    result = _simulate(loaded, watch, matrix=matrix)
    common.finish(result, output, as_json=as_json, uncertainty=_uncertainty(loaded, uncertainty))


def _uncertainty(loaded: LoadedScenario, runs: int | None) -> Uncertainty | None:
    if runs is None:
        return None
    from fabricsim.run.uncertainty import uncertainty  # noqa: PLC0415  --help must not pay for it

    with common.progress(f"{loaded.scenario.name} with drawn parameters") as report:
        return uncertainty(loaded, runs, loaded.scenario.seed, report)


def rerun(  # noqa: PLR0913  one parameter per option
    result: ResultArgument,
    *,
    extension: ExtensionOption = None,
    tap: common.TapOption = None,
    pcap: common.PcapOption = None,
    output: common.ResultOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Repeat the run that a result file describes.

    Python files that it was made with are run only if they are given, and are the same.
    """
    from fabricsim import extensions  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.hdf5 import read_any  # noqa: PLC0415  as above
    from fabricsim.results.traffic import TrafficRecord  # noqa: PLC0415  as above
    from fabricsim.run.pipeline import reload  # noqa: PLC0415  as above
    from fabricsim.scenario.named_files import named_files  # noqa: PLC0415  as above

    common.check_output_file(output)  # onto itself it writes the same bytes
    watch = common.watched(tap, pcap, output)
    earlier = read_any(result)
    extensions.supply(earlier.resolved.get("extensions", {}), extension or ())
    common.check_output_file(output, *(extension or ()), *named_files(earlier.resolved))
    if isinstance(earlier, TrafficRecord):
        again = _send_again(earlier, watch)
        common.save(again, output)
        common.show_traffic(again, as_json=as_json)
    elif earlier.capture is not None:
        msg = f"{result} is a replay, whose trace is not in it; run fabricsim replay TRACE --fabric ... again"
        raise InputError(msg)
    else:
        result_again = _simulate(reload(earlier), watch, matrix=earlier.pairs is not None)
        common.finish(result_again, output, as_json=as_json)


def _send_again(earlier: TrafficRecord, watch: Watch | None) -> TrafficRecord:
    from fabricsim.run.pipeline import reload  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.traffic import send  # noqa: PLC0415  as above

    loaded = reload(earlier)
    with common.progress(f"{earlier.matrix.name} on {loaded.scenario.name}") as report:
        return send(loaded, earlier.matrix, watch=watch, progress=report)


@common.on_paper
def compare(  # noqa: PLR0913  one parameter per option
    scenario: ComparedArgument,
    *,
    transport: Annotated[str | None, typer.Option(metavar="A,B,C", help="Transports to compare.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="A,B", help="Engines to compare: flow,packet.")] = None,
    fabric: FabricsOption = None,
    traffic: PatternOption = None,
    size: common.SizeOption = None,
    flows: common.FlowsOption = None,
    load: common.LoadOption = None,
    gpu_speed: common.SpeedOption = 1.0,
    message_size: common.MessageSizeOption = 1.0,
    scale_to: common.ScaleOption = None,
    ranks: common.RanksOption = None,
    ranks_per_host: common.RanksPerHostOption = None,
    form: common.FormOption = None,
    only: common.OnlyOption = None,
    settings: common.SettingsOption = None,
    output: common.FolderOption = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=256, help="Simulations at the same time.")] = 1,
    as_json: common.JsonOption = False,
) -> None:
    """Run what differs in some settings side by side.

    That is each scenario with all fabrics, transports, engines and values.

    --set key=a,b,c gives a setting several values. A trace is replayed on the fabrics of --fabric.
    """
    common.check_output_folder(output)
    rebuilding = Rebuilding(form, only, gpu_speed, message_size, scale_to, ranks, ranks_per_host)
    chosen = {"transport": transport, "engine": engine, "fabric": fabric}
    if fabric is not None and not any(map(is_scenario, scenario)):
        if jobs > 1:
            raise InputError(f"--jobs {jobs}: replays on several fabrics run one after the other; leave it out")
        results = _replays(scenario, chosen, settings or [], rebuilding, output)
        _draw_comparison(results, output)
        common.show_comparison(results, as_json=as_json)
        return
    if given := _of_traces(rebuilding):
        raise InputError(f"{given} says how a trace is replayed, and there is none; name its fabrics with --fabric A,B")
    asked = {"--size": size, "--flows": flows, "--load": load}
    if traffic is None and (given := next((option for option, value in asked.items() if value is not None), None)):
        raise InputError(f"{given} says what traffic sends, and there is none; name a pattern or a file with --traffic")
    loaded, labels = _variants(scenario, chosen, settings or [], with_job=traffic is None)
    inputs = [file for each in loaded for file in each.files]
    common.check_output_files(output, [_COMPARISON], *inputs, traffic)
    if traffic is not None:
        _compare_traffic(loaded, traffic, {"size": size, "flows": flows, "load": load}, labels, output, as_json=as_json)
        return
    compared = _simulate_all(loaded, jobs)
    _draw_comparison(compared, output, labels)
    if as_json or labels[0] != "engine" or len(loaded) != _BOTH:
        common.show_comparison(compared, labels, as_json=as_json)
    else:
        _show_engines(compared)


def _replays(
    traces: Sequence[str],
    chosen: dict[str, str | None],
    settings: list[str],
    rebuilding: Rebuilding,
    output: Path | None,
) -> list[RunRecord]:
    """Replay a trace on what `--fabric`, `--transport` and `--engine` name."""
    fabrics = _names("--fabric", chosen["fabric"] or "", "dgx-a100,dgx-h100")
    transports = [None] if chosen["transport"] is None else _transports(chosen["transport"])
    rebuilt, form = rebuilt_from([Path(trace) for trace in traces], rebuilding)
    loaded = [load_on(each, rebuilt, via, chosen["engine"], settings) for each in fabrics for via in transports]
    read = *map(Path, traces), *(file for each in loaded for file in each.files)
    common.check_output_files(output, [_COMPARISON], *read)
    return [replay_on(each, rebuilt, form) for each in loaded]


def _variants(
    scenarios: Sequence[str], chosen: dict[str, str | None], settings: list[str], *, with_job: bool
) -> tuple[list[LoadedScenario], tuple[str, list[str]]]:
    """Load each scenario with all that options name; also gives what they differ in, and how each is called."""
    from fabricsim.scenario.load import load  # noqa: PLC0415  --help must not pay for it

    fabric, transport, engine = chosen["fabric"], chosen["transport"], chosen["engine"]
    with common.naming_options({**chosen}, settings):
        found, fixed = axes(
            [] if fabric is None else _names("--fabric", fabric, "two-tier,single-switch"),
            [] if transport is None else _transports(transport),
            [] if engine is None else _names("--engine", engine, "flow,packet"),
            settings,
        )
        by, every = variants(scenarios, found, fixed)
        loaded = [load(each.scenario, each.settings, with_job=with_job) for each in every]
    return loaded, (by, [", ".join(each.labels) or each.scenario for each in every])


def _simulate_all(loaded: Sequence[LoadedScenario], jobs: int) -> Sequence[RunRecord]:
    from fabricsim.run.at_once import simulate_all  # noqa: PLC0415  --help must not pay for it

    with common.progress(f"comparing {len(loaded)} runs") as report:
        return simulate_all(loaded, jobs=jobs, progress=report)


def _compare_traffic(  # noqa: PLR0913  what the options gave
    loaded: Sequence[LoadedScenario],
    pattern: str,
    asked: Mapping[str, Any],
    labels: common.Labels,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Send the same pattern over each, and put completion times side by side."""
    from fabricsim.report.traffic_text import comparison_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.traffic import summarise_traffic  # noqa: PLC0415  as above
    from fabricsim.run.verbs import traffic as send  # noqa: PLC0415  as above

    results = []
    with common.progress(f"comparing {len(loaded)} runs") as report:
        for number, each in enumerate(loaded):
            results.append(send(pattern, each, **asked))
            report((number + 1) / len(loaded))
    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        path = common.output_folder(output) / _COMPARISON
        plots.save(plots.compared_traffic(results, labels), path)
        common.note(f"wrote {path}")
    summaries = [summarise_traffic(result) for result in results]
    if as_json:
        common.say_json([{"compared": label, **each} for label, each in zip(labels[1], summaries, strict=True)])
    else:
        common.show(comparison_text(summaries, labels))


def _of_traces(options: Rebuilding) -> str | None:
    """Name an option of traces that was given."""
    pairs = zip(Rebuilding._fields, options, Rebuilding(), strict=True)
    given = [name for name, value, default in pairs if value != default]
    return f"--{given[0].replace('_', '-')}" if given else None


def _draw_comparison(results: Sequence[RunRecord], output: Path | None, labels: common.Labels | None = None) -> None:
    if output is None:
        return
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    path = common.output_folder(output) / _COMPARISON
    plots.save(plots.comparison(results, labels), path)
    common.note(f"wrote {path}")


@partial(common.on_paper, always=True)
def plot(
    result: ResultArgument,
    *,
    output: common.FolderOption = None,
    form: Annotated[Literal["png", "svg", "pdf"], typer.Option("--format", help="Format of the pictures.")] = "png",
) -> None:
    """Draw the pictures of a result file.

    Breakdown, timeline, use of links, threads and NVLink, byte matrix, and what was tapped; of traffic the completion
    times, and what was tapped. They go beside the file if -o is left out.
    """
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.results.hdf5 import read_any  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.traffic import TrafficRecord  # noqa: PLC0415  as above

    common.check_output_folder(output)
    drawn = read_any(result)
    folder = common.output_folder(output if output is not None else result.parent)
    figures = plots.of_traffic(drawn) if isinstance(drawn, TrafficRecord) else _pictures(drawn)
    for name, figure in figures.items():
        path = folder / f"{result.stem}-{name}.{form}"
        plots.save(figure, path)
        common.note(f"wrote {path}")


def _pictures(run_result: RunRecord) -> dict[str, Figure]:
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    packets = run_result.packets
    figures = {"breakdown": plots.breakdown(run_result), "timeline": plots.timeline(run_result)}
    if (run_result.calls.limits.limit >= 0).any() or run_result.series.rate.any():
        figures["utilisation"] = plots.utilisation(run_result)
    else:
        common.note("no picture of the utilisation: no rank communicates over a wire, NVLink or a thread")
    if packets is not None:
        figures |= plots.of_packets(packets, f"{run_result.name} over {run_result.transport}")
    if run_result.pairs is not None and run_result.pairs.bytes.any():
        figures["matrix"] = plots.heat_map(run_result.pairs, run_result.name)
    return figures


def _load(scenario: str, settings: list[str], options: common.Options) -> LoadedScenario:
    """Load with `settings` and, over them, what options of the same name as a key gave."""
    from fabricsim.run.pipeline import load  # noqa: PLC0415  --help must not pay for it

    with common.naming_options(options, settings):
        return load(scenario, [*settings, *common.as_settings(options)])


def _show_engines(results: Sequence[RunRecord]) -> None:
    from fabricsim.report.difference_text import difference_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.report.text import notes_text  # noqa: PLC0415  as above
    from fabricsim.results.difference import difference  # noqa: PLC0415  as above
    from fabricsim.results.summary import summarise  # noqa: PLC0415  as above

    summaries = [summarise(result) for result in results]
    labels = (summaries[0]["engine"], summaries[1]["engine"])
    explaining = next(summary for summary in summaries if "queues" in summary)
    title = f"{results[0].name} over {results[0].transport}"
    common.show(difference_text(title, labels, difference(*results), explaining), notes_text(summaries, labels))


def _transports(names: str) -> list[str]:
    """Split what ``--transport`` gave, in the order given."""
    from fabricsim.scenario import library  # noqa: PLC0415  --help must not pay for it

    wanted = _names("--transport", names, "tcp-10g,rdma-100g")
    for name in wanted:
        library.path("transports", name)  # an unknown name ends here, with those that there are
    return wanted


def _names(option: str, text: str, example: str) -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if not wanted:
        raise InputError(f"{option} {text!r} names nothing; name some, such as {example}")
    if twice := next((name for name in wanted if wanted.count(name) > 1), None):
        raise InputError(f"{option} {text}: names {twice} more than once; keep one of them")
    return wanted


def _simulate(loaded: LoadedScenario, watch: Watch | None = None, *, matrix: bool = False) -> RunRecord:
    from fabricsim.run.pipeline import pairs_of, simulate  # noqa: PLC0415  --help must not pay for it

    pairs = pairs_of(loaded) if matrix else None
    with common.progress(loaded.scenario.name) as report:
        result = simulate(loaded, watch=watch, progress=report)
    return result if pairs is None else replace(result, pairs=pairs)
