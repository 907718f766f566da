"""What the engine runs where NCCL's cost model chooses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fabricsim.collectives.nccl import plan, trees
from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.errors import FabricsimError
from fabricsim.run.bench import collective_times
from fabricsim.scenario.load import load

if TYPE_CHECKING:
    from fabricsim.scenario.scenario import Scenario

HOST = ["cluster.hosts=1", "cluster.intra_host=nvlink", "cluster.gpus_per_pcie_switch=1", "cluster.gpus_per_host=8"]
NCCL = "collectives={nccl = '2.18'}"


def _scenario(*settings: str) -> Scenario:
    return load("hkbu", list(settings)).scenario


def test_small_calls_go_by_trees_and_large_ones_by_rings() -> None:
    choose = NcclPlan(_scenario())
    ranks = tuple(range(32))
    small, large = choose("all_reduce", ranks, 64), choose("all_reduce", ranks, 2**26)
    assert (small.algorithm, small.window) == ("split_single_tree", 8)  # one channel; GPUs without NVLink
    assert (large.algorithm, large.channels, large.chunk, large.line, large.window) == ("ring", 2, 2**21, (1, 1), 2)
    assert large.network_step == pytest.approx(7.46e6)  # 9.6 us of 2.8 less what the engine counts apart
    inside = NcclPlan(_scenario("cluster.hosts=1"))("all_reduce", ranks[:4], 64)
    assert (small.intra_host_step, inside.intra_host_step) == (1_800_000, 1_000_000)  # that of 2.8, 1.8 times its own


@pytest.mark.parametrize(
    ("settings", "algorithm", "line"),
    [
        (["collectives.algorithm=ring"], "ring", (1, 2)),
        (["collectives.protocol=simple"], "ring", (1, 1)),
        (["collectives.algorithm.all_reduce=ring", "collectives.protocol.all_reduce=ll128"], "ring", (15, 16)),
    ],
)
def test_overrides(settings: list[str], algorithm: str, line: tuple[int, int]) -> None:
    found = NcclPlan(_scenario(*settings))("all_reduce", tuple(range(32)), 64)
    assert (found.algorithm, found.line) == (algorithm, line)


def test_an_algorithm_that_nccl_does_not_have_runs_all_the_same() -> None:
    found = NcclPlan(_scenario("collectives.algorithm=halving_doubling"))("all_reduce", tuple(range(32)), 2**20)
    assert found.algorithm == "halving_doubling"


def test_channels_may_be_limited() -> None:
    assert NcclPlan(_scenario("collectives.max_channels=1")).group(tuple(range(32))).channels == 1
    assert NcclPlan(_scenario("collectives.min_channels=4")).group(tuple(range(32))).channels == 4


def test_one_channel_stands_for_all_that_share_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact but for the cutting on whole bytes: the merged channel takes what 24 of them take."""
    settings = (*HOST, "cluster.gpu=a100-sxm-80gb", NCCL, "collectives.algorithm=ring", "collectives.protocol=simple")
    sizes = [2**22, 3 * 2**25]
    merged = collective_times(_scenario(*settings), "all_reduce", sizes)
    monkeypatch.setattr(NcclPlan, "_channels", lambda _self, found, _group: found.channels)
    apart = collective_times(_scenario(*settings), "all_reduce", sizes)
    for one, many in zip(merged, apart, strict=True):
        assert one.seconds == pytest.approx(many.seconds, rel=1e-3)


def test_messages_between_hosts_go_by_all_nics() -> None:
    """A large all-gather over two hosts fills the 4 NICs of each: 12.5 GB/s at 97.5 %, less the framing."""
    described = _scenario(
        "cluster=aws-p4de", "cluster.hosts=2", "transport=efa-100g", NCCL, "collectives.protocol=simple"
    )
    seconds = collective_times(described, "all_gather", [2**32])[0].seconds
    assert 15 / 16 * 2**32 / seconds == pytest.approx(4 * 12.5e9 * 0.975, rel=0.02)


def test_nvls_runs_on_eight_h100_and_reaches_what_nccl_expects() -> None:
    described = _scenario(*HOST, "cluster.gpu=h100-sxm", NCCL)
    choice = NcclPlan(described)("all_reduce", tuple(range(8)), 2**33)
    assert choice.algorithm == "nvls"
    seconds = collective_times(described, "all_reduce", [2**33])[0].seconds
    assert 2**33 / seconds / 1e9 == pytest.approx(272, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "transport", "bus"),
    [
        (2, "rdma-400g", 8 * 57.7e9),
        (4, "rdma-400g", 8 * 45.5e9),
        (2, "rdma-200g", 2 * 15 / 16 * 8 * 25e9 * 0.97),  # each adapter sends its head's shard once,
        (4, "rdma-200g", 2 * 31 / 32 * 8 * 25e9 * 0.97 / 2),  # of more hosts twice, half of it by each tree
    ],
)
def test_nvls_trees_reach_what_nccl_measured_or_their_adapters_carry(hosts: int, transport: str, bus: float) -> None:
    described = ("cluster=dgx-h100", f"cluster.hosts={hosts}", NCCL, "collectives.algorithm=nvls_tree")
    seconds = collective_times(_scenario(*described, f"transport={transport}"), "all_reduce", [2**34])[0].seconds
    assert 2 * (1 - 1 / (8 * hosts)) * 2**34 / seconds == pytest.approx(bus, rel=0.02)


def test_a_proxy_posts_the_messages_of_all_its_channels() -> None:
    """Two channels of a ring for each NIC of two DGX H100; NVLSTree has all 16 at each."""
    described = ("cluster=dgx-h100", "cluster.hosts=2", "transport=rdma-400g", NCCL)
    for algorithm, posts in (("ring", 2), ("nvls_tree", 16)):
        choose = NcclPlan(_scenario(*described, f"collectives.algorithm={algorithm}"))
        assert choose("all_reduce", tuple(range(16)), 2**30).posts == posts
    few, many = (
        collective_times(_scenario(*described, "collectives.algorithm=nvls_tree", overhead), "all_reduce", [8])[0]
        for overhead in ("transport.send_overhead=0us", "transport.send_overhead=1us")
    )
    assert many.seconds - few.seconds == pytest.approx(2 * 16e-6, rel=0.01)  # up and down


def test_what_the_gpu_takes_is_that_of_its_preset() -> None:
    described = _scenario(*HOST, "cluster.gpu=a100-sxm-80gb", NCCL, "collectives.protocol=simple")
    choice = NcclPlan(described)("all_gather", tuple(range(8)), 2**26)
    assert (choice.start, choice.intra_host_step, choice.copy_rate) == (22_000_000, 6_500_000, 480e9)
    gpu = described.cluster.gpu.model_copy(update={"nccl_start": None, "nccl_step": None, "nccl_copy_rate": None})
    cluster = described.cluster.model_copy(update={"gpu": gpu})
    plain = NcclPlan(described.model_copy(update={"cluster": cluster}))("all_gather", tuple(range(8)), 2**26)
    assert (plain.start, plain.intra_host_step) == (8_400_000, 3_400_000)


def test_choices_are_equal_for_equal_calls() -> None:
    choose, again = (NcclPlan(_scenario()) for _ in range(2))
    ranks = tuple(range(32))
    assert choose("all_reduce", ranks, 4096) == again("all_reduce", ranks, 4096)
    assert replace(choose("all_reduce", ranks, 2**26), chunk=1) == choose("all_reduce", ranks, 2**27).wiring


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("version", ["nccl", "nccl-2.10", "nccl-2.6"])
def test_chains_send_a_step_of_the_fifo_at_once(version: str, collective: str) -> None:
    """``BROADCAST_CHUNKSTEPS`` and ``REDUCE_CHUNKSTEPS`` are 1, those of rings 4 (src/include/collectives.h)."""
    choose = NcclPlan(load("recipes", ["cluster=dgx-a100", "cluster.hosts=2", f"collectives={version}"]).scenario)
    ranks = tuple(range(16))
    chain, ring = (choose(name, ranks, 2**30) for name in (collective, "all_gather"))

    assert (chain.window, ring.window) == (8, 2)
    assert chain.chunk * ring.channels * 4 == ring.chunk * chain.channels


def test_messages_of_chains_ask_first_from_their_own_size_on() -> None:
    """EFA's receivers ask for messages beyond a size; a chain sends all of a channel's part, no shard of it."""
    two = ["cluster=aws-p4d", "cluster.hosts=2", "transport=efa-100g-staged", "collectives=nccl"]
    choose = NcclPlan(load("recipes", two).scenario)
    plain, asking = (choose("broadcast", tuple(range(16)), size).network_step for size in (2**16, 2**23))

    assert asking > plain


def test_an_unknown_gpu_is_refused() -> None:
    described = _scenario()
    gpu = described.cluster.gpu.model_copy(update={"name": "abacus"})
    cluster = described.cluster.model_copy(update={"gpu": gpu})
    with pytest.raises(FabricsimError, match=r"cluster\.gpu\.name is 'abacus'"):
        plan.chooser(described.model_copy(update={"cluster": cluster}))


def test_measured_messages_take_the_place_of_the_cost_model() -> None:
    measured = "transport.nccl.ll={latency='7us', byte_latency='0.5ns/B'}"
    plain, changed = NcclPlan(_scenario()), NcclPlan(_scenario(measured))
    ranks = tuple(range(32))

    found = changed("all_reduce", ranks, 64)  # one channel, which has one tree
    assert (found.latency, found.network_step, found.line) == (7_000_000, 0, (8, 16))
    assert found.byte_latency == pytest.approx(500.0)
    assert changed("all_reduce", ranks, 2**26) == plain("all_reduce", ranks, 2**26)  # Simple was not measured
    assert changed("all_reduce", (0, 1, 2, 3), 64) == plain("all_reduce", (0, 1, 2, 3), 64)  # one host


def test_rings_may_have_a_latency_of_their_own() -> None:
    measured = NcclPlan(_scenario("transport.nccl.ll={latency='7us', ring_latency='5us', byte_latency='0.5ns/B'}"))
    ranks = tuple(range(32))

    assert measured("all_reduce", ranks, 64).latency == 7_000_000
    ring = measured("all_reduce", ranks, 2**16)
    assert (ring.algorithm, ring.line, ring.latency) == ("ring", (8, 16), 5_000_000)


@pytest.mark.parametrize(("transport", "waits"), [("rdma-100g", 2), ("tcp-10g", 1)])
def test_lines_of_a_tree_wait_for_those_of_the_other_but_over_sockets(transport: str, waits: int) -> None:
    """From 8 KiB on LL takes two channels, and so both trees, each of which the engine gives half of the bytes."""
    measured = NcclPlan(
        _scenario(f"transport={transport}", "transport.nccl.ll={latency='7us', byte_latency='0.5ns/B'}")
    )
    found = measured("all_reduce", tuple(range(32)), 2**13)

    assert found.algorithm == "split_tree"
    assert found.byte_latency == pytest.approx(waits * 500.0)


def test_a_ring_of_measured_messages_takes_what_they_take() -> None:
    """62 messages one after the other, of which each host sends every fourth: 14 whole rounds between hosts or more."""
    few = "transport.nccl.ll={latency='100us'}"
    more = "transport.nccl.ll={latency='200us'}"
    sizes, ring = [2**16], "collectives.algorithm=ring"
    slow, fast = (
        collective_times(_scenario(settings, ring, "collectives.protocol=ll"), "all_reduce", sizes)[0].seconds
        for settings in (more, few)
    )
    assert 14 * 100e-6 <= slow - fast <= 16 * 100e-6


def test_proxies_look_at_lines_of_ll_for_each_channel_in_turn() -> None:
    """24 ns for 64 bytes, of which half are data, and twelve lines at a time."""
    choose = NcclPlan(_scenario("collectives.algorithm=ring", "collectives.protocol=ll"))
    one, two = (choose("all_reduce", tuple(range(32)), size) for size in (2**10, 2**22))
    assert (one.line, one.byte_latency) == ((1, 2), pytest.approx(24e3 / 12 / 64))
    assert (two.channels, two.byte_latency) == (2, pytest.approx(2 * 24e3 / 12 / 64))
    simple = NcclPlan(_scenario("collectives.algorithm=ring", "collectives.protocol=simple"))
    assert simple("all_reduce", tuple(range(32)), 2**10).byte_latency == 0


def test_a_tree_by_simple_is_stored_and_read_without_gpudirect() -> None:
    """Over a slot of 16 lanes of PCIe 3, 12 GB/s, twice."""
    tree = ["collectives.algorithm=tree", "collectives.protocol=simple", "collectives.max_channels=1"]
    staged = ["cluster.gpus_per_host=1", "cluster.gpus_per_pcie_switch=1", *tree]
    found = NcclPlan(_scenario(*staged))("all_reduce", tuple(range(8)), 2**20)
    data = found.line[0] / found.line[1]
    assert found.byte_latency == pytest.approx(data * 2e12 / 12e9)
    direct = NcclPlan(_scenario("cluster.gpudirect=true", *staged))("all_reduce", tuple(range(8)), 2**20)
    assert direct.byte_latency == 0


def test_a_transport_asks_before_messages_that_are_too_long() -> None:
    def step(size: int, *more: str) -> int:
        made = _scenario(
            "transport=efa-100g-staged", "collectives.algorithm=ring", "collectives.protocol=simple", *more
        )
        return NcclPlan(made)("all_reduce", tuple(range(32)), size).network_step

    long = 2**16 * 32 * 2  # of two channels and 32 ranks
    assert step(long) == 11_860_000
    assert step(long + 64 * 32) == 11_860_000 + 2 * 15_500_000
    assert step(2 * long, "transport.nccl.handshake_above=0B") == 11_860_000


@pytest.mark.parametrize(("hosts", "ratio"), [(1, 1), (2, 2), (3, 1), (4, 4 / 3), (16, 4 / 3)])
def test_a_single_tree_that_broadcasts_last(hosts: int, ratio: float) -> None:
    assert trees.one_after_the_other(hosts) == pytest.approx(ratio)


def test_old_trees_reduce_all_before_they_broadcast() -> None:
    single = ["cluster.gpus_per_host=1", "cluster.gpus_per_pcie_switch=1", "collectives.max_channels=1"]

    def line(version: str, protocol: str) -> tuple[int, int]:
        named = [f"collectives.nccl='{version}'", "collectives.algorithm=tree", f"collectives.protocol={protocol}"]
        return NcclPlan(_scenario(*single, *named))("all_reduce", tuple(range(8)), 2**26).line

    assert (line("2.6", "simple"), line("2.6", "ll"), line("2.6", "ll128")) == ((3, 4), (3, 8), (15, 16))
    assert line("2.8", "simple") == (1, 1)


@pytest.mark.slow
def test_constants_are_read_with_the_module() -> None:
    """Not when they are first asked for: msgspec crashes if two threads look at a class for the first time at once."""
    code = "from fabricsim.collectives.nccl import tuning; tuning.msgspec = None; print(tuning.tuning('2.18').version)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  our own text
    assert done.stdout == "(2, 18)\n"
