"""How long collectives take at best, to tell how much the kernels beside them are slowed.

Kernels share processors and memory with a collective only while it moves bytes. What is known of that before the
simulation is the least time of a ring over NVLink: ``k (n - 1) S / n / B`` for ``S`` bytes on ``n`` ranks, with
``k`` = 2 for an all-reduce. Slowdowns were measured within hosts; if the network holds a collective up, kernels lose no
more.

What is known of the slowdown is the mean over passes, part of which had a collective beside them (`HIDDEN`). Beside
exchanges of tensor- and context-parallel ranks, which wait for each other in each step, kernels slow by it all along,
but for those of user buffers: these take 1 to 32 processors (``userbuffers_*`` of NeMo and Megatron-Bridge), and their
bytes count as those of other collectives do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.units import PS_PER_S
from fabricsim.workload.issue import Span
from fabricsim.workload.work import Exchange, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.scenario.nvlinks import NvlinkMesh
    from fabricsim.scenario.scenario import Scenario
    from fabricsim.workload.program import CollectiveName
    from fabricsim.workload.stages import Timed

TURNS = {
    "all_reduce": 2,
    "reduce_scatter": 1,
    "all_gather": 1,
    "all_to_all": 1,
    "broadcast": 1,
    "send_recv": 1,
    "ring_exchange": 1,
}
"""How often what a member sends crosses the wire."""

HIDDEN = 0.34
"""Time of the communication that was hidden behind computing, relative to that, in the runs that slowdowns are from.

Theirs took ``1 + M`` in sequence, ``M`` of communication, and ``1.189 + M - H`` with ``H`` of it hidden; the first is
1.102 times the second (arXiv 2507.03114, abstract). So ``H`` is 0.31 if all was hidden, and 0.37 with ``M`` = 1: U.
"""


class Links(NamedTuple):
    """What collectives of the ranks of a cluster run over.

    `inside`: rate between GPUs of a host, bytes/s; None if it is not NVLink, then kernels are slowed all the time.
    `hosts`: that of each rank; empty if it is not known.
    `mesh`, `nvlinks`: links between GPUs of a host, and those of a GPU, of which a group has those between its members;
        no mesh if a switch lets it have all.
    """

    inside: float | None
    hosts: tuple[int, ...] = ()
    mesh: NvlinkMesh | None = None
    nvlinks: int = 0

    @classmethod
    def of(cls, scenario: Scenario) -> Links:
        """Take those of a scenario."""
        gpu, joined = scenario.cluster.gpu, scenario.cluster.intra_host == "nvlink"
        rate = gpu.nvlink_rate * gpu.nvlink_efficiency if joined and gpu.nvlink_rate else None
        return cls(rate, mesh=scenario.cluster.mesh, nvlinks=gpu.nvlinks or 0)

    def seconds(self, collective: CollectiveName, ranks: Sequence[int], size: int) -> float:
        """Give the least time of a collective, s; infinite if it is not known."""
        if self.inside is None:
            return math.inf
        return TURNS[collective] * (len(ranks) - 1) / len(ranks) * size / (self.inside * self._part(ranks))

    def _part(self, ranks: Sequence[int]) -> float:
        """Give the part of the rate that those of a group have who are on the host of its first."""
        if self.mesh is None:
            return 1.0
        per_host = len(self.mesh.rows)
        gpus = [rank % per_host for rank in ranks if rank // per_host == ranks[0] // per_host]
        links = self.mesh.fewest(gpus) if self.mesh.is_whole(gpus) else 0
        return links / self.nvlinks if links else 1.0


class Beside(NamedTuple):
    """How kernels slow beside collectives.

    `slowdown`: factor by which passes took longer in the mean.
    `links`: what these run over; None: each runs as long as the kernels beside it.
    `buffers`: whether exchanges of tensor-parallel ranks are those of user buffers.
    """

    slowdown: float
    links: Links | None = None
    buffers: bool = False

    def seconds(self, collective: CollectiveName, ranks: Sequence[int], size: int) -> float:
        """Least time of a collective, s."""
        return self.links.seconds(collective, ranks, size) if self.links is not None else math.inf

    def factor(self, part: float) -> float:
        """Factor by which kernels take longer, by `share`."""
        return 1 + (self.slowdown - 1) * part


def share(collectives: float, kernels: float) -> float:
    """Say how much of the mean slowdown kernels have that go on beside collectives, of the times of both."""
    if collectives == math.inf or not kernels:
        return 1.0
    return min(1.0, collectives / kernels) / HIDDEN


def shares(items: Sequence[Timed], least: Callable[[Exchange], float]) -> list[float]:
    """Give for each item how much of the mean slowdown it has beside exchanges, up to the wait behind these.

    Of exchanges of several dimensions beside an item those count that slow it most.

    `least`: least time of an exchange, s.
    """
    found = [0.0] * len(items)
    ran, total = [], 0  # time of the kernels before each item
    begun: dict[str, tuple[int, float]] = {}  # first item and time of the exchanges under way of each dimension
    for number, item in enumerate(items):
        ran.append(total)
        if isinstance(item, Exchange) and item.asynchronous:
            since, hidden = begun.get(item.dimension, (number, 0.0))
            begun[item.dimension] = since, hidden + least(item)
        elif isinstance(item, Span):
            total += item.run
        elif isinstance(item, Wait):
            since, hidden = begun.pop(item.dimension, (number, 0.0))
            part = share(hidden, (total - ran[since]) / PS_PER_S) if hidden else 0.0
            found[since:number] = [max(each, part) for each in found[since:number]]
    return found
