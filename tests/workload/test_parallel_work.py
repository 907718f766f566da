"""What one rank computes, sends and keeps under tensor, sequence, context and expert parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.job import Job
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Exchange, Item, Operation, Wait, Work
from tests.reference.jobs import make_job, make_model

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 8).map(lambda n: 64 * n), st.integers(1, 4), st.integers(1, 16))
"""Micro-batch, sequence, heads per tensor-parallel rank and width of a head."""


def work_of(job: Job, kind: str = "layer") -> Work:
    blocks = stage_blocks(job.model, 1, job.parallelism)[0]
    return block_work(next(block for block in blocks if block.kind == kind), job)


def exchanges(items: Iterable[Item]) -> list[tuple[str, str, int, bool]]:
    return [
        (item.collective, item.dimension, item.size, item.asynchronous) for item in items if isinstance(item, Exchange)
    ]


@pytest.mark.slow
@given(shape=SHAPES, tensor=st.sampled_from([1, 2, 4, 8]))
def test_a_layer_keeps_the_published_bytes(shape: tuple[int, int, int, int], tensor: int) -> None:
    """Korthikanti et al., arXiv 2205.05198, table 2."""
    b, s, heads, width = shape
    a, h, t = heads * tensor, heads * tensor * width, tensor
    model = make_model("gpt2-medium", hidden=h, heads=a)
    settings = {"micro_batch": b, "sequence": s, "tensor": t}

    def stored(**changes: object) -> int:
        return work_of(make_job(model, **settings, **changes)).stored

    assert stored(recompute="none") * t == s * b * (10 * h * t + 24 * h + 5 * a * s)  # s b h (10 + 24/t + 5as/ht)
    assert stored(recompute="none", sequence_parallel=True) * t == s * b * (34 * h + 5 * a * s)
    assert stored(recompute="selective", sequence_parallel=True) * t == 34 * s * b * h
    assert stored(recompute="selective") * t == s * b * (10 * h * t + 24 * h)
    assert stored(recompute="full") == 2 * s * b * h
    assert stored(recompute="full", sequence_parallel=True) * t == 2 * s * b * h


@given(shape=SHAPES)
def test_fused_attention_keeps_a_number_per_row_unless_it_runs_again(shape: tuple[int, int, int, int]) -> None:
    """As Megatron-LM's core attention does with selective recomputation, whichever kernels it has."""
    b, s, heads, width = shape
    model = make_model("gpt2-medium", hidden=heads * width, heads=heads)

    kept, selective = (
        work_of(make_job(model, micro_batch=b, sequence=s, attention="fused", recompute=recompute))
        for recompute in ("none", "selective")
    )

    assert kept.stored == 34 * s * b * heads * width + 4 * b * heads * s
    assert selective.stored == 34 * s * b * heads * width
    (attention,) = (item for item in kept.forward if isinstance(item, Operation) and item.kernel == "attention")
    assert Counter(selective.backward) == Counter((*kept.backward, attention))


@given(shape=SHAPES, tensor=st.sampled_from([2, 4, 8]))
def test_exchanges_of_a_layer(shape: tuple[int, int, int, int], tensor: int) -> None:
    b, s, heads, width = shape
    h = heads * tensor * width
    model = make_model("gpt2-medium", hidden=h, heads=heads * tensor)
    settings = {"micro_batch": b, "sequence": s, "tensor": tensor, "recompute": "none"}
    size = 2 * b * s * h
    gather, scatter = ("all_gather", "tensor", size), ("reduce_scatter", "tensor", size)

    plain = work_of(make_job(model, **settings))
    assert exchanges(plain.forward) == [("all_reduce", "tensor", size, False)] * 2
    assert exchanges(plain.backward) == [("all_reduce", "tensor", size, True)] * 2

    split = work_of(make_job(model, **settings, sequence_parallel=True))
    assert exchanges(split.forward) == [(*gather, False), (*scatter, False)] * 2
    assert exchanges(split.backward) == [(*gather, False), (*gather, True), (*scatter, True)] * 2


@pytest.mark.parametrize("name", ["gpt2-medium", "bert-large", "t5-base", "llama3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("degrees", [{}, {"tensor": 4}, {"tensor": 4, "sequence_parallel": True}])
def test_nothing_is_left_waiting_and_weights_come_beside(name: str, recompute: str, degrees: dict[str, int]) -> None:
    job = make_job(name, recompute=recompute, **degrees)

    for block in set(stage_blocks(job.model, 1, job.parallelism)[0]):
        work = block_work(block, job)
        for items in (work.forward, work.backward):
            open_calls = False
            for item in items:
                if isinstance(item, Exchange):
                    open_calls = open_calls or item.asynchronous
                elif isinstance(item, Wait):
                    open_calls = False
            assert not open_calls
        assert not any(isinstance(item, Operation) and item.weight for item in work.forward)


def test_ranks_that_share_a_head_of_keys_gather_and_keep_their_part() -> None:
    """Those of Qwen3 235B have 4 for 8 ranks: 288 MiB of 4 sequences (``get_query_key_value_tensors``)."""
    table = {"hidden": 4096, "heads": 64, "head_width": 128, "head_norm": True}
    settings = {"micro_batch": 4, "sequence": 4096, "tensor": 8, "sequence_parallel": True, "recompute": "none"}
    shared, whole = (
        work_of(make_job(make_model("llama3-8b", **table, kv_heads=heads), **settings)) for heads in (4, 8)
    )
    tokens, head = 4 * 4096, 128
    size = 2 * tokens * head * (64 + 2 * 4)

    assert size == 288 * 2**20
    assert Counter(exchanges(shared.forward)) - Counter(exchanges(whole.forward)) == Counter(
        [("all_gather", "tensor", size, False)]
    )
    assert Counter(exchanges(shared.backward)) - Counter(exchanges(whole.backward)) == Counter(
        [("reduce_scatter", "tensor", size, False)]
    )
    assert shared.stored == whole.stored  # both attend with one head of keys and one of values
    attention = {item for item in shared.forward if isinstance(item, Operation) and item.kernel == "attention"}
    assert attention
    assert attention <= set(whole.forward)


def test_kernels_apart_add_biases_before_they_gather_and_transpose_behind_it() -> None:
    model = make_model("gpt2-medium", kv_heads=4)
    work = work_of(make_job(model, tensor=8, elementwise="separate", recompute="none"))

    names = [getattr(item, "name", item) for item in work.forward]
    gather = next(at for at, item in enumerate(work.forward) if isinstance(item, Exchange))
    assert names[names.index("QKV") + 1] == "bias"
    assert names[gather : gather + 3] == [work.forward[gather], "order gathered QKV", "transpose"]


def test_tensor_parallel_input_gradient_travels_beside_the_weight_gradient() -> None:
    backward = work_of(make_job(tensor=4, recompute="none")).backward

    at = next(n for n, item in enumerate(backward) if isinstance(item, Exchange))
    before, beside, after = backward[at - 1], backward[at + 1], backward[at + 2]

    assert isinstance(before, Operation)
    assert before.name == "feed-forward up input gradient"
    assert isinstance(beside, Operation)
    assert beside.name == "feed-forward up weight gradient"
    assert isinstance(after, Wait)


def test_without_overlap_the_input_gradient_travels_behind_the_weight_gradient() -> None:
    beside = work_of(make_job(tensor=4, recompute="none")).backward
    behind = work_of(make_job(tensor=4, recompute="none", tensor_overlap=False)).backward

    at = next(n for n, item in enumerate(behind) if isinstance(item, Exchange))
    before = behind[at - 1]

    assert isinstance(before, Operation)
    assert before.name == "feed-forward up weight gradient"
    assert not any(isinstance(item, Wait) for item in behind)
    assert [call[:3] for call in exchanges(behind)] == [call[:3] for call in exchanges(beside)]
    assert [item for item in behind if isinstance(item, Operation)] == [
        item for item in beside if isinstance(item, Operation)
    ]


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_recomputation_repeats_the_forward_pass_with_its_exchanges(recompute: str) -> None:
    job = make_job(tensor=4, sequence_parallel=True, recompute=recompute)

    work, kept = work_of(job), work_of(make_job(tensor=4, sequence_parallel=True, recompute="none"))

    repeated = kept.forward if recompute == "full" else ()
    assert work.backward == repeated + kept.backward
    assert work.forward == kept.forward


def test_selective_recomputation_repeats_the_core_of_attention_before_its_gradients() -> None:
    kept, selective = (work_of(make_job(recompute=recompute)).backward for recompute in ("none", "selective"))
    core = ["scores", "softmax", "attention dropout", "context", "context transpose"]

    names = [item.name for item in selective if isinstance(item, Operation)]

    at = names.index("scores")
    assert names[at : at + 6] == [*core, "context transpose gradient"]
    assert [item for item in selective if not (isinstance(item, Operation) and item.name in core)] == list(kept)


@given(context=st.sampled_from([2, 4, 8]), tensor=st.sampled_from([1, 2]), b=st.integers(1, 4))
def test_ring_attention_passes_keys_and_values_around(context: int, tensor: int, b: int) -> None:
    settings = {"tensor": tensor, "micro_batch": b, "sequence": 1024, "attention": "fused", "recompute": "none"}
    work = work_of(make_job("llama3-8b", context=context, **settings))
    size = 2 * 2 * b * (1024 // context) * (1024 // tensor)  # two bytes, keys and values, of 8 heads of 128

    def ring(items: Iterable[Item]) -> list[int]:
        return [item.size for item in items if isinstance(item, Exchange) and item.dimension == "context"]

    assert ring(work.forward) == [size] * (context - 1)
    assert ring(work.backward) == [size, *[2 * size] * (context - 2), size]


@given(context=st.sampled_from([2, 4, 8]), method=st.sampled_from(["ring", "ulysses"]))
def test_context_parallel_ranks_share_the_attention(context: int, method: str) -> None:
    settings = {"sequence": 1024, "attention": "fused", "recompute": "none"}
    whole = work_of(make_job("llama3-8b", **settings))
    part = work_of(make_job("llama3-8b", **settings, context=context, context_method=method))

    for each, one in ((whole.forward, part.forward), (whole.backward, part.backward)):
        flops = [sum(item.flops for item in items if isinstance(item, Operation)) for items in (each, one)]
        assert flops[0] == context * flops[1]


def test_ulysses_trades_query_key_value_and_result() -> None:
    job = make_job("llama3-8b", sequence=1024, context=4, context_method="ulysses", recompute="none")
    tokens = 2 * 1024 // 4
    query, key = 2 * tokens * 4096, 2 * tokens * 1024

    work = work_of(job)

    assert [size for _, _, size, _ in exchanges(work.forward)] == [query, key, key, query]
    assert [size for _, _, size, _ in exchanges(work.backward)] == [query, key, key, query]
    assert {name for name, *_ in exchanges(work.forward + work.backward)} == {"all_to_all"}


@given(
    expert=st.sampled_from([1, 2, 4, 8]),
    tensor=st.sampled_from([1, 2, 4]),
    imbalance=st.sampled_from([1.0, 1.5, 3.0]),
    capacity=st.sampled_from([None, 1.0, 1.25]),
)
def test_experts_of_a_layer(expert: int, tensor: int, imbalance: float, capacity: float | None) -> None:
    job = make_job(
        "mixtral-8x7b",
        expert=expert,
        tensor=tensor,
        data=8,
        sequence_parallel=tensor > 1,
        recompute="none",
        expert_imbalance=imbalance,
        capacity_factor=capacity,
        sequence=512,
        micro_batch=2,
    )
    load = min(imbalance, capacity or imbalance, expert)  # all tokens are on the busiest of `expert` ranks at most

    work = work_of(job, "expert-layer")

    sent = [size for name, _, size, _ in exchanges(work.forward) if name == "all_to_all"]
    assert sent == ([] if expert == 1 else [2 * 2 * 512 // tensor * 2 * 4096 * load] * 2)
    up = next(item for item in work.forward if isinstance(item, Operation) and item.name == "experts up")
    local = 8 // expert
    assert up.shape == (local, 2 * 512 * 2 * load / local, 4096, 2 * 14336 // tensor)


def test_the_loss_agrees_on_three_numbers_per_token() -> None:
    job = make_job(tensor=4, micro_batch=2, sequence=512)

    head = work_of(job, "head")

    assert exchanges(head.forward) == [("all_reduce", "tensor", 4 * 2 * 512, False)] * 3
    assert exchanges(head.backward) == [("all_reduce", "tensor", 2 * 2 * 512 * 1024, True)]


@pytest.mark.parametrize(
    ("name", "split", "forward", "backward"),
    [
        ("gpt2-medium", False, ["all_reduce"], []),
        ("gpt2-medium", True, ["all_reduce"], ["all_gather"]),
        ("llama3-8b", False, ["all_reduce"], []),
        ("llama3-8b", True, ["reduce_scatter"], ["all_gather"]),
    ],
)
def test_embedding_adds_up_the_parts_of_the_vocabulary(
    name: str, forward: list[str], backward: list[str], *, split: bool
) -> None:
    work = work_of(make_job(name, tensor=4, sequence_parallel=split), "embedding")

    assert [collective for collective, *_ in exchanges(work.forward)] == forward
    assert [collective for collective, *_ in exchanges(work.backward)] == backward


@pytest.mark.parametrize("context", [1, 2, 4])
def test_context_parallel_ranks_share_the_masked_tokens_of_a_bert(context: int) -> None:
    settings = {"micro_batch": 8, "predictions": 80, "attention": "fused"}

    head = work_of(make_job("bert-large", **settings, context=context), "head")

    shapes = {item.name: item.shape for item in head.forward if isinstance(item, Operation)}
    assert shapes["transform"] == (1, 8 * 80 // context, 1024, 1024)
    assert shapes["logits"] == (1, 8 * 80 // context, 1024, 30522)
