"""Floating-point operations of a whole iteration, for utilisation figures."""

from collections import Counter

from fabricsim.scenario.job import Job, Parallelism
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import Block, stage_blocks
from fabricsim.workload.tape import decoder_sequence
from fabricsim.workload.work import Operation

_OF_PAIRS = "scores", "context"  # kernels that compute something for each pair of query and key


def iteration_flops(job: Job) -> int:
    """FLOPs of all ranks in one iteration as they are carried out, recomputation included.

    For a GPT with full recomputation this is ``96 B s L h^2 (1 + s / 6h + V / 16 L h)`` over a global
    batch of ``B`` sequences (Narayanan et al., arXiv 2104.04473, section 3.4), with selective
    recomputation ``72 B s L h^2 (1 + s / 4.5h + V / 12 L h)``, since scores and sums of values, ``4 B s^2 L h``,
    are computed once more (Korthikanti et al., arXiv 2205.05198, section 5). Fused attention counts what it
    computes: half of the scores under a causal mask, and the scores once more in its backward pass. Kernels apart count
    in layers with a window as many keys for each query. Experts count their even share of tokens, without padding.
    """
    whole = job.model_copy(update={"parallelism": Parallelism(), "expert_imbalance": 1.0, "pad_to_capacity": False})
    per_micro_batch = 0
    for block, count in Counter(stage_blocks(job.model, 1)[0]).items():
        work = block_work(block, whole)
        items = work.forward + work.backward
        per_micro_batch += count * sum(_flops(item, block, whole) for item in items if isinstance(item, Operation))
    return per_micro_batch * (job.global_batch // job.micro_batch)


def _flops(item: Operation, block: Block, whole: Job) -> int:
    """FLOPs of a kernel as they count.

    Scores of a layer with a window have as many keys for each query, which kernels apart exceed; experts have all
    tokens, which kernels round up to as many for each.
    """
    experts, window = whole.model.experts, whole.model.window
    if block.windowed and window is not None and item.name.startswith(_OF_PAIRS):
        keys = whole.packed or whole.sequence
        return item.flops * min(window, keys) // keys
    if experts is None or not item.name.startswith("experts"):
        return item.flops
    tokens = whole.micro_batch * whole.sequence * experts.per_token
    return item.flops * tokens // (-(-tokens // experts.count) * experts.count)


def model_flops(job: Job) -> int:
    """FLOPs that one iteration of the model needs, however it is computed: those of model FLOPs utilisation.

    Nothing is recomputed and attention counts in full, also under a causal mask, but in layers with a window as many
    keys for each query: for a GPT ``72 B s L h^2
    (1 + s / 6h + V / 12 L h)`` (Korthikanti et al., arXiv 2205.05198, equation 7).
    """
    return hardware_flops(job.model_copy(update={"recompute": "none"}))


def hardware_flops(job: Job) -> int:
    """FLOPs of `model_flops` and those of what the job recomputes: those of hardware FLOPs utilisation.

    Attention counts in full here, too, so that without recomputation both are equal (Chowdhery et al., PaLM,
    arXiv 2204.02311, appendix B); what a fused kernel leaves out under a causal mask counts, what it repeats of itself
    does not.
    """
    return iteration_flops(job.model_copy(update={"attention": "unfused"}))


def tokens(job: Job) -> int:
    """Tokens that one iteration trains on: of a T5 those of encoder and decoder."""
    decoder = decoder_sequence(job) if job.model.family == "t5" else 0
    return job.global_batch * (job.sequence + decoder)
