"""What NCCL knows of a GPU by its type: compute capability, and the rate that it reckons with for an NVLink."""

from dataclasses import dataclass

from fabricsim.errors import InputError
from fabricsim.scenario.cluster import Gpu


@dataclass(frozen=True)
class Architecture:
    """A generation of GPUs.

    `capability`: CUDA compute capability times ten.
    `link`: one direction of one NVLink, GB/s.
    `counted`: what NCCL takes a link for (``src/graph/topo.h``), GB/s.
    """

    capability: int
    link: float
    counted: float


_VOLTA = Architecture(70, 25.0, 20.0)
_TURING = Architecture(75, 25.0, 20.0)
_AMPERE = Architecture(80, 25.0, 20.0)
_ADA = Architecture(89, 25.0, 20.0)
_HOPPER = Architecture(90, 25.0, 20.6)
_BLACKWELL = Architecture(100, 50.0, 40.1)

_BY_NAME = {  # E: developer.nvidia.com/cuda-gpus
    "v100": _VOLTA,
    "rtx-2080": _TURING,
    "quadro-rtx": _TURING,
    "t4": _TURING,
    "a100": _AMPERE,
    "a800": _AMPERE,
    "l40": _ADA,
    "h100": _HOPPER,
    "h200": _HOPPER,
    "h800": _HOPPER,
    "gh200": _HOPPER,
    "b100": _BLACKWELL,
    "b200": _BLACKWELL,
    "gb200": _BLACKWELL,
    "b300": _BLACKWELL,
    "gb300": _BLACKWELL,
}


def architecture(gpu: Gpu) -> Architecture:
    """Find the generation of a GPU by its name. Raises InputError if no known type begins the name."""
    found = [name for name in _BY_NAME if gpu.name.startswith(name)]
    if not found:
        msg = (
            f"cluster.gpu.name is {gpu.name!r}, and NCCL's model needs to know the generation: begin it with "
            f"one of {', '.join(_BY_NAME)}, or leave collectives.nccl out"
        )
        raise InputError(msg)
    return _BY_NAME[max(found, key=len)]


def nvlinks(gpu: Gpu) -> int:
    """Count the NVLinks of a GPU."""
    return 0 if gpu.nvlink_rate is None else round(gpu.nvlink_rate / 1e9 / architecture(gpu).link)


def counted_nvlink(gpu: Gpu) -> float:
    """Give what NCCL takes all NVLinks of a GPU for, one direction, GB/s; 0 if it has none."""
    return nvlinks(gpu) * architecture(gpu).counted
