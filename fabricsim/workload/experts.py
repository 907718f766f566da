"""A mixture of experts in the place of the feed-forward network, as Megatron-LM's all-to-all dispatcher runs it.

A router picks experts for each token; tokens are copied, ordered by expert and exchanged, go through the
experts of each rank in one grouped product, and travel back to be weighted and added up. If tensor
parallelism splits the experts, their tokens are gathered before and added up behind them. Shared experts
are one feed-forward network of their joint width (Dai et al., arXiv 2401.06066).

Every rank does what the busiest one does: its experts get ``expert_imbalance`` times the even share of
tokens, at most ``capacity_factor`` times it (Lepikhin et al., arXiv 2006.16668, section 2.2); all others wait
for it in the exchange that follows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fabricsim.workload.feed_forward import activation, network
from fabricsim.workload.norms import branch, layer_norm, residual
from fabricsim.workload.shapes import expert_width, experts_of, up_projections
from fabricsim.workload.tape import FP32
from fabricsim.workload.work import Exchange, Pass

if TYPE_CHECKING:
    from fabricsim.scenario.job import Job
    from fabricsim.workload.tape import Tape


def experts(tape: Tape, job: Job, sequence: int) -> None:
    """Record the sublayer of experts for sequences of `sequence` tokens."""
    mixture, hidden = experts_of(job.model), job.model.hidden
    tokens = tape.tokens(sequence)
    branch(tape, tokens * hidden)
    layer_norm(tape, tokens * hidden)
    own = tape.own(tokens)
    _route(tape, job, own)
    copies = own * mixture.per_token * hidden
    tape.stream("order by expert", copies, Pass(1, 1), Pass(1, 1))
    dispatched = math.ceil(copies * load(job))
    _exchange(tape, dispatched)
    _grouped(tape, job, math.ceil(tokens * mixture.per_token * load(job)))
    _exchange(tape, dispatched)
    tape.stream("weight and add up", copies, Pass(1, 0), Pass(1, 1), stored=tape.width)
    if mixture.shared:
        network(tape, job, tokens, mixture.shared * expert_width(job.model))
        tape.stream("add shared experts", own * hidden, Pass(2, 1))
    residual(tape, tokens * hidden)


def load(job: Job) -> float:
    """Tokens of the busiest expert over those of the mean one."""
    return min(job.expert_imbalance, job.capacity_factor or math.inf)


def _route(tape: Tape, job: Job, tokens: int) -> None:
    """Scores of all experts for each token, their softmax in fp32, and the largest of them."""
    count = experts_of(job.model).count
    tape.plain = True
    tape.linear("router", (tokens, job.model.hidden, count), stored=tokens * job.model.hidden)
    tape.plain = False
    tape.stream("router softmax", tokens * count, Pass(1, 1), Pass(2, 1), stored=FP32, width=FP32, kernel="function")
    tape.stream("choice of experts", tokens * count, Pass(1, 1), Pass(1, 1), width=FP32)


def _exchange(tape: Tape, elements: int) -> None:
    if tape.job.parallelism.expert > 1:
        exchange = Exchange("all_to_all", "expert", elements * tape.width)
        tape.step([exchange], [exchange])


def _grouped(tape: Tape, job: Job, rows: int) -> None:
    """Run `rows` tokens through the experts of this rank, evenly spread."""
    hidden, inner = job.model.hidden, expert_width(job.model) // tape.tensor
    local = experts_of(job.model).count // job.parallelism.expert
    each = math.ceil(rows / local)
    size = rows * hidden * tape.width
    if tape.gathers:
        gather, add = Exchange("all_gather", "tensor", size), Exchange("reduce_scatter", "tensor", size)
        tape.step([gather], [add])
    elif tape.tensor > 1:
        tape.step([], [Exchange("all_reduce", "tensor", size)])
    up = (each, hidden, up_projections(job.model) * inner)
    tape.linear("experts up", up, batch=local, stored=rows * hidden)
    activation(tape, job, rows * inner)
    tape.linear("experts down", (each, inner, hidden), batch=local, stored=rows * inner)
    tape.sum_up(rows * hidden)
