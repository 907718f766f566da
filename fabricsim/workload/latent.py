"""Queries, keys and values of multi-head latent attention, as Megatron-Core's ``MLASelfAttention`` makes them.

A token's latent vectors come from matrices that are on every tensor-parallel rank; norms and matrices that are split by
heads follow (DeepSeek-AI, arXiv 2412.19437, equations 1 to 9). With sequence parallelism a rank makes those of its
tokens and gathers them. Positions are turned and heads put together in one kernel each for queries and for keys.
"""

from fabricsim.scenario.job import Job
from fabricsim.workload.norms import layer_norm
from fabricsim.workload.shapes import attention_width
from fabricsim.workload.tape import Tape
from fabricsim.workload.work import Exchange, Item, Pass


def latent_projections(tape: Tape, job: Job, tokens: int) -> list[Item]:
    """Record all from the normed input to queries, keys and values of `tokens` tokens.

    Returns what leads from the latent vectors to these, which ``--recompute-modules mla_up_proj`` of Megatron-LM
    repeats. Raises ValueError without such vectors.
    """
    model, latent = job.model, job.model.latent
    if latent is None:
        raise ValueError(f"{model.name} has no latent attention")
    hidden, own, heads = model.hidden, tape.own(tokens), model.heads // tape.tensor
    width = attention_width(model) // tape.tensor
    tape.linear("query down", (own, hidden, latent.query_rank), stored=own * hidden)
    tape.linear("key down", (own, hidden, latent.key_rank + latent.rotary), stored=0)
    tape.stream("add input gradients", own * hidden, None, Pass(2, 1))
    start = len(tape.forward)
    layer_norm(tape, tokens * latent.query_rank)
    tape.column("query up", (tokens, latent.query_rank, width + heads * latent.rotary))
    tape.stream("rotary positions", tokens * heads * latent.rotary, Pass(1, 1), Pass(1, 1))
    layer_norm(tape, tokens * latent.key_rank)
    tape.column("key up", (tokens, latent.key_rank, 2 * width))
    if tape.gathers:
        size = tokens * latent.rotary * tape.width
        tape.step([Exchange("all_gather", "tensor", size)], [Exchange("reduce_scatter", "tensor", size)])
    tape.stream("keys with positions", tokens * (2 * width + heads * latent.rotary), Pass(1, 1), Pass(1, 1))
    return tape.forward[start:]
