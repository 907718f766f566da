"""Tests of which rank does which part of a job."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.job import DIMENSIONS, Parallelism
from fabricsim.workload.placement import Placement

DEGREES = st.fixed_dictionaries(
    {
        "tensor": st.sampled_from([1, 2, 4]),
        "context": st.sampled_from([1, 2]),
        "data": st.sampled_from([1, 2, 4]),
        "pipeline": st.sampled_from([1, 2, 3]),
        "order": st.sampled_from(["-".join(order) for order in itertools.permutations(DIMENSIONS)]),
    }
)


def test_ranks_of_one_tensor_group_are_neighbours_unless_another_order_is_asked_for() -> None:
    usual = Placement(Parallelism(tensor=2, data=3, pipeline=2))
    turned = Placement(Parallelism(tensor=2, data=3, pipeline=2, order="pipeline-data-context-tensor"))

    assert usual.tensor.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert usual.data.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert usual.pipelines.tolist()[0] == [0, 6]
    assert turned.pipelines.tolist()[0] == [0, 1]
    assert turned.tensor.tolist()[0] == [0, 6]


@given(degrees=DEGREES)
def test_the_groups_of_each_dimension_hold_every_rank_once(degrees: dict[str, Any]) -> None:
    placement = Placement(Parallelism(**degrees))
    everyone = np.arange(placement.parallelism.ranks)

    for groups in (placement.tensor, placement.context, placement.data, placement.pipelines):
        assert np.array_equal(np.sort(groups, axis=None), everyone)
    assert (placement.stages[placement.pipelines] == np.arange(placement.parallelism.pipeline)).all()
    for dimension in ("tensor", "context", "data", "pipelines"):
        assert all(rank in placement.group(dimension, int(rank)) for rank in everyone)


@given(degrees=DEGREES, expert=st.sampled_from([1, 2]))
def test_experts_are_spread_over_part_of_the_data_parallel_ranks(degrees: dict[str, Any], expert: int) -> None:
    degrees["data"] *= expert
    placement = Placement(Parallelism(**degrees, expert=expert))

    assert placement.expert.shape[1] == expert
    assert placement.expert_data.shape[1] == degrees["data"] * degrees["context"] // expert
    for rank in range(placement.parallelism.ranks):
        replicas = set(placement.group("data", rank))
        assert set(placement.group("expert_data", rank)) <= replicas
        # The experts of a rank's group are all of them, and its copies are nobody else in that group.
        assert set(placement.group("expert", rank)) & set(placement.group("expert_data", rank)) == {rank}


@given(degrees=DEGREES, expert=st.sampled_from([1, 2, 4]))
def test_whole_experts_are_spread_over_neighbours_of_a_stage(degrees: dict[str, Any], expert: int) -> None:
    degrees["data"] *= expert
    placement = Placement(Parallelism(**degrees, expert=expert, expert_tensor=1))
    ranks = placement.parallelism.ranks // placement.parallelism.pipeline

    assert placement.expert_data.shape[1] == placement.parallelism.expert_shards == ranks // expert
    for groups in (placement.expert, placement.expert_data):
        assert np.array_equal(np.sort(groups, axis=None), np.arange(placement.parallelism.ranks))
        assert (np.ptp(placement.stages[groups], axis=1) == 0).all()
    for group in placement.expert:
        stage = np.sort(np.flatnonzero(placement.stages == placement.stages[group[0]]))
        assert np.array_equal(stage[np.searchsorted(stage, group[0]) :][:expert], group)
    for rank in range(placement.parallelism.ranks):
        assert set(placement.group("expert", rank)) & set(placement.group("expert_data", rank)) == {rank}


def test_experts_are_folded_as_megatron_numbers_them() -> None:
    """Of its ``RankGenerator(tp=1, ep=4, dp=2, pp=1)`` for experts, beside tp=2, cp=2, dp=2 for all else."""
    placement = Placement(Parallelism(tensor=2, context=2, data=2, expert=4, expert_tensor=1))

    assert placement.expert.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert placement.expert_data.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@given(degrees=DEGREES)
def test_images_of_a_group_are_all_groups_of_its_stages(degrees: dict[str, Any]) -> None:
    placement = Placement(Parallelism(**degrees))
    last = placement.parallelism.pipeline - 1

    ends = placement.images("pipeline", (placement.group("pipelines", 0)[0], placement.group("pipelines", 0)[last]))
    assert len(ends) == placement.parallelism.ranks // placement.parallelism.pipeline
    groups = placement.images("data", placement.group("data", 0))
    assert set(placement.stages[groups].ravel().tolist()) == {int(placement.stages[0])}
    assert placement.group("data", 0) in {tuple(group) for group in groups.tolist()}
