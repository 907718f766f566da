"""The kernels and exchanges of a block as they are recorded: each step forward with its way back.

Matrix products with weights are split over the tensor-parallel ranks as in Megatron-LM (Shoeybi et al.,
arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.2):

============== ============================ =====================================================
product        forward                      backward
============== ============================ =====================================================
column, TP     product                      input gradient, its all-reduce beside the weight gradient
row, TP        product, all-reduce          input gradient, weight gradient
column, TP+SP  all-gather, product          all-gather of the input beside the input gradient, then its
                                            reduce-scatter beside the weight gradient
row, TP+SP     product, reduce-scatter      all-gather, input gradient, weight gradient
============== ============================ =====================================================

What lies beside what is that of ``LinearWithGradAccumulationAndAsyncCommunication`` in Megatron-LM. Before it had
that (``tensor_overlap = false``), the all-reduce of the input gradient came behind the weight gradient.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from fabricsim.scenario.job import KERNEL_LAUNCH, Job
from fabricsim.workload.adapters import TARGETS, trained
from fabricsim.workload.kinds import LAYERS
from fabricsim.workload.separate import Elementwise, in_place_of
from fabricsim.workload.work import MASK, Exchange, Item, Kernel, Narrow, Operation, Pass, Wait, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabricsim.workload.program import CollectiveName
    from fabricsim.workload.shapes import Block

PRECISION_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Bytes per element."""

NARROW_BYTES = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes per element with the scales of blocks: one byte for 32 of MXFP8, for 16 of NVFP4 (Open Compute Project,
Microscaling Formats 1.0; NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149)."""

_QUANTISES: dict[Narrow, Kernel] = {"mxfp8": "function", "nvfp4": "hadamard"}

FP32 = 4

EXPERT_LAUNCH = 33_400_000
"""Time of the host for the product of one expert, ps, where Transformer Engine hands cuBLAS one after the other.

Eight of 128 tokens, 2048 x 2048, take 267 us on Blackwell, of which a single kernel for all needs 69 (NVIDIA/
TransformerEngine, pull request 3134, row "pure").
"""


def decoder_sequence(job: Job) -> int:
    """Tokens per sequence in the decoder of a T5: the encoder's where the job does not say."""
    return job.decoder_sequence if job.decoder_sequence is not None else job.sequence


def gradient_bytes(job: Job) -> int:
    """Bytes per element of the gradient buffer: `gradient_precision`, or `precision` without it."""
    return PRECISION_BYTES[job.gradient_precision or job.precision]


def gathered_width(block: Block, job: Job) -> int:
    """Bytes per parameter of a block that is gathered; in 8 bits a tensor has one scale."""
    return 1 if job.narrow_gathers and block.kind in LAYERS and block.narrow else PRECISION_BYTES[job.precision]


class Tape:
    """Collects what a rank does in a block.

    `job`: gives the precision and the parallelism.
    `width`: bytes per element of activations.
    `forward`: items of the forward pass so far.
    `stored`: bytes kept for the backward pass so far.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.width = PRECISION_BYTES[job.precision]
        self.forward: list[Item] = []
        self.stored = 0
        self.plain = False  # whether products stay in the job's precision: those of embedding, head and router
        self.frozen = job.adapters is not None  # whether weights have no gradients
        self.recorded = False  # whether kernels are part of a CUDA graph
        self.apart = 0  # experts whose products the host issues behind that of the first
        self._steps: list[tuple[Item, ...]] = []
        self._added: Counter[int] = Counter()

    @property
    def tensor(self) -> int:
        """Tensor-parallel ranks."""
        return self.job.parallelism.tensor

    @property
    def gathers(self) -> bool:
        """Whether ranks hold parts of the sequence between the tensor-parallel products."""
        return self.tensor > 1 and self.job.parallelism.sequence_parallel

    @property
    def layouts(self) -> int:
        """Layouts of a factor that both passes need, if products are in 8 or 4 bits."""
        return 1 if self.frozen else 2

    @property
    def norm_turns(self) -> bool:
        """Whether norms write factors of 8 bits, as they do if their scale is known (``rmsnorm_fwd``, FULLY_FUSED)."""
        job = self.job
        return job.products == "fp8" and job.scaling == "delayed" and job.elementwise == "fused"

    def adapted(self, name: str) -> bool:
        """Whether a product has an adapter beside it."""
        return self.job.adapters is not None and TARGETS.get(name) in self.job.adapters.targets

    def tokens(self, sequence: int) -> int:
        """Tokens of a micro-batch that the tensor-parallel ranks together have of sequences this long."""
        return self.job.micro_batch * sequence // self.job.parallelism.context

    def own(self, elements: int) -> int:
        """Return how many of the elements between tensor-parallel products one rank has."""
        return elements // self.tensor if self.gathers else elements

    def step(self, forward: Iterable[Item], backward: Iterable[Item], stored: int = 0) -> None:
        """Record items, their way back and the bytes that are kept for it."""
        if self.recorded:
            forward, backward = (_recorded(items) for items in (forward, backward))
        self.forward += forward
        self._steps.append(tuple(backward))
        self.stored += stored

    def stream(  # noqa: PLR0913  all but two have a default
        self,
        name: str,
        elements: int,
        forward: Pass | None,
        *backward: Pass,
        stored: int = 0,
        width: int | None = None,
        kernel: Kernel = "stream",
    ) -> None:
        """Record a kernel that streams through memory, or those in its place; `stored` bytes per element are kept."""
        width = width if width is not None else self.width
        fused = Elementwise(name, forward, backward, kernel=kernel)
        for part, own in in_place_of(fused, self.job.elementwise, width):
            self._part(part, elements, own, elements * (stored if part is fused else part.kept * own))

    def _part(self, part: Elementwise, elements: int, width: int, stored: int) -> None:
        moves = [each for each in part.backward if not (each.weight and self.frozen)]
        self.step(
            [] if part.forward is None else [streamed(part.name, elements, part.forward, width, part.kernel)],
            [streamed(f"{part.name} gradient", elements, each, width, part.kernel) for each in moves],
            stored,
        )

    def product(self, name: str, shape: tuple[int, int, int], *, batch: int = 1, weight: bool = False) -> Operation:
        """Make a product (rows, inner, columns)."""
        return product(name, (batch, *shape), self.width, weight=weight)

    def weighted(self, name: str, shape: tuple[int, int, int], *, batch: int = 1, weight: bool = False) -> Operation:
        """Make a product with weights, in the precision of the job's products."""
        made = self.product(name, shape, batch=batch, weight=weight)
        made = replace(made, more=self.apart * EXPERT_LAUNCH)
        if self.plain or self.job.products is None:
            return made
        rows, inner, columns = shape
        saved = round(batch * (rows + columns) * inner * (self.width - NARROW_BYTES[self.job.products]))
        return replace(made, traffic=made.traffic - saved, narrow=self.job.products)

    def quantise(self, name: str, elements: int, *, normed: bool = False) -> list[Operation]:
        """Turn a product's factor into the precision of products, transposed as well for a gradient of weights.

        `normed`: whether it comes of a norm, which writes it, or finds the scale of the tensor (``rmsnorm_fwd``,
            FUSED_NORM_AMAX_FP8 and _NVFP4, transformer_engine/pytorch/csrc/extensions/normalization.cpp), unless an
            adapter needs it, too (``return_layernorm_output``).
        """
        if self.plain or self.job.products is None or (normed and self.norm_turns):
            return []
        turned = self.narrowed(name, elements, self.job.products, layouts=self.layouts)
        return turned[-1:] if normed and self.job.elementwise == "fused" else turned

    def narrowed(self, name: str, elements: int, narrow: Narrow, *, layouts: int) -> list[Operation]:
        """Turn elements into a narrower precision, in one or both layouts, behind a pass for the scale of the tensor.

        Delayed scaling has the scale from before, MXFP8 none for the tensor (NVIDIA/TransformerEngine, docs/examples/
        gemm_profiling/gemm_profiling.rst: "the extra memory pass for per-tensor amax computation"). That pass, and in 8
        bits what makes a scale of its result, are kernels of their own, as many for each expert
        (``Float8CurrentScalingQuantizer``, transformer_engine/pytorch/csrc/quantizer.cpp). Kernels of MXFP8 and NVFP4
        are bound by their arithmetic: in MXFP8 8192 x 8192 elements take 52 us on B200, 4096 x 14,336 take 47
        (ROCm/TransformerEngine, pull request 598; NVIDIA/TransformerEngine, pull request 3137).
        """
        scale = narrow == "nvfp4" or (narrow == "fp8" and self.job.scaling == "current")
        more, each = self.apart * KERNEL_LAUNCH["graph"], 1 + self.apart  # one by one, from C++
        of_scale = 1 if narrow == "nvfp4" else 2
        first = Operation(f"scale of {name}", 0, elements * self.width, more=of_scale * more, kernels=of_scale * each)
        written, transposed = layouts_of(elements, narrow, layouts)
        size = elements * self.width + written
        kernel = _QUANTISES.get(narrow, "stream")
        turned = Operation(f"quantise {name}", 0, size, kernel=kernel, more=more, kernels=each, transposed=transposed)
        return [first, turned] if scale else [turned]

    def matrix_product(self, name: str, shape: tuple[int, int, int], *, batch: int, stored: int) -> None:
        """Record products of two activations; `stored` elements are kept."""
        rows, inner, columns = shape
        left = self.product(f"{name} left gradient", (rows, columns, inner), batch=batch)
        right = self.product(f"{name} right gradient", (inner, rows, columns), batch=batch)
        self.step([self.product(name, shape, batch=batch)], [left, right], self.width * stored)

    def linear(self, name: str, shape: tuple[int, int, int], *, batch: int = 1, stored: int, turned: str = "") -> None:
        """Record a product with weights that are not split.

        `stored`: elements that are kept.
        `turned`: which factor comes in the precision of products: ``"input"`` or ``"gradient"``.
        """
        rows, inner, columns = shape
        factors = {"input": batch * rows * inner, "gradient": batch * rows * columns}
        read, back = ([] if key == turned else self.quantise(key, size) for key, size in factors.items())
        forward = [*read, self.weighted(name, shape, batch=batch)]
        backward = [*back, *self.gradients(name, shape, batch)]
        self.step(forward, backward, 0 if self.frozen else self.kept(stored))

    def column(
        self,
        name: str,
        shape: tuple[int, int, int],
        *,
        keeps_input: bool = True,
        turned: bool = False,
        normed: bool = False,
    ) -> None:
        """Record a product whose weights are split by columns; `shape` is that of one rank.

        `turned`: whether its gradient comes in the precision of products.
        `normed`: whether its input comes of a norm that is one module with it (``LayerNormLinear``).
        """
        rows, inner, columns = shape
        size = rows * inner * self.width
        moved = self.kept(rows * inner)
        product, (to_input, *to_weight) = self.weighted(name, shape), self.gradients(name, shape)
        forward: list[Item] = [product]
        backward: list[Item] = [to_input, *to_weight]
        if self.gathers:
            again, reduce = _beside("all_gather", moved), _beside("reduce_scatter", size)
            forward = self.beside_product(Exchange("all_gather", "tensor", moved), product)
            backward = [*([] if self.frozen else [again]), to_input, Wait("tensor"), reduce, *to_weight, Wait("tensor")]
        elif self.tensor > 1 and self.job.tensor_overlap:
            backward = [to_input, _beside("all_reduce", size), *to_weight, Wait("tensor")]
        elif self.tensor > 1:
            backward = [to_input, *to_weight, Exchange("all_reduce", "tensor", size)]
        forward = [*self.quantise("input", self.own(rows * inner), normed=normed), *forward]
        if not turned:
            backward = [*self.quantise("gradient", rows * columns), *backward]
        self.step(forward, backward, self.own(moved) if keeps_input and not self.frozen else 0)
        self.adapt(name, shape)

    def row(self, name: str, shape: tuple[int, int, int], *, turned: bool = False) -> None:
        """Record a product whose weights are split by rows; `shape` is that of one rank.

        `turned`: whether its input comes in the precision of products.
        """
        rows, inner, columns = shape
        product, (to_input, *to_weight) = self.weighted(name, shape), self.gradients(name, shape)
        quantised = self.quantise("gradient", self.own(rows * columns))
        forward: list[Item] = [product]
        backward: list[Item] = [*quantised, to_input, *to_weight]
        if self.gathers:
            size, moved = rows * columns * self.width, self.kept(rows * columns)
            forward = self.beside_product(Exchange("reduce_scatter", "tensor", size), product)
            again = self.beside_product(Exchange("all_gather", "tensor", moved), to_input)
            backward = [*quantised, *again, *to_weight]
        if not turned:
            forward = [*self.quantise("input", rows * inner), *forward]
        read = not self.frozen or name == "projection"  # whose input the attention before it keeps
        self.step(forward, backward, self.kept(rows * inner) if read else 0)
        self.adapt(name, shape)
        if not self.gathers:
            self.sum_up(rows * columns)

    def beside_product(self, exchange: Exchange, product: Operation) -> list[Item]:
        """Put a product behind its gather, or before its scatter, or part by part beside it.

        A part is that of one rank: the product of the own one needs no gather, and the last one is scattered alone.
        """
        gather = exchange.collective == "all_gather"
        if not self.job.product_overlap:
            return [exchange, product] if gather else [product, exchange]
        last = 0 if gather else exchange.size // self.tensor
        items: list[Item] = [replace(exchange, size=exchange.size - last, asynchronous=True), product, Wait("tensor")]
        return [*items, replace(exchange, size=last)] if last else items

    def kept(self, elements: int) -> int:
        """Bytes of a product's factor, as it is gathered and kept."""
        narrow = None if self.plain else self.job.products
        return self.width * elements if narrow is None else round(NARROW_BYTES[narrow] * elements)

    def sum_up(self, elements: int) -> None:
        """Add up parts of `elements` that all tensor-parallel ranks have."""
        size = elements * self.width
        if self.gathers:
            self.step([Exchange("reduce_scatter", "tensor", size)], [Exchange("all_gather", "tensor", size)])
        elif self.tensor > 1:
            self.step([Exchange("all_reduce", "tensor", size)], [])

    def adapt(self, name: str, shape: tuple[int, int, int]) -> None:
        """Record the adapter beside a product, if there is one."""
        adapters = self.job.adapters
        if adapters is None or not self.adapted(name):
            return
        rows, inner, columns = shape
        if adapters.dropout:
            mask = Pass(1, 1, MASK)
            self.stream("adapter dropout", rows * inner, mask, mask, stored=MASK, kernel="function")
        plain, self.plain, self.frozen = self.plain, True, False
        self.linear("adapter in", (rows, inner, adapters.rank), stored=rows * inner)
        self.linear("adapter out", (rows, adapters.rank, columns), stored=rows * adapters.rank)
        self.stream("scale adapter", rows * columns, Pass(1, 1), Pass(1, 1))
        self.stream("add adapter", rows * columns, Pass(2, 1))
        self.stream("add input gradients", rows * inner, None, Pass(2, 1))
        self.plain, self.frozen = plain, True

    def gradients(self, name: str, shape: tuple[int, int, int], batch: int = 1) -> tuple[Operation, ...]:
        """Make the products that give the gradients of input and weight; of input alone, if weights are frozen."""
        rows, inner, columns = shape
        to_input = self.weighted(f"{name} input gradient", (rows, columns, inner), batch=batch)
        if self.frozen:
            return (to_input,)
        shape = (columns, rows, inner)  # weights lie as (columns, inner): torch.nn.Linear
        to_weight = self.weighted(f"{name} weight gradient", shape, batch=batch, weight=True)
        if self.job.fused_accumulation:
            self._added[batch * inner * columns] += 1
            if not self.job.parallelism.fully_sharded:  # which reduces them at once, and keeps none
                to_weight = added_up(to_weight, gradient_bytes(self.job), self.width)
        return to_input, to_weight

    def repeat(self, items: Iterable[Item]) -> None:
        """Have the kernels among items of the forward pass run again before what they lead to goes back."""
        self.step([], [item for item in items if isinstance(item, Operation)])

    def accumulate(self, block: Block) -> None:
        """Record, behind all else, how each gradient of a weight is added to the gradient buffer."""
        size = self.width + 2 * gradient_bytes(self.job)
        tensors, experts = trained(block, self.job)
        left = Counter(tensors + experts) - self._added
        self._steps.insert(
            0, tuple(Operation("accumulate gradient", 0, elements * size, weight=True) for elements in left.elements())
        )

    def work(self) -> Work:
        """Return what was recorded."""
        backward = tuple(item for step in reversed(self._steps) for item in step)
        return Work(tuple(self.forward), backward, self.stored)


def product(
    name: str, shape: tuple[int, int, int, int], width: int, *, weight: bool = False, output: int | None = None
) -> Operation:
    """Make a product of a shape as of `Operation`, elements of `width` bytes; `output` of its result if not `width`."""
    batch, rows, inner, columns = shape
    written = width if output is None else output
    traffic = batch * (width * (rows + columns) * inner + written * rows * columns)
    return Operation(name, 2 * batch * rows * inner * columns, traffic, weight, "product", shape)


def added_up(made: Operation, buffer: int, written: int) -> Operation:
    """Have a product add its results to a buffer of `buffer` bytes per element, in the place of writing `written`."""
    batch, rows, _, columns = made.shape or (0, 0, 0, 0)
    more = batch * rows * columns * (2 * buffer - written)
    return replace(made, traffic=made.traffic + more, added=more)


def streamed(name: str, elements: int, move: Pass, width: int, kernel: Kernel) -> Operation:
    """Make a kernel that streams through memory, of elements of `width` bytes."""
    traffic = elements * ((move.reads + move.writes) * width + move.extra)
    return Operation(name, 0, traffic, move.weight, "stream" if move.weight else kernel)


def layouts_of(elements: int, narrow: Narrow, layouts: int) -> tuple[int, int]:
    """Bytes of elements in so many layouts, and of those that only GPUs need whose products read one layout alone.

    In blocks scales lie along the sum, so that a transposed factor has others, on each GPU.
    """
    transposed = (layouts - 1) * elements if narrow == "fp8" else 0
    return round(layouts * elements * NARROW_BYTES[narrow]) - transposed, transposed


def _recorded(items: Iterable[Item]) -> list[Item]:
    return [replace(item, recorded=True) if isinstance(item, Operation) else item for item in items]


def _beside(collective: CollectiveName, size: int) -> Exchange:
    return Exchange(collective, "tensor", size, asynchronous=True)
