from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest

from fabricsim.calibration.operators import is_known, parts
from fabricsim.scenario.cluster import StreamName
from fabricsim.scenario.job import Job
from fabricsim.scenario.load import load
from fabricsim.traces.kineto.inputs import Inputs, inputs_of
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Operation

HALF, BRAIN, SINGLE = "c10::Half", "c10::BFloat16", "float"
Q, K = (2, 1024, 16, 64), (2, 1024, 4, 64)  # sequences, tokens, heads, width
WHOLE, HIDDEN = 2 * 2 * 2 * 16 * 1024 * 64 * 1024, 2 * 2 * 16 * 1024 * 64 * 1024  # FLOPs of both products


def inputs(*shapes: Sequence[int], type_: str = BRAIN, values: Sequence[str] = ()) -> Inputs:
    return Inputs(tuple(map(tuple, shapes)), (type_,) * len(shapes), tuple(values))


def test_inputs_are_read_as_the_profiler_writes_them() -> None:
    event = {
        "Input Dims": [[256], [16, 13], [[3, 4], [5]], [], "x", [-1]],
        "Input type": ["float", "float", "TensorList", "Scalar", 3],
        "Concrete Inputs": ["", "", "", "1"],
    }
    found = inputs_of(event)

    assert found == Inputs(
        ((256,), (16, 13), (), (), (), ()), ("float", "float", "TensorList", "Scalar", ""), ("", "", "", "1")
    )
    assert (found.shape(9), found.type(9), found.value(9)) == ((), "", "")
    assert inputs_of({"Ev Idx": 3}) is None
    assert inputs_of({"Input Dims": "[[16, 13]]"}) is None


@pytest.mark.parametrize(
    ("name", "given", "shape", "precision"),
    [
        ("aten::mm", inputs([8, 3], [3, 5]), (1, 8, 3, 5), "bf16"),
        ("aten::addmm", inputs([5], [8, 3], [3, 5], [], [], type_=HALF), (1, 8, 3, 5), "fp16"),
        ("aten::_addmm_activation", inputs([5], [8, 3], [3, 5], type_=SINGLE), (1, 8, 3, 5), "fp32"),
        ("aten::bmm", inputs([7, 8, 3], [7, 3, 5]), (7, 8, 3, 5), "bf16"),
        ("aten::baddbmm", inputs([1], [7, 8, 3], [7, 3, 5]), (7, 8, 3, 5), "bf16"),
    ],
)
def test_products(name: str, given: Inputs, shape: tuple[int, ...], precision: str) -> None:
    (part,) = parts(name, given)

    assert (part.what.operation.kernel, part.what.operation.shape, part.what.precision) == ("product", shape, precision)
    assert part.what.operation.flops == 2 * shape[0] * shape[1] * shape[2] * shape[3]
    assert part.kernels.match("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm>")
    assert not part.kernels.match("void at::native::elementwise_kernel<128, 2>")  # the bias on its way into the result


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("aten::mm", inputs([8, 3], [4, 5])),
        ("aten::mm", inputs([8, 0], [0, 5])),
        ("aten::mm", inputs([2**31, 3], [3, 5])),
        ("aten::mm", inputs([8, 3], [3, 5], type_="double")),
        ("aten::mm", inputs([8, 3])),
        ("aten::bmm", inputs([8, 3], [3, 5])),
        ("aten::bmm", inputs([7, 8, 3], [6, 3, 5])),
        ("aten::conv2d", inputs([8, 3], [3, 5])),
        ("aten::_flash_attention_forward", inputs(Q, K, K, [3], [3])),  # several lengths in one
        ("aten::_flash_attention_forward", inputs((2048, 16, 64), (2048, 4, 64), (2048, 4, 64))),
        ("aten::add", inputs([8, 3], [3])),
        ("aten::add", inputs([8, 3], [8, 3], type_="long int")),
        ("aten::gelu", inputs([])),
        ("aten::index_select", inputs([9, 4], [], [7], values=["", "1", ""])),
    ],
)
def test_what_the_model_does_not_price_is_left(name: str, given: Inputs) -> None:
    assert parts(name, given) == ()


@pytest.mark.parametrize(
    ("name", "given", "kernel", "causal"),
    [
        ("aten::_flash_attention_forward", inputs(Q, K, K, values=[*[""] * 8, "True"]), "attention", True),
        ("aten::_flash_attention_forward", inputs(Q, K, K, values=[*[""] * 8, "False"]), "attention", False),
        ("aten::_flash_attention_forward", inputs(Q, K, K), "attention", None),
        ("aten::_efficient_attention_forward", inputs(Q, K, K, values=[*[""] * 9, "2"]), "attention", True),
        ("flash_attn::_flash_attn_forward", inputs(Q, K, K, values=[*[""] * 5, "True"]), "attention", True),
        (
            "aten::_scaled_dot_product_cudnn_attention",
            inputs((2, 16, 1024, 64), (2, 4, 1024, 64), (2, 4, 1024, 64), values=[*[""] * 6, "False"]),
            "attention",
            False,
        ),
    ],
)
def test_attention(name: str, given: Inputs, kernel: str, causal: bool | None) -> None:  # noqa: FBT001  a column
    (part,) = parts(name, given)

    assert (part.what.operation.kernel, part.what.causal, part.what.precision) == (kernel, causal, "bf16")
    assert part.what.operation.shape == (32, 1024, 64, 1024)
    assert part.what.operation.flops == (HIDDEN if causal else WHOLE)


def test_the_sums_of_the_backward_pass_of_attention_are_apart() -> None:
    given = inputs(Q, Q, K, K, Q, [2, 16, 1024], values=[*[""] * 11, "True"])
    sums, gradient = parts("aten::_flash_attention_backward", given)

    assert sums.kernels.match("void flash_bwd_dot_do_o_kernel<true>")
    assert not gradient.kernels.match("void flash_bwd_dot_do_o_kernel<true>")
    assert gradient.kernels.match("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel")
    assert gradient.what.operation.kernel == "attention-gradient"
    assert gradient.what.operation.flops == HIDDEN * 5 // 2
    assert sums.what.operation.name == "fused attention sums gradient"


@pytest.fixture(scope="module")
def of_jobs() -> set[tuple[str, int]]:
    """Name and bytes of each memory-bound kernel of three jobs with two sequences of 128 tokens."""
    found = set()
    for settings in (["attention=fused"], ["attention=unfused"], ["model=llama2-7b", "attention=fused"]):
        small = ["micro_batch=2", "sequence=128", "recompute=none", *settings]
        job = load("gpt2-medium-dp", [f"job.{setting}" for setting in small]).scenario.job
        assert isinstance(job, Job)
        for block in set(stage_blocks(job.model, 1)[0]):
            work = block_work(block, job)
            kernels = [item for item in (*work.forward, *work.backward) if isinstance(item, Operation)]
            found |= {(kernel.name, kernel.traffic) for kernel in kernels if kernel.shape is None}
    return found


SCORES, ACTIVATIONS, WIDE = [2, 16, 128, 128], [2, 128, 1024], [2, 128, 4096]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("aten::native_layer_norm", inputs(ACTIVATIONS, [], [1024], [1024], type_=HALF)),
        ("aten::native_layer_norm_backward", inputs(ACTIVATIONS, ACTIVATIONS, type_=HALF)),
        ("aten::_softmax", inputs(SCORES, type_=HALF)),
        ("aten::_softmax_backward_data", inputs(SCORES, SCORES, type_=HALF)),
        ("ScaledUpperTriangMaskedSoftmax", inputs([32, 128, 128], type_=HALF)),
        ("aten::native_dropout", inputs(SCORES, type_=HALF)),
        ("aten::native_dropout", inputs(ACTIVATIONS, type_=HALF)),
        ("aten::native_dropout_backward", inputs(SCORES, SCORES, type_=HALF)),
        ("aten::native_dropout_backward", inputs(ACTIVATIONS, ACTIVATIONS, type_=HALF)),
        ("aten::gelu", inputs(WIDE, type_=HALF)),
        ("aten::gelu_backward", inputs(WIDE, WIDE, type_=HALF)),
        ("aten::index_select", inputs([50257, 1024], [], [256], type_=HALF)),
        ("aten::embedding_dense_backward", inputs(ACTIVATIONS, [2, 128], type_=HALF)),
        ("aten::_flash_attention_backward", inputs(*[(2, 128, 16, 64)] * 5, type_=HALF)),
    ],
)
def test_memory_bound_kernels_are_those_that_the_compiler_makes(
    name: str, given: Inputs, of_jobs: set[tuple[str, int]]
) -> None:
    operations = [part.what.operation for part in parts(name, given) if part.what.operation.shape is None]

    assert is_known(name)
    assert operations
    assert {(one.name, one.traffic) for one in operations} <= of_jobs


def test_names_of_streams_are_those_of_the_compiler(of_jobs: set[tuple[str, int]]) -> None:
    assert set(get_args(StreamName)) <= {name for name, _ in of_jobs}


def test_an_addition_is_one_of_the_residual_stream(of_jobs: set[tuple[str, int]]) -> None:
    first, second = parts("aten::add_", inputs(ACTIVATIONS, ACTIVATIONS, [], type_=HALF))

    assert (second.what.operation.name, second.what.operation.traffic) in of_jobs
    assert first.what.operation.name == "residual"
    assert first.what.operation.traffic == second.what.operation.traffic
