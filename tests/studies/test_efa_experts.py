from __future__ import annotations

import pytest

from fabricsim import measured
from fabricsim.run.pipeline import load
from fabricsim.studies import efa_experts

ROWS = measured.load("efa-experts").rows
NETWORK = 100e9  # bytes/s of two adapters of 400 Gb/s


@pytest.mark.slow
def test_each_run_is_that_of_its_row() -> None:
    for record in ROWS:
        job = efa_experts.published_run(record).job()
        degrees = job.parallelism
        assert degrees.ranks == record["gpus"]
        assert (degrees.expert, degrees.expert_tensor, degrees.virtual_stages) == (32, 1, record["chunks"])
        assert (job.global_batch, job.micro_batch, job.recompute) == (256, record["micro_batch"], record["recompute"])
        assert job.expert_overlap == (record["overlap"] == "yes")
        assert job.expert_kernels == ("all-to-all" if record["dispatcher"] == "NCCL" else "flex")
        assert (job.precision, job.products, job.recorded) == ("bf16", None, ())
        assert job.model.layers == (record["layers"] or {"kimi-k2": 61, "qwen3-235b-a22b": 94}[str(record["model"])])


def test_rows_of_the_source_say_how_many_tokens_there_were() -> None:
    """Of Qwen3 it has tokens per second: 66.5 thousand by NCCL, with micro-batches of 4 and no overlap."""
    (row,) = (
        each
        for each in ROWS
        if each["line"].endswith("qwen3-235b/benchmarks/RESULTS.md#L35") and each["dispatcher"] == "NCCL"
    )

    assert row["global_batch"] * row["sequence"] / row["step"] == pytest.approx(66_500, rel=1e-3)


def test_overlap_has_chunks_and_repeats_nothing() -> None:
    assert all((row["chunks"] == 2) == (row["recompute"] == "none") == (row["overlap"] == "yes") for row in ROWS)


@pytest.mark.parametrize(("dispatcher", "dispatch", "combine"), [("UCCL", 102.1, 95.3), ("NVSHMEM", 97.1, 95.4)])
def test_a_rate_over_the_network_takes_as_long_as_what_was_counted(
    dispatcher: str, dispatch: float, combine: float
) -> None:
    """A gigabyte to four hosts, of which one is the own one, there and back."""
    rate = efa_experts.network_rate(f"DeepEP over {dispatcher}", "b300", 4)

    assert 2 * 0.75 / rate == pytest.approx(1 / dispatch + 1 / combine)


def test_a_number_of_hosts_without_a_rate_has_that_of_the_nearest() -> None:
    two, four = (efa_experts.network_rate("DeepEP over UCCL", "h100", hosts) for hosts in (2, 4))

    assert two == four < efa_experts.network_rate("DeepEP over UCCL", "b300", 4)


@pytest.mark.parametrize(("row", "share"), [(0, 0.7394), (1, 0.975)])
def test_all_but_a_dispatcher_has_what_adapters_carry(row: int, share: float) -> None:
    """A GPU's adapters, and NVLink as NCCL uses it whatever sends tokens."""
    run = efa_experts.published_run(ROWS[row])
    scenario = load(run.scenario, list(run.settings)).scenario

    assert scenario.transport.line_rate == NETWORK
    assert scenario.transport.efficiency == pytest.approx(share)
    assert (scenario.cluster.name, scenario.cluster.nics_per_host) == ("aws-p5", 8)
    assert (
        scenario.cluster.gpu.nvlink_efficiency
        == load("recipes", ["cluster.gpu=b300-sxm"]).scenario.cluster.gpu.nvlink_efficiency
    )


@pytest.mark.slow
@pytest.mark.parametrize(("row", "error"), [(8, -0.661), (12, -0.576), (14, -0.621), (15, -0.610)])
def test_iterations_are_about_half_of_what_was_measured(row: int, error: float) -> None:
    """So says `docs/explanation/validation/efa-experts.md`, of these, which take seconds, and all others."""
    assert len(efa_experts.rows()) == len(ROWS) == 16
    published = efa_experts.rows()[row]

    assert published.predict() / published.value - 1 == pytest.approx(error, abs=0.01)
