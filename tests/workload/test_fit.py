from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fabricsim.errors import ScenarioError
from fabricsim.run.pipeline import load, simulate
from fabricsim.scenario import library
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.workload.fit import check_fit, fullest, memory_problems, memory_text, usable_memory
from fabricsim.workload.memory import stage_memory
from tests.reference.jobs import make_job

TABLES = {"measured_multi_node.csv": 55, "measured_single_node.csv": 480}
COLUMNS = {
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "hidden size": "model.hidden",
    "attention heads": "model.heads",
    "# layers": "model.layers",
    "sequence length": "sequence",
    "tensor parallelism": "parallelism.tensor",
    "data parallelism": "parallelism.data",
    "pipeline parallelism": "parallelism.pipeline",
}


def small(gpu: Gpu, share: float) -> Gpu:
    return gpu.model_copy(update={"memory": int(gpu.memory * share)})


def ways(job: Job, gpu: Gpu) -> list[str]:
    """Changes that the refusal names."""
    (mistake,) = memory_problems(job, gpu)
    return re.findall(r"job\.[\w.]+=[\w\"]+", mistake.way_out)


def changed(job: Job, way: str) -> Job:
    """Make the job over with a change as the refusal writes it."""
    key, _, value = way.removeprefix("job.").partition("=")
    update = {key.removeprefix("parallelism."): json.loads(value)}
    if key.startswith("parallelism."):
        return job.model_copy(update={"parallelism": job.parallelism.model_copy(update=update)})
    return job.model_copy(update=update)


@pytest.mark.parametrize("name", library.names("scenarios"))
def test_shipped_scenarios_fit(name: str) -> None:
    scenario = load(name).scenario
    if scenario.job is not None:
        assert memory_problems(scenario.job, scenario.cluster.gpu) == []


@pytest.mark.slow
def test_job_that_does_not_fit_is_refused_with_what_would_make_it_fit(gpu: Gpu) -> None:
    job = make_job("gpt2-xl", data=4, micro_batch=16, sequence=1024, recompute="none")

    (mistake,) = memory_problems(job, gpu)

    assert mistake.key == "job"
    assert "gpt2-xl needs" in mistake.problem
    found = ways(job, gpu)
    assert 'job.recompute="full"' in found
    assert len(found) > 2
    # 4 replicas, and stages or parts of layers besides
    assert re.search(r"job\.parallelism\.pipeline=(\d+) \(on (\d+) GPUs\)", mistake.way_out)
    usable = usable_memory(gpu)
    for way in found:
        assert fullest(changed(job, way))[1].total <= usable


def test_the_mildest_change_of_each_kind_is_named(gpu: Gpu) -> None:
    job = make_job("gpt2-medium", micro_batch=32, sequence=1024, recompute="none")
    usable = usable_memory(gpu)
    for way in ways(job, gpu):
        if way.startswith("job.micro_batch="):
            size = int(way.rpartition("=")[2])
            assert fullest(changed(job, way))[1].total <= usable
            assert fullest(changed(job, f"job.micro_batch={2 * size}"))[1].total > usable
            return
    pytest.fail("no smaller micro-batch is named")


def test_where_no_single_change_helps_the_refusal_says_so(gpu: Gpu) -> None:
    (mistake,) = memory_problems(make_job("gpt2-medium"), small(gpu, 1e-4))

    assert mistake.way_out == "no single change makes it fit"


def test_limit_is_what_context_and_fragmentation_leave(gpu: Gpu) -> None:
    job = make_job("gpt2-medium")
    need = fullest(job)[1].total
    room = gpu.model_copy(update={"memory": need * 2, "memory_reserved": 0.5})

    check_fit(job, room)
    with pytest.raises(ScenarioError, match="gpt2-medium needs"):
        check_fit(job, room.model_copy(update={"memory": need * 2 - 2}))


def test_text_names_the_fullest_stage(gpu: Gpu) -> None:
    assert memory_text(make_job("gpt2-medium"), gpu).startswith("memory of a GPU: ")
    job = make_job("gpt2-medium", pipeline=4, micro_batches=8)
    needs = [need.total for need in stage_memory(job)]
    assert f"of stage {needs.index(max(needs))}, the fullest" in memory_text(job, gpu)


def test_simulation_refuses_what_does_not_fit() -> None:
    with pytest.raises(ScenarioError, match="any one of these makes it fit"):
        simulate(load("gpt2-medium-dp", ["job.recompute=none", "cluster.gpu.memory=16GB"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_runs_that_were_measured_fit(name: str, traces: Path) -> None:
    # github.com/VIA-Research/vTrain: Megatron-LM on A100 of 80 GB, all activations recomputed
    gpu = load("gpt2-medium-dp", ["cluster.gpu=a100-sxm-80gb"]).scenario.cluster.gpu
    with (traces / "vtrain" / name).open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert len(records) == TABLES[name]
    for record in records:
        assert memory_problems(_measured(record), gpu) == []


def _measured(record: dict[str, str]) -> Job:
    table: dict[str, Any] = {"model": {"name": "gpt", "family": "gpt", "vocabulary": 51200}, "parallelism": {}}
    for column, key in COLUMNS.items():
        *above, last = key.split(".")
        (table[above[0]] if above else table)[last] = int(record[column])
    table["model"]["positions"] = table["sequence"]
    return Job.model_validate({**table, "recompute": "full"})
