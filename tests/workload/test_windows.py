"""Windows of attention: which pairs fused attention computes, in which layers, and what that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.scenario.job_checks import job_problems
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Operation
from tests.reference.jobs import make_job

if TYPE_CHECKING:
    from fabricsim.scenario.job import Job


def job_of(window: int | None, full_every: int | None = None, **changes: object) -> Job:
    job = make_job("mixtral-8x7b", **{"sequence": 512, "attention": "fused", **changes})
    model = job.model.model_copy(update={"window": window, "full_every": full_every})
    return job.model_copy(update={"model": model})


def attentions(job: Job, way: str) -> list[Operation]:
    blocks = stage_blocks(job.model, 1, job.parallelism)[0]
    items = [item for block in blocks for item in getattr(block_work(block, job), way)]
    names = ("attention", "attention-gradient")
    return [item for item in items if isinstance(item, Operation) and item.kernel in names]


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 2, 64, 128, 511])
def test_pairs_within_a_window_are_computed_alone(window: int) -> None:
    job = job_of(window)
    model, sequence = job.model, job.sequence
    pairs = sum(min(query + 1, window) for query in range(sequence))  # one by one
    for way, products in (("forward", 2), ("backward", 5)):
        flops = products * 2 * job.micro_batch * model.hidden * min(pairs, sequence**2 // 2)
        assert {each.flops for each in attentions(job, way)} == {flops}


@pytest.mark.slow
def test_a_window_as_long_as_a_sequence_or_a_document_hides_nothing() -> None:
    for packed, window in ((None, 512), (128, 128)):
        plain, changed = (attentions(job_of(each, packed=packed), "forward") for each in (None, window))
        assert plain == changed


def test_every_other_layer_has_a_window() -> None:
    plain, changed = attentions(job_of(None), "forward"), attentions(job_of(64, 2), "forward")

    assert changed[1::2] == plain[1::2]
    assert all(narrow.flops < wide.flops for narrow, wide in zip(changed[::2], plain[::2], strict=True))
    assert [each.traffic for each in changed] == [each.traffic for each in plain]


def test_kernels_apart_compute_all() -> None:
    plain, changed = (job_of(window, attention="unfused") for window in (None, 64))
    block = stage_blocks(changed.model, 1, changed.parallelism)[0][1]

    assert block.windowed
    assert block_work(block, changed) == block_work(block, plain)
    assert [each.key for each in job_problems(changed)] == ["job.model.window"]


def test_what_windows_are_for() -> None:
    ring = job_of(64, context=2)
    bare = job_of(None, 2)

    assert [each.key for each in job_problems(ring)] == ["job.model.window"]
    assert [each.key for each in job_problems(bare)] == ["job.model.full_every"]
