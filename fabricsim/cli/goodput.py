"""The command that tells how much of its time a job trains while GPUs fail: goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli.common import (
    JsonOption,
    ScenarioArgument,
    SettingsOption,
    note,
    progress,
    quantity,
    say_json,
    show,
)
from fabricsim.errors import InputError
from fabricsim.units import PERIOD, PS_PER_S

if TYPE_CHECKING:
    from fabricsim.run.goodput import Reliability

_TIME = "TIME"

MtbfOption = Annotated[str, typer.Option(metavar=_TIME, help="Mean time between failures of a GPU.")]
IntervalOption = Annotated[
    str | None, typer.Option(metavar=_TIME, help="Training between two checkpoints; the best one if left out.")
]
CheckpointOption = Annotated[str, typer.Option(metavar=_TIME, help="Time that a checkpoint holds the job up.")]
DetectionOption = Annotated[str, typer.Option(metavar=_TIME, help="Time until a failure is noticed.")]
RestartOption = Annotated[str, typer.Option(metavar=_TIME, help="Time from then until training goes on.")]
SparesOption = Annotated[int | None, typer.Option(min=0, metavar="N", help="GPUs that stand by; enough if left out.")]
RepairOption = Annotated[str, typer.Option(metavar=_TIME, help="Time after which a GPU that failed stands by again.")]
LengthOption = Annotated[str, typer.Option("--time", metavar=_TIME, help="Length of the training.")]


def goodput(  # noqa: PLR0913  one parameter per option
    scenario: ScenarioArgument,
    *,
    settings: SettingsOption = None,
    mtbf: MtbfOption = "50676h",  # 16,384 H100, 54 days, 419 interruptions ("The Llama 3 Herd of Models", 2024)
    checkpoint: CheckpointOption = "60s",
    interval: IntervalOption = None,
    detection: DetectionOption = "10min",
    restart: RestartOption = "5min",
    spares: SparesOption = None,
    repair: RepairOption = "1d",
    length: LengthOption = "30d",
    as_json: JsonOption = False,
) -> None:
    """Tell how much of its time a job trains if its GPUs fail.

    It says how often to write checkpoints, too.
    """
    from fabricsim.report.goodput_text import goodput_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.goodput import Reliability, simulate_failures  # noqa: PLC0415  as above
    from fabricsim.run.pipeline import load, one_job, simulate  # noqa: PLC0415  as above

    loaded = load(scenario, settings or [])
    one_job(loaded)
    if loaded.scenario.fabric.failures:
        note("every iteration has the failures of fabric.failures, as the simulated one; take them out for one without")
    seconds = {
        name: float(quantity(f"--{name}", text, PERIOD))
        for name, text in (("mtbf", mtbf), ("checkpoint", checkpoint), ("detection", detection), ("restart", restart))
    }
    horizon, back = float(quantity("--time", length, PERIOD)), float(quantity("--repair", repair, PERIOD))
    if min(horizon, seconds["mtbf"]) <= 0:
        raise InputError("--time and --mtbf: a time of nothing has no goodput; give longer ones")
    chosen = None if interval is None else _positive("--interval", interval)
    with progress(loaded.scenario.name) as report:
        result = simulate(loaded, progress=report)
    ranks = result.ranks or int(result.ops["rank"].max()) + 1
    job: Reliability = Reliability(gpus=ranks, spares=spares, repair=back, **seconds)
    best = max(job.best_interval(), result.iteration / PS_PER_S)
    told = simulate_failures(job, chosen or best, horizon, loaded.scenario.seed)
    iteration = result.iteration / PS_PER_S
    whole = {
        "name": loaded.scenario.name,
        "gpus": ranks,
        "iteration_s": iteration,
        "iterations": int(told["training_s"] / iteration),
        "time_s": horizon,
        "mtbf_of_job_s": job.between,
        "best_interval_s": best,
        "seed": loaded.scenario.seed,
        **told,
        "notes": list(result.notes),
    }
    if as_json:
        say_json(whole)
    else:
        show(goodput_text(whole))


def _positive(option: str, text: str) -> float:
    value = float(quantity(option, text, PERIOD))
    if value <= 0:
        raise InputError(f"{option} {text}: checkpoints without training between them; give a longer time")
    return value
