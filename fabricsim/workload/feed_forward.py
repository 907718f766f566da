"""Feed-forward networks: one for all tokens."""

from fabricsim.scenario.job import Job
from fabricsim.workload.norms import branch, layer_norm, residual
from fabricsim.workload.shapes import feed_forward, up_projections
from fabricsim.workload.tape import Tape, layouts_of
from fabricsim.workload.work import Narrow, Operation, Pass


def mlp(tape: Tape, job: Job, sequence: int) -> None:
    """Record the feed-forward sublayer of sequences of `sequence` tokens."""
    tokens, hidden = tape.tokens(sequence), job.model.hidden
    branch(tape, tokens * hidden)
    normed = not tape.adapted("feed-forward up")
    layer_norm(tape, tokens * hidden, turns=normed)
    network(tape, job, tokens, feed_forward(job.model), normed=normed)
    residual(tape, tokens * hidden)


def network(tape: Tape, job: Job, tokens: int, inner: int, *, normed: bool = False) -> None:
    """Record up-projection, activation and down-projection for `tokens` tokens.

    `normed`: whether its input comes of a norm that is one module with the up-projection.
    """
    hidden, own, start = job.model.hidden, inner // job.parallelism.tensor, len(tape.forward)
    turned = job.activation_quantises
    up = tokens, hidden, up_projections(job.model) * own
    tape.column("feed-forward up", up, turned=turned, normed=normed)
    stored = tape.stored
    activation(tape, job, tokens * own)
    repeated = tape.forward[start:]
    tape.row("feed-forward down", (tokens, own, hidden), turned=turned)
    if job.recompute == "feed-forward":
        tape.repeat(repeated)  # its input is gathered again anyhow
        tape.stored = stored


def activation(tape: Tape, job: Job, elements: int) -> None:
    """Record the activation: SwiGLU of a Llama, GELU with the bias otherwise, or a squared ReLU."""
    if job.model.activation is not None:
        tape.stream("squared ReLU", elements, Pass(1, 1), Pass(2, 1), stored=tape.width)
    elif job.activation_quantises and job.products is not None:
        _quantising_swiglu(tape, job.products, elements)
    elif job.model.family == "llama" and job.activation_input is not None:
        _swiglu_of_kept(tape, elements)
    elif job.model.family == "llama":
        tape.stream("SwiGLU", elements, Pass(2, 1), Pass(3, 2), stored=2 * tape.width, kernel="function")
    else:
        gelu = (Pass(1, 1), Pass(2, 1), Pass(1, 0, weight=True))
        tape.stream("bias-GELU", elements, *gelu, stored=tape.width, kernel="function")


def _quantising_swiglu(tape: Tape, narrow: Narrow, elements: int) -> None:
    """Record a SwiGLU that writes factors of products, as does its gradient."""
    read = tape.width * elements
    result, turned = layouts_of(elements, narrow, tape.layouts)
    forward = Operation("SwiGLU", 0, 2 * read + result, kernel="function", transposed=turned)
    backward = Operation("SwiGLU gradient", 0, 3 * read + 2 * result, kernel="function", transposed=2 * turned)
    tape.step([forward], [backward], 2 * read)


def _swiglu_of_kept(tape: Tape, elements: int) -> None:
    """Record a SwiGLU whose input is kept in 8 bits: turned into these beside it, and back before its gradient.

    Each way is a kernel of its own, ``input.to(...)`` of ``SwiGLUFunction`` (NVIDIA/Megatron-LM,
    megatron/core/fusions/fused_bias_swiglu.py).
    """
    inputs, kept = 2 * elements, 1
    narrow, widen = (Operation(f"{way} SwiGLU input", 0, inputs * (tape.width + kept)) for way in ("narrow", "widen"))
    tape.step([narrow], [], inputs * kept)
    tape.stream("SwiGLU", elements, Pass(2, 1), Pass(3, 2), kernel="function")
    tape.step([], [widen])
