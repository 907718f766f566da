"""Constants of NCCL's cost model by version, which stand in ``tuning.toml``.

Latencies in us, rates in GB/s (1e9 bytes/s), all from ``src/graph/tuning.cc`` of https://github.com/NVIDIA/nccl unless
said otherwise. A version takes the newest entry that is not newer than itself: E for the versions at which the source
was read (2.5.6, 2.8 and 2.9, 2.16, 2.21, 2.28), U for those in between.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from fabricsim.errors import InputError
from fabricsim.files.packaged import tables

Algorithm = Literal["tree", "ring", "nvls", "nvls-tree", "pat"]
"""As NCCL_ALGO names them. CollNet needs switches that reduce, and is not chosen unless asked for."""
Protocol = Literal["ll", "ll128", "simple"]
"""As NCCL_PROTO names them."""
Link = Literal["nvlink", "pcie", "network"]
"""What a hop goes over; shared host memory counts as ``pcie``."""
Triple = tuple[float, float, float]
"""A figure for each of `PROTOCOLS`."""

ALGORITHMS: tuple[Algorithm, ...] = ("tree", "ring", "nvls", "nvls-tree", "pat")
PROTOCOLS: tuple[Protocol, ...] = ("ll", "ll128", "simple")
"""In NCCL's order: of equal times the first wins."""

BUFFER: Mapping[Protocol, int] = {"ll": 2**19, "ll128": 120 * 640 * 8 * 8, "simple": 2**22}
"""Bytes of a connection's FIFO with its flags: ``src/init.cc``, ``computeBuffSizes``."""
PAYLOAD: Mapping[Protocol, float] = {"ll": 1 / 2, "ll128": 120 / 128, "simple": 1.0}
"""Share of data in what is sent: 8 of 16 bytes by LL, 120 of 128 by LL128 (``src/include/device.h``)."""
MOST_THREADS: Mapping[Protocol, int] = {"ll": 512, "ll128": 640, "simple": 512}
"""Of a channel: ``src/include/device.h``."""
THRESHOLDS: Mapping[Protocol, int] = {"ll": 8, "ll128": 8, "simple": 64}
"""Bytes per thread below which channels and threads are taken away: ``src/include/comm.h``."""

_HOPPER = 90
_AMPERE = 80


@dataclass(frozen=True)
class Bounds:
    """Bounds on rates by generation (Volta, Ampere, Hopper, Blackwell) and hosts (one, two, more), GB/s.

    ``ll`` holds for all channels, in its first column by GPU and in the others by CPU (Intel, AMD); the others for each
    channel.
    """

    ll: tuple[Triple, ...]
    ring_ll128: tuple[Triple, ...]
    tree_ll128: tuple[Triple, ...]
    tree: tuple[Triple, ...]


@dataclass(frozen=True)
class Tuning:
    """Constants and rules of a version.

    `version`: first version that they hold for.
    `base`, `hop`: latency of starting by algorithm, and of a hop by link and algorithm.
    `corrections`: factors on a tree's rate by ``log2(bytes / 64)`` for each of `PROTOCOLS`; 1 beyond.
    `bounds`: as `Bounds`; None if a version has fixed ones (see `cost`).
    `tree_share`: share of the bus rate that a tree reaches.
    `tree_ll`: share of that that it reaches with LL.
    `ring_ll`: share of the bus rate that a ring reaches with LL, where it reduces or crosses hosts and elsewhere.
    `ll_hop`: factor on the latency of LL within a host if there are several.
    `hops_by_link`: whether the hops of a ring are reckoned by link; if not, all cost what one over the network costs.
    `host_hops`: network hops of a ring all-reduce over `n` hosts beyond ``2 (n - 1)``.
    `posts`: whether posting to the network bounds the latency of each hop of a ring from below.
    `exposed`: whether with one GPU per host a hop of a ring costs what one of a tree costs.
    `flushes`: whether Simple takes the adapter's latency twice; if not, it takes the place of the table's.
    `plateau`: factor on the latency of a ring all-reduce by Simple over several hosts, before Ampere and from it on.
    `plateau_by_channel`: whether that begins at 64 bytes per channel and rank, or at 4 KiB per rank.
    `nvls_share`: share of the bus rate that NVLS reaches; 0 if it is reckoned from the links.
    `mirrored_when_even`: whether the second tree over an even number of hosts mirrors the first, or is shifted by one.
    """

    version: tuple[int, int]
    base: Mapping[Algorithm, Triple]
    hop: Mapping[Link, Mapping[Algorithm, Triple]]
    corrections: tuple[tuple[float, ...], ...]
    bounds: Bounds | None = None
    tree_share: float = 0.9
    tree_ll: float = 1 / 3.8
    ring_ll: tuple[float, float] = (1 / 4, 1 / 3)
    ll_hop: float = 1.0
    hops_by_link: bool = True
    host_hops: int = 0
    posts: bool = False
    exposed: bool = False
    flushes: bool = False
    plateau: tuple[float, float] = (1.0, 1.0)
    plateau_by_channel: bool = False
    nvls_share: float = 0.0
    mirrored_when_even: bool = True


def generation(capability: int) -> int:
    """Index of a compute capability (70, 80, ...) in the tables of `Bounds`."""
    return 0 if capability < _AMPERE else 1 if capability < _HOPPER else 2 if capability < 100 else 3  # noqa: PLR2004


NVLS_EFFICIENCY: Triple = (0.0, 0.85, 0.74)
"""Of what the links carry, on Ampere, Hopper and Blackwell (``nvlsEfficiency``, 2.28)."""
NVLS_TREE_BUS: tuple[Triple, ...] = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 43.1))
"""Bus rate of NVLSTree by generation and hosts as in `Bounds`, of each head, GB/s (``perChMaxNVLSTreeBws``, 2.28)."""
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?", re.ASCII)


def _read() -> tuple[Tuning, ...]:
    """Read all entries of the table, each over the one before."""
    table = tables(__package__, "tuning.toml")
    said: dict[str, object] = {}
    return tuple(msgspec.convert(said := said | entry, Tuning) for entry in table["nccl"])


_TUNINGS = _read()
"""Read with the module, by one thread: msgspec crashes if two look at a class for the first time at once."""


def parse_version(version: str) -> tuple[int, int]:
    """Read a version such as ``"2.18"`` or ``"2.18.5"``.

    Raises InputError if it is none, or older than the cost model.
    """
    found = _VERSION.fullmatch(version)
    first = _TUNINGS[0].version
    if found is None or (int(found[1]), int(found[2])) < first or int(found[1]) != first[0]:
        msg = f"collectives.nccl is {version!r}, and must be a version of NCCL that chooses by cost: 2.5 or newer"
        raise InputError(msg)
    return int(found[1]), int(found[2])


def tuning(version: str) -> Tuning:
    """Constants that hold for a version of NCCL; errors as `parse_version`."""
    wanted = parse_version(version)
    return max((entry for entry in _TUNINGS if entry.version <= wanted), key=lambda entry: entry.version)
