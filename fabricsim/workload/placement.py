"""Which rank does which part of a job.

Ranks are counted with the first dimension of ``order`` innermost, as Megatron-LM's rank generator does:
``"tensor-context-data-pipeline"`` makes tensor-parallel groups of neighbouring ranks and lets pipelines
span the job.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.scenario.job import DIMENSIONS, Parallelism
from fabricsim.workload.program import Call
from fabricsim.workload.work import Exchange

_KINDS = {
    "data": ("data", "expert_data", "shard", "replicate"),
    "expert": ("expert", "expert_host", "expert_rail"),
}
"""Kinds of groups that calls of a dimension are over."""


@dataclass(frozen=True)
class Placement:
    """The ranks of a job in a grid of its parallel dimensions.

    `parallelism`: degrees and order.
    `hosts`: whose GPUs are joined by NVLink, of each rank; empty if that is not known.
    """

    parallelism: Parallelism
    hosts: tuple[int, ...] = ()

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Rank numbers, shape ``(pipeline, data, context, tensor)``."""
        outwards = self.parallelism.order.split("-")
        sizes = [getattr(self.parallelism, name) for name in outwards]
        ranks = np.arange(self.parallelism.ranks).reshape(sizes[::-1])
        axes = [len(outwards) - 1 - outwards.index(name) for name in DIMENSIONS[::-1]]
        return ranks.transpose(axes)

    @cached_property
    def stages(self) -> NDArray[np.int32]:
        """Pipeline stage of each rank, shape ``(ranks,)``."""
        stages = np.empty(self.parallelism.ranks, np.int32)
        stages[self.grid] = np.arange(self.parallelism.pipeline).reshape(-1, 1, 1, 1)
        return stages

    def group(self, dimension: str, rank: int) -> tuple[int, ...]:
        """Return the group of a rank, of any kind that is a property here, such as ``"tensor"``."""
        groups: NDArray[np.int64] = getattr(self, dimension)
        return tuple(groups[self._places(dimension)[rank]].tolist())

    def images(self, dimension: str, group: tuple[int, ...]) -> NDArray[np.int32]:
        """Return all groups that do what a group of a dimension does, shape ``(groups, len(group))``.

        `dimension`: of a call: besides those of `group`, ``"pipeline"`` and ``"embedding"``.
        `group`: one of them.
        """
        stages = self.stages[list(group)]
        if dimension in {"pipeline", "embedding"}:
            return self.pipelines[:, stages].astype(np.int32)
        kinds = _KINDS.get(dimension, (dimension,))
        dimension = next(kind for kind in kinds if self.group(kind, group[0]) == group)
        groups: NDArray[np.int64] = getattr(self, dimension)
        alike: NDArray[np.int32] = groups[self.stages[groups[:, 0]] == stages[0]].astype(np.int32)
        return alike

    def image(self, call: Call, rank: int) -> tuple[int, ...]:
        """Return the group of a rank among the `images` of that of a call."""
        key = call.dimension, call.ranks
        if key not in self._images:
            groups = self.images(*key)
            self._images[key] = [tuple(group) for group in groups.tolist()], self._rows_of(groups)
        groups_alike, row = self._images[key]
        return groups_alike[int(row[rank])]

    def _places(self, dimension: str) -> NDArray[np.int64]:
        """Row of each rank among the groups of a dimension, shape ``(ranks,)``."""
        if dimension not in self._rows:
            self._rows[dimension] = self._rows_of(getattr(self, dimension))
        return self._rows[dimension]

    def _rows_of(self, groups: NDArray[np.integer]) -> NDArray[np.int64]:
        """Row of each rank that is in one of some groups, shape ``(ranks,)``."""
        rows = np.full(self.parallelism.ranks, NONE, np.int64)
        rows[groups] = np.arange(len(groups)).reshape(-1, 1)
        return rows

    @cached_property
    def _rows(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @cached_property
    def _images(self) -> dict[tuple[str, tuple[int, ...]], tuple[list[tuple[int, ...]], NDArray[np.int64]]]:
        return {}

    @cached_property
    def tensor(self) -> NDArray[np.int64]:
        """Tensor-parallel groups, shape ``(groups, tensor)``."""
        return self.grid.reshape(-1, self.parallelism.tensor)

    @cached_property
    def context(self) -> NDArray[np.int64]:
        """Context-parallel groups, shape ``(groups, context)``."""
        return np.moveaxis(self.grid, 2, -1).reshape(-1, self.parallelism.context)

    @cached_property
    def data(self) -> NDArray[np.int64]:
        """Groups with the same parameters, shape ``(groups, data * context)``.

        Context-parallel ranks see other tokens of the same sequences, so gradients are reduced over
        them, too.
        """
        degree = self.parallelism.data * self.parallelism.context
        return np.moveaxis(self.grid, -1, 1).reshape(-1, degree)

    @cached_property
    def shard(self) -> NDArray[np.int64]:
        """Neighbours in `data` that share out parameters, shape ``(groups, shards)``."""
        return self.data.reshape(-1, self.parallelism.shards)

    @cached_property
    def replicate(self) -> NDArray[np.int64]:
        """Those that hold the same share, one of each group of `shard`, shape ``(groups, replicate)``."""
        degrees = self.parallelism
        by_group = self.data.reshape(-1, degrees.replicate, degrees.shards)
        return by_group.transpose(0, 2, 1).reshape(-1, degrees.replicate)

    @cached_property
    def expert(self) -> NDArray[np.int64]:
        """Groups over which the experts are spread, shape ``(groups, expert)``."""
        if self.parallelism.folded:
            return self._neighbours.reshape(-1, self.parallelism.expert)
        return np.moveaxis(self.grid, 1, -1).reshape(-1, self.parallelism.expert)

    @cached_property
    def expert_hosts(self) -> int:
        """Hosts over which each group of `expert` is spread evenly; 1 if one is not, or hosts are not known."""
        if not self.hosts:
            return 1
        hosts = np.sort(np.array(self.hosts)[self.expert])
        parts = 1 + np.count_nonzero(np.diff(hosts), axis=1)
        if (parts != parts[0]).any() or self.parallelism.expert % parts[0]:
            return 1
        return int(parts[0]) if np.ptp(hosts.reshape(len(hosts), parts[0], -1), axis=2).max() == 0 else 1

    @cached_property
    def expert_host(self) -> NDArray[np.int64]:
        """Ranks of a group of `expert` on one host, if these are spread evenly, shape ``(groups, ranks)``."""
        hosts = np.array(self.hosts)[self.expert]
        by_host = np.take_along_axis(self.expert, np.argsort(hosts, axis=1, kind="stable"), axis=1)
        return by_host.reshape(-1, self.parallelism.expert // self.expert_hosts)

    @cached_property
    def expert_rail(self) -> NDArray[np.int64]:
        """One rank of each host of a group of `expert`, in the same place there, shape ``(groups, hosts)``."""
        by_host = self.expert_host.reshape(-1, self.expert_hosts, self.expert_host.shape[1])
        return by_host.transpose(0, 2, 1).reshape(-1, self.expert_hosts)

    def calls(self, exchange: Exchange, rank: int) -> tuple[Call, ...]:
        """Give the calls of an exchange that a rank takes part in, side by side; none if it is alone.

        A dispatcher sends a token over the rail of its GPU to each host, and from there over NVLink to each rank, as
        soon as it has arrived (deepseek-ai/DeepEP, README.md; Hybrid-EP_Implementation.md).
        """
        routing, hosts, ranks = exchange.routing, self.expert_hosts, self.parallelism.expert
        size = exchange.size + exchange.weights // hosts
        parts = [(exchange.dimension, size)]
        if routing is not None and 1 < hosts < ranks:
            parts = [("expert_rail", routing.on_rails(size, hosts, ranks)), ("expert_host", size)]
        groups = [(self.group(kind, rank), size) for kind, size in parts]
        return tuple(
            Call(exchange.collective, group, size, exchange.dimension) for group, size in groups if len(group) > 1
        )

    @cached_property
    def expert_data(self) -> NDArray[np.int64]:
        """Groups that hold the same experts, shape ``(groups, ranks)``."""
        degrees = self.parallelism
        if degrees.folded:
            by_group = self._neighbours.reshape(degrees.pipeline, -1, degrees.expert)
            return by_group.transpose(0, 2, 1).reshape(-1, by_group.shape[1])
        by_expert = self.grid.reshape(degrees.pipeline, -1, degrees.expert, degrees.context, degrees.tensor)
        return by_expert.transpose(0, 2, 4, 1, 3).reshape(-1, degrees.data * degrees.context // degrees.expert)

    @property
    def _neighbours(self) -> NDArray[np.int64]:
        """Ranks of each stage, the lowest first, shape ``(pipeline, ranks)``."""
        return np.sort(self.grid.reshape(self.parallelism.pipeline, -1))

    @cached_property
    def pipelines(self) -> NDArray[np.int64]:
        """One rank of each stage, shape ``(groups, pipeline)``."""
        return np.moveaxis(self.grid, 0, -1).reshape(-1, self.parallelism.pipeline)
