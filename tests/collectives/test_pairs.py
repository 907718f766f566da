from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.collectives.nccl.plan import chooser
from fabricsim.collectives.pairs import plan_pairs
from fabricsim.results.pairs import Pairs, summarise_pairs
from fabricsim.run.pipeline import build_plan, load, pairs_of, program
from fabricsim.workload.tally import plan_calls
from tests.reference.program_calls import program_pairs

SMALL = ["job.model.layers=4", "cluster.hosts=8"]


def rows(pairs: Pairs) -> set[tuple[int, int, str, int]]:
    names = (pairs.dimensions[number] for number in pairs.dimension)
    return set(zip(pairs.source.tolist(), pairs.target.tolist(), names, pairs.bytes.tolist(), strict=True))


def test_a_ring_sends_two_buffers_less_two_shards_to_its_neighbours() -> None:
    loaded = load("gpt2-medium-dp")
    gradients = sum(call.buffer for call in plan_calls(build_plan(loaded)))

    sent = 2 * gradients * 7 // 8
    assert rows(pairs_of(loaded)) == {(rank, (rank + 1) % 8, "data", sent) for rank in range(8)}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    data=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2, 4]),
    tensor=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    gpus=st.sampled_from([1, 2, 4, 8]),
)
def test_pairs_of_a_plan_add_up_to_its_volumes_and_are_those_of_its_program(
    data: int, pipeline: int, tensor: int, zero: int, gpus: int
) -> None:
    ranks = data * pipeline * tensor
    degrees = f"job.parallelism={{data={data}, pipeline={pipeline}, tensor={tensor}, zero={zero if data > 1 else 0}}}"
    machine = [f"cluster.hosts={-(-ranks // gpus)}", f"cluster.gpus_per_host={gpus}"]
    job = ["job.model.layers=4", f"job.global_batch={4 * data}", "job.micro_batch=1"]
    loaded = load("gpt2-medium-dp", [degrees, *machine, *job])
    choose, plan = chooser(loaded.scenario), build_plan(loaded)

    pairs = plan_pairs(plan, choose, gpus, gpus)

    assert abs(int(pairs.bytes.sum()) - sum(calls.wire for calls in plan_calls(plan))) <= len(pairs.bytes)
    assert rows(pairs) == rows(program_pairs(program(loaded), choose, gpus, gpus))
    assert np.all(pairs.source != pairs.target)


def test_an_all_to_all_reaches_all_members_alike() -> None:
    loaded = load("what-if-leaf-spine")
    pairs = pairs_of(loaded)
    expert = pairs.dimension == pairs.dimensions.index("expert")

    assert len(set(pairs.bytes[expert].tolist())) == 1
    assert expert.sum() == 64 * 7


def test_what_switches_reduce_goes_between_no_ranks() -> None:
    nvls = [
        "cluster={include='dgx-h100', hosts=1, gpus_per_host=8}",
        "job.parallelism={data=8}",
        "collectives={nccl='2.21', algorithm={all_reduce='nvls'}}",
    ]
    pairs = pairs_of(load("gpt2-medium-dp", [*nvls, "transport=rdma-100g", "fabric=single-switch"]))

    assert len(pairs.bytes) == 0
    assert pairs.in_network > 0
    assert summarise_pairs(pairs)["pairs_without_traffic"] == 1


def test_shares_of_less_than_a_pair_are_left_out() -> None:
    summary = summarise_pairs(pairs_of(load("gpt2-medium-dp")))

    assert summary["pairs"] == 56
    assert summary["busiest"]
    assert all(each["share_of_pairs"] * 56 >= 1 and each["share_of_bytes"] > 0 for each in summary["busiest"])


@pytest.mark.slow
def test_summary_says_how_far_bytes_go_and_who_carries_most() -> None:
    pairs = pairs_of(load("gpt3-175b"))

    summary = summarise_pairs(pairs)

    assert summary["bytes"]["tensor"]["scale-up domain"] == pairs.bytes[pairs.dimension == 0].sum()
    assert all(carried["other rail"] == 0 for carried in summary["bytes"].values())
    assert summary["pairs"] == 1024 * 1023
    # tensor rings: 128 hosts of 8 pairs; they have 97 % of the bytes, and so 90 % lie on less than these
    assert 0.9 * 128 * 8 * 0.9 < summary["pairs_for_90_percent"] * summary["pairs"] < 128 * 8
    assert summary["total_bytes"] == pairs.bytes.sum()


@pytest.mark.slow
def test_hosts_are_pairs_of_their_ranks() -> None:
    pairs = pairs_of(load("gpt3-175b"))
    source, target, carried = pairs.merged(8)

    assert carried.sum() == pairs.bytes[pairs.source // 8 != pairs.target // 8].sum()
    assert source.max() < 128 > target.max()


@pytest.mark.parametrize("arguments", [["-o", "folder"]])
def test_a_folder_without_matrix_is_refused(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    from typer.testing import CliRunner  # noqa: PLC0415  here alone

    from fabricsim.cli.main import app  # noqa: PLC0415  here alone

    outcome = CliRunner().invoke(app, ["volumes", "gpt2-medium-dp", *arguments])

    assert "add --matrix" in str(outcome.exception)
    assert tmp_path_factory.getbasetemp().exists()
