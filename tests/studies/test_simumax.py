"""Llama 3 and DeepSeek on one host of eight B200, as SimuMax publishes them."""

from __future__ import annotations

import statistics

import pytest

from fabricsim import measured
from fabricsim.run.pipeline import load
from fabricsim.studies import simumax


def test_each_run_is_predicted_by_both_readings_beside_simumax() -> None:
    rows, table = simumax.rows(), measured.load("simumax").rows

    assert [row.groups[0] for row in rows] == [
        reading for reading in (simumax.MEASURED, simumax.PRESET, simumax.SIMUMAX) for _ in table
    ]
    assert [row.predict() for row in rows[-len(table) :]] == list(table["simumax"])


@pytest.mark.slow
def test_degrees_of_a_run_fill_its_eight_gpus() -> None:
    for record in measured.load("simumax").rows:
        job = simumax.published_run(record).job()

        assert job.parallelism.ranks == 8
        assert job.global_batch % (job.micro_batch * job.parallelism.data) == 0
        assert job.model.layers == record["layers"]


def test_experts_are_padded_and_sent_by_nccl() -> None:
    record = next(one for one in measured.load("simumax").rows if one["model"] == "deepseek-v3")
    job = load("recipes", list(simumax.published_run(record).settings)).scenario.job

    assert job is not None
    assert (job.expert_kernels, job.capacity_factor, job.pad_to_capacity) == ("all-to-all", 1, True)
    assert job.model.experts is not None
    assert (job.model.experts.router_precision, job.model.experts.dense_layers) == ("bf16", 1)


@pytest.mark.slow
def test_products_as_fast_as_on_that_host_bring_dense_layers_within_two_percent() -> None:
    """Without the eighth GPU of a tensor-parallel group, whose kernels are so short that the host issues them late."""
    rows = [row for row in simumax.rows() if row.groups[:2] == (simumax.MEASURED, f"{simumax.MEASURED}, dense")]
    wide = [row for row in rows if "tp8" not in row.quantity]

    errors = [row.predict() / row.value - 1 for row in wide]

    assert statistics.fmean(map(abs, errors)) < 0.02
    assert max(map(abs, errors)) < 0.045
