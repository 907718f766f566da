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
Causal masks save nothing here, as in those closed forms. The attention mask, the relative bias of T5
(added inside the product of queries and keys) and reductions over a few elements per token are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.workload.shapes import TOKEN_TYPES, Block, attention_width, feed_forward
from fabricsim.workload.work import Operation, Work

if TYPE_CHECKING:
    from fabricsim.spec.job import Job

PRECISION_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Bytes per element."""

_FP32 = 4
_MASK = 1


class _Pass(NamedTuple):
    """What one streaming kernel moves per element: reads and writes, and bytes of mask."""

    reads: int
    writes: int
    mask: int = 0


@dataclass
class _Tape:
    """Collects the operations of a block."""

    width: int
    forward: list[Operation] = field(default_factory=list)
    backward: list[Operation] = field(default_factory=list)
    stored: int = 0

    def gemm(self, name: str, shape: tuple[int, int, int], *, batch: int = 1, stored: int) -> None:
        """Record `batch` products (rows, inner, columns) and gradients; `stored` elements stay in memory."""
        rows, inner, columns = shape
        flops = 2 * batch * rows * inner * columns
        traffic = self.width * batch * (rows * inner + inner * columns + rows * columns)
        self.forward.append(Operation(name, flops, traffic))
        self.backward += [Operation(f"{name} {side} gradient", flops, traffic) for side in ("left", "right")]
        self.stored += self.width * stored

    def stream(self, name: str, elements: int, forward: _Pass | None, *backward: _Pass, stored: int = 0) -> None:
        """Record a streaming kernel; `stored` bytes per element stay in memory."""
        if forward is not None:
            self.forward.append(self._streamed(name, elements, forward))
        self.backward += [self._streamed(f"{name} gradient", elements, each) for each in backward]
        self.stored += elements * stored

    def _streamed(self, name: str, elements: int, move: _Pass) -> Operation:
        return Operation(name, 0, elements * ((move.reads + move.writes) * self.width + move.mask))

    def work(self) -> Work:
        return Work(tuple(self.forward), tuple(self.backward), self.stored)


def decoder_sequence(job: Job) -> int:
    """Tokens per sequence in the decoder of a T5: the encoder's where the job does not say."""
    return job.decoder_sequence if job.decoder_sequence is not None else job.sequence


def gradient_bytes(job: Job) -> int:
    """Bytes per element of the gradient buffer: `gradient_precision`, or `precision` without it."""
    return PRECISION_BYTES[job.gradient_precision or job.precision]


def block_work(block: Block, job: Job) -> Work:
    """List what a block does for one micro-batch of a job.

    Parameters
    ----------
    block
        Any block of the job's model.
    job
        Gives the model, the micro-batch, the sequence lengths and the precisions.

    Returns
    -------
    Work
        Its operations; the backward pass ends with the addition to the gradient buffer.
    """
    tape = _Tape(PRECISION_BYTES[job.precision])
    if block.kind == "embedding":
        _embedding(tape, job, job.sequence)
    elif block.kind == "layer":
        _self_attention(tape, job, job.sequence)
        _mlp(tape, job, job.sequence)
    elif block.kind == "encoder-norm":
        _layer_norm(tape, job.micro_batch * job.sequence * job.model.hidden)
    elif block.kind == "decoder-embedding":
        _embedding(tape, job, decoder_sequence(job))
    elif block.kind == "decoder-layer":
        _self_attention(tape, job, decoder_sequence(job))
        _cross_attention(tape, job)
        _mlp(tape, job, decoder_sequence(job))
    else:
        _head(tape, job)
    _accumulate(tape, block, gradient_bytes(job))
    return tape.work()


def optimizer_operations(parameters: int, job: Job) -> tuple[Operation, ...]:
    """List what the optimizer does to the parameters of a stage, once per iteration.

    Bytes per parameter, after Megatron-LM's mixed-precision Adam with ``g`` bytes per gradient and
    ``w`` per parameter: zero the buffer ``g``; divide by the data-parallel size ``2 g`` (only with
    data parallelism); copy to fp32 ``g + 4`` (not where gradients are fp32); unscale and look for
    infinities ``8`` (fp16 only: bf16 has no loss scale); norm ``4``; Adam reads gradient, parameter and
    two moments and writes three of them ``28``; write the working copy ``4 + w`` (not in fp32).
    Each pass is one multi-tensor kernel. The scaling by the clip factor happens only where the norm
    is exceeded and is left out.
    """
    grad, width = gradient_bytes(job), PRECISION_BYTES[job.precision]
    rows = [
        ("zero gradients", grad, True),
        ("average gradients", 2 * grad, job.parallelism.data > 1),
        ("copy gradients to fp32", grad + _FP32, grad != _FP32),
        ("unscale", 2 * _FP32, job.precision == "fp16"),
        ("gradient norm", _FP32, True),
        ("Adam", 7 * _FP32, True),
        ("copy parameters", _FP32 + width, width != _FP32),
    ]
    return tuple(Operation(name, 0, size * parameters) for name, size, done in rows if done)


def _layer_norm(tape: _Tape, elements: int) -> None:
    tape.stream("layer norm", elements, _Pass(1, 1), _Pass(2, 1), _Pass(2, 0), stored=tape.width)


def _residual(tape: _Tape, elements: int) -> None:
    tape.stream("bias-dropout-residual", elements, _Pass(2, 1, _MASK), _Pass(1, 1, _MASK), _Pass(1, 0), stored=_MASK)
    tape.stream("residual", elements, None, _Pass(2, 1))


def _core_attention(tape: _Tape, job: Job, queries: int, keys: int) -> None:
    """Scores, softmax, dropout, context and its transpose; `queries` and `keys` per sequence."""
    batch, heads, width = job.micro_batch, job.model.heads, attention_width(job.model)
    head, scores = width // heads, batch * heads * queries * keys
    query_elements, key_elements = batch * queries * width, batch * keys * width
    tape.gemm("scores", (queries, head, keys), batch=batch * heads, stored=query_elements + key_elements)
    tape.stream("softmax", scores, _Pass(1, 1), _Pass(2, 1), stored=tape.width)
    tape.stream("attention dropout", scores, _Pass(1, 1, _MASK), _Pass(1, 1, _MASK), stored=tape.width + _MASK)
    tape.gemm("context", (queries, keys, head), batch=batch * heads, stored=key_elements)
    tape.stream("context transpose", query_elements, _Pass(1, 1), _Pass(1, 1))


def _self_attention(tape: _Tape, job: Job, sequence: int) -> None:
    hidden, width = job.model.hidden, attention_width(job.model)
    tokens = job.micro_batch * sequence
    _layer_norm(tape, tokens * hidden)
    tape.gemm("QKV", (tokens, hidden, 3 * width), stored=tokens * hidden)
    tape.stream("QKV join and bias", 3 * tokens * width, None, _Pass(1, 1), _Pass(1, 0))
    _core_attention(tape, job, sequence, sequence)
    tape.gemm("projection", (tokens, width, hidden), stored=tokens * width)
    _residual(tape, tokens * hidden)


def _cross_attention(tape: _Tape, job: Job) -> None:
    """Attend from the decoder to the encoder output, whose gradients of all layers add up."""
    hidden, width = job.model.hidden, attention_width(job.model)
    queries, keys = decoder_sequence(job), job.sequence
    tokens, memory = job.micro_batch * queries, job.micro_batch * keys
    _layer_norm(tape, tokens * hidden)
    tape.gemm("query", (tokens, hidden, width), stored=tokens * hidden)
    tape.stream("query bias", tokens * width, None, _Pass(1, 0))
    # The encoder output is kept once for all decoder layers, not once in each.
    tape.gemm("key-value", (memory, hidden, 2 * width), stored=0)
    tape.stream("key-value join and bias", 2 * memory * width, None, _Pass(1, 1), _Pass(1, 0))
    tape.stream("encoder output", memory * hidden, None, _Pass(2, 1))
    _core_attention(tape, job, queries, keys)
    tape.gemm("projection", (tokens, width, hidden), stored=tokens * width)
    _residual(tape, tokens * hidden)


def _mlp(tape: _Tape, job: Job, sequence: int) -> None:
    hidden, inner = job.model.hidden, feed_forward(job.model)
    tokens = job.micro_batch * sequence
    _layer_norm(tape, tokens * hidden)
    tape.gemm("feed-forward up", (tokens, hidden, inner), stored=tokens * hidden)
    tape.stream("bias-GELU", tokens * inner, _Pass(1, 1), _Pass(2, 1), _Pass(1, 0), stored=tape.width)
    tape.gemm("feed-forward down", (tokens, inner, hidden), stored=tokens * inner)
    _residual(tape, tokens * hidden)


def _embedding(tape: _Tape, job: Job, sequence: int) -> None:
    """Gather one row per token from each table, add them up, drop out.

    The gradient of a table is dense: zeroed as a whole, then one row per token is added.
    """
    model = job.model
    elements = job.micro_batch * sequence * model.hidden
    tables = {"t5": (), "gpt": (model.positions,), "bert": (model.positions, TOKEN_TYPES)}[model.family]
    for rows in (model.vocabulary, *tables):
        tape.stream("gather", elements, _Pass(1, 1), _Pass(2, 1))
        tape.stream("zero table", rows * model.hidden, None, _Pass(0, 1))
    for _ in tables:
        tape.stream("add", elements, _Pass(2, 1))
    tape.stream("dropout", elements, _Pass(1, 1, _MASK), _Pass(1, 1, _MASK), stored=_MASK)


def _head(tape: _Tape, job: Job) -> None:
    """Normalise, transform (BERT, with its pooler), take the logits of every token and their loss."""
    model = job.model
    hidden, sequence = model.hidden, decoder_sequence(job) if model.family == "t5" else job.sequence
    tokens = job.micro_batch * sequence
    _layer_norm(tape, tokens * hidden)
    if model.family == "bert":
        tape.gemm("pooler", (job.micro_batch, hidden, hidden), stored=job.micro_batch * hidden)
        tape.gemm("transform", (tokens, hidden, hidden), stored=tokens * hidden)
        tape.stream("bias-GELU", tokens * hidden, _Pass(1, 1), _Pass(2, 1), _Pass(1, 0), stored=tape.width)
        _layer_norm(tape, tokens * hidden)
    tape.gemm("logits", (tokens, hidden, model.vocabulary), stored=tokens * hidden)
    _cross_entropy(tape, tokens * model.vocabulary)


def _cross_entropy(tape: _Tape, logits: int) -> None:
    """Loss in fp32 over the vocabulary: maximum, difference, exponential, sum, quotient.

    These are the passes of Megatron-LM's vocabulary-parallel cross entropy; 16-bit logits are cast
    to fp32 first, and their gradient back.
    """
    fp32 = _Tape(_FP32)
    for name, move in (
        ("maximum", _Pass(1, 0)),
        ("difference", _Pass(1, 1)),
        ("exponential", _Pass(1, 1)),
        ("sum", _Pass(1, 0)),
        ("quotient", _Pass(1, 1)),
    ):
        fp32.stream(name, logits, move)
    fp32.stream("loss", logits, None, _Pass(1, 1), stored=_FP32)
    if tape.width != _FP32:
        cast = Operation("cast", 0, logits * (tape.width + _FP32))
        tape.forward.append(cast)
        tape.backward.append(cast)
    tape.forward += fp32.forward
    tape.backward += fp32.backward
    tape.stored += fp32.stored


def _accumulate(tape: _Tape, block: Block, buffer: int) -> None:
    """Add each weight gradient to the gradient buffer of `buffer` bytes per element."""
    size = tape.width + 2 * buffer
    tape.backward += [Operation("accumulate gradient", 0, elements * size) for elements in block.tensors]
