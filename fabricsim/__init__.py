"""Simulate what a training job would do on a given fabric.

>>> import fabricsim as fs
>>> result = fs.simulate(fs.load("scenario.toml"))  # doctest: +SKIP

The public names are imported when they are first used, so that ``import fabricsim`` and
``fabricsim --help`` stay quick.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes 10 ms to import: as much sooner Ctrl-C is seen to
if TYPE_CHECKING:
    from fabricsim.engine.completions import Replay
    from fabricsim.engine.fabric import Fabric, Transfer
    from fabricsim.engine.packet.recorder import Watch
    from fabricsim.errors import FabricsimError, InputError, ResultError, ScenarioError, SimulationError, TraceError
    from fabricsim.run.pipeline import load, program, simulate
    from fabricsim.run.result import Result, TrafficResult
    from fabricsim.run.verbs import bench, compare, read, replay, traffic, write
    from fabricsim.scenario.scenario import Scenario
    from fabricsim.workload.program import Program

    __version__: str

__all__ = [
    "Fabric",
    "FabricsimError",
    "InputError",
    "Program",
    "Replay",
    "Result",
    "ResultError",
    "Scenario",
    "ScenarioError",
    "SimulationError",
    "TraceError",
    "TrafficResult",
    "Transfer",
    "Watch",
    "__version__",
    "bench",
    "compare",
    "load",
    "program",
    "read",
    "replay",
    "simulate",
    "traffic",
    "write",
]

_HOMES = {
    "Fabric": "fabricsim.engine.fabric",
    "FabricsimError": "fabricsim.errors",
    "InputError": "fabricsim.errors",
    "Program": "fabricsim.workload.program",
    "Replay": "fabricsim.engine.completions",
    "Result": "fabricsim.run.result",
    "ResultError": "fabricsim.errors",
    "Scenario": "fabricsim.scenario.scenario",
    "ScenarioError": "fabricsim.errors",
    "SimulationError": "fabricsim.errors",
    "TraceError": "fabricsim.errors",
    "TrafficResult": "fabricsim.run.result",
    "Transfer": "fabricsim.engine.fabric",
    "Watch": "fabricsim.engine.packet.recorder",
    "bench": "fabricsim.run.verbs",
    "compare": "fabricsim.run.verbs",
    "load": "fabricsim.run.pipeline",
    "program": "fabricsim.run.pipeline",
    "read": "fabricsim.run.verbs",
    "replay": "fabricsim.run.verbs",
    "simulate": "fabricsim.run.pipeline",
    "traffic": "fabricsim.run.verbs",
    "write": "fabricsim.run.verbs",
}
"""Module that defines each public name."""


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name == "__version__":
        value: object = import_module("fabricsim.provenance").version()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
