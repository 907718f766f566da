"""Attention: its products, its core between them, and the exchanges that tensor and context parallelism add.

The core is scores, softmax, dropout and context, each a kernel, or with ``attention = "fused"`` one kernel
(Dao, arXiv 2307.08691) that keeps the logarithm of each row's sum instead of the scores. It leaves out what
a causal mask hides, half of the scores; its backward pass takes five products if the forward has two.
Kernels that are not fused compute the hidden half as well. In layers with a window each query sees so many keys, its
own among them, and fewer at the beginning: of ``s`` queries ``w s - w (w - 1) / 2`` pairs.

Context parallelism splits the sequence, in pieces chosen so that under a causal mask all ranks have as much
to do: the first with the last, and so on. ``"ring"`` passes keys and values around, computes on one part
while the next arrives, and in the backward pass sends the gradients of keys and values one step behind (Liu
et al., arXiv 2310.01889, as in Transformer Engine). ``"ulysses"`` trades parts of the sequence for heads by
one all-to-all each for query, key, value and result (Jacobs et al., arXiv 2309.14509).
"""

import math
from dataclasses import replace
from typing import NamedTuple

from fabricsim.scenario.job import Job
from fabricsim.workload.latent import latent_projections
from fabricsim.workload.norms import branch, layer_norm, residual
from fabricsim.workload.projections import projections
from fabricsim.workload.shapes import attention_width, key_heads, rotary_width
from fabricsim.workload.tape import FP32, NARROW_BYTES, Tape, decoder_sequence, streamed
from fabricsim.workload.work import MASK, Exchange, Item, Kernel, Narrow, Operation, Pass, Wait

PRODUCTS, BACKWARD_PRODUCTS = 2, 5
"""Matrix products in the forward and in the backward pass of fused attention, which repeats the scores."""

_FUSED_TOGETHER = 4  # matrices of scores that a block of threads of the fused softmax takes


class Core(NamedTuple):
    """The core of an attention on one rank.

    Heads are those of the queries; `keys` of keys and values together count once, not per query head. `head` is the
    width of a head of values, and `rotary` what one of queries and keys has besides. With `window` a query sees so many
    keys at most.
    """

    batch: int
    heads: int
    key_heads: int
    head: int
    queries: int
    keys: int
    causal: bool
    rotary: int = 0
    window: int | None = None

    @property
    def query_elements(self) -> int:
        """Elements of the queries."""
        return self.batch * self.queries * self.heads * (self.head + self.rotary)

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.queries * self.heads * self.head

    @property
    def key_elements(self) -> int:
        """Elements of the keys."""
        return self.batch * self.keys * self.key_heads * (self.head + self.rotary)

    @property
    def value_elements(self) -> int:
        """Elements of the values."""
        return self.batch * self.keys * self.key_heads * self.head

    @property
    def inputs(self) -> int:
        """Elements of queries, keys and values."""
        return self.query_elements + self.key_elements + self.value_elements

    @property
    def scores(self) -> int:
        """Elements of the products of queries and keys."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def flops(self) -> int:
        """FLOPs of a fused product for each element of a head: two for each pair, of which a causal mask hides half."""
        window = self.window
        if not self.causal:
            return 2 * self.scores
        if window is None or window >= self.keys:
            return self.scores
        return min(self.scores, self.batch * self.heads * (2 * window * self.queries - window * (window - 1)))


def self_attention(tape: Tape, job: Job, sequence: int, *, causal: bool, window: int | None = None) -> None:
    """Record the self-attention sublayer of sequences of `sequence` tokens, of which a query sees `window` at most."""
    model = job.model
    hidden, tokens = model.hidden, tape.tokens(sequence)
    tape.recorded = "attention" in job.recorded
    branch(tape, tokens * hidden)
    normed = model.latent is None and not tape.adapted("QKV")
    layer_norm(tape, tokens * hidden, turns=normed)
    up: list[Item] = []
    if model.latent is not None:
        up = latent_projections(tape, job, tokens)
    else:
        projections(tape, job, tokens, normed=normed)
    core = _core_of(job, sequence // job.parallelism.context, sequence // job.parallelism.context, causal=causal)
    core = core._replace(window=window)
    if job.parallelism.context == 1:
        _core_attention(tape, core)
    elif job.parallelism.context_method == "ring":
        _ring(tape, core)
    else:
        _ulysses(tape, core)
    if job.recompute == "latent":
        tape.repeat(up)
    tape.row("projection", (tokens, attention_width(model) // tape.tensor, hidden))
    residual(tape, tokens * hidden)
    tape.recorded = False


def cross_attention(tape: Tape, job: Job) -> None:
    """Record the attention from decoder to encoder output, whose gradients of all layers add up."""
    hidden, width = job.model.hidden, attention_width(job.model) // job.parallelism.tensor
    queries, keys = decoder_sequence(job), job.sequence
    tokens, memory = tape.tokens(queries), tape.tokens(keys)
    branch(tape, tokens * hidden)
    layer_norm(tape, tokens * hidden)
    tape.column("query", (tokens, hidden, width))
    tape.stream("query bias", tokens * width, None, Pass(1, 0, weight=True))
    tape.stream("encoder output", tape.own(memory * hidden), None, Pass(2, 1))
    # The encoder output is kept once for all decoder layers, not once in each.
    tape.column("key-value", (memory, hidden, 2 * width), keeps_input=False)
    tape.stream("key-value join and bias", 2 * memory * width, None, Pass(1, 1), Pass(1, 0, weight=True))
    _core_attention(tape, _core_of(job, queries, keys, causal=False))
    tape.row("projection", (tokens, width, hidden))
    residual(tape, tokens * hidden)


def _core_of(job: Job, queries: int, keys: int, *, causal: bool) -> Core:
    model, tensor = job.model, job.parallelism.tensor
    head = attention_width(model) // model.heads
    rotary, batch = rotary_width(model), job.micro_batch
    if job.packed is not None:
        batch, queries, keys = batch * queries // job.packed, job.packed, job.packed
    return Core(batch, model.heads // tensor, key_heads(model, tensor), head, queries, keys, causal, rotary)


def is_causal(operation: Operation) -> bool:
    """Whether a causal mask hides part of the keys of a fused attention."""
    products = PRODUCTS if operation.kernel == "attention" else BACKWARD_PRODUCTS
    return operation.flops < products * 2 * math.prod(operation.shape or ())


def is_windowed(operation: Operation) -> bool:
    """Whether a window hides more of the keys of a fused attention than a causal mask does."""
    products = PRODUCTS if operation.kernel == "attention" else BACKWARD_PRODUCTS
    return operation.flops < products * math.prod(operation.shape or ())


def _core_attention(tape: Tape, core: Core) -> None:
    if tape.job.attention == "fused":
        (inputs, gradient), (part, part_back) = _narrowed(tape, core), _passes(tape, core)
        _record(tape, core, [*inputs, part], [*gradient, *part_back])
        return
    _separate_kernels(tape, core)


def _record(tape: Tape, core: Core, forward: list[Item], backward: list[Item]) -> None:
    """Record both ways of fused attention, whose forward pass runs again with selective recomputation."""
    if tape.job.recompute == "selective":
        tape.step(forward, [*forward, *backward], _kept(tape, core) - _row_sums(core))
    else:
        tape.step(forward, backward, _kept(tape, core))


def fused_passes(width: int, core: Core, narrow: Narrow | None = None) -> tuple[Operation, tuple[Operation, Operation]]:
    """Make both passes of fused attention on elements of `width` bytes, or on factors of 8 bits.

    In 8 bits cuDNN's backward pass takes as long with a window as without (NVIDIA/cudnn-frontend@60e572b,
    benchmark/sdpa_benchmark_training/results/gpt_oss).
    """
    sums, gradient = fused_gradient(width, core if narrow is None else core._replace(window=None))
    return replace(fused(width, core), narrow=narrow), (sums, replace(gradient, narrow=narrow))


def _passes(tape: Tape, core: Core) -> tuple[Operation, tuple[Operation, Operation]]:
    return fused_passes(tape.width, core, tape.job.attention_products)


def _narrowed(tape: Tape, core: Core) -> tuple[list[Operation], list[Operation]]:
    """Turn inputs and gradient of an attention in 8 bits into these; what it writes is as wide as without.

    For MXFP8 they are put in the order of heads first, and turned in both layouts (NVIDIA/TransformerEngine, pull
    request 2719).
    """
    narrow = tape.job.attention_products
    if narrow is None:
        return [], []
    factors = {"inputs": core.inputs, "gradient": core.output_elements}
    layouts = _layouts(narrow)
    inputs, gradient = (
        [
            *([streamed(f"order attention {name}", elements, Pass(1, 1), tape.width, "stream")] if layouts > 1 else []),
            *tape.narrowed(f"attention {name}", elements, narrow, layouts=layouts),
        ]
        for name, elements in factors.items()
    )
    return inputs, gradient


def _layouts(narrow: Narrow) -> int:
    """In how many layouts factors of 8 bits are needed: blocks of MXFP8 lie along the sum, which is not always one."""
    return 2 if narrow == "mxfp8" else 1


def _kept(tape: Tape, core: Core) -> int:
    """Bytes that fused attention keeps: its inputs as its products read them.

    Those of 16 bits are not kept if they are made again of latent vectors. Those of 8 bits are: they are not turned
    again (``save_for_backward`` of NVIDIA/TransformerEngine, dot_product_attention/backends.py). What is repeated as a
    whole keeps what it got, in 16 bits, and turns it again (``_checkpointed_attention_forward`` of NVIDIA/Megatron-LM,
    megatron/core/transformer/attention.py).
    """
    narrow = tape.job.attention_products
    if narrow is not None and tape.job.recompute != "selective":
        width = _layouts(narrow) * NARROW_BYTES[narrow]
    else:
        width = 0 if tape.job.recompute == "latent" else tape.width
    return round(width * core.inputs) + _row_sums(core)


def _separate_kernels(tape: Tape, core: Core) -> None:
    """Scores, softmax, dropout, context and its transpose; with selective recomputation all run twice.

    Keys and values are copied for all query heads that share them, as Megatron-LM does.
    """
    start, keeps = len(tape.forward), tape.job.recompute != "selective"
    batch = core.batch * core.heads
    if core.key_heads < core.heads:
        copies = core.heads // core.key_heads
        repeated = core.key_elements + core.value_elements
        tape.stream("repeat keys and values", repeated, Pass(1, copies), Pass(copies, 1))
    inputs = core.query_elements + core.key_elements
    tape.matrix_product("scores", (core.queries, core.head + core.rotary, core.keys), batch=batch, stored=inputs)
    _softmax(tape, core, stored=tape.width * keeps)
    if tape.job.dropout and tape.job.model.family != "llama":
        dropout, stored = Pass(1, 1, MASK), (tape.width + MASK) * keeps
        tape.stream("attention dropout", core.scores, dropout, dropout, stored=stored, kernel="function")
    tape.matrix_product("context", (core.queries, core.keys, core.head), batch=batch, stored=core.value_elements)
    tape.stream("context transpose", core.output_elements, Pass(1, 1), Pass(1, 1))
    if not keeps:
        tape.repeat(tape.forward[start:])


def _softmax(tape: Tape, core: Core, *, stored: int) -> None:
    """Scale, mask and normalise: in one kernel that takes sequences times heads by fours, or one by one in fp32.

    So does ``FusedScaleMaskSoftmax.is_kernel_available`` of Megatron-LM (megatron/model/fused_softmax.py). What is kept
    counts as with one kernel.
    """
    both_ways = Pass(1, 1), Pass(1, 1)
    together = tape.width == FP32 or core.batch * core.heads % _FUSED_TOGETHER == 0
    if together or tape.job.elementwise != "fused":
        tape.stream("softmax", core.scores, Pass(1, 1), Pass(2, 1), stored=stored, kernel="function")
        return
    cast = Operation("cast scores", 0, core.scores * (tape.width + FP32))
    tape.step([cast], [cast])
    tape.stream("scale", core.scores, *both_ways, width=FP32)
    tape.stream("mask", core.scores, *both_ways, width=FP32)
    tape.stream("softmax", core.scores, Pass(1, 1), Pass(2, 1), stored=stored, width=FP32, kernel="function")
    tape.step([cast], [cast])


def _row_sums(core: Core) -> int:
    """Bytes of the logarithms of the sums of all rows of scores."""
    return FP32 * core.batch * core.heads * core.queries


def fused(width: int, core: Core) -> Operation:
    """Make the forward pass of fused attention on elements of `width` bytes."""
    traffic = width * (core.inputs + core.output_elements) + _row_sums(core)
    return _attention("attention", core, PRODUCTS, traffic)


def fused_gradient(width: int, core: Core) -> tuple[Operation, Operation]:
    """Make the backward pass of fused attention, which begins with the sums of result times gradient."""
    rows = _row_sums(core)
    sums = Operation("fused attention sums gradient", 0, width * 2 * core.output_elements + rows)
    traffic = width * (2 * core.inputs + core.output_elements) + 2 * rows
    return sums, _attention("attention-gradient", core, BACKWARD_PRODUCTS, traffic)


def _attention(kernel: Kernel, core: Core, products: int, traffic: int) -> Operation:
    wide = 1 if products == PRODUCTS else 3  # products of queries and keys: once, or scores again and both gradients
    flops = core.flops * (products * core.head + wide * core.rotary)
    shape = (core.batch * core.heads, core.queries, core.head + wide * core.rotary // products, core.keys)
    return Operation(f"fused {kernel}", flops, traffic, kernel=kernel, shape=shape)


def _ring(tape: Tape, core: Core) -> None:
    """Attend to one rank's keys after the other; each step's result is merged into an fp32 sum."""
    ranks = tape.job.parallelism.context
    keys = core.key_elements + core.value_elements
    moved = keys * tape.width
    merge = Operation("merge partial results", 0, core.output_elements * (tape.width + 2 * FP32))
    pass_on = Exchange("ring_exchange", "context", moved, asynchronous=True)
    both = Exchange("ring_exchange", "context", 2 * moved, asynchronous=True)
    part, part_back = _passes(tape, core)
    add = Operation("add key and value gradients", 0, keys * tape.width * 3)
    inputs, gradient = _narrowed(tape, core)
    forward: list[Item] = [*inputs]
    backward: list[Item] = [*gradient]
    for step in range(ranks):
        last = step == ranks - 1
        forward += [
            *([] if last else [pass_on]),
            part,
            *([merge] if step else []),
            *([] if last else [Wait("context")]),
        ]
        # Keys and values go on until the last rank has them; their gradients start one step later.
        sent = pass_on if last or not step else both
        backward += [sent, *part_back, Wait("context"), *([add] if step else [])]
    _record(tape, core, forward, backward)


def _ulysses(tape: Tape, core: Core) -> None:
    """Trade sequence for heads, attend to whole sequences, and trade back."""
    ranks = tape.job.parallelism.context
    whole = core._replace(
        heads=core.heads // ranks,
        key_heads=core.key_heads // ranks,
        queries=core.queries * ranks,
        keys=core.keys * ranks,
    )
    for elements in (core.query_elements, core.key_elements, core.value_elements):
        _trade(tape, elements)
    _core_attention(tape, whole)
    _trade(tape, core.output_elements)


def _trade(tape: Tape, elements: int) -> None:
    """Trade elements, which are copied once for it by rank, and twice by the order of their sequence.

    The latter before it on the way to sequences, behind it on the way to heads (``flash_attn_a2a_communicate`` of
    Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py).
    """
    exchange = Exchange("all_to_all", "context", elements * tape.width)
    copy = streamed("order traded parts", elements, Pass(1, 1), tape.width, "stream")
    tape.step([copy, exchange, copy, copy], [copy, copy, exchange, copy])
