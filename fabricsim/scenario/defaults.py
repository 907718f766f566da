"""What a job's scenario leaves to defaults that decide its time."""

from fabricsim.scenario.job import FULLY_SHARDED, Job
from fabricsim.units import human_seconds, seconds

_BY_YEAR = ("precision", "recompute", "attention", "fused_accumulation")


def left_to_defaults(job: Job) -> tuple[str, ...]:
    """Say what was taken for settings that a job leaves out, a sentence each; nothing if it leaves out none."""
    written, model = job.model_fields_set, job.model
    said = []
    if usual := [f"{key} {_word(getattr(job, key))}" for key in _BY_YEAR if key not in written]:
        said.append(f"defaults of job: {', '.join(usual)}, as usual for a {model.family} of {model.year}")
    if not written & {"launch", "kernel_launch"}:
        interval = human_seconds(seconds(job.kernel_launch))
        said.append(f"default of job: launch {job.launch}: the host issues a kernel every {interval}")
    if "overlap" not in written and _reduces_gradients(job):
        said.append(f"default of job: overlap {job.overlap}: gradients are reduced after the last backward pass")
    return tuple(said)


def _reduces_gradients(job: Job) -> bool:
    """Whether gradients of several ranks are reduced at a time that `overlap` decides."""
    degrees = job.parallelism
    return degrees.data * degrees.context > 1 and degrees.zero < FULLY_SHARDED and not job.flatten_gradients


def _word(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
