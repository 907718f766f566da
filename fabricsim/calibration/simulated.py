"""What the simulator says of the measured tables: times by size under given parameters."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from fabricsim.calibration.measurements import Measurement
from fabricsim.calibration.parameters import Parameter, way
from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import InputError
from fabricsim.run.bench import collective_times, point_to_point_times
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.toml_text import Setting
from fabricsim.scenario.transport import Transport

WINDOW = 64
"""Messages that osu_bw sends before it waits for an answer: its default window."""
_ANSWER = 4  # bytes of that answer


def described(base: str, settings: Sequence[str], measurement: Measurement) -> list[str]:
    """Add what a table says of ranks and hosts to the user's settings.

    `base`: scenario.
    Raises InputError if the table and the cluster cannot be the same machine, or there is one host.
    """
    told: list[str] = []
    if measurement.ranks and not measurement.hosts:
        have = load(base, settings).scenario.cluster.ranks
        if have != measurement.ranks:
            name = measurement.name
            msg = f"{name}: ran on {measurement.ranks} ranks of hosts that it does not name; --set cluster.hosts=..."
            raise InputError(msg)
    if measurement.hosts:
        told.append(Setting(f"cluster.hosts={measurement.hosts}", measurement.name))
        per_host, rest = divmod(measurement.ranks, measurement.hosts)
        if rest:
            msg = (
                f"{measurement.name}: {measurement.ranks} ranks on {measurement.hosts} hosts are not alike on each host"
            )
            raise InputError(msg)
        told.append(Setting(f"cluster.gpus_per_host={per_host}", measurement.name))
    settled = [*settings, *told]
    scenario = load(base, settled).scenario
    if measurement.kind == "collective" and scenario.collectives.nccl is None:
        msg = "--collectives names no version of NCCL, so what ran is not known: such as --collectives nccl-2.6"
        raise InputError(msg)
    if scenario.cluster.hosts < 2:  # noqa: PLR2004  a network has two ends
        where = "the log" if measurement.hosts else "--cluster"
        msg = (
            f"{measurement.name}: ran on one host ({where} says), so no message crossed the network; give another table"
        )
        raise InputError(msg)
    return settled


class Simulated:
    """Times of one table by the simulator; what has been asked before is not simulated again.

    `base`, `settings`: scenario, with all that `described` gave.
    `measurement`: the table: its sizes are simulated.
    `parameters`: what may change.
    """

    def __init__(
        self, base: str, settings: Sequence[str], measurement: Measurement, parameters: Sequence[Parameter]
    ) -> None:
        loaded = load(base, settings)
        self._scenario: Scenario = loaded.scenario
        self._transport: dict[str, Any] = loaded.resolved["transport"]
        self.measurement = measurement
        self._parameters = list(parameters)
        self.ways = ways(self._scenario, measurement)
        self._groups = [(name, np.array([name == other for other in self.ways])) for name in dict.fromkeys(self.ways)]
        self._known: dict[tuple[str, tuple[float, ...]], NDArray[np.float64]] = {}

    def times(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Seconds by size, shape ``(n,)``, where the parameters have `values`."""
        found = np.empty(len(self.measurement.sizes))
        scenario: Scenario | None = None
        for name, rows in self._groups:
            pairs = zip(values, self._parameters, strict=True)
            key = name, tuple(value for value, parameter in pairs if parameter.concerns(name))
            if key not in self._known:
                scenario = scenario or self._with(values)
                self._known[key] = self._simulated(scenario, self.measurement.sizes[rows])
            found[rows] = self._known[key]
        return found

    def _with(self, values: Sequence[float]) -> Scenario:
        tables = dict(self._transport)
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.put(tables, value)
        return self._scenario.model_copy(update={"transport": Transport.model_validate(tables)})

    def _simulated(self, scenario: Scenario, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array(_RUNS[self.measurement.kind](scenario, self.measurement.test, sizes.tolist()))


def ways(scenario: Scenario, measurement: Measurement) -> list[str]:
    """Algorithm and protocol of NCCL that each row went by, such as ``"ring-ll"``; empty for messages of MPI."""
    if measurement.kind != "collective":
        return [""] * len(measurement.sizes)
    plan, ranks = NcclPlan(scenario), tuple(range(scenario.cluster.ranks))
    picks = [plan.pick(measurement.test, ranks, int(size)) for size in measurement.sizes]
    return [way(pick.algorithm, pick.protocol) for pick in picks]


def _collective(scenario: Scenario, test: str, sizes: list[int]) -> list[float]:
    return [row.seconds for row in collective_times(scenario, test, sizes)]


def _latency(scenario: Scenario, _test: str, sizes: list[int]) -> list[float]:
    return [row.seconds for row in point_to_point_times(scenario, sizes)]


def _bandwidth(scenario: Scenario, _test: str, sizes: list[int]) -> list[float]:
    """Time per message of a window between the memories of two hosts, which an answer ends."""
    found = []
    for size in sizes:
        env = simpy.Environment()
        fabric = Fabric(env, scenario)
        here, there = fabric.host_memory(0), fabric.host_memory(1)
        env.run(fabric.send(here, there, size))
        began = cast("float", env.now)
        env.run(env.all_of([fabric.send(here, there, size) for _ in range(WINDOW)]))
        env.run(fabric.send(there, here, _ANSWER))
        found.append((env.now - began) / WINDOW)
    return found


_RUNS: dict[str, Callable[[Scenario, str, list[int]], list[float]]] = {
    "collective": _collective,
    "latency": _latency,
    "bandwidth": _bandwidth,
}
