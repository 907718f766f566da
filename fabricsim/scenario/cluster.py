"""Hosts: GPUs, NICs, CPUs, and how they are joined."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.nvlinks import NvlinkMesh, NvlinksBetween
from fabricsim.scenario.quantity import Bytes, Duration, Flops, Rate
from fabricsim.scenario.transport import Transport
from fabricsim.scenario.variation import Jitter, Numbers, Speed, Speeds

Fraction = Annotated[float, Field(ge=0.001, le=1)]
Keys = Annotated[int, Field(ge=0, le=100_000)]
Precision = Literal["fp16", "bf16", "fp32"]
Peak = Literal["fp16", "bf16", "fp32", "fp8", "mxfp8", "nvfp4"]
"""Precisions that a GPU multiplies in; the last three are those of products with weights alone."""
Size = Annotated[int, Field(ge=1, lt=2**31)]
StreamName = Literal[
    "layer norm",
    "layer norm gradient",
    "softmax",
    "softmax gradient",
    "attention dropout",
    "attention dropout gradient",
    "dropout",
    "dropout gradient",
    "bias-GELU",
    "bias-GELU gradient",
    "residual",
    "residual gradient",
    "gather",
    "gather gradient",
    "fused attention sums gradient",
]
"""Memory-bound kernels of which measured times may be given, as `fabricsim.workload.operations` names them."""


class MeasuredKernel(Spec):
    """The time of one kernel as it was measured, which takes the place of the roofline's.

    ``shape`` of a product is how many of them in one launch, rows, inner width and columns; of fused attention
    sequences times heads, queries, width of a head and keys. ``causal`` says of an attention whether a causal mask hid
    half of the keys; without it the time is that of both.
    """

    kernel: Literal["product", "attention", "attention-gradient"] = "product"
    shape: Annotated[tuple[Size, Size, Size, Size], Field(strict=False)]  # TOML has lists only
    precision: Precision
    causal: bool | None = None
    time: Duration


class MeasuredStream(Spec):
    """The time of one memory-bound kernel as it was measured: what it does, and the bytes that it reads and writes."""

    operation: StreamName
    bytes: Bytes
    time: Duration


class Gpu(Spec):
    """A GPU type and what single kernels reach on it; its library file names the measurement behind each figure.

    ``narrow_efficiency`` takes its place for products in 8 or 4 bits.
    ``gemm_efficiency`` is the share of the peak that large matrix products reach in the long run and
    ``memory_efficiency`` the share of the memory rate that streaming kernels reach. A kernel takes
    ``kernel_latency`` besides its work. With ``processors`` (streaming multiprocessors, compute units) products are
    cut into tiles: a processor computes one at ``tile_efficiency`` of its part of the peak (``gemm_efficiency`` if
    left out), and each wave of tiles costs ``tile_overhead`` besides. ``attention_forward`` and
    ``attention_backward`` are the shares of the peak of fused attention on long sequences with heads of 128 elements,
    with ``_64`` behind them those with heads of 64 (that of 128 if left out), and with ``narrow_`` before them those of
    the peak of each precision of 8 bits. Those with ``_overhead`` are the keys that a block of queries costs besides,
    by default as FlashAttention-3 on H100 (Shah et al., arXiv 2407.08608, figures 5 and 6: forward 467 TFLOPS with 512
    tokens, 648 with 16,384, backward 316 and 561).
    Kernels of passes that hide collectives take ``overlap_slowdown`` times as long in the mean
    (`fabricsim.workload.links`).
    ``memory_reserved`` is the share of the memory that a job cannot have: the CUDA context of PyTorch takes 1 GB
    (github.com/pytorch/pytorch/issues/28394, 107667), and of 78 GiB 1.8 were lost to fragmentation where a
    model filled an 80 GB card (github.com/vllm-project/compressed-tensors/pull/587, which reserves 5 %, too).
    ``staged_rate`` is what kernels of a collective store to or load from host memory per second, one direction, if that
    is less than what PCIe carries: data goes that way without GPUDirect, and through shared memory.
    With ``transposed_factors`` products in 8 bits with a scale per tensor read factors along their sum alone, so that
    gradients need them transposed; Blackwell's do not (``is_non_tn_fp8_gemm_supported`` of Transformer Engine).
    ``nvlink_efficiency`` is the share of ``nvlink_rate`` that data reaches beside the headers of its packets;
    ``nvlinks`` is how many links that is the rate of.
    ``kernels`` and ``streams`` have been measured, and take that time.
    ``nccl_start``, ``nccl_step`` and ``nccl_copy_rate`` are what NCCL's kernels of protocol Simple take over NVLink
    to begin and for each message, and the rate at which they copy out what they do not pass on; NCCL's own tables
    and half the memory's rate if left out. ``nccl_ll_start`` and ``nccl_ll_step`` are the times of protocol LL.
    """

    name: str
    peak: dict[Peak, Flops]
    memory: Bytes
    memory_reserved: Annotated[float, Field(ge=0, le=0.9)] = 0.05
    memory_rate: Rate
    gemm_efficiency: Fraction
    narrow_efficiency: dict[Peak, Fraction] = Field(default_factory=dict)
    memory_efficiency: Fraction
    kernel_latency: Duration = 0
    processors: Annotated[int, Field(ge=1, le=100_000)] | None = None
    tile_efficiency: Fraction | None = None
    tile_overhead: Duration = 0
    attention_forward: Fraction | None = None
    attention_backward: Fraction | None = None
    attention_forward_64: Fraction | None = None
    attention_backward_64: Fraction | None = None
    attention_forward_overhead: Keys = 150
    attention_backward_overhead: Keys = 300
    narrow_attention_forward: dict[Peak, Fraction] = Field(default_factory=dict)
    narrow_attention_backward: dict[Peak, Fraction] = Field(default_factory=dict)
    overlap_slowdown: Annotated[float, Field(ge=1, le=1000)] = 1.0
    transposed_factors: bool = True
    staged_rate: Rate | None = None
    nvlink_rate: Rate | None = None
    nvlinks: Annotated[int, Field(ge=1, le=64)] | None = None
    nvlink_efficiency: Fraction = 1.0
    nccl_start: Duration | None = None
    nccl_step: Duration | None = None
    nccl_copy_rate: Rate | None = None
    nccl_ll_start: Duration | None = None
    nccl_ll_step: Duration | None = None
    kernels: Annotated[tuple[MeasuredKernel, ...], Field(strict=False)] = ()
    streams: Annotated[tuple[MeasuredStream, ...], Field(strict=False)] = ()


class Pcie(Spec):
    """A PCI Express link."""

    generation: Annotated[int, Field(ge=1, le=6)]
    lanes: Literal[1, 2, 4, 8, 16] = 16


class InterruptStep(Spec):
    """One step of adaptive interrupt moderation: messages above a size wait for the interval."""

    above: Bytes
    interval: Duration


class Nic(Spec):
    """A network adapter, its slot, and what was measured with it.

    ``latency`` is one way and without the network's share; it takes the place of the transport's
    latency and send overhead. ``mpi_latency`` is that of an MPI message, ``mpi_inline_latency`` that of
    one of up to ``mpi_inline_limit`` bytes, which travels inside the work request.
    """

    name: str
    pcie: Pcie
    socket: Annotated[int, Field(ge=0)] = 0
    latency: Duration | None = None
    mpi_latency: Duration | None = None
    mpi_inline_limit: Bytes | None = None
    mpi_inline_latency: Duration | None = None
    interrupt_moderation: Annotated[tuple[InterruptStep, ...], Field(strict=False)] = ()  # TOML has lists only


class Cpu(Spec):
    """The host's processors.

    ``copy_rate`` is what one core copies in memory; ``inter_socket_rate`` is one direction of the
    link between two sockets.
    """

    name: str
    sockets: Annotated[int, Field(ge=1, le=8)] = 1
    inter_socket_rate: Rate | None = None
    copy_rate: Rate


class HostKind(Spec):
    """Hosts that are not as the others of a cluster, by number; what is left out is as there.

    A preset of a cluster may be included; how many GPUs and adapters a host has is the same in all. Two hosts with
    different ``transport`` speak that which stages in host memory, as one of them has no other.
    """

    hosts: Numbers
    name: str | None = None
    gpus_per_host: Annotated[int, Field(ge=1)] | None = None
    nics_per_host: Annotated[int, Field(ge=1)] | None = None
    gpu: Gpu | None = None
    nic: Nic | None = None
    ethernet_nic: Nic | None = None
    cpu: Cpu | None = None
    gpu_pcie: Pcie | None = None
    gpus_per_pcie_switch: Annotated[int, Field(ge=1)] | None = None
    nic_below_gpu_switch: bool | None = None
    gpudirect: bool | None = None
    intra_host: Literal["shared-memory", "pcie-p2p", "nvlink"] | None = None
    nvlinks_between: NvlinksBetween | None = None
    join: Literal["ideal", "pcie"] | None = None
    pxn: bool | None = None
    transport: Transport | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What it changes of its cluster."""
        other = {"hosts", "name", "transport"}
        return {key: value for key in self.model_fields_set - other if (value := getattr(self, key)) is not None}


class Cluster(Spec):
    """Hosts, identical but for those of ``kinds``.

    ``join`` says how a GPU reaches its NIC: ``"ideal"`` puts GPU memory on the wire without any
    host limit, ``"pcie"`` goes through the PCIe tree, the sockets and, on socket transports, the
    proxy thread. ``intra_host`` says how GPUs of one host reach each other; over NVLink a switch joins them, or
    ``nvlinks_between`` says how many links join each two directly. ``ethernet_nic`` is the
    adapter that transports of kind ``tcp`` use, where a host has one besides ``nic``.

    A host has ``nics_per_host`` adapters of type ``nic``, each with a slot and a cable of its own; NIC ``i``
    belongs to the ``i``-th ``gpus_per_host / nics_per_host`` GPUs, hangs on their socket and, with
    ``nic_below_gpu_switch``, below the PCIe switch of the first of them. A message leaves by the NIC of the
    sending GPU and enters by that of the receiving one. With ``pxn`` it leaves by the NIC of the receiver's
    rail, which another GPU of the sending host is reached for over NVLink. With ``nic_failover`` it goes by the NICs of
    another rail, at both ends over NVLink, if routing knows that its own have no way to each other any more.

    ``gpu_speed`` divides the time of the job's kernels, by rank, and ``host_speed`` that of whatever processors do, by
    host: issuing kernels, fetching batches, copying for socket transports. With ``kernel_jitter`` each stretch of
    computing between two exchanges takes a factor longer that is drawn for it; with ``host_jitter`` that of the n-th
    stretches of all ranks of a host is the same.
    """

    name: str
    hosts: Annotated[int, Field(ge=1)]
    gpus_per_host: Annotated[int, Field(ge=1)] = 1
    nics_per_host: Annotated[int, Field(ge=1)] = 1
    gpu: Gpu
    nic: Nic
    ethernet_nic: Nic | None = None
    cpu: Cpu
    join: Literal["ideal", "pcie"] = "pcie"
    gpu_pcie: Pcie = Pcie(generation=4)
    gpus_per_pcie_switch: Annotated[int, Field(ge=1)] = 1
    nic_below_gpu_switch: bool = False
    gpudirect: bool = False
    intra_host: Literal["shared-memory", "pcie-p2p", "nvlink"] = "shared-memory"
    nvlinks_between: NvlinksBetween = "switch"
    pxn: bool = False
    nic_failover: bool = False
    gpu_speed: Speed = Speeds()
    host_speed: Speed = Speeds()
    kernel_jitter: Jitter | None = None
    host_jitter: Jitter | None = None
    kinds: dict[str, HostKind] = Field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """GPUs in the cluster; rank ``r`` is GPU ``r % gpus_per_host`` of host ``r // gpus_per_host``."""
        return self.hosts * self.gpus_per_host

    @property
    def mesh(self) -> NvlinkMesh | None:
        """How many NVLinks join each two GPUs of a host; None if a switch joins them, or no NVLink."""
        count, between = self.gpus_per_host, self.nvlinks_between
        if self.intra_host != "nvlink" or between == "switch":
            return None
        if isinstance(between, int):
            return NvlinkMesh(tuple(tuple(between * (gpu != other) for other in range(count)) for gpu in range(count)))
        return NvlinkMesh(tuple(row[:count] for row in between.rows[:count]))

    @property
    def is_meshed(self) -> bool:
        """Whether there are hosts whose GPUs NVLinks join without a switch."""
        return any(variant.mesh is not None for variant in self.variants)

    @property
    def variants(self) -> tuple[Cluster, ...]:
        """Clusters of hosts of one kind: this one, and one for each of ``kinds``."""
        alike = self.model_copy(update={"kinds": {}})
        return alike, *(alike.model_copy(update=kind.changes) for kind in self.kinds.values())

    @property
    def kind_of_host(self) -> list[int]:
        """Number of the variant of each host; of several kinds that name one, the last counts."""
        found = [0] * self.hosts
        for number, kind in enumerate(self.kinds.values(), 1):
            for host in (host for place in kind.hosts for host in place.numbers):
                found[host] = number
        return found
