"""What each parallelism sends in one iteration, in closed form.

Nothing here looks at the program: `fabricsim.workload.tally` counts that, and the two must agree. With
micro-batch ``b``, sequence ``s``, hidden ``h``, ``W`` bytes per activation and ``G`` per gradient, ``m``
micro-batches per replica, degrees ``d, t, p, c, e`` and ``v`` model chunks per rank; ``P`` parameters of
a rank:

=========== ================================================= ==================================================
dimension   calls of a group                                  source
=========== ================================================= ==================================================
data        one all-reduce of ``P G``; ZeRO 1 and 2           Rajbhandari et al., arXiv 1910.02054, section 7;
            reduce-scatter ``P G`` and all-gather ``P W``,    Anthony et al., arXiv 2408.10197
            ZeRO 3 a reduce-scatter and two all-gathers
tensor      4 all-reduces of ``b s h W`` per layer and        Narayanan et al., arXiv 2104.04473, section 3.2;
            micro-batch, 6 with full recomputation; with      Korthikanti et al., arXiv 2205.05198, section 4.2.2
            sequence parallelism 4 reduce-scatters and 6
            all-gathers, 2 of these to gather inputs again
pipeline    ``2 m (p v - 1)`` messages of ``b s h W / c``,    Narayanan et al., sections 2.2 and 4.1
            of ``1 / t`` of it if ranks send a part each
embedding   one all-reduce of ``V h G / t``                   Narayanan et al., section 2.2
context     ring: keys and values ``c - 1`` times forward,    Liu et al., arXiv 2310.01889;
            ``c`` times backward with their gradients from    Jacobs et al., arXiv 2309.14509
            the second on; Ulysses: 4 all-to-alls each way
expert      2 all-to-alls each way per layer of experts       Lepikhin et al., arXiv 2006.16668
=========== ================================================= ==================================================
"""

from collections.abc import Iterator

from fabricsim.scenario.job import Job, micro_batches
from fabricsim.workload.parameter_counts import virtual_stages
from fabricsim.workload.shapes import embedding_stages, layout
from fabricsim.workload.tally import EqualCalls
from fabricsim.workload.tape import decoder_sequence, gradient_bytes
from fabricsim.workload.volumes_data import data_calls
from fabricsim.workload.volumes_layers import activation_bytes, layer_calls


def closed_forms(job: Job, hosts: int = 1) -> Iterator[EqualCalls]:
    """Give all calls of one iteration of a job by the formulas.

    Groups of one rank send nothing and are given all the same, as calls of one member.

    `hosts`: over which each expert-parallel group is spread evenly, as of `fabricsim.workload.placement.Placement`.
    """
    yield from data_calls(job)
    yield from layer_calls(job, hosts)
    yield from pipeline_calls(job)
    yield from embedding_calls(job)


def embedding_calls(job: Job) -> Iterator[EqualCalls]:
    """All-reduce of the word embedding's gradient over the stages that hold a copy of it."""
    degrees = job.parallelism
    if job.adapters is not None:  # it is frozen
        return
    holders = {stage % degrees.pipeline for stage in embedding_stages(job.model, virtual_stages(job))}
    size = job.model.vocabulary // degrees.tensor * job.model.hidden * gradient_bytes(job)
    yield EqualCalls("embedding", "all_reduce", len(holders), size, degrees.ranks // degrees.pipeline)


def pipeline_calls(job: Job) -> Iterator[EqualCalls]:
    """Activations sent forward and their gradients sent back, over each boundary of two virtual stages.

    Behind the encoder of a T5 its output travels along. What ranks have received in parts they gather.
    """
    degrees = job.parallelism
    plan = layout(job.model, virtual_stages(job))
    parts = degrees.tensor if degrees.sequence_parallel or degrees.scatter_gather else 1
    chains, both_ways = degrees.ranks // degrees.pipeline, 2 * micro_batches(job)
    for stage in range(plan.last):
        decoding = plan.first_decoder is not None and stage >= plan.first_decoder
        size = activation_bytes(job, job.sequence + (decoder_sequence(job) if decoding else 0)) // parts
        yield EqualCalls("pipeline", "send_recv", 2, size, both_ways * chains)
        if degrees.scatter_gather:
            yield EqualCalls("tensor", "all_gather", parts, size * parts, both_ways * chains // parts)
