"""Low-rank adapters: what of a model is trained, and the products beside its frozen ones.

A product of a frozen matrix from ``a`` to ``b`` gets one from ``a`` to ``rank`` and one from there to ``b`` beside it
(Hu et al., arXiv 2106.09685, equation 3). Of a matrix that tensor parallelism splits, the adapter's one on the same
side is split as well; sums and gathers of the few elements between the two are left out.
"""

from fabricsim.scenario.job import Job
from fabricsim.workload.shapes import Block, attention_width, feed_forward, key_width, stage_blocks, up_projections

TARGETS = {"QKV": "qkv", "projection": "projection", "feed-forward up": "up", "feed-forward down": "down"}
"""Names of adapted products, as layers record them, and those of `fabricsim.scenario.job.Adapters`."""


def adapter_tensors(job: Job) -> tuple[int, ...]:
    """Elements that a rank holds of each matrix of the adapters of a layer, in forward order."""
    model, tensor, adapters = job.model, job.parallelism.tensor, job.adapters
    if adapters is None:
        return ()
    hidden, width, inner = model.hidden, attention_width(model) // tensor, feed_forward(model) // tensor
    ends = {
        "qkv": (hidden, width + 2 * key_width(model) // tensor),
        "projection": (width, hidden),
        "up": (hidden, up_projections(model) * inner),
        "down": (inner, hidden),
    }
    return tuple(end * adapters.rank for name, pair in ends.items() if name in adapters.targets for end in pair)


def trained(block: Block, job: Job) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements of the tensors of a block that have gradients, and of those of experts."""
    if job.adapters is None:
        return block.tensors, block.experts
    return adapter_tensors(job) if block.kind == "layer" else (), ()


def gathered_elements(block: Block, job: Job) -> int:
    """Count the elements of a block, frozen ones and those of adapters too, experts apart."""
    return sum(block.tensors) + (sum(trained(block, job)[0]) if job.adapters is not None else 0)


def trained_parameters(job: Job) -> tuple[tuple[int, ...], ...]:
    """Count the trained parameters that one rank holds of each block of each virtual stage, experts apart."""
    stages = job.parallelism.pipeline * job.parallelism.virtual_stages
    return tuple(
        tuple(sum(trained(block, job)[0]) for block in blocks)
        for blocks in stage_blocks(job.model, stages, job.parallelism)
    )
