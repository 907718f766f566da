"""Megatron-LM's timers in logs of the first author of the IEEE Micro study: BERT on Frontera, GPT-2 on Polaris.

Frontera has four Quadro RTX 5000 per host, one FDR adapter and no GPUDirect. On Polaris a patched NCCL with debugging
ran, whose all-reduces are far below the wire, so that its rows are shown apart. Nothing is fitted.
"""

import numpy as np

from fabricsim import measured
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.at_once import simulate_all
from fabricsim.run.pipeline import load
from fabricsim.studies.frame.study import Progress, Study, silent
from fabricsim.studies.frame.training import scatter
from fabricsim.studies.jean_zay import TIMERS as _OTHERS
from fabricsim.studies.jean_zay import outcome

TIMERS = {key: name for key, name in _OTHERS.items() if name != "backward-send-forward-recv"}
TIMERS["backward_send_s"] = "backward-send"
_SCENARIO = "dai-logs"
_GPUS_PER_HOST = 4
_LEAST = 0.01  # timers below this part of an iteration are no row of their own


def validate(progress: Progress = silent) -> Validation:
    """Compare iterations and timers with those of the logs."""
    table = measured.load("dai-logs")
    results = simulate_all([load(_SCENARIO, settings(row)) for row in table.rows], progress=progress)
    rows, found = [], {}
    for record, result in zip(table.rows, results, strict=True):
        run, times = str(record["run"]), outcome(result)
        predicted = {"iteration_s": times.iteration}
        predicted |= {key: times.timers.get(name, 0.0) for key, name in TIMERS.items() if _counts(record, key)}
        own = [
            ValidationRow(
                f"{run}: {TIMERS.get(key, 'iteration')}",
                "ms",
                record[key] * 1e3,
                value * 1e3,
                table.source,
                table.certainty,
            )
            for key, value in predicted.items()
        ]
        found[run] = {row.quantity.partition(": ")[2]: row.error for row in own}
        rows += own
    return Validation("dai-logs", rows, {"error of each": found}, dict(table.conditions))


def _counts(record: np.void, key: str) -> bool:
    return bool(record[key] > _LEAST * record["iteration_s"])


def settings(row: np.void) -> list[str]:
    """Return what sets a run apart from the scenario ``dai-logs``."""
    gpus, tensor, pipeline = int(row["gpus"]), int(row["tensor"]), int(row["pipeline"])
    lines = [
        f"cluster.hosts={gpus // _GPUS_PER_HOST}",
        f"job.parallelism.tensor={tensor}",
        f"job.parallelism.pipeline={pipeline}",
        f"job.parallelism.data={gpus // tensor // pipeline}",
        f"job.micro_batch={row['micro_batch']}",
        f"job.global_batch={row['global_batch']}",
    ]
    if row["cluster"] == "polaris":
        lines += ["cluster.include=polaris", "transport=rdma-100g", f"job.model={row['model']}"]
    return lines


STUDY = Study(
    "dai-logs",
    __doc__,
    validate,
    scatter("Iterations and timers of four logs", lambda quantity: quantity.split(":", maxsplit=1)[0], "time"),
)
