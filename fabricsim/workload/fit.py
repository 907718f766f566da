"""Whether a job fits into a GPU's memory, and what would make it fit."""

import json
from collections.abc import Iterable, Iterator
from typing import get_args

from fabricsim.errors import Mistake, ScenarioError
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job, Parallelism, Recompute
from fabricsim.scenario.job_checks import job_problems
from fabricsim.units import human_bytes
from fabricsim.workload.memory import Memory, stage_memory

_RECOMPUTE = get_args(Recompute)
_ZERO = 3
_FACTORS = (2, 4, 8, 16, 32, 64)


def usable_memory(gpu: Gpu) -> int:
    """Bytes that a job can have: what context and fragmentation leave."""
    return int(gpu.memory * (1 - gpu.memory_reserved))


def fullest(job: Job) -> tuple[int, Memory]:
    """Return the pipeline stage whose ranks need most, and what they need."""
    needs = stage_memory(job)
    stage = max(range(len(needs)), key=lambda number: needs[number].total)
    return stage, needs[stage]


def check_fit(job: Job, gpu: Gpu) -> None:
    """Refuse a job that does not fit. Raises ScenarioError: with what would make it fit."""
    if problems := memory_problems(job, gpu):
        raise ScenarioError(problems)


def memory_text(job: Job, gpu: Gpu) -> str:
    """Say in one line what a job needs of the memory of its GPUs, and for what."""
    stage, need = fullest(job)
    where = f" of stage {stage}, the fullest" if job.parallelism.pipeline > 1 else ""
    return f"memory of a GPU{where}: {human_bytes(need.total)} of {human_bytes(usable_memory(gpu))} ({_parts(need)})"


def memory_problems(job: Job, gpu: Gpu) -> list[Mistake]:
    """Find out whether a job fits into the memory of its GPUs.

    `job`: one that fits together.
    `gpu`: the GPU type that all its ranks have.
    Returns: empty, or one that names the single changes that would make it fit.
    """
    stage, need = fullest(job)
    usable = usable_memory(gpu)
    if need.total <= usable:
        return []
    found = (next((text for text, job in tries if _fits(job, usable)), None) for tries in _changes(job))
    ways = [text for text in found if text is not None]
    problem = f"{job.model.name} needs {human_bytes(need.total)} on each GPU of stage {stage} ({_parts(need)}); of the "
    problem += f"{human_bytes(gpu.memory)} of a {gpu.name}, {human_bytes(usable)} are for a job"
    way_out = f"any one of these makes it fit: {', '.join(ways)}" if ways else "no single change makes it fit"
    return [Mistake("job", problem, way_out)]


def _parts(need: Memory) -> str:
    rows = [("weights", need.weights), ("gradients", need.gradients), ("optimizer", need.optimizer)]
    if need.step > need.activations + need.working:
        rows.append(("gradients in fp32", need.step))
    else:
        rows += [("activations", need.activations), ("working memory", need.working)]
    return ", ".join(f"{name} {human_bytes(size)}" for name, size in rows)


def _fits(job: Job, usable: int) -> bool:
    return not job_problems(job) and fullest(job)[1].total <= usable


def _changes(job: Job) -> Iterator[Iterator[tuple[str, Job]]]:
    """Give for each setting the values that need less memory, in the order in which to try them."""
    degrees = job.parallelism
    milder = _RECOMPUTE.index(job.recompute) + 1
    sizes = [job.micro_batch >> halvings for halvings in range(1, 31) if job.micro_batch % (1 << halvings) == 0]
    yield _each(job, "attention", ["fused"] if job.attention == "unfused" else [])
    yield _each(job, "recompute", _RECOMPUTE[milder:])
    yield _each(job, "micro_batch", sizes)
    if degrees.data * degrees.context > 1:
        yield _each(job, "zero", range(degrees.zero + 1, _ZERO + 1))
    if degrees.tensor > 1 and not degrees.sequence_parallel:
        yield _each(job, "sequence_parallel", [True])
    yield _each(job, "tensor", [degrees.tensor * factor for factor in _FACTORS])
    yield _each(job, "pipeline", [degrees.pipeline * factor for factor in _FACTORS])


def _each(job: Job, key: str, values: Iterable[str | int]) -> Iterator[tuple[str, Job]]:
    """Change one setting, of the job or of its parallelism, and say how it is written."""
    for value in values:
        if key in Parallelism.model_fields:
            degrees = job.parallelism.model_copy(update={key: value})
            more = f" (on {degrees.ranks} GPUs)" if degrees.ranks > job.parallelism.ranks else ""
            yield f"job.parallelism.{key}={json.dumps(value)}{more}", job.model_copy(update={"parallelism": degrees})
        else:
            yield f"job.{key}={json.dumps(value)}", job.model_copy(update={key: value})
