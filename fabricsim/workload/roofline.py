"""Compute times of kernels: a roofline that knows tiles, waves, power and latency.

Nothing here is fitted to an iteration time. The parameters of a GPU come from measurements of single
kernels, whose sources stand in its library file.

**Products.** A library such as cuBLAS cuts the result into tiles, each of which one processor computes (a
streaming multiprocessor, a compute unit), so that all processors are busy for a whole number of waves; the
last wave takes as long as a full one (NVIDIA, Matrix Multiplication Background User's Guide). Of the tile
sizes listed there, and of cutting the inner dimension in up to eight, the fastest is taken. One wave of
``m x n`` tiles takes ``2 m n inner / (peak / processors * tile_efficiency)`` and ``tile_overhead``; tiles
below 128 x 128 load more per product and lose the root of that. Results leave for memory while nothing is
computed. Large products heat the chip until its clock falls, so that none is faster on the whole than
``gemm_efficiency`` of the peak, nor than memory allows. A buffer that results are added to is read and written behind
all this (``Operation.added``).

**Fused attention** reaches ``attention_forward`` or ``attention_backward`` of the peak on long sequences with heads
of 128 elements or more, and ``attention_forward_64`` or ``attention_backward_64`` with heads of 64: each pair of a
query and a key costs an exponential, whatever the width of its head. Between both the time of a pair grows evenly. In
8 bits (``narrow_attention_forward`` or ``narrow_attention_backward`` with heads of 128) it takes as long as in 16 with
heads of 64, and grows more slowly beyond 128. A block of queries starts and ends at the cost of more keys,
``attention_forward_overhead`` or ``attention_backward_overhead``, and under a causal mask computes half a block on its
diagonal for nothing, with a window another half where it begins.

**Scans** of Mamba-2 take as long as memory or their FLOPs at `SCAN_RATE` per processor, whichever is longer.

**All else** streams through memory at ``memory_efficiency`` of its rate, with random numbers or exponentials at
`FUNCTION_SHARE` of that, behind a Hadamard transform at `HADAMARD_SHARE`.

To each of them comes ``kernel_latency``, in which a kernel starts and drains. Kernels are issued ahead of
their execution, one per ``kernel_launch``: a row of kernels takes as long as they run, or as they take to issue. In
passes the host is followed kernel by kernel (`fabricsim.workload.issue`).
Kernels that were measured (``kernels`` and ``streams`` of the GPU) take the measured time.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fabricsim.scenario.cluster import Gpu, Precision
from fabricsim.scenario.job import KERNEL_LAUNCH, Job
from fabricsim.units import PS_PER_S
from fabricsim.workload.attention import BACKWARD_PRODUCTS, PRODUCTS, is_windowed
from fabricsim.workload.issue import Span, kernel, row
from fabricsim.workload.measured import measured_times
from fabricsim.workload.tape import FP32, PRECISION_BYTES
from fabricsim.workload.work import Kernel, Level, Operation

TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
"""Rows and columns of the tiles of cuBLAS (NVIDIA, Matrix Multiplication Background User's Guide)."""

SPLITS = (1, 2, 4, 8)
"""Parts into which the inner dimension is cut where a result has few tiles."""

FUNCTION_SHARE = 0.8
"""Share of the rate of plain copies that kernels with random numbers or exponentials reach.

On an A100 40 GB dropout of 268 million scores takes 1.2 ms and GELU with bias of 134 million elements 0.5 ms, 0.82 and
0.78 of the rate of copies (github.com/EleutherAI/cookbook, benchmarks/sizing/sample_results/transformer.out).
"""

HADAMARD_SHARE = 0.6
"""Share of that rate of kernels that turn elements into NVFP4, behind the pass for the scale of the tensor.

Calibrated on 24 factors of products on B300, 2.5 billion elements, 1.5 billion of them in both layouts: 2.69 ms, the
difference of the tables with and without quantisation (NVIDIA/TransformerEngine@8f2e635, docs/examples/gemm_profiling).
"""

SCATTER_RATE = 0.25e12
"""Bytes/s of rows in 16 bits that PyTorch adds up in each other's place, atomically, and of their sums.

Two rows of 4,096 elements for each of 2,048 tokens, weighted and added up by ``scatter_add_``, take 0.20 ms on H200, a
tenth of what memory would allow (tile-ai/TileOPs, pull request 608, column "PyTorch-vec"). U: as fast on other GPUs.
"""

SCAN_RATE: dict[Kernel, float] = {"scan": 0.71e12, "scan-gradient": 0.215e12}
"""FLOP/s of a processor in kernels with products of Mamba-2, and in those of their gradients.

Their decays, and not their products, bound them: they are as fast on H200 as on GB200, whose products are 2.5 times as
fast. Calibrated on the forward pass of mamba_ssm's kernels on H100, 128 heads of 64 with one group of 128 columns, in
chunks of 256: 12.1 to 12.9 million tokens/s with 4,096 to 16,384 of them (vllm-project/vllm, pull request 27299, column
"Original"). Gradients are calibrated on training of a model of Mamba-2 with 1.3 billion parameters, 239.2 TFLOP/s on
H200 and 360.4 on GB200 (state-spaces/mamba, issue 904), less all else that is modelled. U: these are 6 FLOPs for each
parameter and token; other GPUs are as these, though A100 reaches half of it in that table.
"""

_QUERY_BLOCK = 128
_SLIM_HEAD, _WIDE_HEAD = 64, 128  # elements, of tables of fused attention
# Share of the time of a pair in 8 bits with heads of 128 that grows with the width of heads, by cuDNN 9.22 in MXFP8 on
# GB300 with 16,384 tokens (NVIDIA/cudnn-frontend@60e572b, benchmark/sdpa_benchmark_training/results: llama3.1, dsv3)
_FORWARD_GROWS, _BACKWARD_GROWS = 0.55, 0.34


def operations_time(operations: Sequence[Operation], job: Job, gpu: Gpu) -> int:
    """Time of kernels that run one after the other without waiting for anything else, ps.

    Raises KeyError if the GPU has no peak for the job's precision (`JobPlan` checks that first).
    """
    running = sum(_device_times(operations, job, gpu))
    return max(running, sum(host_time(operation, job) for operation in operations))


def rows_time(items: Iterable[Operation | Level], job: Job, gpu: Gpu) -> int:
    """Time of rows of kernels, ps, between which the host waits for the GPU; see `operations_time`."""
    rows = itertools.groupby(items, lambda item: isinstance(item, Operation))
    return sum(operations_time([item for item in row if isinstance(item, Operation)], job, gpu) for _, row in rows)


def kernels_span(operations: Sequence[Operation], job: Job, gpu: Gpu) -> Span:
    """Put kernels that follow one another in a row; see `operations_time`."""
    times = _device_times(operations, job, gpu)
    return row(kernel(time, host_time(operation, job)) for time, operation in zip(times, operations, strict=True))


def host_time(operation: Operation, job: Job) -> int:
    """Time that the host takes to issue an operation, ps."""
    recorded = min(job.kernel_launch, KERNEL_LAUNCH["graph"])
    return (recorded if operation.recorded else job.kernel_launch) + operation.more


def _device_times(operations: Sequence[Operation], job: Job, gpu: Gpu) -> Iterator[int]:
    known = measured_times(gpu.kernels, gpu.streams)
    for operation in operations:
        measured = known.of(operation, job.precision) if known and not operation.narrow else None
        yield roofline_time(operation, job.precision, gpu) if measured is None else measured


def roofline_time(operation: Operation, precision: Precision, gpu: Gpu) -> int:
    """Time that a kernel runs by its work, ps, whatever was measured.

    Raises KeyError if the GPU has no peak for the precision.
    """
    traffic = operation.traffic - operation.added + (operation.transposed if gpu.transposed_factors else 0)
    rate = gpu.memory_rate * gpu.memory_efficiency
    memory = traffic / rate
    if operation.kernel == "stream":
        busy = memory
    elif operation.kernel == "function":
        busy = memory / FUNCTION_SHARE
    elif operation.kernel == "hadamard":
        busy = memory / HADAMARD_SHARE
    elif operation.kernel == "scatter":
        busy = max(memory, operation.traffic / SCATTER_RATE)
    elif operation.kernel in SCAN_RATE:
        busy = max(memory, operation.flops / (SCAN_RATE[operation.kernel] * (gpu.processors or 1)))
    elif operation.kernel == "product":
        busy = max(memory, _product(operation, precision, gpu)) + operation.added / rate
    else:
        busy = max(memory, _attention(operation, precision, gpu))
    return max(round(busy * PS_PER_S), operation.least) + operation.kernels * gpu.kernel_latency


def _product(operation: Operation, precision: Precision, gpu: Gpu) -> float:
    """Time of products without memory's bound and latency, s."""
    peak = gpu.peak[operation.narrow or precision]
    large = gpu.narrow_efficiency.get(operation.narrow or precision, gpu.gemm_efficiency)
    sustained = operation.flops / (peak * large)
    if gpu.processors is None or operation.shape is None:
        return sustained
    left = max(gpu.processors - operation.held, 1)
    machine = _Machine(
        peak * left / gpu.processors,
        left,
        (gpu.tile_efficiency or gpu.gemm_efficiency) * large / gpu.gemm_efficiency,
        gpu.tile_overhead / PS_PER_S,
        gpu.memory_rate * gpu.memory_efficiency,
    )
    return max(sustained, _tiled(operation.shape, PRECISION_BYTES[precision], machine))


class _Machine(NamedTuple):
    """What the time of tiles hangs on: FLOP/s, processors, efficiency of a large tile, s per wave, bytes/s."""

    peak: float
    processors: int
    efficiency: float
    overhead: float
    memory: float


@lru_cache(maxsize=4096)  # few shapes come again in each layer, stage and micro-batch, and in each run of a sweep
def _tiled(shape: tuple[int, int, int, int], width: int, machine: _Machine) -> float:
    """Time of products cut into tiles in the way that is fastest, s."""
    return min(_cut(shape, tile, splits, width, machine) for tile, splits in itertools.product(TILES, SPLITS))


def _cut(shape: tuple[int, int, int, int], tile: tuple[int, int], splits: int, width: int, machine: _Machine) -> float:
    """Time of products cut into given tiles, s."""
    batch, rows, inner, columns = shape
    tiles = batch * -(-rows // tile[0]) * -(-columns // tile[1]) * splits
    loads = 64 * (1 / tile[0] + 1 / tile[1])  # per product, of those of 128 x 128
    efficiency = machine.efficiency / math.sqrt(max(1.0, loads))
    wave = 2 * tile[0] * tile[1] * -(-inner // splits) / (machine.peak * efficiency / machine.processors)
    written = batch * rows * columns * (width if splits == 1 else width + 2 * splits * FP32)
    waves = -(-tiles // machine.processors)
    return waves * (wave + machine.overhead) + written / machine.memory


def _attention(operation: Operation, precision: Precision, gpu: Gpu) -> float:
    """Time of fused attention without memory's bound and latency, s."""
    batch, queries, head, keys = operation.shape or (1, 1, 1, 1)
    forward = operation.kernel == "attention"
    products, overhead = (
        (PRODUCTS, gpu.attention_forward_overhead) if forward else (BACKWARD_PRODUCTS, gpu.attention_backward_overhead)
    )
    seen = operation.flops / (products * 2 * batch * queries * head)  # keys of the mean query
    diagonal = _QUERY_BLOCK // 2 if seen < keys else 0
    if is_windowed(operation):
        diagonal = _QUERY_BLOCK
    blocks = batch * -(-queries // _QUERY_BLOCK)
    processors = gpu.processors or 1
    idle = processors / min(max(processors - operation.held, 1), blocks)
    return idle * operation.flops * (1 + (overhead + diagonal) / seen) * _attention_flop(operation, precision, gpu)


def _attention_flop(operation: Operation, precision: Precision, gpu: Gpu) -> float:
    """Time of an operation of fused attention on long sequences, s, by the width of heads."""
    head = (operation.shape or (1, 1, 1, 1))[2]
    forward = operation.kernel == "attention"
    wide, slim, eight, grows = (
        (gpu.attention_forward, gpu.attention_forward_64, gpu.narrow_attention_forward, _FORWARD_GROWS)
        if forward
        else (gpu.attention_backward, gpu.attention_backward_64, gpu.narrow_attention_backward, _BACKWARD_GROWS)
    )
    share = wide or gpu.gemm_efficiency
    if operation.narrow:
        share = eight.get(operation.narrow, gpu.gemm_efficiency)
    at_128 = 1 / (gpu.peak[operation.narrow or precision] * share)
    if head >= _WIDE_HEAD:
        return at_128 * (1 - grows + grows * head / _WIDE_HEAD) * _WIDE_HEAD / head if operation.narrow else at_128
    if slim is None:
        return at_128
    pair, wide_pair = _SLIM_HEAD / (gpu.peak[precision] * slim), _WIDE_HEAD * at_128
    return (pair + (wide_pair - pair) * max(head - _SLIM_HEAD, 0) / (_WIDE_HEAD - _SLIM_HEAD)) / head
