"""Published iterations of large training runs on A100 and H100 clusters.

One set of parameters per GPU type serves all of them. Nothing is fitted to an iteration: compute rates come from
measurements of single kernels, communication from NCCL's own tables and the cluster.
"""

import numpy as np

from fabricsim import measured
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, agreement, causal_flops, narayanan_flops, scatter, settings

_DEGREES = ("tensor", "context", "pipeline", "virtual_stages", "data", "zero")


def rows() -> list[Published]:
    """List the published runs."""
    return [_row(record) for record in measured.load("megatron").rows]


def _row(record: np.void) -> Published:
    run, source = published_run(record), str(record["source"])
    certainty, groups = measured.load("megatron").certainty, (source.split(",", maxsplit=1)[0],)
    return Published(
        run.name, "s", published_seconds(record, run), source, certainty, run.iteration, groups, drawn=run.drawn
    )


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row."""
    name, scenario = str(record["name"]), str(record["scenario"])
    values: dict[str, object] = {f"model.{key}": int(record[key]) for key in ("layers", "hidden", "heads")}
    values |= {f"parallelism.{key}": int(record[key]) for key in _DEGREES}
    values |= {key: int(record[key]) for key in ("micro_batch", "global_batch", "sequence")}
    parallel = str(record["sequence_parallel"]) == "yes"
    values["parallelism.sequence_parallel"] = parallel
    values["parallelism.scatter_gather"] = not parallel and int(min(record["tensor"], record["pipeline"])) > 1
    values["gradient_precision"] = str(record["gradients"])
    values["fused_accumulation"] = str(record["fused_accumulation"]) == "yes"
    values["tensor_overlap"] = str(record["tensor_overlap"]) == "yes"
    values["recompute"] = str(record["recompute"])
    return PublishedRun(name, scenario, settings(scenario, values))


def published_seconds(record: np.void, run: PublishedRun) -> float:
    """Return the iteration as printed, or from the printed rate and the FLOPs that it counts; seconds."""
    if record["iteration"]:
        return float(record["iteration"])
    job = run.job()
    flops = narayanan_flops(job) if job.recompute == "full" else causal_flops(job)
    return flops / (job.parallelism.ranks * float(record["tflops"]) * 1e12)


STUDY = by_row(
    "megatron",
    __doc__,
    rows,
    statistics=agreement,
    pictures=scatter("Iterations of published training runs", lambda quantity: quantity.split(",")[0].split(" ")[0]),
)
