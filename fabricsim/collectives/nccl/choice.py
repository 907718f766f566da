"""The algorithm and protocol that NCCL takes for a call: ``src/enqueue.cc``, ``getAlgoInfo``."""

from collections.abc import Sequence
from dataclasses import dataclass

from fabricsim.collectives.nccl import cost
from fabricsim.collectives.nccl.graph import GroupShape
from fabricsim.collectives.nccl.tuning import ALGORITHMS, MOST_THREADS, PROTOCOLS, THRESHOLDS, Algorithm, Protocol
from fabricsim.errors import InputError

_PCIE = 12.0  # GB/s up to which a ring by Simple makes do with half its threads (PCI_BW)
_THREADS_HALVED = 256
_WARPS = 128  # threads are halved while a multiple of this


@dataclass(frozen=True)
class Pick:
    """What a call runs with.

    `algorithm`, `protocol`: as in NCCL_ALGO and NCCL_PROTO.
    `channels`, `threads`: of the kernel, after taking away those for which a small call has no work.
    `time`: what NCCL expects it to take, us.
    """

    algorithm: Algorithm
    protocol: Protocol
    channels: int
    threads: int
    time: float


def pick(
    collective: str, size: int, group: GroupShape, *, algorithms: Sequence[str] = (), protocols: Sequence[str] = ()
) -> Pick:
    """Take the pair of least expected time.

    `collective`: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``broadcast`` or ``reduce``.
    `size`: bytes of the whole buffer, as nccl-tests counts them.
    `group`: of the ranks, with the constants of the version.
    `algorithms`, `protocols`: those allowed, as NCCL_ALGO and NCCL_PROTO give them; all if empty. NCCL takes a ring if
        none of the algorithms has the collective.
    Raises InputError if none is left.
    """
    allowed = _pairs(collective, group, algorithms, protocols)
    if not allowed and algorithms:
        allowed = _pairs(collective, group, ("ring",), protocols)
    if not allowed:
        msg = f"collectives.protocol leaves NCCL nothing for {collective}: allow one of {', '.join(PROTOCOLS)}"
        raise InputError(msg)
    timed = [(cost.time(collective, a, p, size, group), a, p) for a, p in allowed]
    time, algorithm, protocol = min(timed, key=lambda entry: entry[0])
    channels, threads = shrink(size, algorithm, protocol, group)
    return Pick(algorithm, protocol, channels, threads, time)


def _pairs(
    collective: str, group: GroupShape, algorithms: Sequence[str], protocols: Sequence[str]
) -> list[tuple[Algorithm, Protocol]]:
    return [
        (a, p)
        for a in ALGORITHMS
        if not algorithms or a in algorithms
        for p in PROTOCOLS
        if (p in protocols if protocols else cost.default_on(p, group))
        if cost.exists(collective, a, p, group)
    ]


def threshold(algorithm: Algorithm, protocol: Protocol, ranks: int) -> int:
    """Bytes per thread below which a call gives up channels and threads (the log's ``threadThresholds``)."""
    return THRESHOLDS[protocol] * (ranks if algorithm == "ring" and protocol == "ll" else 1)


def shrink(size: int, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> tuple[int, int]:
    """Channels and threads of a call: first channels go, then threads are halved."""
    if algorithm in ("nvls", "nvls-tree"):
        return group.nvls_channels, MOST_THREADS[protocol]
    channels, threads = group.channels, MOST_THREADS[protocol]
    slow = group.ring.within * group.ring.channels <= _PCIE
    if algorithm == "ring" and protocol == "simple" and slow:
        threads = _THREADS_HALVED
    least = threshold(algorithm, protocol, group.ranks)
    while size < channels * threads * least and channels > 1:
        channels -= 1
    while size < channels * threads * least and threads % _WARPS == 0:
        threads //= 2
    return channels, threads
