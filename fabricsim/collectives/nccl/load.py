"""What a ring may carry through the PCIe links of a host, as NCCL reckons."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabricsim.spec.cluster import Cluster, Pcie

_PER_LANE = {1: 0.1875, 2: 0.375, 3: 0.75, 4: 1.5, 5: 3.0, 6: 6.0}  # E: GB/s; ncclTopoAddPci, 12 for 16 lanes of PCIe 3
SOCKETS = 10.0  # E: SKL_QPI_BW, src/graph/topo.h: Intel, Skylake on
_Link = tuple[str, int, str]
_INTEL_P2P = 1.2  # E: INTEL_P2P_OVERHEAD: Intel CPUs pass GPU to GPU traffic on in packets of 64 bytes


def slot_rate(pcie: Pcie) -> float:
    """Give what NCCL takes a slot for, one direction, GB/s."""
    return _PER_LANE[pcie.generation] * pcie.lanes


def ring_load(cluster: Cluster, per_host: int, hosts: int) -> float:
    """Rate of a ring over the first GPUs of a host, in PCI order, that fills its narrowest link, GB/s."""
    load: dict[_Link, float] = defaultdict(float)
    for gpu in range(per_host):
        if gpu + 1 < per_host or hosts == 1:
            _add(load, cluster, gpu, (gpu + 1) % per_host)
    if hosts > 1:
        _to_nic(load, cluster, per_host - 1, "up")
        _to_nic(load, cluster, 0, "down")
    capacity = {"gpu": slot_rate(cluster.gpu_pcie), "switch": slot_rate(cluster.gpu_pcie), "socket": SOCKETS}
    capacity["nic"] = slot_rate(cluster.nic.pcie)
    return min((capacity[kind] / used for (kind, _, _), used in load.items()), default=float("inf"))


def _add(load: dict[_Link, float], cluster: Cluster, source: int, target: int) -> None:
    """Load of one GPU's sending to another of its host."""
    shared = cluster.gpus_per_pcie_switch
    load["gpu", source, "up"] += 1
    load["gpu", target, "down"] += 1
    direct = cluster.intra_host == "pcie-p2p"
    if direct and shared > 1 and source // shared == target // shared:
        return
    cost = _INTEL_P2P if direct else 1
    if shared > 1:
        load["switch", source // shared, "up"] += cost
        load["switch", target // shared, "down"] += cost
    here, there = socket_of(cluster, source), socket_of(cluster, target)
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
