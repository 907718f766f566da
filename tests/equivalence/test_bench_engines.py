"""Collectives in all engines: over several NICs, each a node with packets of its own, and of few bytes."""

from __future__ import annotations

import pytest

import fabricsim as fs

SIZE = 2**20


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["rdma-100g", "roce-100g", "roce-100g-pfc", "omni-path-100g"])
def test_striped_rings_take_as_long_in_the_reference_as_compiled(transport: str) -> None:
    scenario = {
        "cluster": {"include": "dgx-a100", "hosts": 2, "gpus_per_host": 2, "nics_per_host": 2},
        "fabric": "single-switch",
        "transport": transport,
        "collectives": {"include": "nccl", "algorithm": {"all_reduce": "ring"}},
    }
    times = {
        engine: fs.bench("all_reduce", scenario, sizes=[SIZE], overrides=[f"engine={engine}"])[SIZE]
        for engine in ("flow", "packet", "reference")
    }

    assert times["packet"] == times["reference"]
    assert times["packet"] == pytest.approx(times["flow"], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**22, 2**26])
def test_rings_over_eight_adapters_are_as_fast_in_packets_as_in_flows(size: int) -> None:
    scenario = {
        "cluster": {"include": "dgx-a100", "hosts": 4},
        "fabric": "single-switch",
        "transport": "rdma-200g",
        "collectives": {"include": "nccl", "algorithm": {"all_reduce": "ring"}},
    }
    times = [
        fs.bench("all_reduce", scenario, sizes=[size], overrides=[f"engine={engine}"])[size]
        for engine in ("flow", "packet")
    ]

    assert times[1] == pytest.approx(times[0], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_gather", "all_reduce"])
@pytest.mark.parametrize("collectives", ["ideal", "nccl"])
def test_parts_of_no_bytes_take_their_latency(collective: str, collectives: str) -> None:
    """Of buffers of fewer bytes than there are ranks."""
    scenario = {"extends": "ideal-16", "transport": "rdma-100g", "collectives": collectives}
    times = {
        engine: fs.bench(collective, scenario, sizes=[4, 64], overrides=["cluster.hosts=8", f"engine={engine}"])
        for engine in ("flow", "packet", "reference")
    }

    assert times["packet"] == times["reference"]
    assert times["packet"][4] == pytest.approx(times["flow"][4], rel=0.01)
    assert times["packet"][4] <= times["packet"][64]


@pytest.mark.slow
@pytest.mark.parametrize("folding", ["close", "off"])
@pytest.mark.parametrize("nics", [1, 2, 8])
def test_the_payload_of_a_host_is_what_its_ring_sends_by_however_many_nics(nics: int, folding: str) -> None:
    scenario = {
        "cluster": {"include": "dgx-a100", "hosts": 4, "nics_per_host": nics},
        "fabric": "single-switch",
        "transport": "rdma-200g",
        "collectives": {"include": "nccl", "algorithm": {"all_reduce": "ring"}, "protocol": "simple"},
        "folding": folding,
        "job": {
            "model": {"include": "gpt2-medium", "layers": 2},
            "micro_batch": 1,
            "global_batch": 32,
            "sequence": 1024,
            "parallelism": {"data": 32},
        },
    }
    result = fs.simulate(scenario)
    sent = sum(2 * (call.ranks - 1) / call.ranks * call.size for call in result.calls)

    leaving = [link for link in result.links if link.kind == "wire" and link.name.startswith("host")]
    assert sum(link.copies for link in leaving) == 4 * nics
    assert sum(link.payload * link.copies for link in leaving) == pytest.approx(4 * sent)
    assert all(link.payload < link.load for link in leaving)
