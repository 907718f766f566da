"""Bills of materials, against closed counts and prices worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fabricsim.cli.main import app
from fabricsim.errors import InputError, ScenarioError
from fabricsim.run.bill import bill_of
from fabricsim.scenario.load import load
from fabricsim.scenario.prices import PriceList, read_prices
from fabricsim.topology.bill import Bill, Part, make_bill

LIST = """
name = "mine"
switch = [
    {ports=32, rate="100Gbps", cost=1000, power=100, source="s", date="2026", certainty="U"},
    {ports=64, rate="100Gbps", scales_to=100, cost=1800, power=150, source="s", date="2026", certainty="U"},
]
transceiver = [{rate="100Gbps", media=["SR", "DR"], cost=99, power=3.5, source="s", date="2026", certainty="U"}]
cable = [
    {rate="100Gbps", media=["copper"], length="1m", cost=30, power=0, source="s", date="2026", certainty="U"},
    {rate="100Gbps", media=["copper"], length="3m", cost=50, power=0, source="s", date="2026", certainty="U"},
    {media=["SR", "DR"], cost=10, cost_per_metre=2, power=0, source="s", date="2026", certainty="U"},
]
nic = [{rate="100Gbps", cost=600, power=15, source="s", date="2026", certainty="U"}]
"""


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> PriceList:
    path = tmp_path_factory.mktemp("prices") / "mine.toml"
    path.write_text(LIST)
    return read_prices(str(path))


def priced(prices: PriceList, hosts: int, fabric: str) -> Bill:
    found = load("ideal-16", [f"cluster.hosts={hosts}", f"fabric={fabric}", "fabric.link_rate=100Gbps"], with_job=False)
    return bill_of(found.scenario, prices)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(half=st.integers(1, 6), host=st.sampled_from([1, 3, 20]), between=st.sampled_from([1, 3, 30, 200]))
def test_a_fat_tree_costs_what_its_closed_counts_say(prices: PriceList, half: int, host: int, between: int) -> None:
    k = 2 * half  # k^3/4 hosts, 5k^2/4 switches, k^3/4 cables in each of three layers: Al-Fares et al., SIGCOMM 2008
    hosts, switches = k**3 // 4, 5 * k**2 // 4
    fabric = f"{{topology='fat-tree', k={k}, host_cable='{host}m', switch_cable='{between}m'}}"

    found = priced(prices, hosts, fabric)

    def cables(count: int, metres: int) -> int:
        if metres <= 3:
            return count * (30 if metres == 1 else 50)
        return count * (2 * 99 + 10 + 2 * metres)

    assert found.cost == switches * 1000 + cables(hosts, host) + cables(2 * hosts, between) + hosts * 600
    optical = hosts * (host > 3) + 2 * hosts * (between > 3)
    assert found.power == pytest.approx(switches * 100 + 2 * optical * 3.5 + hosts * 15)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(leaves=st.integers(1, 6), per_leaf=st.integers(1, 6), spines=st.integers(1, 4), times=st.integers(1, 3))
def test_a_leaf_spine_costs_what_its_closed_counts_say(
    prices: PriceList, leaves: int, per_leaf: int, spines: int, times: int
) -> None:
    fabric = f"topology='leaf-spine', hosts_per_leaf={per_leaf}, spines={spines}, cables_per_spine={times}"
    found = priced(prices, leaves * per_leaf, f"{{{fabric}, host_cable='5m', switch_cable='30m'}}")

    hosts, between = leaves * per_leaf, leaves * spines * times
    switches = sum(
        1000 if ports <= 32 else 1800 for ports in [*[per_leaf + spines * times] * leaves, *[leaves * times] * spines]
    )
    assert found.cost == switches + hosts * (2 * 99 + 20 + 600) + between * (2 * 99 + 70)


def test_a_torus_of_direct_hosts_has_no_switches(prices: PriceList) -> None:
    found = priced(prices, 64, "{topology='torus', dimensions=[4, 4, 4], host_cable='1m', switch_cable='1m'}")

    assert [line.part.kind for line in found.lines if line.part.count][:1] == ["cable"]
    assert [(line.part.kind, line.part.count) for line in found.lines] == [("cable", 3 * 64), ("nic", 64)]


def test_the_smallest_switch_that_is_enough_is_bought_and_larger_ones_by_the_port(prices: PriceList) -> None:
    parts = [Part("switch", "a", 1, 100.0, ports) for ports in (8, 32, 33, 64, 96, 101)]

    assert [line.cost for line in make_bill(parts, prices, 1).lines] == [1000, 1000, 1800, 1800, 96 / 64 * 1800, None]


def test_without_a_price_there_is_no_total(prices: PriceList) -> None:
    found = make_bill([Part("nic", "hosts", 2, 200.0), Part("nic", "hosts", 1, 100.0)], prices, 3)

    assert found.cost is found.power is found.told()["cost_per_gpu_usd"] is None
    assert found.told()["unpriced"] == ["2 x nic of 200 Gb/s"]


def test_circuit_switches_are_in_no_bill(prices: PriceList) -> None:
    with pytest.raises(InputError, match="circuit switches are in no bill"):
        priced(prices, 16, "{topology='optical-circuits', hosts_per_pod=4}")


def test_the_command_prints_and_gives_the_same_total(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(LIST)
    command = ["topology", "gpt2-medium-dp", "--prices", str(path)]
    printed, told = CliRunner().invoke(app, command), CliRunner().invoke(app, [*command, "--json"])

    bill = json.loads(told.stdout)["bill"]
    assert bill["cost_usd"] == 1000 + 8 * (2 * 99 + 20 + 600)
    assert f"US$ {bill['cost_usd']:,.0f}" in printed.stdout
    assert f"US$ {bill['cost_per_gpu_usd']:,.0f}" in printed.stdout
    assert sum(line["cost_usd"] for line in bill["lines"]) == bill["cost_usd"]


def test_mistakes_in_a_list_are_told_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    line = 'rate="100Gbps"\ncost=1\npower=1\nsource="s"\ndate="2026"\ncertainty="U"\n'
    path.write_text(f"name = 'bad'\n[[nic]]\n{line}[[nic]]\n{line.replace('power=1', 'power=-1')}")

    with pytest.raises(ScenarioError, match=r"bad.toml:12: nic\[1\].power: -1 is too small"):
        read_prices(str(path))
    with pytest.raises(InputError, match="did you mean 'list-400g'"):
        read_prices("list-400")


@pytest.mark.parametrize("name", ["list-400g", "rail-only-implied"])
def test_shipped_lists_say_source_and_date_of_each_line(name: str) -> None:
    found = read_prices(name)

    assert found.name == name
    for line in (*found.switch, *found.transceiver, *found.cable, *found.nic):
        assert len(line.source) > 10
        assert line.date


def test_each_adapter_of_a_direct_mesh_is_priced_by_its_own_cables(prices: PriceList) -> None:
    found = priced(prices, 12, "{topology='mesh', dimensions=[4, 3], parallel=2, host_cable='1m', switch_cable='1m'}")

    adapters = {line.part.gbps: line.part.count for line in found.lines if line.part.kind == "nic"}
    assert adapters == {400: 4, 600: 6, 800: 2}  # corners, sides, and the two inside have 2, 3 and 4 neighbours
