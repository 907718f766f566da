"""What a ring may carry through the PCIe links of a host, as NCCL reckons."""

from collections import defaultdict
from collections.abc import Mapping

from fabricsim.scenario.cluster import Cluster, Pcie

_PER_LANE = {1: 0.1875, 2: 0.375, 3: 0.75, 4: 1.5, 5: 3.0, 6: 6.0}  # E: GB/s; ncclTopoAddPci, 12 for 16 lanes of PCIe 3
SOCKETS = 10.0  # E: SKL_QPI_BW, src/graph/topo.h: Intel, Skylake on
_Link = tuple[str, int, str]
_INTEL_P2P = 1.2  # E: INTEL_P2P_OVERHEAD: Intel CPUs pass GPU to GPU traffic on in packets of 64 bytes


def slot_rate(pcie: Pcie) -> float:
    """Give what NCCL takes a slot for, one direction, GB/s."""
    return _PER_LANE[pcie.generation] * pcie.lanes


_OLD_SOCKETS, _OLD_INTEL_P2P = 9.0, 12 / 9  # E: SKL_QPI_WIDTH and INTEL_P2P_OVERHEAD, src/graph/topo.h before 2.8
DIRECT_BEFORE = (2, 8)
"""Version before which the search takes GPUs to reach each other directly, whatever they do then.

E: in the logs of 2.6.4 on GPUs that cannot, "Could not enable P2P" follows the search, and data goes by host memory.
U: from which version on the search knows.
"""


def direct_ring_load(cluster: Cluster, per_host: int, hosts: int) -> float:
    """Give the rate as `ring_load`, of GPUs taken to reach each other directly, with the constants before 2.8."""
    direct = cluster.model_copy(update={"intra_host": "pcie-p2p"})
    load = _load(direct, per_host, hosts, _OLD_INTEL_P2P)
    return _narrowest(load, cluster, _OLD_SOCKETS)


def ring_load(cluster: Cluster, per_host: int, hosts: int) -> float:
    """Rate of a ring over the first GPUs of a host, in PCI order, that fills its narrowest link, GB/s."""
    return _narrowest(_load(cluster, per_host, hosts, _INTEL_P2P), cluster, SOCKETS)


def _load(cluster: Cluster, per_host: int, hosts: int, through_cpu: float) -> dict[_Link, float]:
    load: dict[_Link, float] = defaultdict(float)
    for gpu in range(per_host):
        if gpu + 1 < per_host or hosts == 1:
            _add(load, cluster, gpu, (gpu + 1) % per_host, through_cpu)
    if hosts > 1:
        _to_nic(load, cluster, per_host - 1, "up")
        _to_nic(load, cluster, 0, "down")
    return load


def _narrowest(load: Mapping[_Link, float], cluster: Cluster, sockets: float) -> float:
    capacity = {"gpu": slot_rate(cluster.gpu_pcie), "switch": slot_rate(cluster.gpu_pcie), "socket": sockets}
    capacity["nic"] = slot_rate(cluster.nic.pcie)
    return min((capacity[kind] / used for (kind, _, _), used in load.items()), default=float("inf"))


def _add(load: dict[_Link, float], cluster: Cluster, source: int, target: int, through_cpu: float) -> None:
    """Load of one GPU's sending to another of its host."""
    shared = cluster.gpus_per_pcie_switch
    load["gpu", source, "up"] += 1
    load["gpu", target, "down"] += 1
    direct = cluster.intra_host == "pcie-p2p"
    if direct and shared > 1 and source // shared == target // shared:
        return
    here, there = socket_of(cluster, source), socket_of(cluster, target)
    cost = through_cpu if direct and here == there else 1  # E: followPath, src/graph/search.cc: PATH_PHB alone
    if shared > 1:
        load["switch", source // shared, "up"] += cost
        load["switch", target // shared, "down"] += cost
    if here != there:
        load["socket", here, str(there)] += cost


def _to_nic(load: dict[_Link, float], cluster: Cluster, gpu: int, way: str) -> None:
    shared = cluster.gpus_per_pcie_switch
    load["gpu", gpu, way] += 1
    load["nic", 0, way] += 1
    if cluster.nic_below_gpu_switch:
        return
    if shared > 1:
        load["switch", gpu // shared, way] += 1
    if socket_of(cluster, gpu) != cluster.nic.socket and getattr(cluster, "nics_per_host", 1) == 1:
        load["socket", 0, f"nic {way}"] += 1


def socket_of(cluster: Cluster, gpu: int) -> int:
    """Give the socket that a GPU of a host hangs on."""
    shared = cluster.gpus_per_pcie_switch
    return gpu // shared * cluster.cpu.sockets // max(1, cluster.gpus_per_host // shared)
