"""The flow engine against the packet engine on random collectives.

Both engines have the same hosts, adapters, routes and step costs. What differs is the network: rates of
max-min sharing against packets, acknowledgements, queues and congestion control.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

import numpy as np
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.at_once import part
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from fabricsim.studies.frame.study import Progress, Study, silent
from fabricsim.units import human_bytes

WORKLOADS = 100
SEED = 1
"""Of the draw of workloads."""
TARGET = 0.05
"""Mean error wanted of InfiniBand and RoCE on fabrics that do not block."""

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
TRANSPORTS = ("rdma-100g", "roce-100g", "tcp-10g", "ipoib-100g")
FABRICS: dict[str, tuple[str, ...]] = {
    "single-switch": ("fabric.topology=single-switch",),
    "leaf-spine": ("fabric.topology=leaf-spine", "fabric.hosts_per_leaf=4", "fabric.spines=4"),
    "leaf-spine 2:1": ("fabric.topology=leaf-spine", "fabric.hosts_per_leaf=4", "fabric.spines=2"),
    "fat-tree": ("fabric.topology=fat-tree", "fabric.k=4"),
}
"""Settings of each kind of fabric; all hold 16 hosts."""
BLOCKING = "leaf-spine 2:1"
"""Of these, the one with more host links than uplinks."""
HOSTS = 16
_ENGINES = ("flow", "packet")
_ONE_CHANNEL = ("collectives.max_channels=1",)  # without channels that may get out of step with one another
_LEAST, _MOST = 2**16, 2**26  # sizes of buffers, bytes


@dataclass(frozen=True)
class Workload:
    """One collective on an idle fabric.

    `collective`: name of a method of `Fabric`.
    `ranks`: hosts of its ranks, one rank each, in the order of the ring.
    `size`: of the buffer, bytes.
    `fabric`, `transport`: keys of `FABRICS` and of the library.
    """

    collective: str
    ranks: tuple[int, ...]
    size: int
    fabric: str
    transport: str


@dataclass(frozen=True)
class EngineComparison:
    """Seconds that one workload takes on each engine."""

    workload: Workload
    flow: float
    packet: float

    @property
    def error(self) -> float:
        """``packet / flow - 1``."""
        return self.packet / self.flow - 1


def workloads(count: int = WORKLOADS, seed: int = SEED) -> list[Workload]:
    """Draw workloads: all but the size evenly, the size evenly in its logarithm.

    Placement follows the order of hosts, as schedulers place a job and NCCL orders its ring.

    `count`: how many. The first are the same whatever the count.
    """
    random = np.random.default_rng(seed)
    return [_draw(random) for _ in range(count)]


def _draw(random: np.random.Generator) -> Workload:
    ranks = int(random.integers(2, HOSTS + 1))
    first = int(random.integers(HOSTS - ranks + 1))
    return Workload(
        collective=COLLECTIVES[random.integers(len(COLLECTIVES))],
        ranks=tuple(range(first, first + ranks)),
        size=round(2 ** random.uniform(np.log2(_LEAST), np.log2(_MOST))),
        fabric=tuple(FABRICS)[random.integers(len(FABRICS))],
        transport=TRANSPORTS[random.integers(len(TRANSPORTS))],
    )


def compare(workload: Workload, settings: Sequence[str] = ()) -> EngineComparison:
    """Run a workload on both engines, each time on a fresh fabric.

    `workload`: what to run.
    `settings`: laid over the scenario.
    """
    return EngineComparison(workload, *(_seconds(workload, (f"engine={engine}", *settings)) for engine in _ENGINES))


def _seconds(workload: Workload, settings: Sequence[str]) -> float:
    env = simpy.Environment()
    fabric = Fabric(env, _scenario(workload, settings))
    done: simpy.Event = getattr(fabric, workload.collective)(workload.ranks, workload.size)
    return cast("float", env.run(done))


def _scenario(workload: Workload, settings: Sequence[str]) -> Scenario:
    where = (f"cluster.hosts={HOSTS}", f"transport={workload.transport}", *FABRICS[workload.fabric])
    return load("dai2024", [*where, *settings]).scenario


def validate(progress: Progress = silent, count: int = WORKLOADS) -> Validation:
    """Compare the engines over `count` random collectives."""
    found = _compared(workloads(count), (), part(progress, 0, 2))
    single = _compared(workloads(count), _ONE_CHANNEL, part(progress, 1, 2))
    rows = [
        ValidationRow(_name(each.workload), "us", each.flow * 1e6, each.packet * 1e6, "flow engine", "calculated")
        for each in found
    ]
    return Validation("engines", rows, _summary(found, single), _parameters(count))


def _compared(
    drawn: Sequence[Workload], settings: Sequence[str], progress: Callable[[float], None] | None
) -> list[EngineComparison]:
    found: list[EngineComparison] = []
    for workload in drawn:
        found.append(compare(workload, settings))
        if progress is not None:
            progress(len(found) / len(drawn))
    return found


def _name(workload: Workload) -> str:
    what = f"{workload.collective} of {human_bytes(workload.size)} on {len(workload.ranks)} ranks"
    return f"{what}, {workload.transport}, {workload.fabric}"


def _summary(found: Sequence[EngineComparison], single: Sequence[EngineComparison]) -> dict[str, Any]:
    return {
        "packet against flow": _by_transport_and_fabric(found),
        "packet against flow, one channel": _by_transport_and_fabric(single),
        "packet against flow, by both": _by_both(found),
        "packet against flow, one channel, by both": _by_both(single),
    }


def _by_transport_and_fabric(found: Sequence[EngineComparison]) -> dict[str, dict[str, float]]:
    groups = {"all": list(found)}
    for name in TRANSPORTS:
        groups[name] = [each for each in found if each.workload.transport == name]
        idle = [each for each in groups[name] if each.workload.fabric != BLOCKING]
        groups[f"{name}, not blocking"] = idle
    for name in FABRICS:
        groups[name] = [each for each in found if each.workload.fabric == name]
    return _distributions(groups)


def _by_both(found: Sequence[EngineComparison]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[EngineComparison]] = {f"{name}, {fabric}": [] for name in TRANSPORTS for fabric in FABRICS}
    for each in found:
        groups[f"{each.workload.transport}, {each.workload.fabric}"].append(each)
    return _distributions(groups)


def _distributions(groups: dict[str, list[EngineComparison]]) -> dict[str, dict[str, float]]:
    return {name: distribution(each.error for each in group) for name, group in groups.items() if group}


def distribution(errors: Iterable[float]) -> dict[str, float]:
    """Condense errors: how many, mean with its sign, and mean, median, 90th percentile and maximum without."""
    signed = list(errors)
    sizes = np.abs(signed)
    return {
        "workloads": float(len(signed)),
        "mean_signed": fmean(signed),
        "mean": float(np.mean(sizes)),
        "median": float(np.median(sizes)),
        "p90": float(np.percentile(sizes, 90)),
        "max": float(np.max(sizes)),
    }


def _parameters(count: int) -> dict[str, Any]:
    return {
        "workloads": f"{count}, seed {SEED}: collective, 2 to {HOSTS} ranks on neighbouring hosts, 64 KiB to 64 MiB",
        "machine": "that of dai2024, one rank per host",
        "columns": "measured: flow engine; predicted: packet engine",
        "fitted": "nothing",
    }


STUDY = Study("engines", __doc__, validate, against="engines", engine=None)
