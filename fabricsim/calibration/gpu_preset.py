"""Writing measured kernels as the preset of a GPU: what they were laid over, and each time with its source."""

import json
from collections.abc import Iterator
from pathlib import Path

from fabricsim.calibration.kernel_times import KernelTime, KernelTimes
from fabricsim.calibration.preset import base_of, write_checked
from fabricsim.scenario import library
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.include import is_file_name
from fabricsim.scenario.load import load
from fabricsim.units import PS_PER_US

_BASE = "hkbu"  # a scenario to look up and check GPUs in


def gpu_of(name: str) -> Gpu:
    """Look up a GPU.

    `name`: of the library, or a file of the user.
    Raises InputError if there is none of that name, or its file is wrong.
    """
    if not is_file_name(name):
        library.path("gpus", name)
    return load(_BASE, [f"cluster.gpu={json.dumps(name)}"], with_job=False).scenario.cluster.gpu


def write(path: Path, gpu: str, found: KernelTimes) -> None:
    """Write a preset of a GPU with measured kernels.

    `path`: file to write, ending in ``.toml``.
    `gpu`: what it is laid over: name in the library, or a file.
    `found`: what was measured.
    Raises InputError if the file cannot be written, or is `gpu` itself; an older one of that name is still there then.
    """
    base = base_of(path, gpu, "is what the preset would be laid over")
    write_checked(path, render(base, found), gpu_of)


def render(base: str, found: KernelTimes) -> str:
    """Give the text of a preset that includes `base`, whose name it keeps: NCCL's model goes by it."""
    lines = [
        f"# GPU {base} with kernels that fabricsim calibrate measured",
        "#",
        *(f"# {line}" for line in _about(found)),
        f"include = {json.dumps(base)}",
    ]
    for each in found.kernels:
        lines += ["", *_lines(each, found)]
    return "\n".join(lines) + "\n"


def _about(found: KernelTimes) -> Iterator[str]:
    yield f"Measured on {found.device or 'a GPU that the traces do not name'}, in"
    yield from (f"  {Path(source).name}" for source in found.sources)
    yield "Times are medians, from start to end on the GPU. All else takes the time that the model gives it."


def _lines(each: KernelTime, found: KernelTimes) -> Iterator[str]:
    one = each.what.operation
    if one.shape is None:
        yield "[[streams]]"
        yield f"operation = {json.dumps(one.name)}"
        yield f'bytes = "{one.traffic}B"'
    else:
        yield "[[kernels]]"
        yield f"kernel = {json.dumps(one.kernel)}"
        yield f"shape = {json.dumps(one.shape)}"
        yield f"precision = {json.dumps(each.what.precision)}"
        if each.what.causal is not None:
            yield f"causal = {json.dumps(each.what.causal)}"
    yield f'time = "{each.median / PS_PER_US:.3f}us" # {_source(each, found)}'


def _source(each: KernelTime, found: KernelTimes) -> str:
    count = len(each.times)
    trace = f"trace {Path(found.sources[0]).name}" if len(found.sources) == 1 else f"{len(found.sources)} traces"
    first, third = (f"{time / PS_PER_US:.3f}" for time in each.quartiles)
    times = "once" if count == 1 else f"{count} times, quartiles {first} and {third}us"
    if each.beside:
        return f"measured, {trace}, {times}, always beside another kernel"
    return f"measured, {trace}, {times}"
