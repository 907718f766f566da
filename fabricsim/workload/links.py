"""How long collectives take at best, to tell which part of the kernels beside them is slowed.

Kernels share processors and memory with a collective only while it runs. What is known of that before the simulation
is the least time of a ring: ``k (n - 1) S / n / B`` for ``S`` bytes on ``n`` ranks, ``k`` = 2 for an all-reduce, with
``B`` the rate of NVLink, or between hosts what the adapters of the members on a host carry, if that is less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.units import seconds
from fabricsim.workload.issue import EMPTY, Span
from fabricsim.workload.tally import TURNS
from fabricsim.workload.work import Exchange, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.scenario.scenario import Scenario
    from fabricsim.workload.program import CollectiveName
    from fabricsim.workload.stages import Timed


class Links(NamedTuple):
    """What collectives of the ranks of a cluster run over.

    `inside`: rate between GPUs of a host, bytes/s; None if it is not NVLink, then kernels are slowed all the time.
    `outside`: part of each GPU of the rate of its host's adapters, bytes/s.
    `per_host`: GPUs of a host.
    """

    inside: float | None
    outside: float
    per_host: int

    @classmethod
    def of(cls, scenario: Scenario) -> Links:
        """Take those of a scenario."""
        cluster = scenario.cluster
        gpu, joined = cluster.gpu, cluster.intra_host == "nvlink"
        inside = gpu.nvlink_rate * gpu.nvlink_efficiency if joined and gpu.nvlink_rate else None
        return cls(inside, scenario.link_rate * scenario.nics_per_host / cluster.gpus_per_host, cluster.gpus_per_host)

    def seconds(self, collective: CollectiveName, ranks: Sequence[int], size: int) -> float:
        """Give the least time of a collective, s; infinite if it is not known."""
        hosts = len({rank // self.per_host for rank in ranks})
        inside = self.inside if self.inside is not None else math.inf
        rate = inside if hosts == 1 else min(inside, self.outside * len(ranks) / hosts)
        return math.inf if rate == math.inf else TURNS[collective] * (len(ranks) - 1) / len(ranks) * size / rate


class Beside(NamedTuple):
    """How kernels slow beside collectives.

    `slowdown`: factor by which they take longer while one runs.
    `links`: what these run over; None: each runs as long as the kernels beside it.
    """

    slowdown: float
    links: Links | None = None

    def seconds(self, collective: CollectiveName, ranks: Sequence[int], size: int) -> float:
        """Least time of a collective, s."""
        return self.links.seconds(collective, ranks, size) if self.links is not None else math.inf

    def exchange(self, item: Exchange, ranks: Sequence[int]) -> float:
        """Least time of an exchange beside which kernels slow, s.

        Products leave processors to tensor-parallel exchanges for their whole length: Transformer Engine gives cuBLAS
        those alone that its user buffers do not take (``num_comm_sm``, NVTE_EXT_MARGIN_SM).
        """
        return math.inf if item.dimension == "tensor" else self.seconds(item.collective, ranks, item.size)

    def factor(self, part: float) -> float:
        """Factor by which kernels take longer of which a part is beside collectives."""
        return 1 + (self.slowdown - 1) * part


def share(collectives: float, kernels: float) -> float:
    """Part of some kernels that collectives beside them go on with, of the times of both."""
    return min(1.0, collectives / kernels) if kernels else 1.0


def shares(items: Sequence[Timed], time_of: Callable[[Exchange], float]) -> list[float]:
    """Give for each item the part of it that asynchronous exchanges go on beside, up to the wait behind it.

    `time_of`: least time of an exchange, s.
    """
    found = [0.0] * len(items)
    hidden, since = 0.0, 0
    span = EMPTY
    for number, item in enumerate(items):
        if isinstance(item, Exchange) and item.asynchronous:
            if not hidden:
                since, span = number, EMPTY
            hidden += time_of(item)
        elif isinstance(item, Span):
            span = span.then(item)
        elif isinstance(item, Wait) and hidden:
            found[since:number] = [share(hidden, seconds(span.alone))] * (number - since)
            hidden = 0.0
    return found
