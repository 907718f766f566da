"""Queries, keys and values of multi-head attention, as Megatron-Core's ``SelfAttention`` makes them.

One product gives those of a tensor-parallel rank's heads. If there are more ranks than heads of keys, no rank has a
whole group, which is a head of keys, one of values and the queries that share them: all ranks gather what all of them
made, and each takes its queries, and the keys and values of their group, out of that (``get_query_key_value_tensors``
of NVIDIA/Megatron-LM, megatron/core/transformer/attention.py).
"""

from fabricsim.scenario.job import Job
from fabricsim.workload.shapes import attention_width, key_heads, key_width
from fabricsim.workload.tape import Tape, streamed
from fabricsim.workload.work import Exchange, Operation, Pass


def projections(tape: Tape, job: Job, tokens: int, *, normed: bool) -> None:
    """Record all from the normed input to queries, keys and values of `tokens` tokens; `normed` as of `Tape.column`."""
    model, tensor = job.model, tape.tensor
    width, made = attention_width(model) // tensor, (attention_width(model) + 2 * key_width(model)) // tensor
    keys = key_heads(model, tensor) * attention_width(model) // model.heads
    biased = model.family != "llama"
    bias = [Pass(1, 0, weight=True)] if biased else []
    tape.column("QKV", (tokens, model.hidden, made), normed=normed)
    if key_heads(model) < tensor:
        tape.stream("QKV bias", tokens * made, None, *bias)
        _take_group(tape, job, tokens)
    else:
        tape.stream("QKV join and bias", tokens * made, None, Pass(1, 1), *bias)
    if model.head_norm:
        norm = Pass(1, 1), Pass(2, 1), Pass(2, 0, weight=True)
        tape.stream("head norm", tokens * (width + keys), *norm, stored=tape.width)
    if not biased and model.pattern is None:
        _rotate(tape, (tokens * width, tokens * keys), scaled=model.yarn)


def _take_group(tape: Tape, job: Job, tokens: int) -> None:
    """Gather what all ranks made, take the own group out of it, and out of that the own queries.

    Ranks give columns, so that a copy of all puts them in order, also on the way back, where gradients of what was not
    taken are zeros (``_gather_along_last_dim``, ``_reduce_scatter_along_last_dim``,
    megatron/core/tensor_parallel/mappings.py).
    """
    model = job.model
    groups, width = key_heads(model), attention_width(model)
    gathered = tokens * (width + 2 * key_width(model))
    group, queries, own = gathered // groups, tokens * width // groups, tokens * width // tape.tensor

    def kernel(name: str, elements: int, move: Pass) -> Operation:
        return streamed(name, elements, move, tape.width, "stream")

    size, order = gathered * tape.width, kernel("order gathered QKV", gathered, Pass(1, 1))
    gather, scatter = (Exchange(name, "tensor", size) for name in ("all_gather", "reduce_scatter"))
    beside_group = kernel("zeros beside own group", gathered, Pass(0, 1))
    tape.step([gather, order], [beside_group, kernel("own group gradient", group, Pass(1, 1)), order, scatter])
    tape.stream("QKV join", group, None, Pass(1, 1))
    beside_queries = kernel("zeros beside own queries", queries, Pass(0, 1))
    tape.step([], [beside_queries, kernel("own queries gradient", own, Pass(1, 1))])


def _rotate(tape: Tape, tensors: tuple[int, ...], *, scaled: bool) -> None:
    """Record the rotation of queries and keys, tensors of so many elements, by their positions.

    Megatron-LM's fused kernel takes no factor, which YaRN has: each operation is a kernel of PyTorch then
    (``_apply_rotary_pos_emb_bshd`` of NVIDIA/Megatron-LM, megatron/core/models/common/embeddings/rope_utils.py).
    """
    if not scaled:
        tape.stream("rotary positions", sum(tensors), Pass(1, 1), Pass(1, 1))
        return
    for elements in tensors:
        # the part with positions and the empty one without: two gradients, filled up with zeros, and their sum
        tape.stream("rotary positions", elements, None, Pass(0, 1), Pass(1, 1), Pass(0, 1), Pass(2, 1))
        tape.stream("rotary positions", elements, Pass(1, 1), Pass(1, 1))  # times cosine
        tape.stream("rotary positions", elements // 2, Pass(1, 1), Pass(1, 1))  # minus one half
        tape.stream("rotary positions", elements, Pass(1, 1), Pass(1, 1))  # joined with the other
        tape.stream("rotary positions", elements, Pass(1, 1), Pass(1, 1))  # times sine
        tape.stream("rotary positions", elements, Pass(2, 1), Pass(2, 1))  # both together
        tape.stream("rotary positions", elements, Pass(1, 1))  # joined with the empty part
