from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.job import Model
from fabricsim.scenario.job_checks import job_problems
from fabricsim.workload.operations import block_work
from fabricsim.workload.optimizer import gradient_copies, optimizer_operations
from fabricsim.workload.shapes import Block, stage_blocks
from fabricsim.workload.work import Exchange, Item, Operation
from tests.reference.jobs import make_job, make_model

SIZES = st.tuples(st.integers(1, 64), st.integers(1, 1024), st.integers(1, 32), st.integers(1, 128))
"""Micro-batch, sequence, heads and width of a head."""


def flops(items: Iterable[Item]) -> int:
    return sum(item.flops for item in items if isinstance(item, Operation))


def traffic(items: Iterable[Item]) -> int:
    return sum(item.traffic for item in items if isinstance(item, Operation))


def block_of(model: Model, kind: str) -> Block:
    return next(block for block in stage_blocks(model, 1)[0] if block.kind == kind)


@given(sizes=SIZES)
def test_layer_has_the_published_flops(sizes: tuple[int, int, int, int]) -> None:
    b, s, heads, head_width = sizes
    h = heads * head_width
    job = make_job(make_model("gpt2-medium", hidden=h, heads=heads), micro_batch=b, sequence=s, recompute="none")

    work = block_work(block_of(job.model, "layer"), job)

    assert flops(work.forward) == 24 * b * s * h**2 + 4 * b * s**2 * h
    assert flops(work.backward) == 2 * flops(work.forward)


@given(sizes=SIZES)
def test_layer_stores_the_published_activation_bytes(sizes: tuple[int, int, int, int]) -> None:
    b, s, heads, head_width = sizes
    h = heads * head_width
    job = make_job(make_model("gpt2-medium", hidden=h, heads=heads), micro_batch=b, sequence=s, recompute="none")

    work = block_work(block_of(job.model, "layer"), job)

    assert work.stored == s * b * (34 * h + 5 * heads * s)  # s b h (34 + 5 a s / h)


def test_layer_moves_what_the_table_says() -> None:
    job = make_job("gpt2-medium", micro_batch=2, sequence=512, recompute="none")
    block = block_of(job.model, "layer")
    n, scores, tokens, h = 2 * 512 * 1024, 2 * 16 * 512 * 512, 2 * 512, 1024
    fp16, mask = 2, 1

    work = block_work(block, job)

    streamed = 2 * 2 * n + 2 * scores + 2 * scores + 2 * n + 2 * 3 * n + 2 * 4 * n
    products = (n + 3 * h * h + 3 * n) + (2 * n + scores) + (scores + 2 * n) + (n + h * h + n) + 2 * (5 * n + 4 * h * h)
    assert traffic(work.forward) == fp16 * (streamed + products) + mask * (scores + 2 * n)
    gradients = (
        (2 * 5 * n)  # layer norms
        + (3 * 3 * n)  # QKV join and bias
        + (3 * scores + 2 * scores)  # softmax, attention dropout
        + (2 * n)  # context transpose
        + (2 * (3 * n + 3 * n))  # bias-dropout-residual, residual
        + (4 * 4 * n)  # bias-GELU
    )
    accumulated = block.parameters * (fp16 + 2 * fp16)
    assert traffic(work.backward) == fp16 * (gradients + 2 * products) + mask * (scores + 2 * n) + accumulated
    assert tokens * h == n


def test_decoder_layer_attends_to_the_encoder() -> None:
    job = make_job("t5-base", micro_batch=3, sequence=512, decoder_sequence=128)
    b, e, d, h = 3, 512, 128, 768

    work = block_work(block_of(job.model, "decoder-layer"), job)

    own = 24 * b * d * h**2 + 4 * b * d**2 * h
    cross = 2 * b * d * h * h + 2 * b * e * h * 2 * h + 4 * b * d * e * h + 2 * b * d * h * h
    assert flops(work.forward) == own + cross


@pytest.mark.parametrize(("name", "extra"), [("gpt2-medium", 0), ("bert-large", 1)])
def test_head_computes_the_logits_of_every_token(name: str, extra: int) -> None:
    job = make_job(name, micro_batch=4, sequence=128)
    b, s, h, v = 4, 128, job.model.hidden, job.model.vocabulary

    work = block_work(block_of(job.model, "head"), job)

    assert flops(work.forward) == 2 * b * s * h * v + extra * (2 * b * s * h * h + 2 * b * h * h)


def test_fp32_needs_no_cast_of_the_logits() -> None:
    names = {
        precision: [op.name for op in block_work(block_of(job.model, "head"), job).forward]
        for precision in ("fp16", "fp32")
        for job in [make_job("gpt2-medium", precision=precision)]
    }

    assert "cast" in names["fp16"]
    assert "cast" not in names["fp32"]


def test_embedding_has_no_products_and_a_dense_gradient() -> None:
    job = make_job("bert-base", micro_batch=1, sequence=1)

    work = block_work(block_of(job.model, "embedding"), job)

    assert flops(work.forward + work.backward) == 0
    zeroed = [op.traffic for op in work.backward if op.name == "zero table gradient"]
    assert zeroed == [rows * 768 * 2 for rows in (2, 512, 30522)]


@pytest.mark.parametrize(
    ("precision", "gradient", "data", "size"),
    [
        ("fp16", None, 1, 2 + 6 + 8 + 4 + 28 + 6),
        ("fp16", None, 8, 2 + 4 + 6 + 8 + 4 + 28 + 6),
        ("fp16", "fp32", 8, 4 + 8 + 8 + 4 + 28 + 6),
        ("bf16", "fp32", 1, 4 + 4 + 28 + 6),
        ("fp32", None, 1, 4 + 4 + 28),
    ],
)
def test_optimizer_moves_these_bytes_per_parameter(precision: str, gradient: str | None, data: int, size: int) -> None:
    job = make_job(precision=precision, gradient_precision=gradient, data=data)

    assert traffic(optimizer_operations([1000], job)) == 1000 * size


@pytest.mark.parametrize(("degrees", "averaged"), [({}, 0), ({"data": 2}, 1), ({"context": 2}, 1), ({"tensor": 2}, 0)])
def test_gradients_are_averaged_over_all_that_have_other_tokens(degrees: dict[str, int], averaged: int) -> None:
    found = optimizer_operations([100], make_job(attention="fused", **degrees))

    assert [getattr(item, "name", "") for item in found].count("average gradients") == averaged


def test_an_optimizer_goes_tensor_by_tensor_over_the_same_bytes() -> None:
    tensors = (1000, 10, 1)
    fused, each = (
        optimizer_operations(tensors, make_job(optimizer=how, precision="fp32")) for how in ("fused", "tensors")
    )

    assert [op.name for op in fused if op.name != "zero gradients"] == [op.name for op in each[:: len(tensors)]]
    assert traffic(each) == traffic(fused) - 4 * sum(tensors)
    assert [op.traffic for op in each[-3:]] == [28 * elements for elements in tensors]


def test_adam_by_operations_reads_and_writes_as_its_formula_does() -> None:
    """Each operand and each result is a pass, but for numbers."""
    lines = (  # reads of m, v, g, p and of what was worked out before; each line writes one
        (1, 1, 2),  # b1 * m, (1 - b1) * g, their sum
        (1, 1, 1, 2),  # b2 * v, g ** 2, (1 - b2) * of it, their sum
        (1, 1, 2),  # root, plus epsilon, quotient
        (1, 2),  # decay * p, sum
        (1, 2),  # rate * update, p - it
        (1, 1, 1),  # m, v and p are assigned
    )
    reads = [each for line in lines for each in line]
    job = {how: make_job(optimizer=how, precision="fp32") for how in ("tensors", "separate")}
    one, many = (optimizer_operations([1000], job[how]) for how in ("tensors", "separate"))

    assert traffic(many) - traffic(one) == 4 * 1000 * (sum(reads) + len(reads) - 7)
    assert [op.traffic for op in many[-len(reads) :]] == [4000 * (each + 1) for each in reads]


def test_operators_take_norm_and_decay_apart_and_spare_vectors_the_decay() -> None:
    vector, matrix = 1000, 10**6
    job = {how: make_job(optimizer=how, precision="fp32") for how in ("tensors", "operators")}
    one, many = (optimizer_operations([vector, matrix], job[how]) for how in ("tensors", "operators"))

    # In 4 bytes: a gradient squared to memory; a parameter copied; that times decay, times rate, subtracted, assigned.
    assert traffic(many) - traffic(one) == 4 * ((2 + 2) * (vector + matrix) + (2 + 2 + 3 + 2) * matrix)
    assert len(many) - len(one) == 2 * 2 + 4


def test_clipping_reads_and_writes_each_gradient_once_more() -> None:
    job = make_job(clip_gradients=True)

    assert traffic(optimizer_operations([1000], job)) == 1000 * (2 + 6 + 8 + 4 + 8 + 28 + 6)


@pytest.mark.parametrize(("precision", "width"), [(None, 2), ("fp32", 4)])
def test_gradients_that_are_reduced_in_one_buffer_go_there_and_back(precision: str | None, width: int) -> None:
    tensors = (1000, 10, 1)
    plain, flat = (make_job(gradient_precision=precision, data=8, flatten_gradients=on) for on in (False, True))

    before, after = gradient_copies(tensors, flat)

    assert gradient_copies(tensors, plain) == ((), ())
    assert traffic(before) == 2 * 2 * width * sum(tensors)
    assert [op.traffic for op in after] == [2 * width * elements for elements in tensors]
    # They are divided in the buffer, no longer by the optimizer.
    averaged = traffic(optimizer_operations([1000], plain)) - traffic(optimizer_operations([1000], flat))
    assert averaged == 1000 * 2 * width


@pytest.mark.parametrize("name", ["gpt2-medium", "llama3-8b", "mixtral-8x7b"])
def test_fused_accumulation_leaves_only_vectors_to_add(name: str) -> None:
    job = make_job(name, gradient_precision="fp32", fused_accumulation=True, recompute="none")
    kind = "expert-layer" if "mixtral" in name else "layer"
    block = block_of(job.model, kind)

    fused = block_work(block, job)
    apart = block_work(block, job.model_copy(update={"fused_accumulation": False}))

    added = [item for item in fused.backward if isinstance(item, Operation) and item.name == "accumulate gradient"]
    assert added
    assert all(item.traffic <= 10 * 4 * job.model.hidden for item in added)
    weights = block.parameters - sum(item.traffic for item in added) // 10
    # No gradient is written in fp16 and read again.
    assert traffic(apart.backward) - traffic(fused.backward) == weights * 2 * 2
    assert flops(apart.backward) == flops(fused.backward)


def test_llama_has_three_matrices_shared_keys_and_no_dropout() -> None:
    job = make_job("llama3-8b", micro_batch=2, sequence=512, attention="unfused")
    tokens, scores = 2 * 512, 2 * 32 * 512 * 512

    work = block_work(block_of(job.model, "layer"), job)

    products = 2 * tokens * 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) + 2 * 2 * scores * 128
    assert flops(work.forward) == products
    assert not [item for item in work.forward if isinstance(item, Operation) and "dropout" in item.name]
    elements = 2 * 4096 + 2 * 4096 + (4096 + 2 * 1024) + 4096 + 3 * 14336  # norms, inputs, QKV, result, SwiGLU and down
    assert work.stored == 2 * (tokens * elements + scores)


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_fused_loss_reads_logits_twice_and_writes_their_gradient_in_place(tensor: int) -> None:
    job = make_job("llama3-8b", sequence=512, precision="bf16", tensor=tensor)
    fused = job.model_copy(update={"loss_kernels": "fused"})
    block = stage_blocks(job.model, 1, job.parallelism)[0][-1]
    plain, work = block_work(block, job), block_work(block, fused)
    tokens = 512 * job.micro_batch
    logits = tokens * job.model.vocabulary // tensor

    assert traffic(plain.forward) - traffic(work.forward) == (6 + 4 + 8 + 8 + 4 + 8 - 2 - 4) * logits
    assert traffic(plain.backward) - traffic(work.backward) == (8 + 6 - 4) * logits
    assert plain.stored - work.stored == (4 - 2) * logits
    gathered = [each.size for each in work.forward if isinstance(each, Exchange) and each.collective == "all_gather"]
    assert gathered == ([] if tensor == 1 else [tensor * tokens * 3 * 4])


def test_a_fused_loss_is_refused_where_each_operation_is_a_kernel() -> None:
    job = make_job("bert-base", loss_kernels="fused", elementwise="separate")

    assert [each.key for each in job_problems(job)] == ["job.loss_kernels"]


@pytest.mark.parametrize("model", ["gpt2-medium", "bert-large", "t5-large"])
def test_what_drops_nothing_neither_writes_nor_reads_masks(model: str) -> None:
    job = make_job(model, attention="unfused", recompute="none")
    without = job.model_copy(update={"dropout": False})
    for block in set(stage_blocks(job.model, 1, job.parallelism)[0]):
        plain, work = block_work(block, job), block_work(block, without)
        assert not [item for item in (*work.forward, *work.backward) if "dropout" in getattr(item, "name", "")]
        assert flops(work.forward) == flops(plain.forward)
        masks = sum("dropout" in item.name for item in plain.forward if isinstance(item, Operation))
        less = traffic(work.forward) < traffic(plain.forward), work.stored < plain.stored
        assert less == (bool(masks), bool(masks))


def test_dropout_is_left_out_of_fused_kernels_that_have_it() -> None:
    for model, changes in (("llama3-8b", {}), ("bert-base", {"elementwise": "separate"})):
        assert [each.key for each in job_problems(make_job(model, dropout=False, **changes))] == ["job.dropout"]
