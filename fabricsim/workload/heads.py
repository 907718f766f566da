"""Both ends of a model: embedding, and logits with their loss."""

from fabricsim.scenario.job import Job
from fabricsim.workload.norms import layer_norm
from fabricsim.workload.shapes import TOKEN_TYPES
from fabricsim.workload.tape import FP32, Tape, decoder_sequence
from fabricsim.workload.work import MASK, Exchange, Operation, Pass

_GATHERED = 3  # of each token: maximum, sum and its own logit


def embedding(tape: Tape, job: Job, sequence: int) -> None:
    """Gather one row per token from each table, add them up, drop out.

    The gradient of a table is dense: zeroed as a whole, then one row per token is added. A rank has a
    part of the vocabulary, and nothing to give for the tokens of others, so that the ranks' results are
    added up.
    """
    model = job.model
    elements = tape.tokens(sequence) * model.hidden
    tables = {"t5": (), "llama": (), "gpt": (model.positions,), "bert": (model.positions, TOKEN_TYPES)}[model.family]
    _gather(tape, elements, model.vocabulary // tape.tensor * model.hidden)
    if model.family == "llama":
        tape.sum_up(elements)
        return
    if tape.tensor > 1:
        tape.step([Exchange("all_reduce", "tensor", elements * tape.width)], [])
    for rows in tables:
        _gather(tape, elements, rows * model.hidden)
    for _ in tables:
        tape.stream("add", elements, Pass(2, 1))
    if tape.gathers:  # each rank takes its part of the sequence; the gradients of all parts come back together
        tape.step([], [Exchange("all_gather", "tensor", elements * tape.width)])
    if job.dropout:
        mask = Pass(1, 1, MASK)
        tape.stream("dropout", tape.own(elements), mask, mask, stored=MASK, kernel="function")


def _gather(tape: Tape, elements: int, table: int) -> None:
    zero = Operation("zero table gradient", 0, table * tape.width, weight=True)
    add = Operation("gather gradient", 0, 3 * elements * tape.width, weight=True)
    tape.step([Operation("gather", 0, 2 * elements * tape.width)], [] if tape.frozen else [zero, add])


def logit_tokens(job: Job) -> int:
    """Tokens of a micro-batch that get logits on a context-parallel rank: the masked ones of a BERT that says."""
    sequence = decoder_sequence(job) if job.model.family == "t5" else job.sequence
    masked = job.predictions if job.model.family == "bert" else None
    return job.micro_batch * (sequence if masked is None else masked) // job.parallelism.context


def head(tape: Tape, job: Job) -> None:
    """Normalise, transform (BERT, with its pooler), take the logits of tokens and their loss.

    The pooler and the transform of a BERT are the same on all tensor-parallel ranks.
    """
    model = job.model
    hidden, sequence = model.hidden, decoder_sequence(job) if model.family == "t5" else job.sequence
    tokens = tape.tokens(sequence)
    tape.plain = True
    layer_norm(tape, tokens * hidden)
    if model.family == "bert":
        tokens = _bert(tape, job, tokens)
    vocabulary = model.vocabulary // tape.tensor
    tape.plain = not job.narrow_logits
    tape.column("logits", (tokens, hidden, vocabulary))
    if job.loss_kernels == "fused":
        _fused_cross_entropy(tape, tokens, vocabulary)
    else:
        _cross_entropy(tape, tokens, vocabulary)


def joint(tape: Tape, job: Job) -> None:
    """Join what comes of the layers with the embedding of a token further on: a norm of each, and a product of both.

    The product is split by columns, of which all ranks gather all and, with sequence parallelism, keep those of their
    tokens (``MultiTokenPredictionLayer`` of Megatron-LM, megatron/core/transformer/multi_token_prediction.py).
    """
    hidden, tokens = job.model.hidden, tape.tokens(job.sequence)
    embedding(tape, job, job.sequence)
    for _ in ("embedding", "hidden"):
        layer_norm(tape, tokens * hidden)
    tape.stream("join vectors", tape.own(tokens) * 2 * hidden, Pass(1, 1), Pass(1, 1))
    tape.column("joint", (tokens, 2 * hidden, hidden // tape.tensor))
    if tape.tensor > 1:
        whole = Exchange("all_gather", "tensor", tokens * hidden * tape.width)
        tape.step([whole], [whole] if tape.gathers else [])


def _bert(tape: Tape, job: Job, tokens: int) -> int:
    """Record pooler and transform; returns the tokens that get logits."""
    hidden = job.model.hidden
    if tape.gathers:  # the pooler looks at the first token of each sequence
        tape.step([Exchange("all_gather", "tensor", tokens * hidden * tape.width)], [])
    tape.linear("pooler", (job.micro_batch, hidden, hidden), stored=job.micro_batch * hidden)
    if job.predictions is not None:
        tokens = logit_tokens(job)
        tape.stream("masked tokens", tape.own(tokens) * hidden, Pass(1, 1), Pass(1, 1))
    own = tape.own(tokens)
    tape.linear("transform", (own, hidden, hidden), stored=own * hidden)
    gelu = (Pass(1, 1), Pass(2, 1), Pass(1, 0, weight=True))
    tape.stream("bias-GELU", own * hidden, *gelu, stored=tape.width, kernel="function")
    layer_norm(tape, tokens * hidden)
    return tokens


def _cross_entropy(tape: Tape, tokens: int, vocabulary: int) -> None:
    """Loss in fp32 over the vocabulary: maximum, difference, exponential, sum, quotient.

    These are the passes of Megatron-LM's vocabulary-parallel cross entropy; 16-bit logits are cast
    to fp32 first, and their gradient back. Ranks agree on each token's maximum, logit and sum.
    """
    logits = tokens * vocabulary
    if tape.width != FP32:
        cast = Operation("cast", 0, logits * (tape.width + FP32))
        tape.step([cast], [cast])
    tape.stream("maximum", logits, Pass(1, 0), width=FP32)
    _agree(tape, tokens)
    tape.stream("difference", logits, Pass(1, 1), width=FP32)
    _agree(tape, tokens)
    tape.stream("exponential", logits, Pass(1, 1), width=FP32, kernel="function")
    tape.stream("sum", logits, Pass(1, 0), width=FP32)
    _agree(tape, tokens)
    tape.stream("quotient", logits, Pass(1, 1), width=FP32)
    tape.stream("loss", logits, None, Pass(1, 1), stored=FP32, width=FP32)


def _fused_cross_entropy(tape: Tape, tokens: int, vocabulary: int) -> None:
    """Loss by the kernels of Transformer Engine (``cross_entropy.py`` of its Triton ones), which cast in registers.

    One reads the logits for the maximum and sum of each token, which all ranks gather with the token's logit, one reads
    them again and writes their gradient in their place, and one multiplies that by the gradient of the token's loss,
    which is not 1, since losses are masked and averaged behind it.
    """
    logits = tokens * vocabulary
    tape.stream("maximum and sum", logits, Pass(1, 0), kernel="function")
    if tape.tensor > 1:
        tape.step([Exchange("all_gather", "tensor", tape.tensor * tokens * _GATHERED * FP32)], [])
    tape.stream("loss and gradient", logits, Pass(1, 1), stored=tape.width, kernel="function")
    tape.stream("loss", logits, None, Pass(1, 1))


def _agree(tape: Tape, tokens: int) -> None:
    if tape.tensor > 1:
        tape.step([Exchange("all_reduce", "tensor", tokens * FP32)], [])
