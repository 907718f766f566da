from __future__ import annotations

import pytest

from fabricsim.collectives.nccl import chunks
from fabricsim.collectives.nccl.choice import Pick
from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.scenario.load import load


@pytest.mark.parametrize(
    ("version", "hosts", "size", "expected"),
    [  # 16 channels and 8 heads; calcCollChunking of src/enqueue.cc
        ("2.18", 2, 2**35, 2**19),
        ("2.18", 2, 2**30, 2**18),
        ("2.18", 2, 2**27, 2**17),
        ("2.18", 2, 2**25, 2**16),
        ("2.18", 2, 2**22, 2**15),
        ("2.23", 2, 2**30, 2**17),
        ("2.23", 4, 2**30, 2**16),
    ],
)
def test_nvls_trees_are_cut_by_channels_and_heads(version: str, hosts: int, size: int, expected: int) -> None:
    made = load("hkbu", ["cluster=dgx-h100", f"cluster.hosts={hosts}", f'collectives={{nccl="{version}"}}']).scenario
    group = NcclPlan(made).group(tuple(range(8 * hosts)))

    assert chunks.chunk("all_reduce", Pick("nvls-tree", "simple", 16, 512, 0.0), size, group) == expected
