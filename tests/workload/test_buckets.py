from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.workload.buckets import Bucket, gradient_buckets
from fabricsim.workload.shapes import stage_blocks
from tests.reference.jobs import make_model

GRADIENTS = st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=5), min_size=1, max_size=20)


@given(gradients=GRADIENTS, first_cap=st.integers(1, 200), cap=st.integers(1, 400))
def test_buckets_hold_all_gradients_and_their_caps(gradients: list[list[int]], first_cap: int, cap: int) -> None:
    buckets = gradient_buckets(gradients, first_cap, cap)

    assert sum(bucket.size for bucket in buckets) == sum(map(sum, gradients))
    largest = max(map(max, gradients))
    for number, bucket in enumerate(buckets):
        limit = first_cap if number == 0 else cap
        assert bucket.size < limit + largest
        assert bucket.size >= limit or number == len(buckets) - 1


@pytest.mark.slow
@given(gradients=GRADIENTS, first_cap=st.integers(1, 200), cap=st.integers(1, 400))
def test_a_bucket_waits_for_the_block_that_completes_it(gradients: list[list[int]], first_cap: int, cap: int) -> None:
    filled = 0
    for bucket in gradient_buckets(gradients, first_cap, cap):
        filled += bucket.size
        ready = sum(map(sum, gradients[bucket.block :]))
        assert ready - sum(gradients[bucket.block]) < filled <= ready


def test_tensors_are_taken_in_backward_order_and_never_split() -> None:
    buckets = gradient_buckets([[30, 5], [10, 40], [3, 2]], first_cap=4, cap=45)

    assert buckets == [Bucket(2 + 3, 2), Bucket(40 + 10, 1), Bucket(5 + 30, 0)]


def test_buckets_of_gpt2_medium_by_default() -> None:
    gradients = [[2 * size for size in block.tensors] for block in stage_blocks(make_model("gpt2-medium"), 1)[0]]

    buckets = gradient_buckets(gradients, 2**20, 25 * 2**20)

    # The first closes with the first matrix (4 h^2 in fp16 and the vectors after it), the last has the embedding.
    assert buckets[0] == Bucket(2 * (4 * 1024**2 + 1024 + 2 * 1024), 24)
    assert buckets[-1].size >= 2 * 50257 * 1024
    assert all(25 * 2**20 <= bucket.size < 25 * 2**20 + 2 * 4 * 1024**2 for bucket in buckets[1:-1])
