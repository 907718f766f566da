"""The GPUs and hosts that the ranks of a job run on, and how long their kernels take there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError
from fabricsim.records.program import COMPUTE, HOST
from fabricsim.scenario.cluster import Cluster, Gpu, Precision
from fabricsim.scenario.job import Job
from fabricsim.scenario.variation import Drawn, stream
from fabricsim.units import PS_PER_S, human_seconds, seconds

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

LONGEST = 10**6 * PS_PER_S
"""Time that an iteration may compute for, ps: 12 days, a tenth of what 64 bits hold."""


class Speed(NamedTuple):
    """What a rank runs on: the kind of its GPU, and the speeds of that and of its host."""

    kind: int
    gpu: float
    host: float


@dataclass(frozen=True, eq=False)
class Machines:
    """What the ranks of a job run on.

    `gpus`: kinds of GPUs.
    `kind`, `gpu`, `host`: of each rank: the number of its kind, the speed of its GPU and of its host; shape
        ``(ranks,)`` each.
    `kernel_jitter`, `host_jitter`: of stretches of computing; that of a host's is the same for its ranks.
    `rank`, `host_of`: numbers of each rank and its host in the cluster, which name their random streams; shape
        ``(ranks,)`` each.
    `seed`: of these.
    """

    gpus: tuple[Gpu, ...]
    kind: Indices
    gpu: Floats
    host: Floats
    kernel_jitter: Drawn | None
    host_jitter: Drawn | None
    rank: Indices
    host_of: Indices
    seed: int

    @classmethod
    def of(cls, cluster: Cluster, seed: int, ranks: Sequence[int] | None = None) -> Machines:
        """Take those of some ranks of a cluster, or of all."""
        rank = np.arange(cluster.ranks) if ranks is None else np.array(ranks, np.int64)
        host = rank // cluster.gpus_per_host
        return cls(
            tuple(variant.gpu for variant in cluster.variants),
            np.array(cluster.kind_of_host, np.int64)[host],
            cluster.gpu_speed.of(cluster.ranks, seed, "gpu speed")[rank],
            cluster.host_speed.of(cluster.hosts, seed, "host speed")[host],
            cluster.kernel_jitter,
            cluster.host_jitter,
            rank,
            host,
            seed,
        )

    @property
    def jitters(self) -> bool:
        """Whether no two stretches take the same time, so that no two ranks are alike."""
        return self.kernel_jitter is not None or self.host_jitter is not None

    @property
    def alike(self) -> bool:
        """Whether all ranks run on just what the preset of the first kind says."""
        return not (self.jitters or self.kind.any() or np.any(self.gpu != 1) or np.any(self.host != 1))

    def peak(self, precision: Precision) -> float:
        """Give the mean dense peak of the GPUs' presets in a precision of products, FLOP/s."""
        shares = np.bincount(self.kind, minlength=len(self.gpus)) / len(self.kind)
        return float(sum(share * gpu.peak[precision] for share, gpu in zip(shares, self.gpus, strict=True) if share))

    def classes(self) -> tuple[list[Speed], Indices]:
        """List what differs, and which of it each rank has, shape ``(ranks,)``."""
        rows = np.stack([self.kind.astype(np.float64), self.gpu, self.host], axis=1)
        found, which = np.unique(rows, axis=0, return_inverse=True)
        return [Speed(int(kind), gpu, host) for kind, gpu, host in found.tolist()], which.reshape(-1)

    def jittered(self, ops: NDArray[np.void]) -> NDArray[np.void]:
        """Let each stretch of computing take longer by what is drawn for it.

        Raises InputError if a rank would compute for ever.
        """
        if not self.jitters:
            return ops
        ops, time = ops.copy(), ops["duration"].astype(np.float64)
        busy = np.flatnonzero(np.isin(ops["kind"], (COMPUTE, HOST)))
        busy = busy[np.argsort(ops["rank"][busy], kind="stable")]
        of_rank = np.split(busy, np.searchsorted(ops["rank"][busy], np.arange(1, len(self.rank))))
        for mine, number, host in zip(of_rank, self.rank.tolist(), self.host_of.tolist(), strict=True):
            for drawn, name in ((self.kernel_jitter, f"kernels {number}"), (self.host_jitter, f"host {host}")):
                if drawn is not None:
                    time[mine] *= drawn.factors(stream(self.seed, name).random(len(mine)))
        ops["duration"] = _whole(ops, time)
        return ops

    def scaled(self, ops: NDArray[np.void]) -> NDArray[np.void]:
        """Let captured kernels, and what hosts did, take the time that they take here; errors as of `jittered`."""
        ops, rank = ops.copy(), ops["rank"]
        speed = np.where(ops["kind"] == HOST, self.host[rank], self.gpu[rank])
        ops["duration"] = _whole(ops, ops["duration"] / speed)
        return self.jittered(ops)

    def notes(self) -> tuple[str, ...]:
        """Say what was drawn, a sentence each; nothing if nothing was."""
        said = []
        for name, speeds, ends in (("gpu_speed", self.gpu, self.rank), ("host_speed", self.host, self.host_of)):
            if np.any(speeds != 1):
                slowest = int(ends[speeds.argmin()])
                spread = f"{speeds.min():.3g}" if speeds.min() == speeds.max() else _spread(speeds, name, slowest)
                said.append(f"cluster.{name}: {spread}")
        for name, drawn in (("kernel_jitter", self.kernel_jitter), ("host_jitter", self.host_jitter)):
            if drawn is not None:
                said.append(f"cluster.{name}: {drawn}, drawn from seed {self.seed}")
        return tuple(said)


def _spread(speeds: Floats, name: str, slowest: int) -> str:
    what = "rank" if name == "gpu_speed" else "host"
    return f"{speeds.min():.3g} to {speeds.max():.3g} times the preset's, the slowest is {what} {slowest}"


def _whole(ops: NDArray[np.void], time: Floats) -> Indices:
    """Round times to ps, none of a rank's longer together than an iteration may be."""
    total = float(np.bincount(ops["rank"], time).max(initial=0))
    if total > LONGEST:
        span, limit = human_seconds(seconds(total)), human_seconds(seconds(LONGEST))
        msg = f"a rank would compute for {span}, more than {limit}; look for a slip in cluster.gpu_speed, host_speed, "
        msg += "kernel_jitter and host_jitter"
        raise InputError(msg)
    return np.rint(time).astype(np.int64)


def at_speed(gpu: Gpu, speed: float) -> Gpu:
    """Give a GPU all of whose kernels take one over `speed` times as long."""
    if speed == 1:
        return gpu
    slower = {name: round(getattr(gpu, name) / speed) for name in ("kernel_latency", "tile_overhead")}
    measured = {
        name: tuple(each.model_copy(update={"time": round(each.time / speed)}) for each in getattr(gpu, name))
        for name in ("kernels", "streams")
    }
    peak = {precision: rate * speed for precision, rate in gpu.peak.items()}
    return gpu.model_copy(update={"peak": peak, "memory_rate": gpu.memory_rate * speed, **slower, **measured})


def on_host(job: Job, speed: float) -> Job:
    """Give a job whose host takes one over `speed` times as long for what it does."""
    if speed == 1:
        return job
    return job.model_copy(update={name: round(getattr(job, name) / speed) for name in ("kernel_launch", "batch_time")})
