"""Which resources a byte crosses inside the hosts, and what it costs there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fabricsim.scenario.cluster import Cpu, Nic, Pcie
from fabricsim.topology.platform import Platform
from tests.reference.platforms import build
from tests.reference.scenarios import ideal_scenario

Costs = Callable[..., dict[str, float]]

STORE = 1 + 24 / 128  # of a GPU kernel, towards the root complex
LOAD = {"up": 24 / 128, "down": 1 + 20 / 128}
READ = {"up": 24 / 512, "down": 1 + 20 / 256}  # by a NIC
WRITE = 1 + 24 / 256
WIRE = 1 + 26 / 4096
COPYING = {"kind": "ipoib", "mtu": 2044, "send_copy": "0.2ns/B", "receive_copy": "0.3ns/B"}
TWO_SOCKETS = Cpu.model_validate({"name": "round", "sockets": 2, "inter_socket_rate": "20GBps", "copy_rate": "10GBps"})


def _costs(platform: Platform, source: int, target: int) -> dict[str, float]:
    hops = platform.path(source, target).hops
    assert len({resource for resource, _ in hops}) == len(hops)  # each resource once
    return {platform.resources.names[resource]: cost for resource, cost in hops}


@pytest.fixture
def costs() -> Costs:
    def _(
        source: int, target: int, *, hosts: int = 2, transport: dict[str, str] | None = None, **cluster: object
    ) -> dict[str, float]:
        made = ideal_scenario(hosts, transport=transport, cluster={"join": "pcie", **cluster})
        return _costs(build(made), source, target)

    return _


def test_an_ideal_host_has_no_limit_of_its_own(costs: Costs) -> None:
    assert costs(0, 1, join="ideal") == pytest.approx({"host0->switch0": WIRE, "switch0->host1": WIRE})


def test_without_gpudirect_data_is_staged_in_host_memory(costs: Costs) -> None:
    expected = {
        "host0/gpu0/pcie/up": STORE,
        "host0/nic/pcie/up": READ["up"],
        "host0/nic/pcie/down": READ["down"],
        "host0->switch0": WIRE,
        "switch0->host1": WIRE,
        "host1/nic/pcie/up": WRITE,
        "host1/gpu0/pcie/up": LOAD["up"],
        "host1/gpu0/pcie/down": LOAD["down"],
    }
    assert costs(0, 1) == pytest.approx(expected)


def test_with_gpudirect_the_adapter_reads_and_writes_the_gpu(costs: Costs) -> None:
    found = costs(0, 1, gpudirect=True)
    # what goes towards the root complex at the NIC goes away from it at the GPU
    assert found["host0/gpu0/pcie/up"] == pytest.approx(READ["down"])
    assert found["host0/gpu0/pcie/down"] == pytest.approx(READ["up"])
    assert found["host1/gpu0/pcie/down"] == pytest.approx(WRITE)
    assert "host1/gpu0/pcie/up" not in found


def test_gpudirect_below_one_switch_leaves_its_uplink_alone(costs: Costs) -> None:
    below = {"gpus_per_host": 4, "gpus_per_pcie_switch": 2, "nic_below_gpu_switch": True, "gpudirect": True}
    for source, target in ((0, 4), (4, 0)):
        assert not [name for name in costs(source, target, **below) if "switch0/" in name]
    other = costs(2, 4, **below)  # the other switch: up its uplink and down that of the NIC
    assert other["host0/pcie-switch1/up"] == other["host0/pcie-switch0/down"] == pytest.approx(READ["down"])
    assert costs(4, 2, **below)["host0/pcie-switch1/down"] == pytest.approx(WRITE)


def test_a_socket_transport_has_a_thread_at_both_ends(costs: Costs) -> None:
    found = costs(0, 1, transport=COPYING)
    assert found["host0/gpu0/proxy"] == pytest.approx(0.2e-9)
    assert found["host1/gpu0/proxy"] == pytest.approx(0.3e-9)


def test_host_memory_needs_no_gpu(costs: Costs) -> None:
    found = costs(2, 3, transport=COPYING)
    assert not [name for name in found if "gpu" in name]
    assert found["host0/cpu"] == pytest.approx(0.2e-9)
    assert found["host1/cpu"] == pytest.approx(0.3e-9)


def test_the_way_to_a_nic_of_another_socket_crosses_between_the_sockets(costs: Costs) -> None:
    nic = Nic(name="round", pcie=Pcie(generation=4), socket=1)
    found = costs(0, 2, gpus_per_host=2, cpu=TWO_SOCKETS, nic=nic)
    assert found["host0/socket0->socket1"] == found["host1/socket1->socket0"] == 1.0
    near = costs(1, 3, gpus_per_host=2, cpu=TWO_SOCKETS, nic=nic)
    assert not [name for name in near if "socket" in name]


def test_gpus_behind_one_pcie_switch_share_its_uplink(costs: Costs) -> None:
    found = costs(0, 4, gpus_per_host=4, gpus_per_pcie_switch=2)
    assert found["host0/pcie-switch0/up"] == pytest.approx(STORE)
    assert costs(3, 4, gpus_per_host=4, gpus_per_pcie_switch=2)["host0/pcie-switch1/up"] == pytest.approx(STORE)


def test_a_nic_below_the_switch_of_its_gpus_adds_to_the_uplink(costs: Costs) -> None:
    found = costs(0, 4, gpus_per_host=4, gpus_per_pcie_switch=2, nic_below_gpu_switch=True)
    assert found["host0/pcie-switch0/up"] == pytest.approx(STORE + READ["up"])
    assert found["host0/pcie-switch0/down"] == pytest.approx(READ["down"])


def test_shared_memory_stores_and_loads(costs: Costs) -> None:
    expected = {
        "host0/gpu0/pcie/up": STORE,
        "host0/gpu1/pcie/up": LOAD["up"],
        "host0/gpu1/pcie/down": LOAD["down"],
    }
    assert costs(0, 1, gpus_per_host=2) == pytest.approx(expected)


def test_peer_to_peer_writes_once(costs: Costs) -> None:
    expected = {"host0/gpu0/pcie/up": STORE, "host0/gpu1/pcie/down": STORE}
    assert costs(0, 1, gpus_per_host=2, intra_host="pcie-p2p") == pytest.approx(expected)


def test_peer_to_peer_below_one_switch_leaves_its_uplink_alone(costs: Costs) -> None:
    shared = {"gpus_per_host": 4, "gpus_per_pcie_switch": 2, "intra_host": "pcie-p2p"}
    assert costs(0, 1, **shared) == pytest.approx({"host0/gpu0/pcie/up": STORE, "host0/gpu1/pcie/down": STORE})
    between = costs(0, 2, **shared)
    assert between["host0/pcie-switch0/up"] == between["host0/pcie-switch1/down"] == pytest.approx(STORE)


def test_gpus_below_one_switch_hang_on_one_socket(costs: Costs) -> None:
    found = costs(0, 1, gpus_per_host=2, gpus_per_pcie_switch=2, cpu=TWO_SOCKETS)
    assert not [name for name in found if "socket" in name]


def test_sockets_lie_between_gpus_of_both(costs: Costs) -> None:
    assert costs(0, 3, gpus_per_host=4, cpu=TWO_SOCKETS)["host0/socket0->socket1"] == 1.0
    assert costs(3, 0, gpus_per_host=4, cpu=TWO_SOCKETS)["host0/socket1->socket0"] == 1.0


def test_nvlink_leaves_pcie_alone(costs: Costs) -> None:
    assert costs(1, 0, gpus_per_host=2, intra_host="nvlink") == {
        "host0/gpu1/nvlink/up": 1.0,
        "host0/gpu0/nvlink/down": 1.0,
    }


@pytest.mark.parametrize(("source", "target", "direction"), [(0, 2, "up"), (2, 0, "down")])
def test_a_gpu_stores_to_and_loads_from_its_host_memory(costs: Costs, source: int, target: int, direction: str) -> None:
    found = costs(source, target, hosts=1, gpus_per_host=2)
    assert max(found, key=lambda name: found[name]) == f"host0/gpu0/pcie/{direction}"
