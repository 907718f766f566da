"""Operations as kernels of their own, against what the formulas read and write as they are evaluated."""

from __future__ import annotations

from fabricsim.workload.separate import Elementwise, in_place_of
from fabricsim.workload.work import Operation
from tests.reference.jobs import make_job
from tests.workload.test_parallel_work import work_of


class Counted:
    """A large array whose operators count the large arrays that they read and write."""

    def __init__(self, moved: list[tuple[int, int]]) -> None:
        self.moved = moved

    def with_(self, other: object = None) -> Counted:
        self.moved.append((1 + isinstance(other, Counted), 1))
        return Counted(self.moved)

    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __pow__ = with_

    def mean(self) -> float:
        self.moved.append((1, 0))
        return 1.0


def forward_of(name: str) -> list[tuple[int, int]]:
    parts = [part for part, _ in in_place_of(Elementwise(name, None), "separate", 4)]
    return sorted((part.forward.reads, part.forward.writes) for part in parts if part.forward)


def test_gelu_reads_and_writes_as_its_formula_does() -> None:
    x = Counted([])
    before_bias = x + 1.0
    inner = 0.7978845608 * (before_bias + 0.044715 * before_bias**3)
    before_bias * (0.5 * (1.0 + inner.with_()))  # `with_` in the place of tanh
    assert sorted(x.moved) == forward_of("bias-GELU")


def test_a_layer_norm_reads_and_writes_as_its_formula_does() -> None:
    x = Counted([])
    average = x.mean()
    (x - average).mean()  # squared on the way
    x.moved.append((0, 1))  # the inverse of a token times the scale of a column
    inverse = Counted(x.moved)
    x * inverse + (1.0 - average * inverse)
    assert sorted(x.moved) == forward_of("layer norm")


def test_fused_and_separate_layers_have_the_same_products() -> None:
    fused, separate = (
        [item for item in work_of(make_job(elementwise=how, precision="fp32")).forward if isinstance(item, Operation)]
        for how in ("fused", "separate")
    )
    assert sum(each.flops for each in fused) == sum(each.flops for each in separate)
    assert sum(each.traffic for each in fused) < sum(each.traffic for each in separate)
    assert len(separate) == len(fused) + 2 + 2 * 7 + 8 + 4 + 4 + 2 * 6  # QKV, norms, GELU, softmax, dropout, residuals


def test_operators_lie_between_fused_kernels_and_single_operations() -> None:
    traffic = [
        sum(each.traffic for each in work_of(make_job(elementwise=how)).forward if isinstance(each, Operation))
        for how in ("fused", "operators", "separate")
    ]
    assert traffic == sorted(set(traffic))


def test_mixed_precision_has_gelu_norms_and_residual_sums_in_32_bits_with_casts_around_them() -> None:
    half, whole = (
        {item.name: item.traffic for item in work.forward if isinstance(item, Operation)}
        for work in (work_of(make_job(elementwise="separate", precision=width)) for width in ("fp16", "fp32"))
    )
    for name in ("tanh", "variance", "plus residual"):
        assert half[name] == whole[name]
    assert half["softmax"] == whole["softmax"] // 2
    assert half["cast to 16 bits"] in (half["tanh"] * 6 // 8, half["variance"] * 6 // 4)  # 4 bytes read, 2 written
    assert "cast to 16 bits" not in whole


def test_mixed_operators_are_operators_in_32_bits_and_move_more_in_16() -> None:
    moved = {
        (how, precision): sum(
            each.traffic
            for each in work_of(make_job(elementwise=how, precision=precision)).forward
            if isinstance(each, Operation) and each.name != "scale scores"  # in the product before
        )
        for how in ("operators", "mixed-operators")
        for precision in ("fp32", "fp16")
    }
    assert moved["operators", "fp32"] == moved["mixed-operators", "fp32"]
    assert moved["operators", "fp16"] < moved["mixed-operators", "fp16"] < moved["operators", "fp32"]
