"""Constants of NCCL's cost model by version, and the file that each is from.

Latencies in us, rates in GB/s (1e9 bytes/s), all from ``src/graph/tuning.cc`` of https://github.com/NVIDIA/nccl unless
said otherwise. A version takes the newest entry that is not newer than itself: E for the versions at which the source
was read (2.5.6, 2.8 and 2.9, 2.16, 2.21, 2.28), U for those in between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    nvls_tree: tuple[Triple, ...] = ()


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
    bounds: Bounds | None
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


# fmt: off
_CORRECTIONS_2_5 = (  # src/enqueue.cc, v2.5.6
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.8, 0.7, 0.7, 0.7, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.9, 0.9),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9),
)
_LL = (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_CORRECTIONS_2_8 = (
    _LL,
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9),
)
_CORRECTIONS_2_16 = (
    _LL,
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
# fmt: on
_FLAT: Triple = (20.0, 20.0, 20.0)
_LL_MOST: tuple[Triple, ...] = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (87.7, 22.5, 19.0))
_VOLTA: Triple = (26.5, 18.5, 10.0)
_AMPERE_TREE: Triple = (24.0, 23.6, 17.8)

_V2_5 = Tuning(
    version=(2, 5),
    base={"tree": (4.4, 4.4, 0.0), "ring": (3.6, 3.6, 8.4)},
    hop={
        "nvlink": {"tree": (0.5, 1.9, 28.0), "ring": (0.4, 2.5, 5.7)},
        "pcie": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
        "network": {"tree": (5.0, 7.5, 50.0), "ring": (0.9, 2.5, 6.6)},
    },
    corrections=_CORRECTIONS_2_5,
    bounds=None,
    tree_ll=1 / 3,
    ring_ll=(1 / 4, 1 / 4),
    hops_by_link=False,
    mirrored_when_even=False,  # E: src/graph/trees.cc, as in the captured logs of 2.6.4 and 2.7.8
)
_V2_8 = replace(
    _V2_5,
    version=(2, 8),
    base={"tree": (4.4, 4.4, 0.0), "ring": (3.6, 10.0, 8.4)},
    hop={
        "nvlink": {"tree": (0.52, 1.2, 28.0), "ring": (0.47, 1.9, 3.4)},
        "pcie": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
        "network": {"tree": (5.0, 8.5, 50.0), "ring": (2.7, 4.0, 9.6)},
    },
    corrections=_CORRECTIONS_2_8,
    tree_ll=1 / 3.8,
    ring_ll=(1 / 4, 1 / 3),
    ll_hop=1.8,
    hops_by_link=True,
    plateau=(1.9, 1.9),
    mirrored_when_even=True,
)
_V2_11 = replace(  # as read in 2.16
    _V2_8,
    version=(2, 11),
    base={"tree": (4.4, 4.4, 0.0), "ring": (3.6, 10.0, 8.4), "nvls": (0.0, 0.0, 40.0)},
    hop={
        "nvlink": {"tree": (0.52, 1.2, 28.0), "ring": (0.47, 1.9, 3.4), "nvls": (0.0, 0.0, 0.0)},
        "pcie": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7), "nvls": (0.0, 0.0, 0.0)},
        "network": {"tree": (5.0, 8.5, 28.0), "ring": (2.7, 4.0, 9.6), "nvls": (0.0, 0.0, 0.0)},
    },
    corrections=_CORRECTIONS_2_16,
    bounds=Bounds(
        ll=_LL_MOST,
        ring_ll128=(_FLAT, _FLAT, (36.7, 36.7, 36.7)),
        tree_ll128=(_FLAT, _FLAT, (36.7, 36.7, 36.7)),
        tree=(_VOLTA, _AMPERE_TREE, (38.7, 41.4, 33.0)),
    ),
    tree_share=0.92,
    host_hops=2,
    nvls_share=0.75,
)
_V2_18 = replace(  # as read in 2.21
    _V2_11,
    version=(2, 18),
    base={"tree": (6.8, 14.0, 0.0), "ring": (6.6, 14.0, 8.4), "nvls": (0.0, 0.0, 0.0), "nvls-tree": (0.0, 0.0, 0.0)},
    hop={
        "nvlink": {
            "tree": (0.6, 1.25, 28.0),
            "ring": (0.6, 1.9, 3.4),
            "nvls": (0.0, 0.0, 23.0),
            "nvls-tree": (0.0, 0.0, 23.0),
        },
        "pcie": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
        "network": {
            "tree": (5.0, 8.5, 28.0),
            "ring": (2.7, 4.0, 14.0),
            "nvls": (0.0, 0.0, 18.0),
            "nvls-tree": (0.0, 0.0, 14.0),
        },
    },
    bounds=Bounds(
        ll=_LL_MOST,
        ring_ll128=(_FLAT, _FLAT, (36.7, 36.7, 36.7)),
        tree_ll128=(_FLAT, _FLAT, (36.7, 36.7, 29.0)),
        tree=(_VOLTA, _AMPERE_TREE, (38.7, 41.4, 36.0)),
    ),
    ll_hop=1.0,
    posts=True,
    flushes=True,
    plateau=(1.9, 1.4),
    plateau_by_channel=True,
    nvls_share=5 / 6,
)
_V2_22 = replace(  # E: times printed in github.com/NVIDIA/nccl/issues/1453; else as 2.21
    _V2_18,
    version=(2, 22),
    hop={**_V2_18.hop, "nvlink": {**_V2_18.hop["nvlink"], "nvls": (0.0, 0.0, 25.0), "nvls-tree": (0.0, 0.0, 25.0)}},
)
_V2_23 = replace(  # as read in 2.28
    _V2_22,
    version=(2, 23),
    base={
        "tree": (6.8, 14.0, 8.4),
        "ring": (6.6, 14.0, 8.4),
        "nvls": (0.0, 0.0, 0.0),
        "nvls-tree": (0.0, 0.0, 0.0),
        "pat": (8.0, 8.0, 8.0),
    },
    hop={
        "nvlink": {
            "tree": (0.6, 1.25, 4.0),
            "ring": (0.6, 1.9, 3.4),
            "nvls": (0.0, 0.0, 25.0),
            "nvls-tree": (0.0, 0.0, 25.0),
            "pat": (0.0, 0.0, 4.0),
        },
        "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7), "pat": (0.0, 0.0, 4.0)},
        "network": {
            "tree": (5.0, 8.5, 14.0),
            "ring": (2.7, 4.0, 14.0),
            "nvls": (0.0, 0.0, 18.0),
            "nvls-tree": (0.0, 0.0, 14.0),
            "pat": (0.0, 0.0, 14.0),
        },
    },
    bounds=Bounds(
        ll=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
        ring_ll128=(_FLAT, _FLAT, (36.7, 36.7, 36.7), (73.4, 73.4, 73.4)),
        tree_ll128=(_FLAT, _FLAT, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
        tree=(_VOLTA, _AMPERE_TREE, (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
        nvls_tree=(_VOLTA, _AMPERE_TREE, (0.0, 57.7, 45.5), (0.0, 96.0, 43.1)),
    ),
    ring_ll=(1 / 2, 1 / 2),
    host_hops=0,
    exposed=True,
    nvls_share=0.0,
)
_TUNINGS = (_V2_5, _V2_8, _V2_11, _V2_18, _V2_22, _V2_23)

NVLS_EFFICIENCY: Triple = (0.0, 0.85, 0.74)
"""Of what the links carry, on Ampere, Hopper and Blackwell (``nvlsEfficiency``, 2.28)."""
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?", re.ASCII)


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
