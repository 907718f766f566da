"""Checks of a job by itself and against a GPU type: what keeps it from being compiled.

As in `fabricsim.scenario.checks`, asking a job with other mistakes for a value that is not settled ends
the check that asked.
"""

from collections.abc import Callable, Iterator
from functools import partial

from fabricsim.errors import Mistake
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.scenario.model_checks import MODEL_CHECKS
from fabricsim.scenario.parallelism_checks import PARALLELISM_CHECKS
from fabricsim.scenario.partial import settled

MOST_MICRO_BATCHES = 1_000_000
"""Micro-batches of all ranks together in one iteration; each becomes several operations of some 500 bytes."""

MOST_LAYERS = 100_000
"""Layers of a model, encoder and decoder together."""


SHORT_STAGES = 3
"""Stages that may have one layer less than the others: the last, which has the head, and the first, which has the
embedding, as in Llama 3 405B (arXiv 2407.21783, section 3.3.2), or one more of the 61 layers of DeepSeek-V3."""


def job_problems(job: Job) -> list[Mistake]:
    """Find what does not fit together in a job.

    `job`: a job, or a `Partial` that stands in for one with other mistakes.
    Returns: without places; empty if all fits.
    """
    return settled(partial(check, job) for check in _CHECKS)


def peak_problems(job: Job, gpu: Gpu) -> list[Mistake]:
    """Find out whether a GPU can compute in the job's precision.

    `job`, `gpu`: or a `Partial` that stands in for either.
    Returns: empty, or one.
    Raises Unsettled if `job` or `gpu` has a mistake in what decides this.
    """
    known = ", ".join(gpu.peak) or "none"
    wanted: dict[str, str] = {"job.precision": job.precision}
    if job.products:
        wanted["job.products"] = job.products
    if job.attention_products:
        wanted["job.attention_products"] = job.attention_products
    problem = f"the GPU {gpu.name!r} has no peak for {{!r}} (it has {known})"
    way_out = "choose one of those, or add it to cluster.gpu.peak"
    return [Mistake(key, problem.format(name), way_out) for key, name in wanted.items() if name not in gpu.peak]


def _batch(job: Job) -> Iterator[Mistake]:
    step = job.micro_batch * job.parallelism.data
    if job.global_batch % step:
        problem = f"{job.global_batch} is no multiple of micro_batch {job.micro_batch} x data {job.parallelism.data}"
        nearest = max(1, round(job.global_batch / step)) * step
        yield Mistake("job.global_batch", problem, f"such as {nearest}")
    elif job.global_batch // job.micro_batch * job.parallelism.pipeline > MOST_MICRO_BATCHES:
        problem = f"{job.global_batch} makes more than {MOST_MICRO_BATCHES} micro-batches over all ranks"
        yield Mistake("job.global_batch", problem, "lower it, or raise job.micro_batch")


def _stages(job: Job) -> Iterator[Mistake]:
    model, stages = job.model, job.parallelism.pipeline
    chunks = stages * job.parallelism.virtual_stages
    layers, what = model.layers, f"{model.layers} layers"
    if model.family == "t5":
        layers += model.decoder_layers or 0
        what = f"{model.layers} encoder and {model.decoder_layers} decoder layers"
    if layers > MOST_LAYERS:
        yield Mistake("job.model.layers", f"{what} are too many", f"at most {MOST_LAYERS}")
        return
    if model.multi_token is not None:  # whose layers are shared out as others, and are on the last stage
        ahead = model.multi_token.layers
        layers, what = layers + ahead, f"{what} and {ahead} that predict further tokens"
        if ahead > layers // chunks:
            problem = f"of {what} the last of {chunks} parts has {layers // chunks}, and is to have those {ahead}"
            yield Mistake("job.parallelism.pipeline", problem, "lower it, or job.parallelism.virtual_stages")
            return
    short = 0 if model.family == "t5" else SHORT_STAGES
    if not _shared_out(layers, stages, chunks, short):
        parts = f"{stages} stages" if chunks == stages else f"{stages} stages of {chunks // stages} chunks"
        problem = f"{what} cannot be shared evenly by {parts}"
        yield Mistake("job.parallelism.pipeline", problem, _fitting_stages(layers, chunks // stages, short))


def _shared_out(layers: int, stages: int, chunks: int, short: int) -> bool:
    """Whether layers can be shared out to chunks of stages, of which `short` may have one less than the others.

    A first chunk may have the embedding alone and a last one the head, but none has nothing: Megatron-LM builds
    that of no even split, only of a layout written by hand (``get_num_layers_to_build`` of NVIDIA/Megatron-LM,
    megatron/core/transformer/transformer_block.py).
    """
    return stages <= layers and -layers % chunks <= short and chunks <= layers + 2


def _fitting_stages(layers: int, per_stage: int, short: int) -> str:
    """Name the numbers of stages, of so many chunks each, that layers can be shared out to."""
    least = 1 if per_stage == 1 else 2  # chunks are for pipelines
    fitting = [
        str(stages) for stages in range(least, layers + 1) if _shared_out(layers, stages, stages * per_stage, short)
    ]
    return f"one of {', '.join(fitting)}" if fitting else "lower job.parallelism.virtual_stages"


def _decoder(job: Job) -> Iterator[Mistake]:
    family = job.model.family
    for table, key in (("job.model", "decoder_layers"), ("job", "decoder_sequence")):
        value = getattr(job if table == "job" else job.model, key)
        if family == "t5" and value is None:
            yield Mistake(f"{table}.{key}", "is missing: a t5 has a decoder", "add it")
        if family != "t5" and value is not None:
            yield Mistake(f"{table}.{key}", f"has no effect: a {family} has no separate decoder", "take it out")


def _positions(job: Job) -> Iterator[Mistake]:
    limit = job.model.positions
    for key in ("sequence", "decoder_sequence"):
        value = getattr(job, key)
        if value is not None and value > limit:
            problem = f"{value} is longer than the {limit} positions of the model {job.model.name!r}"
            yield Mistake(f"job.{key}", problem, f"at most {limit}, or raise job.model.positions")


def _predictions(job: Job) -> Iterator[Mistake]:
    if job.predictions is None:
        return
    if job.model.family != "bert":
        yield Mistake("job.predictions", f"has no effect: a {job.model.family} has logits of all tokens", "take it out")
    elif job.predictions > job.sequence:
        problem = f"{job.predictions} is more than the {job.sequence} tokens of a sequence"
        yield Mistake("job.predictions", problem, f"at most {job.sequence}")


def _heads(job: Job) -> Iterator[Mistake]:
    model = job.model
    if model.head_width is None and model.hidden % model.heads:
        problem = f"hidden {model.hidden} is no multiple of {model.heads} heads"
        yield Mistake("job.model.heads", problem, "or set job.model.head_width")
    if model.kv_heads is None:
        return
    if model.family == "t5":
        yield Mistake("job.model.kv_heads", "has no effect: a t5 has as many as heads", "take it out")
    elif model.heads % model.kv_heads:
        problem = f"{model.kv_heads} does not divide {model.heads} heads"
        yield Mistake("job.model.kv_heads", problem, f"one of {_divisors(model.heads)}")


def _tensor(job: Job) -> Iterator[Mistake]:
    """Check that tensor parallelism splits each matrix into equal parts."""
    model, degree = job.model, job.parallelism.tensor
    split = None if job.parallelism.folded else model.experts
    widths = {
        "heads": model.heads,
        "feed_forward": model.feed_forward or 4 * model.hidden,
        "vocabulary": model.vocabulary,
        "experts.feed_forward": split.feed_forward or degree if split else degree,
    }
    odd = [f"job.model.{key}, {width}" for key, width in widths.items() if width % degree]
    if odd:
        padded = -(-model.vocabulary // degree) * degree
        way_out = f"pad it to {padded}" if odd == [f"job.model.vocabulary, {model.vocabulary}"] else "choose a divisor"
        yield Mistake("job.parallelism.tensor", f"{degree} does not divide {' nor '.join(odd)}", way_out)
    shared = model.kv_heads or model.heads
    if model.heads % degree == 0 and shared % degree and degree % shared:
        problem = f"{degree} neither divides job.model.kv_heads, {shared}, nor is a multiple of it"
        yield Mistake("job.parallelism.tensor", problem, "choose one that does")
    if not job.parallelism.sequence_parallel:
        return
    if degree == 1:
        problem = "has no effect: tensor is 1, and it splits the sequence over tensor-parallel ranks"
        yield Mistake("job.parallelism.sequence_parallel", problem, "take it out, or raise tensor")
    for key, tokens in _lengths(job):
        if tokens % (degree * job.parallelism.context):
            problem = f"{tokens} is no multiple of tensor {degree} x context {job.parallelism.context}"
            yield Mistake(f"job.{key}", problem, "which sequence_parallel needs; pad it")


def _context(job: Job) -> Iterator[Mistake]:
    """Check that context parallelism splits sequences, and with Ulysses heads, into equal parts."""
    model, degree = job.model, job.parallelism.context
    if degree == 1:
        return
    if model.family == "t5":
        yield Mistake("job.parallelism.context", "a t5 cannot be split along its sequences", "take it out")
        return
    parts = 2 * degree if job.parallelism.context_method == "ring" else degree
    if job.sequence % parts:
        problem = f"{job.sequence} cannot be cut into {parts} equal parts for {degree} context-parallel ranks"
        yield Mistake("job.sequence", problem, f"such as {-(-job.sequence // parts) * parts}")
    if job.parallelism.context_method == "ring" and job.attention != "fused":
        problem = "'unfused' cannot merge the partial results of ring attention"
        yield Mistake("job.attention", problem, "'fused', or job.parallelism.context_method = 'ulysses'")
    shared = max((model.kv_heads or model.heads) // job.parallelism.tensor, 1)
    if job.parallelism.context_method == "ulysses" and shared % degree:
        problem = f"Ulysses cannot spread {shared} key and value heads per tensor-parallel rank over {degree} ranks"
        yield Mistake("job.parallelism.context", problem, f"one of {_divisors(shared)}, or 'ring'")


def _no_experts(job: Job) -> Iterator[Mistake]:
    """Check that nothing of a mixture of experts is set without one."""
    if job.model.experts is not None:
        return
    problem = f"has no effect: the model {job.model.name!r} has no experts"
    settings = {
        "parallelism.expert": job.parallelism.expert > 1,
        "parallelism.expert_tensor": job.parallelism.expert_tensor is not None,
        "capacity_factor": job.capacity_factor is not None,
        "pad_to_capacity": job.pad_to_capacity,
        "expert_imbalance": job.expert_imbalance > 1,
        "expert_kernels": job.expert_kernels != "grouped",
        "hybridep_processors": job.hybridep_processors is not None,
        "padded_experts": job.padded_experts,
        "recorded": "router" in job.recorded,
    }
    for key, given in settings.items():
        if given:
            yield Mistake(f"job.{key}", problem, "take it out")


def _records(job: Job) -> Iterator[Mistake]:
    if job.recorded and job.launch == "graph":
        yield Mistake("job.recorded", "has no effect: with launch = 'graph' all is recorded", "take it out")
    if job.expert_kernels in {"unfused", "all-to-all", "flex"} and job.launch == "graph":
        problem = f"{job.expert_kernels!r} needs the host, which launch = 'graph' leaves out"
        yield Mistake("job.expert_kernels", problem, "use 'fused' or 'grouped', or launch = 'eager'")
    if "mamba" in job.recorded and job.model.state_space is None:
        yield Mistake("job.recorded", f"'mamba': the model {job.model.name!r} has no such layers", "take it out")
    if job.expert_overlap and job.model.pattern is not None:
        yield Mistake("job.expert_overlap", "is not modelled for layers that are experts alone", "take it out")
    if job.expert_overlap and job.parallelism.expert == 1:
        problem = "has no effect: job.parallelism.expert is 1, so that experts have no all-to-alls"
        yield Mistake("job.expert_overlap", problem, "take it out")


def _dispatcher(job: Job) -> Iterator[Mistake]:
    if job.hybridep_processors is None or job.model.experts is None:
        return
    if job.expert_kernels not in {"flex", "fused"}:
        problem = f"has no effect: {job.expert_kernels!r} kernels are not behind a dispatcher"
        yield Mistake("job.hybridep_processors", problem, "use job.expert_kernels = 'flex' or 'fused', or take it out")
    elif job.parallelism.expert == 1:
        problem = "has no effect: job.parallelism.expert is 1, so that experts have no all-to-alls"
        yield Mistake("job.hybridep_processors", problem, "take it out")


_PADDED = ("all-to-all", "unfused")  # Megatron-LM refuses moe_pad_expert_input_to_capacity of its flex dispatcher


def _experts(job: Job) -> Iterator[Mistake]:
    experts = job.model.experts
    if experts is None:
        return
    if job.model.family not in {"gpt", "llama"}:
        yield Mistake("job.model.experts", f"has no effect in a {job.model.family}", "use family gpt or llama")
    if experts.per_token > experts.count:
        problem = f"{experts.per_token} is more than the {experts.count} experts there are"
        yield Mistake("job.model.experts.per_token", problem, f"at most {experts.count}")
    elif job.expert_imbalance > experts.count / experts.per_token:
        problem = f"{job.expert_imbalance:g} times the even share is more tokens than there are"
        most = experts.count / experts.per_token
        yield Mistake("job.expert_imbalance", problem, f"at most {most:g}: all tokens go to the busiest expert then")
    if experts.router_precision == "bf16" != job.precision:
        problem = f"the job is in {job.precision}, and its router, too"
        yield Mistake("job.model.experts.router_precision", problem, "take it out, or set job.precision to bf16")
    if experts.dense_layers > job.model.layers:
        problem = f"{experts.dense_layers} is more than the {job.model.layers} layers there are"
        yield Mistake("job.model.experts.dense_layers", problem, f"at most {job.model.layers}")
    if job.padded_experts and (job.products is None or job.expert_kernels == "fused"):
        problem = "has no effect: products of experts are in 16 bits, or fused with what pads their tokens"
        yield Mistake("job.padded_experts", problem, "take it out")


def _padding(job: Job) -> Iterator[Mistake]:
    """Check what pads experts to their capacity."""
    if not job.pad_to_capacity or job.model.experts is None:
        return
    if job.capacity_factor is None:
        yield Mistake("job.pad_to_capacity", "there is no job.capacity_factor to pad to", "set it: 1 is the even share")
    if job.expert_kernels not in _PADDED:
        problem = f"{job.expert_kernels!r} kernels are not padded: a dispatcher sends what there is"
        if job.expert_kernels == "grouped":
            problem = "'grouped' kernels have no host that waits for counts"
        yield Mistake(
            "job.pad_to_capacity", problem, "use job.expert_kernels = 'all-to-all' or 'unfused', or take it out"
        )
    if job.expert_imbalance > 1:
        problem = "has no effect: job.pad_to_capacity gives all experts the same number of tokens"
        yield Mistake("job.expert_imbalance", problem, "take one of them out")


def _keeps(job: Job) -> Iterator[Mistake]:
    model = job.model
    if job.recompute == "latent" and (model.latent is None or job.attention != "fused"):
        yield Mistake("job.recompute", "'latent' is for fused latent attention", "one of none, selective, full")
    if job.recompute == "expert-activation" and (model.experts is None or job.expert_kernels == "fused"):
        problem = "'expert-activation' is for experts whose activation is a kernel of its own"
        yield Mistake("job.recompute", problem, "one of none, selective, full")
    if job.recompute == "experts" and (model.experts is None or job.expert_overlap):
        problem = "'experts' is for mixtures of experts whose all-to-alls do not overlap"
        yield Mistake("job.recompute", problem, "one of none, selective, full")
    if job.recompute == "feed-forward" and not _has_networks(job):
        problem = f"'feed-forward' has no effect: all layers of {model.name!r} have experts alone"
        yield Mistake("job.recompute", problem, "one of none, selective, full")
    if job.recompute not in ("keep-qkv", "keep-attention"):
        return
    if job.parallelism.tensor > 1 or model.family != "llama" or model.experts or model.latent or model.pattern:
        problem = f"{job.recompute!r} is for dense models of family llama without tensor parallelism"
        yield Mistake("job.recompute", problem, "one of none, selective, feed-forward, full")


def _has_networks(job: Job) -> bool:
    """Whether some tokens go through a feed-forward network that is no expert's, or through shared experts."""
    experts, pattern = job.model.experts, job.model.pattern
    if pattern is not None:
        return "-" in pattern or (experts is not None and bool(experts.shared))
    return experts is None or bool(experts.shared or experts.dense_layers or experts.every > 1)


def _narrow(job: Job) -> Iterator[Mistake]:
    if job.scaling == "current" and job.products != "fp8":
        yield Mistake("job.scaling", "is how products in 8 bits find scales of tensors", 'set job.products = "fp8"')
    if job.narrow_logits and job.products is None:
        yield Mistake("job.narrow_logits", "is for products in 8 or 4 bits", "set job.products")
    if job.narrow_gathers and (job.products != "fp8" or job.adapters is not None):
        problem = "is for trained parameters of products in 8 bits with a scale per tensor"
        yield Mistake("job.narrow_gathers", problem, 'set job.products = "fp8", without job.adapters')
    if job.narrow_gathers and not job.parallelism.zero:
        yield Mistake("job.narrow_gathers", "has no effect with zero = 0: nothing is gathered", "take it out")
    if job.attention_products and job.attention != "fused":
        yield Mistake("job.attention_products", "is for fused attention", 'set job.attention = "fused"')
    gated = job.model.family == "llama" and job.model.activation is None
    if job.activation_quantises and (not gated or job.products not in ("fp8", "mxfp8") or job.scaling == "current"):
        problem = "is that of SwiGLU before products in 8 bits whose scales are known before or of blocks"
        yield Mistake("job.activation_quantises", problem, "take it out")


def _activation_input(job: Job) -> Iterator[Mistake]:
    if job.activation_input is None:
        return
    key = "job.activation_input"
    if job.model.family != "llama" or job.model.activation is not None:
        yield Mistake(key, "is that of SwiGLU, which models of family llama have", "leave it out")
    if job.recompute not in ("none", "selective"):
        yield Mistake(key, f"is not kept if {job.recompute!r} repeats it", 'set job.recompute to "none" or "selective"')
    if job.activation_quantises:
        problem = "has no effect: with activation_quantises SwiGLU is a kernel that keeps its input as it is"
        yield Mistake(key, problem, "take one of both out")
    if job.expert_kernels == "fused" and not _has_networks(job):
        yield Mistake(key, "has no effect: all SwiGLUs are in the kernels of experts", "take it out")


def _packed(job: Job) -> Iterator[Mistake]:
    if job.packed is None:
        return
    if job.sequence % job.packed:
        problem = f"documents of {job.packed} tokens do not fill sequences of {job.sequence}"
        yield Mistake("job.packed", problem, f"one of {_divisors(job.sequence)}")
    if job.parallelism.context > 1 or job.model.family == "t5":
        yield Mistake("job.packed", "is not for context parallelism nor a t5", "take it out")


def _adapters(job: Job) -> Iterator[Mistake]:
    if job.adapters is None:
        return
    model, key = job.model, "job.adapters"
    other = model.experts, model.latent, model.pattern, model.multi_token
    if model.family != "llama" or any(each is not None for each in other):
        yield Mistake(key, f"{model.name!r} is none: adapters are for dense models of family llama", "take it out")
    if job.parallelism.fully_sharded and job.products is not None:
        problem = f"zero = 3 shares out and gathers frozen weights, too, which is not modelled in {job.products}"
        yield Mistake(key, problem, "set job.parallelism.zero to 0, 1 or 2, or take job.products out")


def _spread_experts(job: Job) -> Iterator[Mistake]:
    experts, degrees = job.model.experts, job.parallelism
    if experts is None:
        return
    if experts.count % degrees.expert:
        problem = f"{experts.count} experts cannot be shared evenly by {degrees.expert} ranks"
        yield Mistake("job.parallelism.expert", problem, f"one of {_divisors(experts.count)}")
    whole = degrees.folded
    what = "ranks of a stage" if whole else "data-parallel degree"
    ranks = degrees.ranks // degrees.pipeline if whole else degrees.data
    if ranks % degrees.expert:
        problem = f"{degrees.expert} does not divide the {what}, {ranks}"
        yield Mistake("job.parallelism.expert", problem, f"one of {_divisors(ranks)}")
    if degrees.expert_tensor not in (None, 1, degrees.tensor):
        problem = f"{degrees.expert_tensor}: experts are whole or split by all {degrees.tensor} tensor-parallel ranks"
        yield Mistake("job.parallelism.expert_tensor", problem, f"set it to 1 or {degrees.tensor}")
    if whole and degrees.replicate > 1:
        yield Mistake("job.parallelism.expert_tensor", "is not modelled with replicate", "leave one of both out")
    if (degrees.expert > 1 or whole) and degrees.tensor > 1 and not degrees.sequence_parallel:
        problem = "false, but tensor-parallel ranks that all have the same tokens cannot send them to experts"
        yield Mistake("job.parallelism.sequence_parallel", problem, "set it to true")


def _megatron(job: Job) -> Iterator[Mistake]:
    """Check that what earlier versions of Megatron-LM did goes with the rest.

    Without tensor parallelism `tensor_overlap` does nothing, but says which version it is: sweeps vary the degree.
    """
    if not job.tensor_overlap and job.parallelism.sequence_parallel:
        problem = "false, but with sequence_parallel the input's gradient is reduced beside the weight's"
        yield Mistake("job.tensor_overlap", problem, "take it out")
    if job.flatten_gradients and (job.overlap != "none" or job.parallelism.zero):
        problem = "copies gradients for one all-reduce at the end, which overlap and zero do not have"
        yield Mistake("job.flatten_gradients", problem, "take it out")


def _product_overlap(job: Job) -> Iterator[Mistake]:
    if job.product_overlap and not job.parallelism.sequence_parallel:
        problem = "is of gathers and scatters beside products, which only sequence parallelism has"
        yield Mistake("job.product_overlap", problem, "take it out, or set job.parallelism.sequence_parallel")


def _separate(job: Job) -> Iterator[Mistake]:
    if job.elementwise != "fused" and job.model.family not in ("bert", "gpt"):
        problem = f'"{job.elementwise}" knows what lies between products of a bert or gpt, not of a {job.model.family}'
        yield Mistake("job.elementwise", problem, 'set it to "fused"')
    if job.loss_kernels == "fused" and job.elementwise != "fused":
        problem = f"is fused, which {job.elementwise!r} kernels are not"
        yield Mistake("job.loss_kernels", problem, 'set job.elementwise to "fused"')
    if not job.dropout and job.model.family == "llama":
        yield Mistake("job.dropout", "has no effect: a llama has no dropout", "take it out")
    elif not job.dropout and job.elementwise != "fused":
        problem = f'"{job.elementwise}" kernels have dropout in any case'
        yield Mistake("job.dropout", problem, 'take it out, or set job.elementwise to "fused"')
    if job.optimizer in {"tensors", "operators", "separate"} and job.parallelism.zero:
        problem = f'"{job.optimizer}" goes tensor by tensor, but with zero a rank has a share of all'
        yield Mistake("job.optimizer", problem, 'set it to "fused"')
    if job.optimizer == "distributed" and job.parallelism.fully_sharded:
        yield Mistake("job.optimizer", '"distributed" is that of zero = 1', 'set it to "fused", or zero to 1')


def _lengths(job: Job) -> Iterator[tuple[str, int]]:
    for key in ("sequence", "decoder_sequence"):
        value = getattr(job, key)
        if value is not None:
            yield key, value


def _divisors(number: int) -> str:
    return ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)


_CHECKS: tuple[Callable[[Job], Iterator[Mistake]], ...] = (
    _batch,
    _stages,
    _decoder,
    _positions,
    _predictions,
    _heads,
    *PARALLELISM_CHECKS,
    _tensor,
    _context,
    _no_experts,
    _records,
    _experts,
    _padding,
    _dispatcher,
    *MODEL_CHECKS,
    _adapters,
    _narrow,
    _activation_input,
    _packed,
    _keeps,
    _spread_experts,
    _megatron,
    _product_overlap,
    _separate,
)
