"""What tensor, context and expert parallelism send within blocks, in closed form."""

from __future__ import annotations

from itertools import chain
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.scenario.job import Job, micro_batches
from fabricsim.workload.dispatcher import copies, routing_of
from fabricsim.workload.kinds import Part, layer_parts, parts, predicted, predicting_parts
from fabricsim.workload.mamba import scan_of
from fabricsim.workload.operations import KEEPING
from fabricsim.workload.shapes import attention_width, decoder_layers, key_heads, key_width, rotary_width, routed_width
from fabricsim.workload.tally import EqualCalls
from fabricsim.workload.tape import NARROW_BYTES, PRECISION_BYTES, decoder_sequence

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator


_LOSS = 4  # bytes per token of each of the three all-reduces of Megatron-LM's vocabulary-parallel cross entropy
_GATHERED = 12  # bytes per token that each rank gives to Transformer Engine's: maximum, sum and its own logit


class _Count(NamedTuple):
    """How often a micro-batch passes a product.

    `size`: bytes of all tokens at its input, or output.
    `columns`, `rows`: products whose weights are split by columns, and by rows, of a forward pass.
    `times`: blocks that have them.
    `again`: further forward passes of each.
    `narrow`: bytes of what is gathered over those of `size`.
    """

    size: int
    columns: int
    rows: int
    times: int
    again: int
    narrow: float


def activation_bytes(job: Job, tokens: int) -> int:
    """Bytes of a micro-batch's activations on a context-parallel rank, ``b s h W / c``."""
    size = job.micro_batch * tokens * job.model.hidden * PRECISION_BYTES[job.precision]
    return size // job.parallelism.context


def layer_calls(job: Job, hosts: int) -> Iterator[EqualCalls]:
    """Give the calls within blocks, of all groups and micro-batches; `hosts` as of `expert_calls`."""
    degrees, batches = job.parallelism, micro_batches(job)
    ranks = degrees.ranks // degrees.pipeline  # each block is on one stage
    for each in chain(tensor_calls(job), context_calls(job), expert_calls(job, hosts)):
        yield each._replace(times=each.times * batches * ranks // each.members)


def tensor_calls(job: Job) -> Iterator[EqualCalls]:
    """Give the calls of one tensor-parallel group for one micro-batch.

    Without sequence parallelism a row-parallel product ends in an all-reduce and the backward pass of a
    column-parallel one, too. With it a column-parallel product begins with an all-gather, gathers once more
    in the backward pass and ends that with a reduce-scatter; a row-parallel one ends in a reduce-scatter,
    whose backward pass is an all-gather. Factors of narrower products are gathered as such; with overlap the last part
    is scattered by itself. Ranks that share heads of keys gather queries, keys and values, too.
    """
    members, again = job.parallelism.tensor, _again(job)
    for each in _products(job):
        size, columns, rows, forward = each.size, each.columns * each.times, each.rows * each.times, 1 + each.again
        if job.parallelism.sequence_parallel:
            inputs = forward + (job.adapters is None)  # frozen weights do not need theirs once more
            yield EqualCalls("tensor", "all_gather", members, round(size * each.narrow), columns * inputs + rows)
            yield EqualCalls("tensor", "reduce_scatter", members, size, columns)
            last = size // members if job.product_overlap else 0
            for part in (size - last, *([last] if last else [])):
                yield EqualCalls("tensor", "reduce_scatter", members, part, rows * forward)
        else:
            yield EqualCalls("tensor", "all_reduce", members, size, columns + rows * forward)
    if columns := _gathered_columns(job):
        size, layers = activation_bytes(job, job.sequence) // job.model.hidden * columns, parts(job.model)["attention"]
        yield EqualCalls("tensor", "all_gather", members, size, layers * (1 + again))
        yield EqualCalls("tensor", "reduce_scatter", members, size, layers)
    yield from _experts_split(job)
    yield from _ends(job)


def _gathered_columns(job: Job) -> int:
    """Count the elements of a token that ranks gather behind products: positions of latent keys, or all of QKV."""
    model = job.model
    if model.latent is not None:
        return model.latent.rotary if job.parallelism.sequence_parallel else 0
    return attention_width(model) + 2 * key_width(model) if key_heads(model) < job.parallelism.tensor else 0


def _again(job: Job) -> int:
    """Further forward passes of each layer."""
    return 1 if job.recompute == "full" else 0


def _experts_again(job: Job) -> int:
    """Further forward passes of the experts of each layer."""
    return 1 if job.recompute in {"full", "experts"} else 0


def _products(job: Job) -> Iterator[_Count]:
    """Split products of all parts of layers, of modules that predict further tokens, and of a decoder."""
    model, size, again = job.model, activation_bytes(job, job.sequence), _again(job)
    narrow = NARROW_BYTES[job.products] / PRECISION_BYTES[job.precision] if job.products else 1
    yield from _of_parts(job, layer_parts(model), narrow)
    if model.multi_token is not None:
        ahead = narrow if model.multi_token.narrow else 1
        yield from _of_parts(job, predicting_parts(model), ahead)
        yield _Count(2 * size, 1, 0, predicted(model), 0, ahead)
    if decoders := decoder_layers(model):
        yield _Count(activation_bytes(job, decoder_sequence(job)), 3, 3, decoders, again, narrow)
        yield _Count(size, 1, 0, decoders, again, narrow)


def _of_parts(job: Job, of: Counter[Part], narrow: float) -> Iterator[_Count]:
    model, size, again = job.model, activation_bytes(job, job.sequence), _again(job)
    shared = 1 if model.experts is not None and model.experts.shared else 0
    joint = 1 if model.latent is None else 0  # product of queries, keys and values
    yield _Count(size, joint, 1, of["attention"], again, narrow)
    yield _Count(size, 1, 1, of["feed-forward"] + of["mamba"], again, narrow)
    yield _Count(size, shared, shared, of["experts"], _experts_again(job), narrow)
    if model.latent is not None:
        for rank in (model.latent.query_rank, model.latent.key_rank):
            yield _Count(size // model.hidden * rank, 1, 0, of["attention"], again, narrow)


def _experts_split(job: Job) -> Iterator[EqualCalls]:
    """Tokens of split experts, gathered before and added up behind them; their gradients the other way."""
    model, members, again = job.model, job.parallelism.expert_parts, _experts_again(job)
    if model.experts is None or members == 1:
        return
    tokens = job.micro_batch * job.sequence // job.parallelism.context
    size = ceil(tokens * model.experts.per_token * _load(job)) * routed_width(model) * PRECISION_BYTES[job.precision]
    layers = parts(model)["experts"]
    if job.parallelism.sequence_parallel:
        for collective in ("all_gather", "reduce_scatter"):
            yield EqualCalls("tensor", collective, members, size, layers * (2 + again))
    else:
        yield EqualCalls("tensor", "all_reduce", members, size, layers * (2 + again))


def _ends(job: Job) -> Iterator[EqualCalls]:
    """Embeddings, whose parts are added up, and both sides of logits, which are split by columns."""
    model, members, split = job.model, job.parallelism.tensor, job.parallelism.sequence_parallel
    inputs = [activation_bytes(job, job.sequence)]
    if model.family == "t5":
        inputs.append(activation_bytes(job, decoder_sequence(job)))
    times = 1 + predicted(model)  # of all tokens that are predicted
    for size in inputs:
        scattered = split and model.family == "llama"
        yield EqualCalls("tensor", "reduce_scatter" if scattered else "all_reduce", members, size, times)
        if split:
            yield EqualCalls("tensor", "all_gather", members, size, times)
    for call in (*_logits(job), _loss(job)):
        yield call._replace(times=call.times * times)
    yield _joints(job)


def _joints(job: Job) -> EqualCalls:
    """Results of products of modules that predict further tokens, gathered; back only if ranks keep their tokens."""
    size, times = activation_bytes(job, job.sequence), predicted(job.model)
    return EqualCalls(
        "tensor", "all_gather", job.parallelism.tensor, size, times * (1 + job.parallelism.sequence_parallel)
    )


def _logits(job: Job) -> Iterator[EqualCalls]:
    """Input of logits, gathered in both passes in the precision of their product, and its gradient, added up.

    The pooler of a BERT gathers all tokens besides, masked or not.
    """
    members, split = job.parallelism.tensor, job.parallelism.sequence_parallel
    output = _with_logits(job) * job.model.hidden * PRECISION_BYTES[job.precision]
    if split:
        products = job.products if job.narrow_logits else None
        narrow = NARROW_BYTES[products] / PRECISION_BYTES[job.precision] if products else 1
        gathers = 2 - (job.adapters is not None)
        yield EqualCalls("tensor", "all_gather", members, round(output * narrow), gathers)
        if job.model.family == "bert":
            yield EqualCalls("tensor", "all_gather", members, activation_bytes(job, job.sequence), 1)
    yield EqualCalls("tensor", "reduce_scatter" if split else "all_reduce", members, output, 1)


def _loss(job: Job) -> EqualCalls:
    """Give what ranks with parts of the vocabulary tell one another of each token."""
    members, tokens = job.parallelism.tensor, _with_logits(job)
    if job.loss_kernels == "fused":
        return EqualCalls("tensor", "all_gather", members, members * tokens * _GATHERED, 1)
    return EqualCalls("tensor", "all_reduce", members, tokens * _LOSS, 3)


def _with_logits(job: Job) -> int:
    """Tokens of a micro-batch that get logits on a context-parallel rank."""
    of_sequence = decoder_sequence(job) if job.model.family == "t5" else job.sequence
    if job.model.family == "bert" and job.predictions is not None:
        of_sequence = job.predictions
    return job.micro_batch * of_sequence // job.parallelism.context


def context_calls(job: Job) -> Iterator[EqualCalls]:
    """Give the calls of one context-parallel group for one micro-batch."""
    degrees, model, again = job.parallelism, job.model, _again(job)
    members, again = degrees.context, 1 if job.recompute in KEEPING else again
    if job.recompute == "selective" and degrees.context_method == "ring":
        again = 1  # core attention runs again, which begins with the own keys
    tokens, layers = job.micro_batch * job.sequence // members * PRECISION_BYTES[job.precision], parts(model)
    if layers["mamba"]:
        scan = scan_of(job)
        for columns in (scan.columns, scan.inner):
            yield EqualCalls("context", "all_to_all", members, tokens * columns, (2 + _again(job)) * layers["mamba"])
    heads, width = (
        (model.heads // degrees.tensor, key_heads(model, degrees.tensor)),
        attention_width(model) // model.heads,
    )
    result, value = (tokens * each * width for each in heads)
    query, key = (tokens * each * (width + rotary_width(model)) for each in heads)
    if degrees.context_method == "ulysses":
        for size in (query, key, value, result):
            yield EqualCalls("context", "all_to_all", members, size, (2 + again) * layers["attention"])
    else:
        once = (members - 1) * (1 + again) + 2  # the first and the last step back have keys and values alone
        size = key + value
        yield EqualCalls("context", "ring_exchange", members, size, once * layers["attention"])
        yield EqualCalls("context", "ring_exchange", members, 2 * size, max(members - 2, 0) * layers["attention"])


def expert_calls(job: Job, hosts: int) -> Iterator[EqualCalls]:
    """Give the calls of an expert-parallel group for one micro-batch: to the experts and back, in both passes.

    Of a dispatcher over several `hosts` they are of those on a rail, and of those on a host.
    """
    experts, degrees = job.model.experts, job.parallelism
    if experts is None:
        return
    tokens = job.micro_batch * job.sequence // degrees.context // (degrees.tensor if degrees.sequence_parallel else 1)
    times, routing, ranks = parts(job.model)["experts"] * (2 + _experts_again(job)), routing_of(job), degrees.expert
    sent, most = tokens * copies(job) * _load(job), tokens * ranks
    sent = sent if routing is None else min(sent, most)
    size = ceil(sent * routed_width(job.model)) * PRECISION_BYTES[job.precision]
    if job.hybridep_processors:  # routes of all tokens, in a byte for each expert
        yield EqualCalls("expert", "all_gather", ranks, most * experts.count, times - parts(job.model)["experts"])
    weights = ceil(sent * experts.count) * 4 // hosts if job.hybridep_processors else 0
    for each in (size, size + weights):  # results and gradients of results, tokens and their gradients
        if routing is None or hosts in (1, ranks):
            yield EqualCalls("expert", "all_to_all", ranks, each, times)
        else:
            yield EqualCalls("expert", "all_to_all", hosts, routing.on_rails(each, hosts, ranks), times)
            yield EqualCalls("expert", "all_to_all", ranks // hosts, each, times)


def _load(job: Job) -> float:
    """Tokens of the busiest rank over the even share: all that there are at most, and of each expert once each.

    If experts are padded, all ranks have their capacity.
    """
    if job.pad_to_capacity:
        return job.capacity_factor or 1.0
    experts = job.model.experts
    all_tokens = inf if experts is None else experts.count / experts.per_token
    return min(job.expert_imbalance, job.capacity_factor or inf, all_tokens, job.parallelism.expert)
