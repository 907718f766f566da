"""How tokens get to the ranks of their experts and back.

An all-to-all sends a token to each of its experts, a dispatcher once to each rank that has some of them (DeepEP,
HybridEP), or over several hosts once to each host, and on from there.

HybridEP, with a number of processors (``job.hybridep_processors``), takes the following besides. Each rank gathers
which experts the tokens of all take, a byte for each token and expert, and searches that for its own. Copies of a token
travel with the weights of all experts of the host that they go to, and so do the gradients of these on their way back.
Results are pulled: each processor waits for its reads of copies of tokens, of which few are on their way, however long
they are. Tokens are ordered by kernels that ask of each copy and expert whether they belong together (deepseek-ai/
DeepEP, docs/Hybrid-EP_Implementation.md and deep_ep/hybrid_ep_buffer.py).
"""

import math

from fabricsim.scenario.job import Job
from fabricsim.workload.shapes import experts_of, routed_width
from fabricsim.workload.tape import FP32, Tape
from fabricsim.workload.work import Exchange, TokenRouting

READ = 430_000
"""Time of a processor for each copy of a token that HybridEP pulls, ps.

Calibrated on B200 with 32 processors, tokens of 1 KiB and ten of them on their way, as by default: 0.425 to 0.431 us
in three tables (harryzhou2000/megatron-lm-moe-experiments@d084ffa, notes/hybrid-ep-sparse-opt-new.md, "combine kernel
(no probs)" of branch hybrid-ep). With 16 processors, tokens of 14 KiB and twelve of them it was 0.34 us
(Hybrid-EP_Implementation.md). Reads beside gradients of weights, which take a tenth more in these tables, are taken to
be as fast. U: other GPUs are as B200.
"""

SEARCH = 470
"""Time of HybridEP's search for the routes of tokens for each of all ranks' tokens, ps.

Calibrated on B300, 8 experts on each of 72 ranks, of which a token takes 6, 12,288 tokens of each: 412 us (the same
repository@45978b2, notes/isolated-scan-bench.md, 512 threads, before). With 32 experts, of which a token takes 36, it
takes three times as long there: left out. U: other GPUs are as B300.
"""

ORDER, ADD_UP = 180, 120
"""Time of HybridEP's kernels that order tokens by expert, and that add results up, ps.

For each copy of a token that a rank receives and each of its experts, of which most do not take it. Memory bounds these
kernels if tokens are long. Calibrated on B200 (the first notes, ``permute_kernel`` and ``unpermute_kernel`` of branch
hybrid-ep): within 20 and 31 % of three tables of tokens of 1 KiB. Notes of June 2026 have kernels that visit only the
experts that take a token, 1.3 to 6 times as fast. U: releases of Megatron-Bridge up to 26.08 have those before.
"""

FIND = 120
"""Time to find the places of tokens in the order of experts, for each copy and expert as above, ps.

Calibrated on GB200, 32 of 2,304 experts on each of 72 ranks, 12,288 tokens of each to 36 of them: 1.34 ms
(notes/nsys_e72_full_iteration_analysis.md@2e6c4d0, ``permute_preprocessing_kernel``). U: other GPUs are as GB200.
"""


def load(job: Job) -> float:
    """Tokens of the busiest rank's experts over those of the mean one's.

    Padded to their capacity, all get the same. Else an expert sees each token once at most, and the experts of a rank
    see no more than all of them do, which is the mean if one rank has them all.
    """
    mixture, most = experts_of(job.model), job.capacity_factor or math.inf
    if job.pad_to_capacity:
        return most
    return min(job.expert_imbalance, most, mixture.count / mixture.per_token, job.parallelism.expert)


def copies(job: Job) -> float:
    """Count how often a token is sent: to each of its experts, or once to each rank that has some of them."""
    routing = routing_of(job)
    return experts_of(job.model).per_token if routing is None else routing.copies(job.parallelism.expert)


def routing_of(job: Job) -> TokenRouting | None:
    """How tokens choose experts, if a dispatcher sends them."""
    mixture = experts_of(job.model)
    return TokenRouting(mixture.count, mixture.per_token) if job.expert_kernels in {"flex", "fused"} else None


def sent_tokens(job: Job, own: int) -> float:
    """Count the copies of tokens that a rank with `own` of them sends, as the busiest rank receives them."""
    sent = own * copies(job) * load(job)
    # of each token the busiest rank is sent one copy at most
    return sent if routing_of(job) is None else min(sent, own * job.parallelism.expert)


def routes(tape: Tape, job: Job) -> list[Exchange]:
    """Make what tells ranks which tokens they receive."""
    own, ranks = tape.own(tape.tokens(job.sequence)), job.parallelism.expert
    if not job.hybridep_processors:
        return []
    found = own * ranks * SEARCH + visits(job, own) * FIND
    return [Exchange("all_gather", "expert", own * ranks * experts_of(job.model).count, behind=found)]


def visits(job: Job, own: int) -> int:
    """Count copies of tokens that a rank receives, times its experts, if HybridEP orders them; all have `own`."""
    if not job.hybridep_processors:
        return 0
    return round(sent_tokens(job, own) * experts_of(job.model).count / job.parallelism.expert)


def to_experts(tape: Tape, job: Job) -> tuple[Exchange, Exchange]:
    """Make the exchange that brings tokens to their experts, and that of their gradients."""
    return _exchange(tape, job, weighted=True), _exchange(tape, job, weighted=True, pulled=True)


def from_experts(tape: Tape, job: Job) -> tuple[Exchange, Exchange]:
    """Make the exchange that brings results of experts back, and that of their gradients."""
    return _exchange(tape, job, pulled=True), _exchange(tape, job)


def _exchange(tape: Tape, job: Job, *, weighted: bool = False, pulled: bool = False) -> Exchange:
    sent, processors = sent_tokens(job, tape.own(tape.tokens(job.sequence))), job.hybridep_processors
    size = math.ceil(sent * routed_width(job.model)) * tape.width
    weights = math.ceil(sent * experts_of(job.model).count) * FP32 if processors and weighted else 0
    least = round(sent * READ / processors) if processors and pulled else 0
    return Exchange("all_to_all", "expert", size, routing=routing_of(job), weights=weights, least=least)
