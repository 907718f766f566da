from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.workload.flops import hardware_flops, iteration_flops, model_flops, tokens
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Operation
from tests.reference.jobs import make_job, make_model


@pytest.mark.slow
@given(
    b=st.integers(1, 16),
    m=st.integers(1, 8),
    d=st.integers(1, 8),
    s=st.integers(1, 1024),
    h=st.integers(1, 64).map(lambda n: 16 * n),
    layers=st.integers(1, 96),
    v=st.integers(1, 60000),
)
def test_iteration_has_the_published_flops(  # noqa: PLR0913, PLR0917  the letters of the formula
    b: int, m: int, d: int, s: int, h: int, layers: int, v: int
) -> None:
    model = make_model("gpt2-medium", hidden=h, layers=layers, vocabulary=v)
    batch = b * m * d

    full = iteration_flops(make_job(model, micro_batch=b, micro_batches=m, data=d, sequence=s))
    kept = iteration_flops(make_job(model, micro_batch=b, micro_batches=m, data=d, sequence=s, recompute="none"))

    selective = make_job(model, micro_batch=b, micro_batches=m, data=d, sequence=s, recompute="selective")

    # 96 B s L h^2 (1 + s / 6h + V / 16 L h), and 72 B s L h^2 (1 + s / 6h + V / 12 L h), multiplied out
    assert full == 96 * batch * s * layers * h**2 + 16 * batch * s**2 * layers * h + 6 * batch * s * h * v
    assert kept == 72 * batch * s * layers * h**2 + 12 * batch * s**2 * layers * h + 6 * batch * s * h * v
    assert iteration_flops(selective) == kept + 4 * batch * s**2 * layers * h  # s / 4.5h in place of s / 6h
    assert model_flops(selective) == model_flops(make_job(model, micro_batch=batch, sequence=s)) == kept


@pytest.mark.slow
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    context=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4, 8]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_ranks_share_the_flops_of_the_whole(tensor: int, context: int, expert: int, recompute: str) -> None:
    """All but the router, which the tensor-parallel ranks share only with sequence parallelism."""
    settings = {"sequence": 64, "attention": "fused", "recompute": recompute}
    job = make_job(
        "mixtral-8x7b", tensor=tensor, context=context, expert=expert, data=8, sequence_parallel=True, **settings
    )

    items = [
        item
        for block in stage_blocks(job.model, 1, job.parallelism)[0]
        for work in [block_work(block, job)]
        for item in work.forward + work.backward
    ]

    one = sum(item.flops for item in items if isinstance(item, Operation))
    assert one * tensor * context * 8 == iteration_flops(job)


def test_recomputation_is_all_that_tells_hardware_flops_from_model_flops() -> None:
    settings = {"attention": "fused", "sequence": 512}
    once = make_job("mixtral-8x7b", **settings, recompute="none")
    twice = make_job("mixtral-8x7b", **settings, recompute="full")

    assert hardware_flops(once) == model_flops(once) == model_flops(twice)
    assert 1.25 < hardware_flops(twice) / model_flops(twice) < 4 / 3  # the head is not computed again
    assert tokens(once) == once.global_batch * 512


def test_fused_attention_leaves_out_what_a_causal_mask_hides() -> None:
    fused, separate = (make_job("gpt2-medium", recompute="none", attention=kind) for kind in ("fused", "unfused"))
    core = 4 * 2 * 512**2 * 1024 * 24  # b s^2 h of all layers

    # 3 times two full products against one half of two and of five
    assert iteration_flops(separate) - iteration_flops(fused) == 3 * core - core // 2 - 5 * core // 4
    assert model_flops(separate) == model_flops(fused)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_flops_of_experts_do_not_depend_on_how_tokens_divide(batch: int) -> None:
    # 97 tokens go to 2 of 8 experts each, which kernels round up to 25 tokens for each expert
    job, model = make_job("mixtral-8x7b", micro_batch=batch, sequence=97), make_model("mixtral-8x7b")
    hidden, inner, width = 4096, 14336, 2 * 1024 + 2 * 4096

    matrices = 2 * 3 * hidden * inner + 8 * hidden + width * hidden  # of experts, router and attention
    assert model_flops(job) == 6 * batch * 97 * (
        model.layers * (matrices + 2 * 97 * hidden) + hidden * model.vocabulary
    )


@pytest.mark.parametrize(("window", "packed"), [(64, None), (200, 128), (600, None)])
def test_queries_of_a_window_count_as_many_keys(window: int, packed: int | None) -> None:
    """One of two layers has a window; what fused attention computes is as much, but for the first queries."""
    plain = make_job("llama3-8b", sequence=512, attention="fused", packed=packed)
    windowed = plain.model.model_copy(update={"window": window, "full_every": 2})
    job = plain.model_copy(update={"model": windowed})
    keys = packed or 512

    left_out = 12 * 512 * (keys - min(window, keys)) * plain.model.hidden * plain.model.layers // 2

    assert model_flops(plain) - model_flops(job) == left_out * plain.global_batch
