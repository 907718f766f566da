"""What is said of a scenario that is no mistake, and misleads if nobody says it."""

from __future__ import annotations

import pytest

from fabricsim.run.pipeline import check
from fabricsim.run.verbs import traffic
from fabricsim.scenario.load import load
from fabricsim.scenario.remarks import remarks

FAILS = 'fabric.failures=[{link="host3-switch0", from="1ms", until="2ms"}]'


def said(*settings: str, ranks: int | None = 8) -> list[str]:
    loaded = load("gpt2-medium-dp", list(settings))
    return remarks(loaded.scenario, loaded.asked, ranks)


def test_nothing_is_said_of_a_shipped_scenario() -> None:
    assert said() == []


def test_gpus_without_a_job_are_counted() -> None:
    assert said("cluster.hosts=32") == ["24 of 32 GPUs without a job, for 8 ranks"]
    assert said("cluster.hosts=32", ranks=None) == []
    assert "24 of 32 GPUs without a job, for 8 ranks" in check(load("gpt2-medium-dp", ["cluster.hosts=32"]))


def test_collectives_without_times_of_nccl_are_named() -> None:
    tables = {"cluster": "dgx-h100", "fabric": "single-switch", "transport": "rdma-400g"}
    bare = load({"name": "bare", **tables}).scenario

    (note,) = remarks(bare, (), bare.cluster.ranks)
    assert note.startswith("default of collectives: no times to start")
    assert remarks(bare, (), 1) == ["255 of 256 GPUs without a job, for 1 rank"]
    assert remarks(bare) == []
    assert remarks(load({"name": "plain", **tables, "collectives": "ideal"}).scenario, (), 256) == []


def test_a_wire_faster_than_the_adapters_is_named() -> None:
    (note,) = said("fabric.link_rate=400Gbps")
    assert note.startswith("fabric.link_rate 400 Gb/s is more than transport.line_rate 100 Gb/s")
    assert said("fabric.link_rate=25Gbps") == []


@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("transport.load_balancing.kind=spray", ()),
        ("transport.packet.maximum_window=1MiB", ()),
        ("transport.packet.ack_every=2", (FAILS,)),
        ("transport.congestion_control.gain=0.01", ("transport=roce-100g",)),
        ("fabric.switch.buffer.per_port=2MB", ("transport=tcp-10g",)),
    ],
)
def test_a_setting_that_packets_alone_know_is_named_in_the_flow_engine(setting: str, more: tuple[str, ...]) -> None:
    key = setting.partition("=")[0]

    (note,) = said(*more, setting)
    assert note.startswith(f"{key}: no effect in the flow engine")
    assert said(*more, setting, "engine=packet") == []


def test_keys_within_tables_are_named() -> None:
    (note,) = said("transport={include='rdma-100g', packet={ack_every=2}}")
    assert note.startswith("transport.packet.ack_every: no effect in the flow engine")


def test_flows_know_whether_a_law_paces() -> None:
    assert said("transport=roce-100g", "transport.congestion_control.law=swift") == []
    assert said("transport=roce-100g", "fabric.switch=spectrum-sn2700") == []


@pytest.mark.parametrize("settings", [["fabric.cables={'host*'={rate='100Gbps'}}"], []])
def test_a_wire_that_cables_make_slower_is_not_named(settings: list[str]) -> None:
    leaves = "fabric={topology='leaf-spine', hosts_per_leaf=1, spines=2, link_rate='400Gbps'}"
    assert len(said(leaves, *settings)) == (not settings)


@pytest.mark.parametrize(
    "setting",
    ["transport.packet.minimum_timeout=1ms", "transport.packet.maximum_window=1MiB", "fabric.switch.latency=1us"],
)
def test_what_failures_wait_for_counts_for_flows_too(setting: str) -> None:
    assert said(FAILS, setting) == []


def test_traffic_says_what_it_waited_for() -> None:
    result = traffic("incast", "gpt2-medium-dp", overrides=[FAILS], flows=7)

    (note,) = result.notes
    assert note.startswith("host3->switch0 failed")
