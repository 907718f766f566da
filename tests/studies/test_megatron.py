"""Tests of the study of published training runs, on those of its runs that take a second."""

from __future__ import annotations

import numpy as np
import pytest

from fabricsim import measured
from fabricsim.run.pipeline import load
from fabricsim.studies import megatron
from fabricsim.studies.frame.training import causal_flops, narayanan_flops, rank_correlation

QUICK = ("Korthikanti 22B, full", "Korthikanti 22B, selective", "Narayanan 1.7B", "Narayanan 7.5B", "Narayanan 39.1B")
WORST = 0.12
"""Relative error of an iteration that the study may have at most."""


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_iteration_is_near_the_published_one(name: str) -> None:
    (record,) = [record for record in measured.load("megatron").rows if record["name"] == name]
    run = megatron.published_run(record)

    assert run.iteration() == pytest.approx(megatron.published_seconds(record, run), rel=WORST)


@pytest.mark.slow
def test_every_run_of_the_table_can_be_planned() -> None:
    for record in measured.load("megatron").rows:
        run = megatron.published_run(record)
        job = run.job()

        assert job.parallelism.ranks == load(run.scenario, list(run.settings)).scenario.cluster.ranks
        assert megatron.published_seconds(record, run) > 0


def test_published_throughput_and_iteration_of_one_run_agree() -> None:
    # Korthikanti et al. print both for 22B with full recomputation: 1.42 s, and 42.9 % of 312 TFLOPS.
    (record,) = [record for record in measured.load("megatron").rows if record["name"] == QUICK[0]]

    assert narayanan_flops(megatron.published_run(record).job()) / 8 / 1.42 == pytest.approx(0.429 * 312e12, rel=0.003)


def test_llama_counts_half_of_its_attention() -> None:
    job = load("llama3-405b").scenario.job
    assert job is not None

    # 6 FLOPs per parameter and token, and 6 s per token, layer and unit of width; the embedding is only looked up.
    tokens = job.global_batch * job.sequence
    matrices = 405.8e9 - 128_256 * 16_384
    expected = tokens * (6 * matrices + 6 * job.sequence * 126 * 16_384)
    assert causal_flops(job) == pytest.approx(expected, rel=0.002)


def test_rank_correlation_is_that_of_spearman() -> None:
    assert rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 90.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    # Ties share their mean rank: 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    found = rank_correlation([1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0])
    assert found == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4], [1, 2, 3, 4])[0, 1])
