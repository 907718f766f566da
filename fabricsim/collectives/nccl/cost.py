"""Time that NCCL expects of each algorithm and protocol: ``src/graph/tuning.cc``, ``ncclTopoTuneModel``.

Times in us, rates in GB/s, sizes in bytes.
"""

from math import log2

from fabricsim.collectives.nccl.graph import GroupShape
from fabricsim.collectives.nccl.tuning import (
    NVLS_EFFICIENCY,
    NVLS_TREE_BUS,
    PAYLOAD,
    PROTOCOLS,
    Algorithm,
    Bounds,
    Link,
    Protocol,
    generation,
)

HALVES, CHAINS = ("all_gather", "reduce_scatter"), ("broadcast", "reduce")
_SMALLEST_TREE = 6  # log2 of 64 bytes, where the corrections begin
_FUNCTIONS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")  # of ncclFunc_t
_LL128_PER_CHANNEL = dict(zip(_FUNCTIONS, (18.8, 12.0, 18.3, 15.2, 16.7), strict=True))  # E: 2.8
_LL128_TOTAL = dict(zip(_FUNCTIONS, (113.0, 72.0, 110.0, 91.0, 100.0), strict=True))  # E: 2.5
_BUS_SM80 = 235.0  # E: 2.8 to 2.16
_LL128_SHARE, _LL128_SINGLE, _LL128_TREE = 0.92, 0.7, 120 / 128
_TREE_ONE_HOST_LL128 = 7 / 9
_SPLIT_TREE = 0.85
_PAT_SHARE = 0.75
_POST, _POST_AMD, _POST_SIMPLE = 1.0, 2.0, 3.0
_PLATEAU_BYTES, _PLATEAU_PER_RANK = 64, 4096
_AMPERE, _HOPPER = 80, 90


def exists(collective: str, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> bool:
    """Whether NCCL has the pair for a collective and a group, whatever is switched off."""
    if algorithm not in group.tuning.base:
        return False
    several, reduces_all = group.hosts > 1, collective == "all_reduce"
    simple, nvls = protocol == "simple", group.nvls is not None
    return {
        "ring": True,
        "tree": reduces_all,
        "pat": simple and collective in HALVES and several and group.ranks == group.hosts,
        "nvls": simple and nvls and not several and (reduces_all or collective in HALVES),
        "nvls-tree": simple and nvls and several and reduces_all,
    }[algorithm]


def default_on(protocol: Protocol, group: GroupShape) -> bool:
    """Whether a pair that exists is allowed where the user says nothing: LL128 only if stores arrive whole.

    Up to a PCIe switch they do (PATH_PXB; from Hopper on also by another GPU's, PATH_PXN), through a CPU they may not.
    """
    if protocol != "ll128":
        return True
    if group.tuning.version < (2, 8):
        return group.near and group.within == "nvlink" and group.capability == 70  # noqa: PLR2004
    whole = group.within == "nvlink" or group.per_host == 1
    known = group.capability >= 70 if group.tuning.version >= (2, 23) else group.capability in (70, 80, 90)  # noqa: PLR2004
    return group.near and whole and known


def time(collective: str, algorithm: Algorithm, protocol: Protocol, size: int, group: GroupShape) -> float:
    """Give the time that NCCL expects of a call, us."""
    rate = bandwidth(collective, algorithm, protocol, group)
    late = latency(collective, algorithm, protocol, group)
    if algorithm == "tree":
        rate *= _correction(protocol, size, group)
    if algorithm == "ring" and protocol == "simple" and group.hosts > 1 and collective == "all_reduce":
        per_rank = size // (group.channels * group.ranks) if group.tuning.plateau_by_channel else size / group.ranks
        if per_rank >= (_PLATEAU_BYTES if group.tuning.plateau_by_channel else _PLATEAU_PER_RANK):
            late *= group.tuning.plateau[group.capability >= _AMPERE]
    return late + size / (1000 * rate)


def steps(collective: str, ranks: int) -> int:
    """Messages of a ring from each rank in turn."""
    return {"all_reduce": 2 * (ranks - 1), **dict.fromkeys(HALVES, ranks - 1)}.get(collective, ranks)


def bandwidth(collective: str, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> float:
    """Bytes of the buffer per ns that NCCL expects of large calls."""
    if algorithm in ("nvls", "nvls-tree"):
        return _nvls_bus(collective, algorithm, group)
    bus = _bus(collective, algorithm, protocol, group)
    return bus * group.ranks / steps(collective, group.ranks) if algorithm == "ring" else bus / 2


def share(collective: str, algorithm: Algorithm, protocol: Protocol, size: int, group: GroupShape) -> float:
    """Share of what the links carry that an algorithm and protocol reach, flags and the rest included.

    By NCCL's own measurements: of LL and LL128 on each generation in one host, of trees by size, of NVLS. Between
    hosts LL and LL128 lose to their flags alone: what else they lose is lost on the GPU, not on a slower network.
    What trees lose was measured on hosts of eight GPUs; hosts of one have no chain, and what fills them is simulated.
    """
    if algorithm in ("nvls", "nvls-tree"):
        return NVLS_EFFICIENCY[generation(group.capability) - 1]
    within = "simple" if group.hosts > 1 else protocol
    if algorithm == "tree" and group.hosts == group.ranks:
        return PAYLOAD[protocol]
    reached = _bus(collective, algorithm, within, group) / _full_bus(algorithm, group)
    if group.hosts > 1:
        reached *= PAYLOAD[protocol]
    return reached * (_correction(protocol, size, group) if algorithm == "tree" else 1.0)


def nvls_tree_bound(group: GroupShape) -> float:
    """Bytes of the buffer per ns beyond which NVLSTree does not come, as NCCL measured it."""
    heads = group.ranks // group.hosts
    return heads * _row(NVLS_TREE_BUS, group) * group.ranks / steps("all_reduce", group.ranks)


def _full_bus(algorithm: Algorithm, group: GroupShape) -> float:
    graph = group.tree if algorithm == "tree" else group.ring
    return graph.channels * (graph.within if group.hosts <= 2 else graph.between)  # noqa: PLR2004  NCCL's own rule


def _bus(collective: str, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> float:
    bus = _full_bus(algorithm, group)
    if group.tuning.bounds is None and group.tuning.version >= (2, 8) and group.capability == _AMPERE:
        bus = min(bus, _BUS_SM80)
    if algorithm == "ring":
        return _ring_bus(bus, collective, protocol, group)
    return bus * _PAT_SHARE if algorithm == "pat" else _tree_bus(bus, protocol, group)


def _correction(protocol: Protocol, size: int, group: GroupShape) -> float:
    """Factor on the rate of a tree, by size."""
    factors = group.tuning.corrections[PROTOCOLS.index(protocol)]
    step = max(0, (size >> _SMALLEST_TREE).bit_length() - 1)
    return factors[step] if step < len(factors) else 1.0


def _column(group: GroupShape) -> int:
    return min(group.hosts, 3) - 1


def _most_ll(bounds: Bounds, group: GroupShape) -> float:
    if group.hosts == 1:
        return bounds.ll[min(generation(group.capability), len(bounds.ll) - 1)][0]
    return bounds.ll[1 if group.amd else 0][_column(group)]


def _row(rows: tuple[tuple[float, float, float], ...], group: GroupShape) -> float:
    return rows[min(generation(group.capability), len(rows) - 1)][_column(group)]


def _ring_bus(bus: float, collective: str, protocol: Protocol, group: GroupShape) -> float:
    bounds = group.tuning.bounds
    if protocol == "ll":
        shared = group.tuning.ring_ll[0 if group.hosts > 1 or collective == "all_reduce" else 1] * bus
        return shared if bounds is None else min(_most_ll(bounds, group), shared)
    if protocol == "ll128":
        if group.tuning.version < (2, 8):
            return min(bus * _LL128_TREE, _LL128_TOTAL[collective])
        single = group.per_host < 2 and group.tuning.version < (2, 23)  # noqa: PLR2004
        share = _LL128_SINGLE if single else _LL128_SHARE
        each = _LL128_PER_CHANNEL[collective] if bounds is None else _row(bounds.ring_ll128, group)
        return min(bus * share, group.ring.channels * each)
    return bus


def _tree_bus(bus: float, protocol: Protocol, group: GroupShape) -> float:
    bounds, channels = group.tuning.bounds, group.tree.channels
    one = group.hosts == 1
    if bounds is None:
        return _old_tree_bus(bus, protocol, group)
    bus = min(bus * group.tuning.tree_share, channels * _row(bounds.tree, group))
    if protocol == "ll":
        bus = min(bus * group.tuning.tree_ll, _most_ll(bounds, group))
    if protocol == "ll128":
        share = _TREE_ONE_HOST_LL128 if one else _LL128_TREE
        bus = min(bus * share, channels * _row(bounds.tree_ll128, group))
    if group.tuning.version >= (2, 18) and group.capability >= _HOPPER:
        bus *= _SPLIT_TREE  # Hopper searches for the plain pattern, all of whose traffic goes through one GPU
    return bus


def _old_tree_bus(bus: float, protocol: Protocol, group: GroupShape) -> float:
    """Before 2.11: bounds on all channels together."""
    few = group.hosts <= 2  # noqa: PLR2004
    if group.tuning.version < (2, 8):
        bus = min(bus * group.tuning.tree_share, 90.0 if group.hosts == 1 else 70.0)
        return bus * {"ll": group.tuning.tree_ll, "ll128": _TREE_ONE_HOST_LL128}.get(protocol, 1.0)
    fast = group.capability == _AMPERE and protocol == "ll128"
    most = (130.0 if few else 105.0) if fast else (110.0 if few else 80.0)
    bus = min(bus * group.tuning.tree_share, most)
    if protocol == "ll":
        return bus * group.tuning.tree_ll
    if protocol == "ll128":
        share = _TREE_ONE_HOST_LL128 if group.hosts == 1 else 0.915
        return min(bus * share, _LL128_PER_CHANNEL["all_reduce"] * group.tree.channels * _TREE_ONE_HOST_LL128)
    return bus


def _nvls_bus(collective: str, algorithm: Algorithm, group: GroupShape) -> float:
    graph = group.nvls
    assert graph is not None  # noqa: S101  `exists` says so
    if group.tuning.nvls_share:
        between = graph.between if group.hosts <= 2 else graph.between / 2  # noqa: PLR2004
        each = graph.within if algorithm == "nvls" else min(graph.within, between)
        return graph.channels * each * group.tuning.nvls_share
    efficiency = NVLS_EFFICIENCY[generation(group.capability) - 1]
    within = graph.within * efficiency * (graph.channels - 1) / graph.channels
    within *= 2 if collective == "all_reduce" else (group.per_host - 1) / group.per_host
    each = within
    if algorithm == "nvls-tree" and group.tuning.bounds is not None:
        between = graph.between * (2 if group.hosts <= 2 else 1)  # noqa: PLR2004
        each = min(within, between, _row(NVLS_TREE_BUS, group))
    return graph.channels * each * group.ranks / steps(collective, group.ranks)


def latency(collective: str, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> float:
    """Time that NCCL expects of the smallest call, us."""
    p = PROTOCOLS.index(protocol)
    base = group.tuning.base[algorithm][p]
    here = group.tuning.hop[group.within].get(algorithm, (0.0, 0.0, 0.0))[p]
    there = _network_hop(algorithm, p, group)
    if group.hosts > 1 and protocol == "ll":
        here *= group.tuning.ll_hop
    depth = int(log2(group.hosts))
    if algorithm == "tree":
        return base + 2 * ((group.ranks // group.hosts - 1) * here + depth * there)
    if algorithm == "nvls":
        return here + (there if group.hosts > 1 else 0.0)
    if algorithm == "nvls-tree":
        return base + here + 2 * depth * there
    if algorithm == "pat":
        return base + depth * there / 3.5 + 2.8 * group.ranks
    return base + _ring_latency(collective, protocol, here, there, group)


def _network_hop(algorithm: Algorithm, p: int, group: GroupShape) -> float:
    link: Link = "network"
    of: Algorithm = "tree" if algorithm == "ring" and group.tuning.exposed and group.per_host == 1 else algorithm
    hop = group.tuning.hop[link].get(of, (0.0, 0.0, 0.0))[p]
    if not group.tuning.flushes:
        return group.adapter or hop
    return hop + group.adapter * (2 if PROTOCOLS[p] == "simple" else 1)


def _ring_latency(collective: str, protocol: Protocol, here: float, there: float, group: GroupShape) -> float:
    turns = steps(collective, group.ranks)
    if collective in CHAINS:
        return there if group.hosts > 1 else here  # all channels are alike, so chunks follow each other
    if not group.tuning.hops_by_link:
        return turns * (there if group.hosts > 1 else here)
    if group.hosts == 1:
        return turns * here
    between = 2 * (group.hosts - 1) + group.tuning.host_hops if collective == "all_reduce" else group.hosts - 1
    if group.tuning.posts:
        post = (_POST_AMD if group.amd else _POST) * (_POST_SIMPLE if protocol == "simple" else 1.0)
        here = max(here, post)
    return (turns - between) * here + between * there
