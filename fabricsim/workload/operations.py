"""What one micro-batch does on the GPU: every kernel of a block, its FLOPs and its memory traffic.

The kernels are those of Megatron-LM with its fusions on (bias with GELU; bias with dropout and
residual; scale with mask and softmax) and attention not fused. With ``n = b s h`` hidden,
``q = b s a d`` query, ``A = b a s s_kv`` score and ``g = b s f`` feed-forward elements, an attention
sublayer and a feed-forward sublayer move (reads, writes; ``m`` is one byte per element of dropout
mask; one bracket per kernel):

====================== ========== =========================== ==================================
operation              elements   forward                     backward
====================== ========== =========================== ==================================
layer norm             n          (1, 1)                      (2, 1) inputs, (2, 0) weights
QKV product            GEMM       1 product                   2 products, (1, 0) bias, (1, 1) join
scores                 GEMM       1 product                   2 products
softmax                A          (1, 1)                      (2, 1)
attention dropout      A          (1, 1 + m)                  (1 + m, 1)
context                GEMM       1 product                   2 products
context transpose      q          (1, 1)                      (1, 1)
projection             GEMM       1 product                   2 products
bias-dropout-residual  n          (2, 1 + m)                  (1 + m, 1), (1, 0) bias
residual gradients     n          none                        (2, 1)
feed-forward products  GEMM       2 products                  4 products
bias-GELU              g          (1, 1)                      (2, 1), (1, 0) bias
====================== ========== =========================== ==================================

A product ``(rows x inner) (inner x columns)`` takes ``2 rows inner columns`` FLOPs and reads or
writes each of its three matrices once; its backward pass is two products of the same three sizes.
So a layer's forward pass takes ``24 b s h^2 + 4 b s^2 h`` FLOPs (Narayanan et al., arXiv 2104.04473,
appendix), and what it keeps for the backward pass is ``s b h (34 + 5 a s / h)`` bytes (Korthikanti
et al., arXiv 2205.05198, equation 1). Each weight gradient is then added to the gradient buffer.
Causal masks save nothing here, as in those closed forms; they do with fused attention (`attention`). A Llama
has no biases and no dropout, turns queries and keys by their positions (1, 1), and has SwiGLU (2, 1), back (3, 2),
in the place of GELU. What parallelism changes stands in `tape`, `attention` and `experts`. The attention
mask, the relative bias of T5 (added inside the product of queries and keys) and reductions over a few
elements per token are left out.
"""

from collections.abc import Callable
from functools import partial

from fabricsim.scenario.job import Job
from fabricsim.workload.attention import cross_attention, self_attention
from fabricsim.workload.experts import expert_layer, experts
from fabricsim.workload.feed_forward import mlp
from fabricsim.workload.heads import embedding, head, joint
from fabricsim.workload.kinds import LAYERS, BlockKind
from fabricsim.workload.mamba import mamba
from fabricsim.workload.norms import layer_norm
from fabricsim.workload.shapes import Block, attention_width, key_width
from fabricsim.workload.tape import Tape, decoder_sequence
from fabricsim.workload.work import Work

_CAUSAL = ("gpt", "llama")

_QKV = ("QKV", "rotary positions")
KEEPING = {"keep-qkv": _QKV, "keep-attention": (*_QKV, "projection")}
"""What of a layer's forward pass is kept, by what is repeated of it."""


def block_work(block: Block, job: Job) -> Work:
    """List what one rank does in a block for one micro-batch of a job.

    `block`: any block of the job's model, as it lies on one rank.
    `job`: gives the model, the micro-batch, the sequence lengths, the precisions, the parallelism and what is
        recomputed.
    Returns: its kernels and exchanges; the backward pass ends with the addition to the gradient buffer.
    """
    tape = Tape(job)
    tape.plain = not block.narrow
    attention = partial(_own_attention, tape, job, block)
    network = partial(mlp, tape, job, job.sequence)
    parts: dict[BlockKind, tuple[Callable[[], None], ...]] = {
        "embedding": (partial(embedding, tape, job, job.sequence),),
        "layer": (attention, network),
        "expert-layer": (partial(expert_layer, tape, job, attention),),
        "attention": (attention,),
        "feed-forward": (network,),
        "experts": (partial(experts, tape, job, job.sequence),),
        "mamba": (partial(mamba, tape, job),),
        "encoder-norm": (partial(layer_norm, tape, tape.tokens(job.sequence) * job.model.hidden),),
        "decoder-embedding": (partial(embedding, tape, job, decoder_sequence(job)),),
        "decoder-layer": (partial(_decoder_layer, tape, job),),
        "joint": (partial(joint, tape, job),),
        "head": (partial(head, tape, job),),
    }
    for record in parts[block.kind]:
        record()
    tape.accumulate(block)
    work = tape.work()
    if block.kind in LAYERS and job.recompute == "full":
        return _repeated(work, block, job)
    return _partly(work, job) if block.kind in LAYERS and job.recompute in KEEPING else work


def _decoder_layer(tape: Tape, job: Job) -> None:
    self_attention(tape, job, decoder_sequence(job), causal=True)
    cross_attention(tape, job)
    mlp(tape, job, decoder_sequence(job))


def _own_attention(tape: Tape, job: Job, block: Block) -> None:
    """Record the self-attention of a layer of a model without decoder."""
    window = job.model.window if block.windowed else None
    self_attention(tape, job, job.sequence, causal=job.model.family in _CAUSAL, window=window)


def _partly(work: Work, job: Job) -> Work:
    """Keep input, queries, keys and values, and repeat what lies between these and the last product.

    The norm before them is repeated as well, for the gradients of their weights, and attention for those of its
    projection, which may be kept.
    """
    last = max(place for place, item in enumerate(work.forward) if getattr(item, "name", "") == "feed-forward down")
    kept = KEEPING[job.recompute]
    again = tuple(item for item in work.forward[:last] if getattr(item, "name", "") not in kept)
    model, tape = job.model, Tape(job)
    hidden = model.hidden * (2 if "projection" in kept else 1)
    elements = tape.tokens(job.sequence) * (hidden + attention_width(model) + 2 * key_width(model))
    return Work(work.forward, again + work.backward, tape.width * elements)


def _repeated(work: Work, block: Block, job: Job) -> Work:
    """Keep the input alone, and repeat the forward pass, exchanges included, before the backward pass.

    That is ``2 s b h`` bytes, and with sequence parallelism a rank's part of them.
    """
    sequence = decoder_sequence(job) if block.kind == "decoder-layer" else job.sequence
    tape = Tape(job)
    stored = tape.width * tape.own(tape.tokens(sequence) * job.model.hidden)
    return Work(work.forward, work.forward + work.backward, stored)
