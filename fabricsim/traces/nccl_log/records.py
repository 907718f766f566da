"""What a log of NCCL says: communicators as each rank has set them up, what was chosen, and what was called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
        ("time", np.int64),  # of the call, as of Message.time
    ],
    align=True,
)
"""A collective, send or receive that a rank has called."""


class LoggedPlace(NamedTuple):
    """A rank's place in a tree: ranks of the communicator.

    `parent`: ``None`` for the root.
    `children`: in the order of the log.
    """

    parent: int | None
    children: tuple[int, ...]


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


@dataclass(frozen=True)
class Communicator:
    """A communicator as one rank sees it.

    `rank`, `size`: in it; NONE if the log does not say.
    `process`: host and process number.
    `device`: index of the GPU.
    `bus`: PCI address of the GPU in hexadecimal digits; empty if not logged.
    `identity`: equal on all its ranks (``commId``, and of which split); empty if not logged, as before NCCL 2.18.
    `rings`: by channel its ranks in order, as rank 0 logs them: NCCL up to 2.10 cuts long ones.
    `trees`: by channel this rank's place.
    `channels`, `p2p_channels`, `nvls_channels`: how many for collectives, for sends and receives, and for NVLS; NONE if
        not logged.
    `transports`: how many connections run over which, such as ``"NET/IB/GDRDMA"``.
    """

    rank: int
    size: int
    process: Process
    device: int
    bus: str
    identity: str
    rings: Mapping[int, tuple[int, ...]]
    trees: Mapping[int, LoggedPlace]
    channels: int
    p2p_channels: int
    nvls_channels: int
    transports: Mapping[str, int]

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
