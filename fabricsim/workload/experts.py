"""A mixture of experts in the place of the feed-forward network, as Megatron-LM's all-to-all dispatcher runs it.

A router picks experts for each token; tokens are copied, ordered by expert and exchanged, go through the
experts of each rank in one grouped product, and travel back to be weighted and added up. If tensor
parallelism splits the experts, their tokens are gathered before and added up behind them; with
``expert_tensor = 1`` it does not, and each rank has those of its own tokens. Shared experts are one feed-forward
network of their joint width (Dai et al., arXiv 2401.06066). With latent vectors, products on every tensor-parallel rank
lead to these before the exchange and back to the model's width behind it (``fc1_latent_proj`` and ``fc2_latent_proj``
of Megatron-LM, megatron/core/transformer/moe/moe_layer.py).

Every rank does what the busiest one does: each of its experts gets ``expert_imbalance`` times the even share of
tokens, at most ``capacity_factor`` times it (Lepikhin et al., arXiv 2006.16668, section 2.2) and no more than there
are, or with ``pad_to_capacity`` exactly so many times it (`load`); all others wait for it in the exchange that follows.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fabricsim.scenario.job import Job
from fabricsim.workload.dispatcher import ADD_UP, ORDER, from_experts, load, routes, to_experts, visits
from fabricsim.workload.feed_forward import activation, network
from fabricsim.workload.issue import SHARE_OF_PYTORCH
from fabricsim.workload.norms import branch, layer_norm, residual
from fabricsim.workload.shapes import expert_width, experts_of, routed_width, up_projections
from fabricsim.workload.tape import FP32, Tape, product, streamed
from fabricsim.workload.work import Exchange, Level, Operation, Pass, Wait

_ROUTING = {"unfused": 31, "all-to-all": 31, "flex": 17}
"""Kernels that route tokens in a forward pass, if the host issues products of experts one by one: of DeepSeek-V3 72
before routing was fused, then 31, with a dispatcher that prepares itself 17 (NVIDIA/Megatron-LM, docs/discussions/
deepseek-v3-gb200-optimization, sections 2.1.4 and 2.2.1). Without groups of experts the operations of PyTorch before
that are about as many as those behind it (``topk_softmax_with_capacity`` and the auxiliary loss of Megatron-core 0.8,
megatron/core/transformer/moe/moe_utils.py and router.py). U: as many in the backward pass."""
_LISTED = 3  # of these are listed one by one
_NODE = 4.3
"""Intervals of the host for what a node of the schedule takes besides its kernels (``ScheduleNode`` of Megatron-LM:
streams, events and a call of autograd of its own), if all-to-alls overlap; a layer has `_NODES` in each pass.

Calibrated on Qwen3 235B on 64 B200, which took 17.2 s with overlap in BF16 and 20.1 s in MXFP8 (NVIDIA-NeMo/Megatron-
Bridge, pull request 1760): 0.35 ms on hosts that issue a kernel in 75 us. U: that it grows with that interval."""
_NODES = 4  # attention, dispatch, experts, combine (models/common/model_chunk_schedule_plan.py of Megatron-core)


def expert_layer(tape: Tape, job: Job, attention: Callable[[], None]) -> None:
    """Record attention and experts; if all-to-alls overlap, those of another micro-batch run beside each of both.

    Forward and backward passes of two micro-batches take turns then (``overlap_moe_expert_parallel_comm`` of
    Megatron-LM); what runs beside an all-to-all is taken to be a half of the same layer.
    """
    if not job.expert_overlap or job.parallelism.expert == 1:
        attention()
        experts(tape, job, job.sequence)
        return
    nodes = [] if job.launch == "graph" else [_nodes(job)]
    first = [*routes(tape, job), *to_experts(tape, job)]
    for part, exchanges in ((attention, from_experts(tape, job)), (partial(experts, tape, job, job.sequence), first)):
        *beside, back = (replace(each, asynchronous=True) for each in exchanges)
        tape.step([*nodes, *beside], [Wait("expert")])
        part()
        tape.step([Wait("expert")], [*nodes, back])


def _nodes(job: Job) -> Operation:
    """Make what half of a layer's nodes take of the host, and nothing of the GPU."""
    return Operation("schedule", 0, 0, more=round((_NODES / 2 * _NODE - 1) * job.kernel_launch), kernels=0)


def experts(tape: Tape, job: Job, sequence: int) -> None:
    """Record the sublayer of experts for sequences of `sequence` tokens."""
    mixture, hidden, width = experts_of(job.model), job.model.hidden, routed_width(job.model)
    tokens, start, before = tape.tokens(sequence), len(tape.forward), tape.stored
    tape.recorded = "router" in job.recorded
    branch(tape, tokens * hidden)
    layer_norm(tape, tokens * hidden)
    own = tape.own(tokens)
    _route(tape, job, own)
    padded = load(job) if job.pad_to_capacity else 1.0
    moved = math.ceil(own * mixture.per_token * padded) * width
    if mixture.latent:
        tape.linear("latent in", (own, hidden, width), stored=own * hidden)
    unfused, seen = job.expert_kernels == "unfused", visits(job, own)
    if unfused:
        _order(tape, moved, own * width)
    else:
        _stream(tape, "order by expert", moved, (Pass(1, 1), ORDER * seen), (Pass(1, 1), ADD_UP * seen))
    if not job.expert_overlap:
        tape.step(routes(tape, job), [])
    tape.recorded = False
    if job.expert_kernels in _ROUTING and not job.pad_to_capacity:
        tape.step([Level()], [])  # the host needs the tokens of each expert
    _exchange(tape, job, to_experts(tape, job))
    sent = tokens if job.parallelism.expert_parts > 1 else own
    _grouped(tape, job, math.ceil(sent * mixture.per_token * load(job)))
    _exchange(tape, job, from_experts(tape, job))
    if unfused:
        _add_up(tape, moved, own * width)
    else:
        _stream(tape, "weight and add up", moved, (Pass(1, 0), ADD_UP * seen), (Pass(1, 1), ORDER * seen))
        tape.stored += tape.width * moved
    if mixture.latent:
        tape.linear("latent out", (own, width, hidden), stored=own * width)
    if mixture.shared:
        network(tape, job, tokens, mixture.shared * expert_width(job.model))
        tape.stream("add shared experts", own * hidden, Pass(2, 1))
    residual(tape, tokens * hidden)
    if job.recompute == "experts":
        tape.step([], tape.forward[start:])
        tape.stored = before + tape.width * own * hidden


def _stream(tape: Tape, name: str, elements: int, there: tuple[Pass, int], back: tuple[Pass, int]) -> None:
    """Record a kernel that moves `elements` and its gradient, with what each takes at least, ps."""
    forward, backward = (
        replace(streamed(title, elements, move, tape.width, "stream"), least=least)
        for title, (move, least) in ((name, there), (f"{name} gradient", back))
    )
    tape.step([forward], [backward])


def _order(tape: Tape, moved: int, own: int) -> None:
    """Record ``index_select``, whose gradient is an ``index_add_`` to zeros."""
    ordered = streamed("order by expert", moved, Pass(1, 1), tape.width, "stream")
    tape.step([ordered], [_scatter("order by expert gradient", tape.width * (moved + own), 2)])


def _add_up(tape: Tape, moved: int, own: int) -> None:
    """Record weights and ``scatter_add`` to a copy of zeros, and their way back, operation by operation of PyTorch.

    ``unpermute_with_padded_tokens`` of Megatron-core 0.8, megatron/core/transformer/moe/moe_utils.py.
    """
    gathered, weighted, products, summed = Pass(1, 1), Pass(1, 1), Pass(2, 1), Pass(1, 0)
    back = [
        streamed("weight and add up gradient", moved, move, tape.width, "stream")
        for move in (gathered, weighted, products, summed)
    ]
    tape.step([_scatter("weight and add up", tape.width * (moved + own), 4)], back, tape.width * moved)


def _scatter(name: str, traffic: int, kernels: int) -> Operation:
    return Operation(name, 0, traffic, kernel="scatter", kernels=kernels)


def _router(tape: Tape, job: Job, tokens: int) -> None:
    """Record scores of all experts for each token.

    In fp32 they come of a product of 16 bits, and gradients of products of 32, to which input and its gradient are
    turned (``RouterGatingLinearFunction``, megatron/core/transformer/moe/moe_utils.py). U: at the rate of 16 bits,
    which memory bounds. Routers are never frozen: adapters are for dense models.
    """
    hidden, count = job.model.hidden, experts_of(job.model).count
    if experts_of(job.model).router_precision != "fp32" or tape.width == FP32:
        plain, tape.plain = tape.plain, True
        tape.linear("router", (tokens, hidden, count), stored=tokens * hidden)
        tape.plain = plain
        return
    turned = tokens * hidden * (tape.width + FP32)
    to_input = product("router input gradient", (1, tokens, count, hidden), FP32)
    to_weight = product("router weight gradient", (1, count, tokens, hidden), FP32, weight=True)
    widen, back = (Operation(f"{name} router input", 0, turned) for name in ("widen", "round gradient of"))
    scores = product("router", (1, tokens, hidden, count), tape.width, output=FP32)
    tape.step([scores], [to_input, widen, to_weight, back], tape.width * tokens * hidden)


def _route(tape: Tape, job: Job, tokens: int) -> None:
    """Scores of all experts for each token, their softmax in fp32, and the largest of them."""
    count = experts_of(job.model).count
    _router(tape, job, tokens)
    tape.stream("router softmax", tokens * count, Pass(1, 1), Pass(2, 1), stored=FP32, width=FP32, kernel="function")
    tape.stream("choice of experts", tokens * count, Pass(1, 1), Pass(1, 1), width=FP32)
    if job.expert_kernels in _ROUTING:
        others = [_plain(tape, "count tokens", 0)] * (_ROUTING[job.expert_kernels] - _LISTED)
        tape.step(others, others)


def _plain(tape: Tape, name: str, traffic: int) -> Operation:
    """Make a kernel of PyTorch, which takes less of the host than one of Transformer Engine."""
    less = 0 if tape.recorded else round((1 - SHARE_OF_PYTORCH) * tape.job.kernel_launch)
    return Operation(name, 0, traffic, more=-less)


def _exchange(tape: Tape, job: Job, exchanges: tuple[Exchange, Exchange]) -> None:
    if job.parallelism.expert > 1 and not job.expert_overlap:
        there, back = exchanges
        tape.step([there], [back])


def _grouped(tape: Tape, job: Job, rows: int) -> None:
    """Run `rows` tokens through the experts of this rank, evenly spread."""
    hidden, inner = routed_width(job.model), expert_width(job.model) // job.parallelism.expert_parts
    local = experts_of(job.model).count // job.parallelism.expert
    each = math.ceil(rows / local)
    fused = job.expert_kernels == "fused"
    turned = fused or job.activation_quantises
    _gather(tape, job, rows * hidden, local)
    tape.apart = local - 1 if job.expert_kernels in _ROUTING else 0
    up = (each, hidden, up_projections(job.model) * inner)
    tape.linear("experts up", up, batch=local, stored=rows * hidden, turned="gradient" if turned else "")
    start = len(tape.forward)
    if fused:  # within the products, whose results it stands in for
        tape.stored += up_projections(job.model) * tape.width * rows * inner
    else:
        _limit(tape, job, rows * inner)
        activation(tape, job, rows * inner)
    repeats, activated = job.recompute == "expert-activation", tape.forward[start:]
    down, stored = (each, inner, hidden), 0 if repeats else rows * inner
    tape.linear("experts down", down, batch=local, stored=stored, turned="input" if turned else "")
    if repeats:
        tape.repeat(activated)
    tape.apart = 0
    _add_up_parts(tape, job, rows * hidden, local)


def _gather(tape: Tape, job: Job, elements: int, experts: int) -> None:
    """Record what brings `elements` of tokens in the order of the experts of this rank.

    Tokens that are not ordered by fused kernels are in parts by width before they are gathered.
    """
    parts, apart = job.parallelism.expert_parts, job.expert_kernels == "unfused"
    if apart and experts > 1:
        tape.stream("sort by expert", elements // parts, Pass(1, 1), Pass(1, 1))
    if parts > 1:
        gathered, size = tape.gathers, elements * tape.width
        gather, add = Exchange("all_gather", "tensor", size), Exchange("reduce_scatter", "tensor", size)
        tape.step([gather] if gathered else [], [add if gathered else Exchange("all_reduce", "tensor", size)])
    if apart:
        _take_slices(tape, elements * tape.width, experts, parts)
    elif job.expert_kernels == "all-to-all" and experts > 1:
        tape.stream("sort by expert", elements, Pass(1, 1), Pass(1, 1))
    if job.padded_experts:
        tape.stream("pad", elements, Pass(1, 1), Pass(1, 1))


def _add_up_parts(tape: Tape, job: Job, elements: int, experts: int) -> None:
    """Record what brings `elements` of results back in the order in which they were received."""
    parts, apart = job.parallelism.expert_parts, job.expert_kernels == "unfused"
    if job.padded_experts:
        tape.stream("take out padding", elements, Pass(1, 1), Pass(1, 1))
    if job.expert_kernels != "fused":
        _add_biases(tape, job, elements)
    if apart:
        _put_slices(tape, elements * tape.width, experts, parts)
    elif job.expert_kernels == "all-to-all" and experts > 1:
        tape.stream("sort by rank", elements, Pass(1, 1), Pass(1, 1))
    if parts > 1:
        tape.sum_up(elements)
    if apart and experts > 1:
        tape.stream("sort by rank", elements // parts, Pass(1, 1), Pass(1, 1))


def _take_slices(tape: Tape, size: int, experts: int, parts: int) -> None:
    """Record what experts that run one after another do to their input of `size` bytes, which came in parts by width.

    Autograd fills a gradient of all of the input for the slice of each expert, and adds these up (``SequentialMLP`` of
    Megatron-core 0.8 and 0.9, megatron/core/transformer/moe/experts.py; ``_gather_along_last_dim`` and
    ``_reduce_scatter_along_last_dim``, megatron/core/tensor_parallel/mappings.py).
    """
    ordered = [_plain(tape, "order by width", 2 * size)] * (parts > 1)
    filled = [_plain(tape, "gradient of all input", size), _plain(tape, "gradient of a slice", 2 * size // experts)]
    added = [_plain(tape, "add gradients of slices", 3 * size)] * (experts - 1)
    tape.step([*ordered, _plain(tape, "zeros for results", size)], [*filled * experts, *added, *ordered])


def _put_slices(tape: Tape, size: int, experts: int, parts: int) -> None:
    """Record how results of experts that run one after another get into a buffer of `size` bytes, sent by width.

    Backward each assignment copies the gradient of the buffer, then that of its slice, which it puts to zero.
    """
    ordered = [_plain(tape, "order by width", 2 * size)] * (parts > 1)
    part = size // experts
    back = [_plain(tape, "gradient of results", each) for each in (2 * size, 2 * part, part, 2 * part)]
    tape.step([*[_plain(tape, "result into buffer", 2 * part)] * experts, *ordered], [*ordered, *back * experts])


def _limit(tape: Tape, job: Job, elements: int) -> None:
    """Record limits of an activation's input, which Megatron-LM puts on each half by itself and joins again.

    ``weighted_bias_quick_geglu_impl``, megatron/core/fusions/fused_bias_geglu.py; not compiled with the activation.
    """
    if experts_of(job.model).clamped:
        tape.stream("join halves", elements, None, Pass(2, 2))  # gradients of both halves, of their split
        for half in ("gate", "value"):
            tape.stream(f"limit {half}", elements, Pass(1, 1), Pass(2, 1), stored=0)
        tape.stream("join limited halves", elements, Pass(2, 2), stored=2 * tape.width)
        tape.step([Level()], [])  # torch.tensor(linear_offset, device=...) waits for its copy


def _add_biases(tape: Tape, job: Job, elements: int) -> None:
    """Record biases behind the last product, each times its token's weight, operation by operation.

    ``TEGroupedMLP._apply_bias``, megatron/core/transformer/moe/experts.py: ``torch.cat([t + b * p ...]).to(...)``. The
    weights are as precise as the router, and in fp32 if a dispatcher of its own sends them ("flex").
    """
    if not experts_of(job.model).clamped:
        return
    narrow = tape.width
    wide = FP32 if job.expert_kernels == "flex" or experts_of(job.model).router_precision == "fp32" else narrow
    forward = {"weight biases": wide, "add biases": narrow + 2 * wide, "join biased rows": 2 * wide}
    backward = {"gradient of weights": 2 * wide, "add up gradient of weights": wide}
    backward |= {"gradient of biases": 2 * wide, "add up gradient of biases": wide, "join gradient of rows": 2 * narrow}
    if wide > narrow:
        forward["round biased rows"] = wide + narrow
        backward = {"widen gradient": narrow + wide, "round gradient of rows": wide + narrow} | backward
    there, back = (
        [Operation(name, 0, elements * size) for name, size in moves.items()] for moves in (forward, backward)
    )
    tape.step(there, back)
