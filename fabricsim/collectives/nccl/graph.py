"""What NCCL's topology search finds on a cluster: channels, rates and links.

NCCL looks for as many channels as the links carry, at rates from a list, and takes those that carry most
(``src/graph/search.cc``, ``ncclTopoCompute``). Here the same lists are gone through with the load that a ring lays on
each link of a host whose GPUs are taken in PCI order; the search for other orders is left out. Rates are GB/s.
"""

import math
from dataclasses import dataclass

from fabricsim.collectives.nccl.gpus import Architecture, architecture, counted_nvlink
from fabricsim.collectives.nccl.load import DIRECT_BEFORE, direct_ring_load, ring_load, slot_rate
from fabricsim.collectives.nccl.tuning import Link, Tuning
from fabricsim.scenario.cluster import Cluster

_MOST_CHANNELS = 32  # E: MAXCHANNELS, src/include/device.h
_NVLS_CHANNELS = 16  # E: src/transport/nvls.cc
_DOUBLED_FROM, _DOUBLED_SM90_FROM, _FEW = 25.0, 50.0, 4  # E: ncclTopoDupChannels
_QUADRUPLED_ABOVE = 45.0  # E: src/graph/connect.cc
_HALF = 0.49  # E: the search ends at rates below this share of the best
_NVLS_HEADS = 8
_AMPERE, _SM90, _SM100 = 80, 90, 100

_OLD = (42.0, 24.0, 21.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2, 0.24, 0.12)  # E: before 2.11
_WITHIN = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_BETWEEN = (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, *_OLD[4:])
_WITHIN_SM90 = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
_BETWEEN_SM90 = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12)
_WITHIN_SM100 = (90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0)
_BETWEEN_SM100 = (96.0, 48.0, 45.1, 42.0, *_BETWEEN_SM90[3:])


@dataclass(frozen=True)
class Graph:
    """Channels that the search found, and what each carries within a host and between hosts, GB/s."""

    channels: int
    within: float
    between: float


@dataclass(frozen=True)
class GroupShape:
    """What the cost model needs to know of a group of ranks.

    `ranks`, `hosts`: their number.
    `capability`: compute capability times ten.
    `amd`: whether the CPUs are AMD's.
    `within`: link between GPUs of a host.
    `near`: whether each NIC is below the PCIe switch of its GPU, or next to it.
    `ring`, `tree`, `nvls`: what the search found; no `nvls` if GPUs or links cannot.
    `channels`, `nvls_channels`: channels of the communicator, and those that NVLS takes.
    `tuning`: constants of the version.
    `adapter`: latency of the adapter as it reports it to NCCL, us; 0 for those of InfiniBand and sockets.
    """

    ranks: int
    hosts: int
    capability: int
    amd: bool
    within: Link
    near: bool
    ring: Graph
    tree: Graph
    nvls: Graph | None
    channels: int
    nvls_channels: int
    tuning: Tuning
    adapter: float = 0.0

    @property
    def per_host(self) -> float:
        """Ranks of a host."""
        return self.ranks / self.hosts


@dataclass(frozen=True)
class _Limits:
    """Rate of all channels together, the most of one, and by how many NICs or meshed partners they go."""

    most: float
    each: float
    ways: int


def describe(  # noqa: PLR0913  by name only
    cluster: Cluster, ranks: int, hosts: int, *, network: float, tuning: Tuning, adapter: float = 0.0
) -> GroupShape:
    """Find the graphs of a group of ranks that is spread evenly.

    `cluster`: hosts, GPUs and NICs.
    `network`: rate of one NIC's port, GB/s.
    `tuning`: of the version.
    `adapter`: see `GroupShape`.
    Raises InputError if the generation of the GPU is not known.
    """
    kind = architecture(cluster.gpu)
    per_host = max(1, ranks // hosts)
    mesh = cluster.mesh
    if mesh is not None and not mesh.is_whole(range(per_host)):
        cluster = cluster.model_copy(update={"intra_host": "shared-memory"})
    rates = _rates(kind, hosts, tuning)
    ring = tree = _search(rates, _limits(cluster, per_host, hosts, network))
    if cluster.intra_host == "shared-memory" and per_host > 1 and tuning.version < DIRECT_BEFORE:
        rate = min(direct_ring_load(cluster, per_host, hosts), network if hosts > 1 else float("inf"))
        # U: of trees, which use links both ways, half a link stays
        ring = _search(rates, _Limits(rate, rate, 1))
    if per_host > 1:
        ring, tree = _doubled(ring, kind), _doubled(tree, kind)
    nvlink = cluster.intra_host == "nvlink" and per_host > 1
    doubled = min(_MOST_CHANNELS, 2 * ring.channels)
    if kind.capability >= _SM90 and hosts > 1 and ring.within > _QUADRUPLED_ABOVE and doubled < _NVLS_CHANNELS:
        doubled *= 2
    return GroupShape(
        ranks=ranks,
        hosts=hosts,
        capability=kind.capability,
        amd="epyc" in cluster.cpu.name.lower() or "amd" in cluster.cpu.name.lower(),
        within="nvlink" if nvlink else "pcie",
        near=cluster.nic_below_gpu_switch or cluster.join == "ideal" or hosts == 1,
        ring=ring,
        tree=_tree(ring, rates, cluster, hosts) if nvlink else tree,
        nvls=_nvls(kind, cluster, per_host, hosts, ring) if nvlink and mesh is None else None,
        channels=doubled,
        nvls_channels=_NVLS_CHANNELS,
        tuning=tuning,
        adapter=adapter,
    )


def _limits(cluster: Cluster, per_host: int, hosts: int, network: float) -> _Limits:
    nics = max(1, getattr(cluster, "nics_per_host", 1) * per_host // cluster.gpus_per_host)
    within, each = float("inf"), float("inf")
    partners = 1
    if per_host > 1 and cluster.intra_host == "nvlink":
        within = each = counted_nvlink(cluster.gpu)
        if (mesh := cluster.mesh) is not None:
            common = math.gcd(*mesh.rows[0][:per_host])
            partners = mesh.fewest(range(per_host)) // common
            each = within * common / (cluster.gpu.nvlinks or common)
            within = each * partners
    elif per_host > 1 or hosts > 1:
        within = each = ring_load(cluster, per_host, hosts)
    if hosts == 1:
        return _Limits(within, each, partners)
    if cluster.join == "pcie":  # the narrowest link of the way
        network = min(network, slot_rate(cluster.nic.pcie), slot_rate(cluster.gpu_pcie))
    return _Limits(min(within, nics * network), min(each, network), nics)


def _rates(kind: Architecture, hosts: int, tuning: Tuning) -> tuple[float, ...]:
    if tuning.version < (2, 11):
        return _OLD
    if kind.capability >= _SM100:
        return _WITHIN_SM100 if hosts == 1 else _BETWEEN_SM100
    if kind.capability >= _SM90:
        return _WITHIN_SM90 if hosts == 1 else _BETWEEN_SM90
    return _WITHIN if hosts == 1 else _BETWEEN


def _search(rates: tuple[float, ...], limits: _Limits) -> Graph:
    """Channels and rate that carry most; of equals the highest rate."""
    best = Graph(0, 0.0, 0.0)
    for rate in rates:
        if best.channels and rate / best.within <= _HALF:
            break
        most = _MOST_CHANNELS // 2
        by_way = limits.ways * int(min(limits.each / rate, most))  # one GPU alone has no limits
        channels = min(by_way, int(min(limits.most / rate, most)))
        if channels * rate > best.channels * best.within:
            best = Graph(channels, rate, rate)
    return best if best.channels else Graph(1, rates[-1], rates[-1])


def _doubled(found: Graph, kind: Architecture) -> Graph:
    """Twice the channels at half the rate, for one thread block does not fill a fast channel."""
    spared = kind.capability > _AMPERE and found.within < _DOUBLED_SM90_FROM and found.channels > _FEW
    if found.within < _DOUBLED_FROM or spared:
        return found
    channels = min(2 * found.channels, _MOST_CHANNELS // 2)
    rate = found.within / -(-channels // found.channels)
    return Graph(channels, rate, rate)


def _tree(ring: Graph, rates: tuple[float, ...], cluster: Cluster, hosts: int) -> Graph:
    """As the ring, with up to twice the rate within hosts, where links carry it (two hosts are reckoned with that)."""
    if hosts == 1:
        return ring
    within = ring.within
    for rate in sorted(rates):
        if rate > within and within < 2 * ring.between and rate * ring.channels <= counted_nvlink(cluster.gpu):
            within = rate
    return Graph(ring.channels, within, ring.between)


def _nvls(kind: Architecture, cluster: Cluster, per_host: int, hosts: int, ring: Graph) -> Graph | None:
    """Heads on each GPU of a host, all of whose links each of them uses."""
    if kind.capability < _SM90 or per_host < 2:  # noqa: PLR2004  a pair
        return None
    heads = min(per_host, _NVLS_HEADS) if hosts == 1 else min(per_host, _NVLS_HEADS, ring.channels)
    rates = _WITHIN_SM100 if kind.capability >= _SM100 else _WITHIN_SM90
    fitting = [rate for rate in rates if rate * heads <= counted_nvlink(cluster.gpu)]
    return Graph(heads, fitting[0] if fitting else rates[-1], ring.between)
