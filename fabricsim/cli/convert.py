"""The command that writes traces and workloads for other programs to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli import common
from fabricsim.cli.replay import read_trace
from fabricsim.cli.variants import is_scenario
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabricsim.traces.trace import Trace
    from fabricsim.workload.program import Program

InputsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="IN...",
        help="A scenario, whose job is written out; files, folders or tar archives of one trace; or the network "
        "configuration of ASTRA-sim (.yml), and its system configuration, of which OUT becomes a scenario.",
    ),
]
PlaceOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Beginning of the names of the files; or a folder that is there or ends in /.",
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="FORM", help="Form to write: chakra or goal; chakra if OUT does not show it."),
]
LowerOption = Annotated[
    bool, typer.Option("--lower", help="Write collectives out as the sends and receives that they are made of.")
]
AlgorithmOption = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        metavar="[COLLECTIVE=]NAME",
        help="Write collectives out by this algorithm (fabricsim list algorithms), of one collective or of all with "
        "it; may be repeated. If left out, --lower takes the first of each, a ring if there is one.",
    ),
]


def convert(  # noqa: PLR0913  one parameter per option
    inputs: InputsArgument,
    *,
    output: PlaceOption,
    to: ToOption = None,
    lower: LowerOption = False,
    algorithm: AlgorithmOption = None,
    force: common.ForceOption = False,
    form: common.FormOption = None,
    only: common.OnlyOption = None,
    ranks: common.RanksOption = None,
    ranks_per_host: common.RanksPerHostOption = None,
    settings: common.SettingsOption = None,
) -> None:
    """Write a workload or a trace in another form.

    These are Chakra for ASTRA-sim and GOAL for LogGOPSim.
    """
    if Path(inputs[0]).suffix in {".yml", ".yaml"}:
        unused = {"--to": to, "--lower": lower, "--algorithm": algorithm, "--form": form, "--only": only}
        sizes = {"--ranks": ranks, "--ranks-per-host": ranks_per_host}
        _configuration(inputs, output, {**unused, **sizes, "--set": settings}, force=force)
        return
    from fabricsim.traces import writers  # noqa: PLC0415  --help must not pay for it
    from fabricsim.traces.export import lowering_losses  # noqa: PLC0415  as above

    before: tuple[str, ...] = ()
    path = _place(output, inputs[0])
    target = to or ("goal" if path.suffix == writers.WRITERS["goal"].ending else "chakra")
    known = writers.target(target)
    common.check_output_folder(path.parent)
    algorithms = _algorithms(algorithm)
    lower = lower or bool(algorithms)
    if len(inputs) == 1 and is_scenario(inputs[0]):
        program = _program(inputs[0], settings or [])
        trace = _written_out(program, inputs[0], algorithms, lower=lower)
    else:
        if settings:
            raise InputError(f"--set {settings[0]}: {inputs[0]} is a trace, which has no settings; leave it out")
        trace = read_trace([Path(each) for each in inputs], form, only, ranks_per_host)
        if lower:
            before = lowering_losses(trace)
            trace = _written_out(_rebuilt(trace, ranks), inputs[0], algorithms, lower=True)
    if not known.collectives and (found := writers.collectives(trace)):
        msg = f"{inputs[0]}: has {', '.join(found)}, but {target} holds only sends, receives and work"
        msg += "; add --lower to write collectives out as sends and receives, or --to chakra, which holds them"
        raise InputError(msg)
    made = writers.files(trace, target, path)
    common.check_free(made, force=force)
    common.output_folder(path.parent)
    lost = writers.write(trace, target, path)
    for what in dict.fromkeys((*before, *lost)):
        common.note(f"not in {target}: {what}")
    common.note(f"wrote {made[0]}" if len(made) == 1 else f"wrote {len(made)} files, {made[0]} to {made[-1]}")


def _configuration(inputs: Sequence[str], output: str, options: Mapping[str, object], *, force: bool) -> None:
    """Write the scenario of a network of ASTRA-sim, and say what is not in it."""
    from fabricsim.traces.astrasim.scenario import cables_file, convert  # noqa: PLC0415  --help must not pay for it

    if idle := next((option for option, value in options.items() if value), None):
        msg = f"{idle} has no effect on the configuration {inputs[0]}, which becomes a scenario; leave it out"
        raise InputError(msg)
    if len(inputs) > 2:  # noqa: PLR2004  a network and a system
        msg = f"{inputs[2]}: a network configuration goes with one system configuration at most; leave it out"
        raise InputError(msg)
    path = Path(output)
    if path.suffix != ".toml":
        raise InputError(f"-o {output}: a network configuration becomes a scenario; name a file that ends in .toml")
    common.check_output_folder(path.parent)
    common.check_free([path, cables_file(path)], force=force)
    common.output_folder(path.parent)
    for loss in convert(inputs[0], inputs[1] if len(inputs) > 1 else None, path):
        common.note(f"not in the scenario: {loss}")
    common.note(f"wrote {path}")


def _place(output: str, given: str) -> Path:
    """Give the path of the files: in a folder they are named after what they are made of, without endings and ranks."""
    if not output.strip("/") or "\0" in output:
        raise InputError(f"-o {output!r}: is no place for files; name a folder, or the beginning of their names")
    path = Path(output)
    if output.endswith("/") or path.is_dir():
        return path / (Path(given).name.partition(".")[0] or "trace")
    return path


def _program(scenario: str, settings: list[str]) -> Program:
    from fabricsim.run.pipeline import build_plan, load  # noqa: PLC0415  --help must not pay for it

    return build_plan(load(scenario, settings)).program(None)


def _rebuilt(trace: Trace, ranks: int | None) -> Program:
    """Make a program of a trace, which knows who is in each collective; says what was assumed."""
    from fabricsim.traces.rebuild.programs import rebuild  # noqa: PLC0415  --help must not pay for it

    rebuilt = rebuild(trace, ranks=ranks)
    for assumption in rebuilt.assumptions:
        common.note(f"assumed: {assumption}")
    return rebuilt.program


def _written_out(program: Program, name: str, algorithms: Mapping[str, str], *, lower: bool) -> Trace:
    from fabricsim.traces.export import exported  # noqa: PLC0415  --help must not pay for it

    if not lower:
        return exported(program, name)
    from fabricsim.collectives.lowering import Lowering  # noqa: PLC0415  as above

    return exported(program, name, Lowering(program, algorithms))


def _algorithms(given: Sequence[str] | None) -> dict[str, str]:
    """Read ``--algorithm``: of one collective, or of all that have one of that name."""
    from fabricsim import extensions  # noqa: PLC0415  --help must not pay for it
    from fabricsim.scenario.collectives import DEFAULTS, has  # noqa: PLC0415  as above

    chosen: dict[str, str] = {}
    for text in given or ():
        collective, equals, name = text.rpartition("=")
        if extensions.is_file(name):
            extensions.run(name)
        having = [one for one in DEFAULTS if has(one, name)]
        if equals and collective not in DEFAULTS:
            msg = f"--algorithm {text}: there is no collective {collective!r}; there are {', '.join(DEFAULTS)}"
            raise InputError(msg)
        if not having or (equals and collective not in having):
            msg = f"--algorithm {text}: is none of {collective or 'any collective'}; see fabricsim list algorithms"
            raise InputError(msg)
        chosen |= dict.fromkeys([collective] if equals else having, name)
    return chosen
