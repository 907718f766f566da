"""The study of `fabricsim.studies.dai2024` on the packet engine, beside the flow engine on the same runs.

Packets of one iteration are many, so the grid is smaller: the smallest model of each family on two and
four hosts with one rank each, since what the ranks of a host exchange has no packets. Batches, sequences and
layers are those of Megatron-LM's examples. The ceilings are those of a long transfer between two ranks.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import simpy

from fabricsim import measured
from fabricsim.engine.fabric import Fabric
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.at_once import part
from fabricsim.run.pipeline import load
from fabricsim.studies.dai2024.grid import EXAMPLES, Assumptions
from fabricsim.studies.dai2024.study import Findings, find
from fabricsim.studies.frame.study import Progress, silent

AGREEMENT = 0.05
"""Wanted of each figure, of the flow engine's."""
SMALL = Assumptions(
    nodes=(2, 4), families=("gpt2-medium", "bert-base", "t5-base"), scripts=EXAMPLES, gpus_per_host=1, tensor=1
)
"""What is run."""
_ENGINES = ("flow", "packet")
_BYTES = 2**28  # of the transfers that show the ceilings
_RANKS = 2


@dataclass(frozen=True)
class Ceiling:
    """A rate that a part of the path allows.

    `quantity`: what limits.
    `transport`: of the library.
    `ring`: whether both ranks send at once, as in a ring of two; otherwise the first alone sends.
    `settings`: laid over the scenario ``dai2024``.
    """

    quantity: str
    transport: str
    ring: bool = False
    settings: tuple[str, ...] = ()


CEILINGS = (
    Ceiling("TCP 10G, one way: framing, 1448 of 1538 B", "tcp-10g"),
    Ceiling("IPoIB 100G, ring of two: one thread copies both ways", "ipoib-100g", ring=True),
    Ceiling("RDMA 100G, ring of two: adapter on the GPU's socket", "rdma-100g", ring=True),
    Ceiling(
        "RDMA 100G, ring of two: adapter on the other socket",
        "rdma-100g",
        ring=True,
        settings=("cluster.nic.socket=1",),
    ),
)


def rate(ceiling: Ceiling, engine: str, size: int = _BYTES) -> float:
    """Payload that a rank sends per second, bits/s.

    `ceiling`: what to run.
    `engine`: ``"flow"`` or ``"packet"``.
    `size`: bytes that each sender sends.
    """
    settings = (
        f"transport={ceiling.transport}",
        f"engine={engine}",
        f"cluster.hosts={_RANKS}",
        f"job.parallelism.data={_RANKS}",  # of the scenario's job, which is not run
        *ceiling.settings,
    )
    env = simpy.Environment()
    fabric = Fabric(env, load("dai2024", settings).scenario)
    done = fabric.all_gather(range(_RANKS), _RANKS * size) if ceiling.ring else fabric.send(0, 1, size)
    return size * 8 / cast("float", env.run(done))


def validate(progress: Progress = silent, assumptions: Assumptions = SMALL) -> Validation:
    """Run the small grid on both engines and compare each figure."""
    found = {
        engine: find(
            replace(assumptions, settings=(*assumptions.settings, f"engine={engine}")),
            progress=part(progress, index, len(_ENGINES)),
        )
        for index, engine in enumerate(_ENGINES)
    }
    rows = [*_figure_rows(found), *_ceiling_rows()]
    return Validation("dai2024-packets", rows, _summary(rows, found), _parameters(assumptions))


def _figure_rows(found: dict[str, Findings]) -> list[ValidationRow]:
    flow, packet = found["flow"].figures, found["packet"].figures
    return [
        _row(figure.quantity, figure.unit, flow[key], packet[key])
        for key, figure in measured.figures("dai2024").items()
    ]


def _ceiling_rows() -> list[ValidationRow]:
    return [
        _row(ceiling.quantity, "Gb/s", *(rate(ceiling, engine) / 1e9 for engine in _ENGINES)) for ceiling in CEILINGS
    ]


def _row(quantity: str, unit: str, flow: float, packet: float) -> ValidationRow:
    return ValidationRow(quantity, unit, flow, packet, "flow engine, same runs", "calculated")


def _summary(rows: list[ValidationRow], found: dict[str, Findings]) -> dict[str, Any]:
    beyond = [row.quantity for row in rows if abs(row.error) > AGREEMENT]
    return {
        "agreement wanted": AGREEMENT,
        "figures": len(rows),
        "figures that agree": len(rows) - len(beyond),
        "figures that do not": beyond,
        "runs": sum(len(run) for run in found["packet"].outcomes.values()),
        "points": _points(found),
    }


def _points(found: dict[str, Findings]) -> list[dict[str, Any]]:
    """List the iteration of each run on both engines."""
    flow, packet = ([*found[engine].outcomes.items()] for engine in _ENGINES)
    return [
        {
            "parallel": point.parallel,
            "model": point.model,
            "nodes": point.nodes,
            "scaling": point.scaling,
            "transport": name,
            "flow_s": run[name].iteration,
            "packet_s": other[name].iteration,
            "difference": other[name].iteration / run[name].iteration - 1,
        }
        for (point, run), (_, other) in zip(flow, packet, strict=True)
        for name in run
    ]


def _parameters(assumptions: Assumptions) -> dict[str, Any]:
    return {
        "columns": "measured: flow engine; predicted: packet engine, on the same runs",
        "fitted": "nothing",
        "reduced: models": f"{', '.join(assumptions.families)} of seven",
        "reduced: nodes": f"{', '.join(map(str, assumptions.nodes))}; the whole study has 8, too",
        "reduced: ranks": "one per node; the whole study has two",
        "not reduced": "batches, sequences and layers of Megatron-LM's examples, both kinds of scaling, all transports",
        "ceilings": f"{_BYTES // 2**20} MiB from each sending rank, two hosts",
    }
