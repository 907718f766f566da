from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import InputError
from fabricsim.run import traffic as patterns
from fabricsim.run.pipeline import load
from fabricsim.scenario import library
from fabricsim.scenario.traffic import FlowSizes, SizePoint, load_sizes
from fabricsim.transports import flow_model
from fabricsim.workload import traffic
from fabricsim.workload.traffic import PATTERNS, Request, draw_sizes, generate, mean_size

RATE = 12.5e9
MEANS = {"websearch": 1_711_250.0, "hadoop": 120_420.75, "alibaba-storage": 40_869.8}
"""Bytes, by hand: the sum over the segments of the middle size times the share."""


def request(pattern: str, ranks: int = 16, **keys: object) -> Request:
    return replace(Request(pattern, ranks, 1_000_000, 0, RATE), **keys)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@given(ranks=st.integers(2, 60), seed=st.integers(0, 2**63 - 1))
def test_every_pattern_makes_possible_flows_and_the_same_ones_each_time(pattern: str, ranks: int, seed: int) -> None:
    asked = request(pattern, ranks, seed=seed, sizes=load_sizes("hadoop"))
    made = generate(asked)
    flows = made.flows

    assert made.endpoints == ranks
    assert flows["id"].tolist() == list(range(1, len(flows) + 1))
    assert (flows["source"] != flows["target"]).all()
    assert flows[["source", "target"]].tolist() == generate(asked).flows[["source", "target"]].tolist()
    assert flows.tobytes() == generate(asked).flows.tobytes()
    for end in ("source", "target"):
        assert flows[end].min() >= 0
        assert flows[end].max() < ranks
    assert (flows["bytes"] >= 1).all()
    assert (np.diff(flows["start"]) >= 0).all()


@given(ranks=st.integers(2, 200), seed=st.integers(0, 2**32))
def test_permutation_is_a_derangement(ranks: int, seed: int) -> None:
    flows = generate(request("permutation", ranks, seed=seed)).flows

    assert flows["source"].tolist() == list(range(ranks))
    assert sorted(flows["target"]) == list(range(ranks))


@given(senders=st.integers(1, 16), seed=st.integers(0, 2**32))
def test_part_of_a_permutation_is_part_of_the_whole(senders: int, seed: int) -> None:
    whole = generate(request("permutation", seed=seed)).flows
    part = generate(request("permutation", seed=seed, flows=senders)).flows

    assert len(part) == len(set(part["source"])) == senders
    assert set(part[["source", "target"]].tolist()) <= set(whole[["source", "target"]].tolist())


@pytest.mark.slow
def test_all_derangements_of_four_are_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(1800):
        targets = tuple(generate(request("permutation", 4, seed=seed)).flows["target"].tolist())
        counts[targets] = counts.get(targets, 0) + 1

    assert len(counts) == 9
    assert min(counts.values()) > 150  # 200 each; 150 is 3.7 standard deviations below
    assert max(counts.values()) < 250


def test_ring_incast_and_all_to_all() -> None:
    ring, incast, everyone = (generate(request(name, 4)).flows for name in ("ring", "incast", "all-to-all"))

    assert ring[["source", "target"]].tolist() == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert incast[["source", "target"]].tolist() == [(1, 0), (2, 0), (3, 0)]
    assert len(everyone) == len(set(everyone[["source", "target"]].tolist())) == 12
    assert generate(request("incast", 4, flows=2)).flows["source"].tolist() == [1, 2]


def test_seeds_and_streams_differ() -> None:
    flows = generate(request("poisson", flows=500)).flows
    other = generate(request("poisson", flows=500, seed=1)).flows
    longer = generate(request("poisson", flows=600)).flows

    assert (flows["source"] != other["source"]).any()
    assert (flows["start"] != other["start"]).all()
    # a larger number of flows, or other sizes, leave what is drawn beside them as it is
    assert longer[:500].tobytes() == flows.tobytes()
    drawn = generate(request("poisson", flows=500, sizes=load_sizes("hadoop"))).flows
    assert drawn[["source", "target"]].tolist() == flows[["source", "target"]].tolist()


@pytest.mark.parametrize("ranks", [None, 16])
def test_poisson_loads_the_links_of_hosts_with_several_gpus(ranks: int | None) -> None:
    """Flows within hosts take none of what their links are loaded with."""
    shape = {"hosts": 4, "gpus_per_host": 8, "intra_host": "nvlink"}
    scenario = load("ideal-16", {"cluster": {"include": "ideal", **shape}}).scenario
    drawn = patterns.request("poisson", scenario, size="1MB", flows=40_000, load=0.6, ranks=ranks)

    between = drawn.flows[drawn.flows["source"] // 8 != drawn.flows["target"] // 8]
    hosts = (ranks or 32) // 8
    seconds = int(drawn.flows["start"].max()) / 1e12
    wire = flow_model(scenario.transport).costs.wire

    assert between["bytes"].sum() * wire / seconds == pytest.approx(0.6 * hosts * scenario.link_rate, rel=0.03)


def test_poisson_offers_its_load() -> None:
    count, ranks, load = 40_000, 20, 0.6
    flows = generate(request("poisson", ranks, flows=count, load=load)).flows
    gaps = np.diff(flows["start"], prepend=0) / 1e12

    assert flows["bytes"].sum() / gaps.sum() == pytest.approx(load * ranks * RATE, rel=0.02)  # 4 standard errors
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # as of an exponential distribution
    assert (gaps > gaps.mean()).mean() == pytest.approx(np.exp(-1), abs=0.01)
    pairs = np.bincount(flows["source"] * ranks + flows["target"], minlength=ranks**2).reshape(ranks, ranks)
    assert (np.diag(pairs) == 0).all()
    expected = count / (ranks * (ranks - 1))
    off = pairs[~np.eye(ranks, dtype=bool)]
    assert ((off - expected) ** 2 / expected).sum() < 500  # chi squared, 379 degrees of freedom: 4.4 deviations


@pytest.mark.parametrize("name", library.names("traffic"))
def test_published_distributions(name: str) -> None:
    sizes = load_sizes(name)
    drawn = draw_sizes(sizes, (np.arange(200_000) + 0.5) / 200_000)

    assert sizes.name == name
    assert mean_size(sizes) == pytest.approx(MEANS[name], rel=1e-6)
    assert drawn.mean() == pytest.approx(MEANS[name], rel=1e-4)
    for point in sizes.points:
        assert (drawn <= point.size).mean() == pytest.approx(point.share, abs=1e-2 if point.size < 1000 else 1e-4)


def test_sizes_are_linear_between_points() -> None:
    sizes = FlowSizes(name="two", points=[SizePoint(size="100B", share=0.5), SizePoint(size="300B", share=1.0)])

    assert draw_sizes(sizes, np.array([0.0, 0.25, 0.5, 0.75])).tolist() == [1, 50, 100, 200]
    assert mean_size(sizes) == 0.5 * 50 + 0.5 * 200
    assert mean_size(7) == 7


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([("1kB", 0.5)], "the last share has to be 1"),
        ([("0B", 1.0)], "the first size has to be above 0"),
        ([("2kB", 0.5), ("1kB", 1.0)], "at 1000 bytes is not above that before it, at 2000 bytes"),
        ([("1kB", 0.5), ("2kB", 0.5)], "is not above that before it"),
    ],
)
def test_points_that_are_no_distribution(points: list[tuple[str, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlowSizes(name="bad", points=[SizePoint(size=size, share=share) for size, share in points])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (
            '[{ size = "1kB", share = 0.5 }]',
            "bad.toml: the first size has to be above 0 and the last share has to be 1",
        ),
        ('[{ size = "1kB", share = 2.0 }]', "bad.toml: points.0.share: "),
        ("[]", "bad.toml: points: "),
        ("[{ size = 5, share = 1.0 }]", "bad.toml: points.0.size: 5 has no unit"),
    ],
)
def test_library_file_that_is_no_distribution_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: str, message: str
) -> None:
    (tmp_path / "traffic").mkdir()
    (tmp_path / "traffic" / "bad.toml").write_text(f'name = "bad"\npoints = {points}\n')
    monkeypatch.setattr(library, "root", lambda: tmp_path)

    with pytest.raises(InputError) as caught:
        load_sizes("bad")

    assert str(caught.value).startswith(f"workloads/traffic/{message}")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request("mesh"), "there is no pattern 'mesh'; there are permutation, incast"),
        (request("ring", 1), "ring needs at least 2 ranks, and the cluster has 1"),
        (request("ring", flows=4), "the number of flows of ring is that of the ranks"),
        (request("incast", flows=16), "16 flows: incast over 16 ranks has 1 to 15"),
        (request("permutation", flows=0), "0 flows: permutation over 16 ranks has 1 to 16"),
        (request("poisson", flows=traffic.MOST_FLOWS + 1), "has 1 to 1000000"),
        (request("all-to-all", 1001), "all-to-all over 1001 ranks is 1001000 flows; at most 1000000"),
        (request("ring", load=0.5), "a load has no effect on ring"),
        (request("poisson", load=0.0), "a load of 0.0 is not above 0"),
        (request("poisson", load=float("nan")), "a load of nan is not above 0"),
        (request("poisson", load=50.0), "a load of 50.0 is not above 0 and at most 10"),
        (request("poisson", load=1e-9), "arrive over .* at most an hour: raise the load"),
        (request("ring", sizes=0), "a flow of 0 bytes moves nothing"),
    ],
    ids=lambda value: value.pattern if isinstance(value, Request) else None,
)
def test_what_cannot_be_had(asked: Request, message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(asked)
