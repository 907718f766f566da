"""Where switches of the network reduce and adapters read ahead nothing folds, and the job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.pipeline import load, simulate

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
    times = []
    for folding in ("on", "off"):
        path = tmp_path / f"{folding}.toml"
        path.write_text(SCENARIO.format(folding=folding), encoding="utf-8")
        times.append(simulate(load(str(path))).iteration)

    assert times[0] == times[1]
