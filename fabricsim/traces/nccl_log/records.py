"""What a log of NCCL says: communicators as each rank has set them up, what was chosen, and what was called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.traces.nccl_log.facts import Facts
from fabricsim.traces.nccl_log.lines import Process

CALL = np.dtype(
    [
        ("communicator", np.int32),  # index into NcclLog.communicators
        ("operation", np.int32),  # index into NcclLog.operations
        ("count", np.int64),  # elements, as handed to NCCL
        ("datatype", np.int16),  # ncclDataType_t
        ("root", np.int32),  # rank in the communicator: the root, or the other end of a send or receive
        ("number", np.int64),  # opCount: how many kernels the communicator had launched
        ("stream", np.uint64),
    ],
    align=True,
)
"""A collective, send or receive that a rank has called."""


class LoggedChoice(NamedTuple):
    """What NCCL chose for a collective.

    `operation`: as the log calls it, such as ``"AllReduce"``; empty if it does not say.
    `size`: bytes that it counts.
    `algorithm`, `protocol`: such as ``"ring"`` and ``"ll128"``.
    `channels`: how many; NONE if the log does not say.
    """

    operation: str
    size: int
    algorithm: str
    protocol: str
    channels: int


@dataclass
class Communicator:
    """A communicator as one rank sees it.

    `device`: index of the GPU.
    `rank`, `size`: in it; NONE if the log does not say.
    `identity`: equal on all its ranks (``commId``, and of which split); empty if not logged, as before NCCL 2.18.
    `facts`: its rings, trees, channels and transports.
    `complete`: whether the log says that its set-up has ended.
    `splits`: how many have been split off it.
    """

    process: Process
    device: int
    rank: int = NONE
    size: int = NONE
    identity: str = ""
    facts: Facts = field(default_factory=Facts)
    complete: bool = False
    splits: int = 0

    @property
    def host(self) -> str:
        """Name of the host."""
        return self.process[0]


@dataclass(frozen=True)
class NcclLog:
    """A log of NCCL, of one process or of many.

    `source`: the file, for messages.
    `versions`: of NCCL or RCCL, such as ``"2.18.3+cuda12.2"``.
    `networks`: what is used between hosts, such as ``"IB"``, and by how many processes.
    `adapters`: network adapters as listed, such as ``"mlx5_0:1/IB"``, and in how many processes.
    `communicators`: one per rank of each, in the order of the log.
    `choices`: what was chosen how often.
    `operations`: names that calls refer to, such as ``"AllReduce"``.
    `calls`: ``CALL`` records in the order of the log, shape ``(n_calls,)``.
    `torn`: line of the first call that cannot be read since another process has written into it; 0 if there is none.
    """

    source: str
    versions: tuple[str, ...]
    networks: Mapping[str, int]
    adapters: Mapping[str, int]
    communicators: tuple[Communicator, ...]
    choices: Mapping[LoggedChoice, int]
    operations: tuple[str, ...]
    calls: NDArray[np.void]
    torn: int
