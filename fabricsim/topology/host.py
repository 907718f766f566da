"""Hosts: the way of a byte between GPU memory, host memory and the wire.

Without GPUDirect a GPU kernel stores into pinned host memory over PCIe, on socket transports a proxy
thread copies from there into the kernel, and the NIC reads it by DMA; the receiving side is the
mirror image. All of these are resources on the path, shared with whatever else crosses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.topology import pcie
from fabricsim.topology.resources import ResourceList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from fabricsim.scenario.cluster import Cluster
    from fabricsim.scenario.nvlinks import NvlinkMesh

Hop = tuple[int, float]
"""A resource and the units of it that a payload byte costs."""

THREAD = "proxy thread"
PCIE = "PCIe"
STAGING = "staging by kernels"
SOCKET = "inter-socket"
NVLINK = "NVLink"
MEMORY = "memory"

_FIRST = "host0"  # what the names of the first host's resources begin with


def nic_of(gpu: int, gpus: int, nics: int) -> int:
    """Give the number of a GPU's NIC, on a host of so many of both."""
    return gpu * nics // gpus


@dataclass(frozen=True)
class ProtocolCosts:
    """What a payload byte costs on its way.

    `wire`: wire bytes per payload byte: headers, framing and adapter efficiency.
    `send_copy`, `receive_copy`: CPU seconds per payload byte of the thread that moves the data; zero if the NIC does.
    `packet`: wire bytes of a full packet, for store-and-forward switches.
    `staged`: whether data passes through host memory even with GPUDirect.
    `proxy_threads`: threads of a GPU's process that share its copying.
    `host`: share of what the PCIe links of hosts carry by their packets that transfers reach.
    """

    wire: float
    send_copy: float
    receive_copy: float
    packet: int
    staged: bool
    proxy_threads: int = 1
    host: float = 1.0


@dataclass(frozen=True)
class Lanes:
    """Both directions of one PCIe link: towards the root complex and away from it."""

    up: int
    down: int

    def hops(self, cost: pcie.Cost) -> Iterator[Hop]:
        """Yield the hops of an access of that cost."""
        if cost.up:
            yield self.up, cost.up
        if cost.down:
            yield self.down, cost.down


@dataclass
class HostPorts:
    """The resources of one host, and the ways over them between its GPUs, its memory and the wire.

    ``staging`` is what the few thread blocks of a collective's kernel store and load, if that is known.
    GPUs are given by their number in the host, its memory as None. ``gpu``, ``switch`` and ``socket`` are indexed by
    the GPU's number, those of NICs by the NIC's; ``threads`` are those of the GPUs, and the last is the memory's.
    ``nvlink`` is what each GPU has to and from their switch, ``direct`` what it has to each other one without a switch.
    """

    gpus: int
    nics: int
    intra_host: str
    ideal: bool
    gpudirect: bool
    gpu: list[Lanes] = field(default_factory=list)
    switch: list[Lanes | None] = field(default_factory=list)
    socket: list[int] = field(default_factory=list)
    nic: list[Lanes] = field(default_factory=list)
    nic_socket: list[int] = field(default_factory=list)
    nic_switch: list[Lanes | None] = field(default_factory=list)
    between_sockets: dict[tuple[int, int], int] = field(default_factory=dict)
    nvlink: list[Lanes] = field(default_factory=list)
    mesh: NvlinkMesh | None = None
    direct: dict[tuple[int, int], int] = field(default_factory=dict)
    memory: list[Lanes] = field(default_factory=list)
    staging: list[Lanes] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def _gpu_hops(self, gpu: int, cost: pcie.Cost) -> Iterator[Hop]:
        yield from self.gpu[gpu].hops(cost)
        switch = self.switch[gpu]
        if switch is not None:
            yield from switch.hops(cost)

    def _staged(self, gpu: int, cost: pcie.Cost) -> Iterator[Hop]:
        """List the hops of a kernel's store to host memory, or load from there."""
        if self.staging:
            lanes = self.staging[gpu]
            yield (lanes.up if cost is pcie.GPU_STORE else lanes.down), 1.0
        yield from self._gpu_hops(gpu, cost)

    def _nic_hops(self, nic: int, cost: pcie.Cost) -> Iterator[Hop]:
        yield from self.nic[nic].hops(cost)
        switch = self.nic_switch[nic]
        if switch is not None:
            yield from switch.hops(cost)

    def _direct(self, gpu: int, cost: pcie.Cost, crossing: Iterator[Hop]) -> list[Hop]:
        """List the hops of an access of the GPU's NIC to its memory.

        Below one switch it turns round there and does not climb to the root complex.
        """
        memory, nic = pcie.mirrored(cost), self._nic_of(gpu)
        if self.nic_switch[nic] is not None and self.switch[gpu] == self.nic_switch[nic]:
            return [*self.gpu[gpu].hops(memory), *self.nic[nic].hops(cost)]
        return [*self._gpu_hops(gpu, memory), *crossing, *self._nic_hops(nic, cost)]

    def _cross(self, source: int, target: int) -> Iterator[Hop]:
        if source != target and (source, target) in self.between_sockets:
            yield self.between_sockets[source, target], 1.0

    def _thread(self, gpu: int | None, seconds_per_byte: float) -> Iterator[Hop]:
        if seconds_per_byte:
            yield self.threads[-1 if gpu is None else gpu], seconds_per_byte

    def _nic_of(self, gpu: int) -> int:
        return nic_of(gpu, self.gpus, self.nics)

    def own_nic(self, gpu: int | None) -> int:
        """Give the number of a GPU's NIC, or that of the memory's: 0."""
        return 0 if gpu is None else self._nic_of(gpu)

    def leave(self, gpu: int | None, copy: float, *, staged: bool, nic: int | None = None) -> list[Hop]:
        """List the hops from a GPU's memory, or the host's, onto the wire, by its own NIC or another of the host."""
        if gpu is not None and nic is not None and nic != self._nic_of(gpu):
            # NCCL's PXN: the data is written to a GPU of that NIC, which sends it (src/graph/paths.cc)
            gateway = nic * self.gpus // self.nics
            return [*self.within(gpu, gateway), *self.leave(gateway, copy, staged=staged)]
        if self.ideal:
            return list(self._thread(gpu, copy))
        if gpu is None:
            return [*self._thread(gpu, copy), *self._nic_hops(nic or 0, pcie.DMA_READ)]
        own = self._nic_of(gpu)
        crossing = self._cross(self.socket[gpu], self.nic_socket[own])
        if self.gpudirect and not staged:
            return self._direct(gpu, pcie.DMA_READ, crossing)
        stores = self._staged(gpu, pcie.GPU_STORE)
        return _merged([*stores, *crossing, *self._thread(gpu, copy), *self._nic_hops(own, pcie.DMA_READ)])

    def enter(self, gpu: int | None, copy: float, *, staged: bool, nic: int | None = None) -> list[Hop]:
        """List the hops from the wire into a GPU's memory, or the host's, by its own NIC or another of the host."""
        if gpu is not None and nic is not None and nic != self._nic_of(gpu):
            gateway = nic * self.gpus // self.nics
            return [*self.enter(gateway, copy, staged=staged), *self.within(gateway, gpu)]
        if self.ideal:
            return list(self._thread(gpu, copy))
        if gpu is None:
            return [*self._nic_hops(nic or 0, pcie.DMA_WRITE), *self._thread(gpu, copy)]
        own = self._nic_of(gpu)
        crossing = self._cross(self.nic_socket[own], self.socket[gpu])
        if self.gpudirect and not staged:
            return self._direct(gpu, pcie.DMA_WRITE, crossing)
        loads = self._staged(gpu, pcie.GPU_LOAD)
        return _merged([*self._nic_hops(own, pcie.DMA_WRITE), *crossing, *self._thread(gpu, copy), *loads])

    def within(self, here: int | None, there: int | None) -> list[Hop]:
        """List the hops from one GPU's memory to another's, or to or from the host's."""
        if here is None or there is None:
            pair = [gpu for gpu in (here, there) if gpu is not None]
            return [hop for gpu in pair for hop in self._to_host_memory(gpu, stores=here is not None)]
        if way := self._over_nvlinks(here, there):
            return way
        if self.ideal:
            return [(self.memory[here].up, 1.0), (self.memory[there].down, 1.0)]
        crossing = self._cross(self.socket[here], self.socket[there])
        if self.intra_host == "pcie-p2p":
            written = pcie.mirrored(pcie.GPU_STORE)
            if self.switch[here] is not None and self.switch[here] == self.switch[there]:
                return [*self.gpu[here].hops(pcie.GPU_STORE), *self.gpu[there].hops(written)]
            return _merged([*self._gpu_hops(here, pcie.GPU_STORE), *crossing, *self._gpu_hops(there, written)])
        stores = self._staged(here, pcie.GPU_STORE)
        return _merged([*stores, *crossing, *self._staged(there, pcie.GPU_LOAD)])

    def _over_nvlinks(self, here: int, there: int) -> list[Hop]:
        """List the hops over NVLinks; none if they do not lead there.

        Without a switch they go by way of one GPU if need be, as NCCL's do (``PATH_NVB``, src/graph/paths.cc).
        """
        if self.nvlink:
            return [(self.nvlink[here].up, 1.0), (self.nvlink[there].down, 1.0)]
        if (here, there) in self.direct:
            return [(self.direct[here, there], 1.0)]
        between = self.mesh.between(here, there) if self.mesh is not None else None
        return [] if between is None else [(self.direct[here, between], 1.0), (self.direct[between, there], 1.0)]

    def _to_host_memory(self, gpu: int, *, stores: bool) -> list[Hop]:
        if self.ideal:
            lanes = self.memory[gpu]
            return [(lanes.up if stores else lanes.down, 1.0)]
        return list(self._gpu_hops(gpu, pcie.GPU_STORE if stores else pcie.GPU_LOAD))


def _merged(hops: list[Hop]) -> list[Hop]:
    """Each resource once, costs added: a flow crosses a shared switch uplink twice but lists it once."""
    costs: dict[int, float] = {}
    for resource, cost in hops:
        costs[resource] = costs.get(resource, 0.0) + cost
    return list(costs.items())


def _lanes(resources: ResourceList, name: str, kind: str, capacity: float) -> Lanes:
    return Lanes(resources.add(f"{name}/up", kind, capacity), resources.add(f"{name}/down", kind, capacity))


def _build_pcie(cluster: Cluster, name: str, ports: HostPorts, resources: ResourceList, share: float) -> None:
    rate = pcie.capacity(cluster.gpu_pcie) * share
    shared = cluster.gpus_per_pcie_switch
    switches: dict[int, Lanes] = {}
    for gpu in range(cluster.gpus_per_host):
        ports.gpu.append(_lanes(resources, f"{name}/gpu{gpu}/pcie", PCIE, rate))
        if shared > 1 and gpu // shared not in switches:
            switches[gpu // shared] = _lanes(resources, f"{name}/pcie-switch{gpu // shared}", PCIE, rate)
        ports.switch.append(switches.get(gpu // shared))
        # A switch hangs on one socket, and so do all GPUs below it.
        ports.socket.append(gpu // shared * cluster.cpu.sockets // (cluster.gpus_per_host // shared))
    several = cluster.nics_per_host > 1
    for nic in range(cluster.nics_per_host):
        label = f"{name}/nic{nic}/pcie" if several else f"{name}/nic/pcie"
        ports.nic.append(_lanes(resources, label, PCIE, pcie.capacity(cluster.nic.pcie) * share))
        first = nic * cluster.gpus_per_host // cluster.nics_per_host
        ports.nic_socket.append(ports.socket[first] if several else cluster.nic.socket)
        ports.nic_switch.append(ports.switch[first] if cluster.nic_below_gpu_switch else None)
    if cluster.cpu.inter_socket_rate is not None:
        for here in range(cluster.cpu.sockets):
            for there in range(cluster.cpu.sockets):
                if here != there:
                    ports.between_sockets[here, there] = resources.add(
                        f"{name}/socket{here}->socket{there}", SOCKET, cluster.cpu.inter_socket_rate
                    )


def _build_nvlinks(cluster: Cluster, gpu: int, ports: HostPorts, resources: ResourceList) -> None:
    """Add what a GPU has to the switch of its host, or to the other GPUs."""
    if cluster.gpu.nvlink_rate is None or cluster.intra_host != "nvlink":
        return
    usable = cluster.gpu.nvlink_rate * cluster.gpu.nvlink_efficiency
    if ports.mesh is None:
        ports.nvlink.append(_lanes(resources, f"{_FIRST}/gpu{gpu}/nvlink", NVLINK, usable))
        return
    for other, links in enumerate(ports.mesh.rows[gpu]):
        if links:
            share = links / (cluster.gpu.nvlinks or links)
            ports.direct[gpu, other] = resources.add(f"{_FIRST}/gpu{gpu}/nvlink/gpu{other}", NVLINK, usable * share)


def _build_host(cluster: Cluster, resources: ResourceList, proxy_threads: int, pcie_share: float) -> HostPorts:
    ideal = cluster.join == "ideal"
    ports = HostPorts(
        cluster.gpus_per_host, cluster.nics_per_host, cluster.intra_host, ideal, cluster.gpudirect, mesh=cluster.mesh
    )
    for gpu in range(cluster.gpus_per_host):
        ports.threads.append(resources.add(f"{_FIRST}/gpu{gpu}/proxy", THREAD, float(proxy_threads)))
        _build_nvlinks(cluster, gpu, ports, resources)
        if cluster.gpu.staged_rate is not None and not ideal:
            ports.staging.append(_lanes(resources, f"{_FIRST}/gpu{gpu}/staging", STAGING, cluster.gpu.staged_rate))
        if ideal:
            ports.memory.append(_lanes(resources, f"{_FIRST}/gpu{gpu}/memory", MEMORY, cluster.gpu.memory_rate))
    ports.threads.append(resources.add(f"{_FIRST}/cpu", THREAD, float(proxy_threads)))
    if not ideal:
        _build_pcie(cluster, _FIRST, ports, resources, pcie_share)
    return ports


class HostKinds(NamedTuple):
    """Kinds of hosts.

    `hosts`: what a host of each kind is made of, and what its transport adds per byte.
    `kind`: number of the kind of each host.
    """

    hosts: tuple[tuple[Cluster, ProtocolCosts], ...]
    kind: list[int]

    def spoken(self, kinds: Iterable[int]) -> int:
        """Give the kind whose transport hosts of some kinds speak: one that stages in host memory, else the first."""
        several = list(kinds)
        return next((kind for kind in several if self.hosts[kind][1].staged), several[0])


class Hosts:
    """The hosts of a cluster: one of each kind, of which all others are copies.

    `kinds`: kinds of hosts, and that of each.
    `speed`: of the processors of each host, relative to what its transport says of them, shape ``(hosts,)``.
    `resources`: those of all hosts are entered here, host by host.
    `ports`: of each kind; its resources are counted from the first of a host.
    `kind`: number of the kind of each host.
    `first`: number of the first resource of each.
    """

    def __init__(self, kinds: HostKinds, speed: NDArray[np.float64], resources: ResourceList) -> None:
        own = [ResourceList() for _ in kinds.hosts]
        threads = max(costs.proxy_threads for _, costs in kinds.hosts)
        self.ports = [
            _build_host(cluster, each, threads, costs.host)
            for each, (cluster, costs) in zip(own, kinds.hosts, strict=True)
        ]
        self.kind = kinds.kind
        self.first: list[int] = []
        for host, (which, factor) in enumerate(zip(self.kind, speed.tolist(), strict=True)):
            self.first.append(len(resources.names))
            resources.copy(own[which], _FIRST, f"host{host}", {THREAD: factor})

    def of(self, host: int, hops: Iterable[Hop]) -> list[Hop]:
        """Give the hops in a host that are some of its kind's."""
        first = self.first[host]
        return [(first + resource, cost) for resource, cost in hops]
