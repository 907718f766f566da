"""Checks of what a job's model consists of, against one another and against the job."""

from collections.abc import Callable, Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario.job import Job


def _latent(job: Job) -> Iterator[Mistake]:
    model = job.model
    if model.latent is None:
        return
    if model.family != "llama":
        yield Mistake("job.model.latent", f"has no effect in a {model.family}", "use family llama")
    if model.kv_heads is not None:
        yield Mistake("job.model.kv_heads", "has no effect: keys of latent attention have all heads", "take it out")
    if model.head_norm:
        yield Mistake(
            "job.model.head_norm", "has no effect: norms of latent attention are of its vectors", "take it out"
        )


def _rotary(job: Job) -> Iterator[Mistake]:
    model = job.model
    if model.yarn and model.family != "llama":
        yield Mistake("job.model.yarn", f"has no effect in a {model.family}", "use family llama")
    if model.yarn and model.latent is not None:
        yield Mistake("job.model.yarn", "has no effect: positions of latent attention are fused", "take it out")


def _window(job: Job) -> Iterator[Mistake]:
    model = job.model
    if model.full_every is not None and model.window is None:
        yield Mistake("job.model.full_every", "says which layers have no window, and there is none", "set a window")
    if model.window is None:
        return
    if model.family not in ("gpt", "llama"):
        yield Mistake("job.model.window", f"has no effect in a {model.family}", "use family gpt or llama")
    if job.attention != "fused":
        problem = f"has no effect: {job.attention!r} attention computes all pairs of tokens"
        yield Mistake("job.model.window", problem, 'take it out, or set job.attention = "fused"')
    if job.parallelism.context > 1 and job.parallelism.context_method == "ring":
        problem = "is not for rings, whose ranks see parts of a sequence"
        yield Mistake("job.model.window", problem, 'set job.parallelism.context_method to "ulysses"')


def _activation(job: Job) -> Iterator[Mistake]:
    model = job.model
    if model.activation is not None and model.family != "llama":
        yield Mistake(
            "job.model.activation", f"is not modelled in a {model.family}", "use family llama, or take it out"
        )
    if model.activation is not None and model.experts is not None and model.experts.clamped:
        problem = "has no effect: clamped experts have the activation of gpt-oss"
        yield Mistake("job.model.activation", problem, "take one of both out")


def _pattern(job: Job) -> Iterator[Mistake]:
    """Check that a pattern is of all layers, and that its kinds and nothing else are described."""
    model, key = job.model, "job.model.pattern"
    pattern = model.pattern
    if pattern is None:
        if model.state_space is not None:
            yield Mistake("job.model.state_space", "has no effect: no layer is one of Mamba-2", f"say which with {key}")
        return
    if model.family != "llama":
        yield Mistake(key, f"is not modelled in a {model.family}", "use family llama")
    if len(pattern) != model.layers:
        yield Mistake(key, f"is of {len(pattern)} layers, and there are {model.layers}", "make both the same")
    yield from _described(job, pattern)
    unused = {"window": model.window is not None, "yarn": model.yarn}
    for name, given in unused.items():
        if given:
            yield Mistake(f"job.model.{name}", f"is not modelled with {key}", "take one of both out")
    if model.experts is not None and (model.experts.dense_layers or model.experts.every > 1):
        name = "dense_layers" if model.experts.dense_layers else "every"
        yield Mistake(
            f"job.model.experts.{name}", f"has no effect: {key} says which layers have experts", "take it out"
        )


def _described(job: Job, pattern: str) -> Iterator[Mistake]:
    model = job.model
    every = pattern + ((model.multi_token.pattern or "") if model.multi_token is not None else "")
    for symbol, name in {"M": "state_space", "E": "experts"}.items():
        given = getattr(model, name) is not None
        if symbol in every and not given:
            yield Mistake("job.model.pattern", f"has {symbol!r}, and there is no job.model.{name}", "describe it")
        if symbol not in every and given:
            yield Mistake(f"job.model.{name}", f"has no effect: no layer of the pattern is {symbol!r}", "take it out")


def _state_space(job: Job) -> Iterator[Mistake]:
    """Check that heads and groups of Mamba-2 can be shared out as Megatron-LM does."""
    space, degrees = job.model.state_space, job.parallelism
    if space is None:
        return
    if space.heads % space.groups:
        problem = f"{space.groups} does not divide {space.heads} heads"
        yield Mistake("job.model.state_space.groups", problem, "choose a divisor")
    ranks = degrees.tensor * degrees.context
    if space.groups % ranks:
        key = "tensor" if space.groups % degrees.tensor else "context"
        shared = f"{space.groups} groups of job.model.state_space cannot be shared evenly by {ranks} ranks"
        yield Mistake(f"job.parallelism.{key}", f"{shared}, tensor x context", "choose degrees that divide them")


def _multi_token(job: Job) -> Iterator[Mistake]:
    model, key = job.model, "job.model.multi_token"
    ahead = model.multi_token
    if ahead is None:
        return
    if model.family not in ("gpt", "llama"):
        yield Mistake(key, f"has no effect in a {model.family}", "use family gpt or llama")
    if ahead.pattern is not None and model.pattern is None:
        yield Mistake(
            f"{key}.pattern", "is for models with a pattern", "take it out: modules have a layer like the last"
        )
    if not ahead.narrow and job.products is None:
        yield Mistake(f"{key}.narrow", "has no effect: no products are narrower than the job", "take it out")
    if ahead.repeated and ahead.depth == 1:
        yield Mistake(f"{key}.repeated", "has no effect: there is one module", "take it out, or raise depth")


MODEL_CHECKS: tuple[Callable[[Job], Iterator[Mistake]], ...] = (
    _latent,
    _rotary,
    _window,
    _activation,
    _pattern,
    _state_space,
    _multi_token,
)
"""Each finds what keeps a job from being compiled, or has no effect."""
