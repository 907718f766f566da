"""Message sizes, counts and volumes of GPT-NeoX under ZeRO, tensor and pipeline parallelism.

After Anthony et al., arXiv 2408.10197, whose tables were not at hand: what is known of it are the volumes
that summaries quote. All else is counted in the programs of the jobs, beside the closed formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.results.validation import Validation
from fabricsim.run.pipeline import build_plan, load
from fabricsim.studies.anthony2024.grid import MIXED, RANKS, SCHEMES, SIZES, SWEPT, USUAL, SweptJob, points
from fabricsim.studies.frame.study import Progress, Study, headline_rows, silent
from fabricsim.workload.shapes import parameters
from fabricsim.workload.tally import plan_calls, tally
from fabricsim.workload.volume_summary import VolumeSummary, summarise_volumes
from fabricsim.workload.volumes import closed_forms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure


_MESSAGE = RANKS * 2**20  # bytes of the collectives whose traffic is read from the links, of equal parts
_ENDS = 2  # links that a byte crosses between two hosts of a switch


def validate(progress: Progress = silent) -> Validation:
    """Count what each job sends, and compare the volumes that the study is quoted for."""
    jobs = list(points())
    found = {}
    for done, point in enumerate(jobs, start=1):
        found[point] = _Counted(point)
        progress(done / len(jobs))
    predicted = _figures(found)
    return Validation("anthony2024", headline_rows("anthony2024", predicted), _summary(found), _parameters())


class _Counted:
    """Volumes of one job.

    `parameters`: of the model.
    `volumes`: counted in the program beside the formulas.
    """

    def __init__(self, point: SweptJob) -> None:
        plan = build_plan(load("anthony2024", point.settings))
        self.parameters = parameters(plan.job.model)
        self.volumes: VolumeSummary = summarise_volumes(
            point.scheme.name, plan.ranks, tally(plan_calls(plan)), tally(closed_forms(plan.job))
        )


def carried(collective: str) -> float:
    """Bytes that a rank sends in a collective of `RANKS` ranks over ``m (n - 1) / n``, read from the links."""
    env = simpy.Environment()
    fabric = Fabric(env, load("ideal-16").scenario, taps=True)
    env.run(getattr(fabric, collective)(range(RANKS), _MESSAGE))
    payload = float(fabric.world.resources["payload"][list(fabric.taps)].sum())
    return payload / _ENDS / RANKS / (_MESSAGE * (RANKS - 1) / RANKS)


def _figures(found: dict[SweptJob, _Counted]) -> dict[str, float]:
    """Volumes by the keys of the measured ones; of several jobs the one farthest from the first ZeRO stages' rule."""
    sent = {
        (point.scheme.name, point.size): counted.volumes["wire_bytes_per_gpu"]
        for point, counted in found.items()
        if point.sweep == "model"
    }
    figures = {collective: carried(collective) for collective in ("all_reduce", "all_gather")}
    for stage in (1, 2, 3):
        ratios = [sent[f"ZeRO-{stage}", size] / sent["data", size] for size in SIZES]
        figures[f"zero-{stage}"] = max(ratios)
    return figures


def _summary(found: dict[SweptJob, _Counted]) -> dict[str, Any]:
    agreeing = sum(counted.volumes["agree"] for counted in found.values())
    return {
        "programs that agree with the formulas": f"{agreeing} of {len(found)}",
        f"share of bytes, {MIXED.name}, by sequence length of {SWEPT.name}": {
            str(point.sequence): _shares(counted)
            for point, counted in found.items()
            if (point.sweep, point.scheme) == ("sequence", MIXED)
        },
        f"share of bytes, {MIXED.name}, by model at {USUAL} tokens": {
            point.size.name: _shares(counted)
            for point, counted in found.items()
            if (point.sweep, point.scheme) == ("model", MIXED)
        },
        f"messages of {SWEPT.name} at {USUAL} tokens": {
            f"{point.scheme.name}, {row['dimension']} {row['collective']}": {
                "calls": row["calls"],
                "median_bytes": row["median_bytes"],
                "largest_bytes": row["largest_bytes"],
                "sent_per_gpu": row["wire_bytes_per_gpu"],
                "by_formula": row["formula"]["wire_bytes"] / counted.volumes["ranks"],
            }
            for point, counted in found.items()
            if (point.sweep, point.size) == ("model", SWEPT)
            for row in counted.volumes["volumes"]
        },
        "points": [
            {
                "sweep": point.sweep,
                "model": point.size.name,
                "parameters": counted.parameters,
                "sequence": point.sequence,
                "scheme": point.scheme.name,
                **counted.volumes,
            }
            for point, counted in found.items()
        ],
    }


def _shares(counted: _Counted) -> dict[str, float]:
    """Share of all bytes by dimension, in per cent."""
    sums: dict[str, int] = {}
    for row in counted.volumes["volumes"]:
        sums[row["dimension"]] = sums.get(row["dimension"], 0) + row["wire_bytes"]
    total = sum(sums.values())
    return {dimension: 100 * sent / total for dimension, sent in sums.items()}


def _parameters() -> dict[str, Any]:
    return {
        "scenario": "anthony2024 (workloads/scenarios/anthony2024.toml); each figure's source stands beside it",
        "fitted": "nothing",
        "not at hand": "the study's tables and figures; its volumes are taken from summaries",
        "assumed: ranks": f"{RANKS}, two nodes; tensor and pipeline parallelism by themselves over 2",
        "assumed: degrees of all three": f"tensor {MIXED.tensor}, pipeline {MIXED.pipeline}, data {MIXED.data}, ZeRO"
        f"-{MIXED.zero}, {MIXED.batches} micro-batches",
        "assumed: sequence lengths": "512 to 8192 tokens of 1.3B; 2048, GPT-NeoX's, of all sizes",
    }


def _pictures(study: Validation) -> Iterator[tuple[str, Figure]]:
    """Draw message sizes, counts and shares against sequence length and model size."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    schemes = [scheme.name for scheme in SCHEMES if scheme != MIXED]
    yield "anthony2024.png", plots.volume_sweeps(study.summary["points"], schemes, MIXED.name)


STUDY = Study("anthony2024", __doc__, validate, _pictures, against="volumes")
