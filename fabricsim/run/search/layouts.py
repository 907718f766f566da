"""Layouts of a job on all GPUs of a cluster: degrees, micro-batch, chunks, schedule, recomputation, ZeRO."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabricsim.errors import InputError
from fabricsim.scenario.job import FULLY_SHARDED, SHARDED_DEGREES, SHARDED_KEYS, UNSHARDED_KEYS, Job
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.schedule import SCHEDULES

Layout = dict[str, Any]
"""Values of keys of a scenario."""
_DEGREE = "job.parallelism."
_MOST_MICRO_BATCH, _MOST_CHUNKS = 8, 8
_LONG = 8192
"""Tokens of a sequence from which on it is worth while to split it."""
KEYS = (
    *(f"{_DEGREE}{name}" for name in ("tensor", "pipeline", "context", "expert", "zero", "virtual_stages")),
    *("job.micro_batch", "job.recompute", "job.schedule"),
)
"""What layouts differ in, unless other values are given."""
MOST = 1_000_000
"""Layouts of one search."""


def choices(scenario: Scenario, job: Job, given: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Say which values each key may take: those that are given, or the usual ones.

    `given`: lists of values by keys, of the degrees and of any others, such as ``transport``.
    """
    cluster, experts = scenario.cluster, job.model.experts
    usual: dict[str, list[Any]] = {
        f"{_DEGREE}tensor": _divisors(cluster.gpus_per_host),
        f"{_DEGREE}pipeline": [degree for degree in _divisors(cluster.ranks) if degree <= job.model.layers],
        f"{_DEGREE}context": [1, 2, 4] if job.sequence >= _LONG else [1],
        f"{_DEGREE}expert": [1] if experts is None else _divisors(experts.count),
        f"{_DEGREE}zero": [0, 1, 2, 3],
        f"{_DEGREE}virtual_stages": [2**power for power in range(_MOST_CHUNKS.bit_length())],
        "job.micro_batch": [2**power for power in range(_MOST_MICRO_BATCH.bit_length())],
        "job.recompute": ["none", "full"] if job.attention == "fused" else ["none", "selective", "full"],
        "job.schedule": ["1f1b", "zb-h1"],
    }
    if f"{_DEGREE}data" in given:
        raise InputError(f"{_DEGREE}data is what the other degrees leave of the GPUs; give those")
    if of_model := [key for key in given if f"{key}.".startswith("job.model.")]:
        raise InputError(f"{of_model[0]}: times of different models are not compared; search for each by itself")
    return {**usual, **{key: list(values) for key, values in given.items()}}


def layouts(ranks: int, keys: Mapping[str, Sequence[Any]]) -> Iterator[Layout]:
    """Give every layout on so many GPUs; values that have no effect with the others are left at 1, 0 or 1F1B.

    Raises InputError if there are more than can be looked at.
    """
    seen = 0
    for values in itertools.product(*keys.values()):
        found = completed(dict(zip(keys, values, strict=True)), ranks)
        if found is None:
            continue
        seen += 1
        if seen > MOST:
            msg = f"there are more than {MOST:,} layouts; give --trials N, or fewer values of keys with --set key=a,b"
            raise InputError(msg)
        yield found


def completed(values: Layout, ranks: int) -> Layout | None:
    """Add the data-parallel degree to a layout on so many GPUs; None if it does not fit, or a value has no effect."""
    tensor, pipeline, context = (values[f"{_DEGREE}{name}"] for name in ("tensor", "pipeline", "context"))
    data, rest = divmod(ranks, tensor * pipeline * context)
    found = {**values, f"{_DEGREE}data": data}
    return found if data and not rest and _takes_effect(found, data) else None


def _takes_effect(found: Layout, data: int) -> bool:
    """Whether no value is without effect, so that no two layouts are the same."""
    chunks, schedule = found[f"{_DEGREE}virtual_stages"], found["job.schedule"]
    if found[f"{_DEGREE}pipeline"] == 1 and (chunks > 1 or schedule != "1f1b"):
        return False
    interleaves = getattr(SCHEDULES.find(schedule), "interleaves", True)
    if chunks > 1 and not interleaves:
        return False
    return bool(found[f"{_DEGREE}zero"] == 0 or data * found[f"{_DEGREE}context"] > 1)


def job_tables(base: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """Lay a layout over the tables of a job; keys that it leaves without effect are taken out."""
    job = {**base, "parallelism": {**base.get("parallelism", {})}}
    degrees = job["parallelism"]
    for key, value in layout.items():
        if key.startswith(_DEGREE):
            degrees[key.removeprefix(_DEGREE)] = value
        elif key.startswith("job."):
            job[key.removeprefix("job.")] = value
    degrees["sequence_parallel"] = degrees["tensor"] > 1
    if degrees["sequence_parallel"] or degrees["pipeline"] == 1:
        degrees.pop("scatter_gather", None)
    if degrees["context"] == 1:
        degrees.pop("context_method", None)
    sharded, alone = degrees["zero"] == FULLY_SHARDED, degrees["data"] * degrees["context"] == 1
    without_effect = (
        (degrees["pipeline"] == 1, ("schedule",)),
        (degrees["virtual_stages"] == 1, ("pipeline_overlap",)),
        (degrees["tensor"] == 1, ("product_overlap",)),
        (True, ("tensor_overlap",)),  # tensor-parallel ranks split sequences here, which takes it as given
        (sharded or alone, UNSHARDED_KEYS),
        (not sharded, SHARDED_KEYS),
        (degrees["zero"] == 0, ("narrow_gathers",)),
    )
    for key in itertools.chain.from_iterable(keys for without, keys in without_effect if without):
        job.pop(key, None)
    if not sharded:
        for key in SHARDED_DEGREES:
            degrees.pop(key, None)
    return job


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
