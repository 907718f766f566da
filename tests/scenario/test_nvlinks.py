"""GPUs that NVLinks join without a switch."""

from __future__ import annotations

import pytest

from fabricsim.errors import ScenarioError
from fabricsim.scenario.load import load
from fabricsim.scenario.nvlinks import NvlinkMesh

CUBE = load("dlperf").scenario.cluster.mesh
PAIRS = NvlinkMesh(((0, 12, 0, 0), (12, 0, 0, 0), (0, 0, 0, 12), (0, 0, 12, 0)))
CLUSTER = ("cluster.gpu=a100-sxm-80gb", "cluster.intra_host=nvlink", "cluster.gpus_per_host=4")


def test_the_hybrid_cube_mesh_has_six_links_at_each_gpu() -> None:
    assert CUBE is not None
    assert [sum(row) for row in CUBE.rows] == [6] * 8
    # github.com/NVIDIA/nccl, issue 671: NCCL's description of such a host, GPUs 0 and 1
    assert CUBE.rows[0] == (0, 1, 1, 2, 2, 0, 0, 0)
    assert CUBE.rows[1][2:4] + CUBE.rows[1][5:6] == (2, 1, 2)
    assert [CUBE.fewest(range(gpus)) for gpus in (2, 4, 8)] == [1, 4, 6]


def test_a_gpu_reaches_others_over_its_links_in_proportion() -> None:
    assert CUBE is not None
    assert CUBE.partners(0, range(4)) == (1, 2, 3, 3)
    assert CUBE.partners(0, (0, 3, 4)) == (3, 4)
    assert CUBE.partners(0, (0, 5)) == ()


def test_ways_lead_over_the_gpu_with_most_links_to_both() -> None:
    assert CUBE is not None
    assert CUBE.between(0, 7) == 3 or CUBE.rows[0][CUBE.between(0, 7) or 0] == 2
    assert CUBE.between(3, 4) == 0
    assert PAIRS.between(0, 2) is None


def test_a_group_is_whole_if_links_lead_to_all_of_it() -> None:
    assert CUBE is not None
    assert CUBE.is_whole(range(8))
    assert not CUBE.is_whole((0, 5))
    assert PAIRS.is_whole((2, 3))
    assert not PAIRS.is_whole((0, 1, 2))


def test_hosts_with_fewer_gpus_have_the_links_of_the_first() -> None:
    mesh = load("dlperf", ["cluster.gpus_per_host=2", "cluster.hosts=16"]).scenario.cluster.mesh
    assert mesh == NvlinkMesh(((0, 1), (1, 0)))
    assert load("hkbu", [*CLUSTER, "cluster.nvlinks_between=4"]).scenario.cluster.mesh == NvlinkMesh(
        ((0, 4, 4, 4), (4, 0, 4, 4), (4, 4, 0, 4), (4, 4, 4, 0))
    )
    assert load("hkbu", list(CLUSTER)).scenario.cluster.mesh is None
    assert load("dlperf", ["cluster.nvlinks_between=switch"]).scenario.cluster.mesh is None
    idle = load("dlperf", ["cluster.intra_host=pcie-p2p"]).scenario.cluster
    assert (idle.mesh, idle.nvlinks_between == "switch") == (None, False)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["cluster.nvlinks_between=0"],
            "is 0 (write how many links join each two GPUs, 1 to 64, a row for each GPU, or",
        ),
        (["cluster.nvlinks_between=true"], "write how many links join each two GPUs"),
        (["cluster.nvlinks_between=[[0, 1], [1]]"], "has 1 numbers in row 1 and 2 rows"),
        (["cluster.nvlinks_between=[[0, -1], [-1, 0]]"], "has -1 from GPU 0 to 1"),
        (["cluster.nvlinks_between=[[1, 1], [1, 0]]"], "has 1 from GPU 0 to itself (write 0 there)"),
        (["cluster.nvlinks_between=[[0, 1], [2, 0]]"], "has 2 from GPU 1 to 0 and 1 back (write the same both ways"),
        (["cluster.nvlinks_between=[[0, 1], [1, 0]]"], "has 2 rows, and a host has 4 GPUs"),
        (["cluster.nvlinks_between=5"], "gives a GPU 15 links, and 'a100-sxm-80gb' has 12"),
        (["cluster.nvlinks_between=4", "cluster.gpu=mi250x-gcd"], "does not say of how many its nvlink_rate is"),
        (
            ["cluster.nvlinks_between=4", "collectives.algorithm=nvls"],
            'the switch that joins the GPUs of a host (set cluster.nvlinks_between to "switch", or choose another',
        ),
    ],
)
def test_mistakes_say_what_and_how_to_mend_it(settings: list[str], problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("hkbu", [*CLUSTER, *settings])
    assert problem in str(caught.value)


def test_links_without_nvlink_are_refused_unless_it_was_given_up() -> None:
    with pytest.raises(ScenarioError, match="has no effect if intra_host is 'shared-memory'"):
        load("ideal-16", ["cluster.gpus_per_host=4", "cluster.nvlinks_between=4"])


def test_kinds_of_hosts_may_have_a_switch_among_others_without() -> None:
    kinds = "cluster.kinds={ new = { hosts = '1', nvlinks_between = 'switch' } }"
    cluster = load("hkbu", [*CLUSTER, "cluster.nvlinks_between=4", "cluster.hosts=2", kinds]).scenario.cluster
    assert [variant.mesh is None for variant in cluster.variants] == [False, True]
