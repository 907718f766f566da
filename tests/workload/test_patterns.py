"""Passes that repeat are written out once: the program is the same as one written out op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabricsim.records.program import COMPUTE
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.model import Model
from fabricsim.scenario.nvlinks import NvlinkMesh
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.data_parallel import AtOnce, Bucketed, Reducer
from fabricsim.workload.links import Links
from fabricsim.workload.program import Program
from tests.reference.jobs import make_job, make_model

TENSOR = {"tensor": 2, "sequence_parallel": True}


def _edges(program: Program) -> set[tuple[int, int]]:
    first, count = program.ops["first_successor"], program.ops["successors"]
    return {
        (op, int(after))
        for op in range(len(program.ops))
        for after in program.successors[first[op] : first[op] + count[op]]
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batches": 5},
        {"micro_batches": 4, "pipeline": 2, **TENSOR},
        {"micro_batches": 4, "data": 2, **TENSOR, "zero": 1},
        {"micro_batches": 3, "data": 2, "overlap": "ddp", "zero": 1},
        {"micro_batches": 3, "data": 2, "overlap": "ddp", "zero": 2},
        {"micro_batches": 4, "pipeline": 2, "schedule": "zb-h1", **TENSOR},
        {"micro_batches": 4, "pipeline": 2, "virtual_stages": 2, **TENSOR},
    ],
    ids=str,
)
def test_repeated_passes_are_those_that_would_be_written_out(
    changes: dict[str, Any], gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(make_model("gpt2-medium", vocabulary=50304), **changes)
    repeated = JobPlan(job, gpu).program()

    for reducer in (Reducer, AtOnce, Bucketed):
        monkeypatch.setattr(reducer, "quiet", lambda *_, **__: False)
    written = JobPlan(job, gpu).program()

    assert np.array_equal(repeated.ops, written.ops)
    assert repeated.calls == written.calls
    assert _edges(repeated) == _edges(written)


def test_passes_of_a_chunk_that_has_nothing_to_do_add_nothing(gpu: Gpu) -> None:
    # six layers in eight chunks: the first has the embedding alone, which is frozen and has no backward pass
    model = make_model("llama3-8b", layers=6, vocabulary=32000)
    changes = {"pipeline": 4, "virtual_stages": 2, "micro_batches": 8, "recompute": "none"}

    ops = JobPlan(make_job(model, **changes, adapters={"rank": 4}), gpu).program().ops
    first, second = (ops[(ops["rank"] == rank) & (ops["kind"] == COMPUTE) & (ops["timer"] == 1)] for rank in (0, 1))

    # chunks of rank 0: embedding, layer; of rank 1: layer, layer
    assert 2 * first["duration"].sum() == second["duration"].sum() > 0


# ---- ranks that are alike ----------------------------------------------------------------------------

DATA_FIRST = "data-tensor-context-pipeline"
ORDERS = ["tensor-context-data-pipeline", "tensor-context-pipeline-data", "tensor-pipeline-context-data"]


def _mixture() -> Model:
    return make_model("llama3-8b", layers=4, vocabulary=32000, experts={"count": 8, "feed_forward": 1024})


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ("gpt2-medium", {"data": 4}),
        ("gpt2-medium", {"data": 2, **TENSOR, "zero": 1, "context": 2, "attention": "fused"}),
        ("gpt2-medium", {"data": 4, "zero": 3, "replicate": 2, "micro_batches": 2}),
        ("gpt2-medium", {"data": 2, "pipeline": 3, "micro_batches": 4, "overlap": "ddp", "zero": 1}),
        ("gpt2-medium", {"data": 2, "pipeline": 2, "virtual_stages": 3, "micro_batches": 4, **TENSOR}),
        ("gpt2-medium", {"data": 2, "pipeline": 2, "schedule": "zb-h1", "micro_batches": 4}),
        ("mixture", {"data": 4, "expert": 2, "pipeline": 2, "micro_batches": 2, "zero": 1}),
        ("mixture", {"data": 4, "expert": 4, "expert_kernels": "fused", "zero": 1}),
    ],
    ids=str,
)
def test_ranks_that_are_alike_are_those_that_would_be_written_out(
    shape: str, changes: dict[str, Any], order: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _mixture() if shape == "mixture" else make_model(shape, layers=6, vocabulary=50304)
    job = make_job(model, **changes, order=order)
    links = Links(3e11, hosts=tuple(rank // 2 for rank in range(job.parallelism.ranks)))
    some = None, range(0, job.parallelism.ranks, 3)  # all, and those that stand for others
    repeated = [JobPlan(job, gpu, links).program(ranks) for ranks in some]

    monkeypatch.setattr(JobPlan, "alike", False)
    written = [JobPlan(job, gpu, links).program(ranks) for ranks in some]

    for mine, other in zip(repeated, written, strict=True):
        assert np.array_equal(mine.ops, other.ops)
        assert np.array_equal(mine.successors, other.successors)
        assert mine.calls.kinds == other.calls.kinds
        assert np.array_equal(mine.calls.kind, other.calls.kind)


def test_ranks_whose_links_differ_are_not_alike(gpu: Gpu) -> None:
    # two GPUs have one link with each other, or two: kernels beside their exchanges are slowed for other times
    mesh = NvlinkMesh(((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 2), (0, 0, 2, 0)))
    job = make_job(
        make_model("gpt2-medium", vocabulary=50304), data=2, **TENSOR, overlap="ddp", zero=1, order=DATA_FIRST
    )
    slowed = gpu.model_copy(update={"overlap_slowdown": 1.2})
    ops = JobPlan(job, slowed, Links(3e11, (0, 0, 0, 0), mesh, nvlinks=3)).program().ops

    first, third = (ops["duration"][(ops["rank"] == rank) & (ops["kind"] == COMPUTE)].sum() for rank in (0, 2))
    assert first != third
