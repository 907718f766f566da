"""Where switches of the network reduce and adapters read ahead nothing folds exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.errors import InputError
from fabricsim.run.pipeline import load, simulate

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """
name = "in-network"
folding = "{folding}"
cluster = {{ include = "selene", hosts = 2 }}
fabric = "single-switch"
transport = "rdma-200g"
collectives = {{ include = "ideal", algorithm = {{ all_reduce = "collnet_direct" }} }}
[job]
model = "gpt2-medium"
micro_batch = 8
global_batch = 128
sequence = 1024
[job.parallelism]
data = 16
"""


def test_reduction_in_the_network_behind_adapters_that_read_ahead_is_not_folded(tmp_path: Path) -> None:
    path = tmp_path / "on.toml"
    path.write_text(SCENARIO.format(folding="on"), encoding="utf-8")

    with pytest.raises(InputError, match=r'read ahead of the wire .* set folding = "close"'):
        simulate(load(str(path)))


@pytest.mark.slow
def test_trees_over_switches_of_several_hosts_fold() -> None:
    settings = ["cluster.hosts=2", "job.parallelism={data=16, context=1, zero=0}", "job.model.layers=1"]
    settings += ["job.global_batch=16", "job.recompute=full", "cluster.gpu.memory=400GiB"]
    settings += ["collectives.algorithm={all_reduce='nvls_tree'}"]
    times = [simulate(load("recipes", [*settings, f"folding={how}"])).iteration for how in ("close", "off")]

    assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.slow
def test_experts_on_racks_fold_to_one_rank_for_each_stage() -> None:
    settings = ["cluster.include=gb200-nvl72", "cluster.gpus_per_host=8", "cluster.nics_per_host=8", "cluster.hosts=2"]
    settings += ["job.model.include=deepseek-v3", "job.model.layers=4", "job.global_batch=32", "job.overlap=ddp"]
    settings += ["job.parallelism={data=8, pipeline=2, expert=4, context=1, zero=1}", "cluster.gpu.memory=4TB"]
    folded, whole = (simulate(load("recipes", [*settings, f"folding={how}"])) for how in ("on", "off"))

    assert folded.notes[-1].startswith("2 of 16 ranks simulated")
    assert folded.iteration == whole.iteration
