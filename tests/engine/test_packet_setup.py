"""What routes and flows of the packet engine begin with."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.packet.state import PacketState
from fabricsim.engine.packet.times import PacketTimes
from fabricsim.engine.packet.world import PacketWorld
from fabricsim.errors import FabricsimWarning, SimulationError
from fabricsim.records.packet import HEADER_BYTES, LINK
from fabricsim.records.program import NEVER, NONE
from fabricsim.scenario.load import load
from fabricsim.transports.dispatch import built_in

FLOWS = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
LINKS = st.lists(
    st.tuples(st.integers(0, 10**9), st.floats(0.5, 8e4), st.booleans()), min_size=1, max_size=12
)  # delay, ps per byte, cut-through
PAYLOAD, OVERHEAD, ACK = 4096, 62, 84


def _links(columns: list[tuple[int, float, bool]]) -> NDArray[np.void]:
    links = np.zeros(len(columns), LINK)
    links["delay"], links["ps_per_byte"], links["cut_through"] = zip(*columns, strict=True)
    return links


def _times(links: NDArray[np.void]) -> PacketTimes:
    law = np.zeros(1, built_in().law)
    law["payload"], law["overhead"], law["ack_wire"], law["handshake"] = PAYLOAD, OVERHEAD, ACK, 1
    return PacketTimes(links, law[0])


def _crossing(link: tuple[int, float, bool], size: int) -> int:
    delay, per_byte, cut_through = link
    return delay + int((min(size, HEADER_BYTES) if cut_through else size) * per_byte + 0.5)


@pytest.mark.slow
@given(columns=LINKS, servers=st.lists(st.integers(0, 1000), max_size=4))
def test_a_packet_and_its_acknowledgement_take_the_time_of_each_link_and_host(
    columns: list[tuple[int, float, bool]], servers: list[int]
) -> None:
    way = range(len(columns))
    found = _times(_links(columns)).of_flow(way, way[::-1], servers)
    acknowledged = sum(_crossing(link, ACK) for link in columns)
    there = sum(_crossing(link, PAYLOAD + OVERHEAD) for link in columns) + PAYLOAD * sum(servers)
    assert found["wire"] == PAYLOAD + OVERHEAD
    assert found["base_rtt"] == there + acknowledged
    assert found["connect"] == 2 * acknowledged


def test_a_round_trip_of_the_network_is_that_of_all_flows() -> None:
    law = np.zeros(1, built_in().law)[0]
    law["payload"], law["overhead"], law["ack_wire"], law["network_rtt"] = PAYLOAD, OVERHEAD, ACK, 13_962_000.0
    times = PacketTimes(_links([(1_000_000, 80.0, False)] * 6), law)

    assert {times.of_flow(range(hops), range(hops), [9.0] * hops)["base_rtt"] for hops in (2, 4, 6)} == {13_962_000.0}


@pytest.mark.slow
@given(columns=LINKS, servers=st.lists(st.floats(0, 1e3), max_size=12))
def test_a_route_alone_has_the_sums_of_its_links(columns: list[tuple[int, float, bool]], servers: list[float]) -> None:
    links = _links(columns)
    stored = links["cut_through"] == 0
    found = _times(links).of_route(range(len(links)), servers)
    per_byte = links["ps_per_byte"][stored].sum()
    # To the last bit: the results of a version do not depend on how a way was added up.
    assert found["base_time"] == links["delay"].sum() + per_byte * OVERHEAD
    assert found["byte_time"] == per_byte + np.array(servers).sum()
    assert found["header_time"] == links["ps_per_byte"][~stored].sum()


@pytest.mark.slow
@given(kinds=LINKS, ways=st.lists(st.lists(st.integers(0, 23), min_size=1, max_size=4), min_size=1, max_size=6))
def test_what_a_way_takes_does_not_depend_on_ways_before_it(
    kinds: list[tuple[int, float, bool]], ways: list[list[int]]
) -> None:
    links = _links([kinds[number % len(kinds)] for number in range(24)])  # many are alike
    times = _times(links)
    for way in ways:
        fresh = _times(links)
        assert times.of_flow(way, way[::-1], way) == fresh.of_flow(way, way[::-1], way)
        assert times.of_route(way, [0.5] * len(ways)) == fresh.of_route(way, [0.5] * len(ways))
        assert times.of_route(way, []) == fresh.of_route(way, [])


def _fabric(*changes: str) -> tuple[simpy.Environment, Fabric, PacketState]:
    env = simpy.Environment()
    fabric = Fabric(env, load("ideal-16", ["engine=packet", *changes]).scenario, time_unit=1)
    return env, fabric, cast("PacketWorld", fabric.world).network


def _matrix(pairs: list[tuple[int, int, int]]) -> NDArray[np.void]:
    matrix = np.zeros(len(pairs), FLOWS)
    matrix["source"], matrix["target"], _ = zip(*pairs, strict=True)
    matrix["bytes"] = 10_000
    return matrix


def test_new_records_are_blank_however_often_a_table_has_grown() -> None:
    _, _, network = _fabric()
    for count in (1, 3, 7, 20):
        first = network.add("flows", count)
        flows = network.flows[first : first + count]
        assert np.isinf(flows["rate"]).all()
        assert (flows["timeout_at"] == NEVER).all()
        assert (flows["path"] == NONE).all()
        assert not flows["posted"].any()
        network.flows["path"][:first] = 5
    assert (network.flows["path"][:11] == 5).all()


def test_messages_of_a_batch_take_the_places_of_delivered_ones() -> None:
    env, fabric, _ = _fabric()
    matrix = np.zeros(5, FLOWS)
    matrix["source"], matrix["target"], matrix["bytes"] = 0, np.arange(1, 6), 10_000
    first = env.run(fabric.send_all(matrix[:3], [0] * 3))
    env.run()
    again = env.run(fabric.send_all(matrix, [0] * 5))
    assert fabric.world.used["messages"] == 5
    assert len(first) == 3
    assert (again > 0).all()
    assert len(set(again.tolist())) == 5  # the NIC sends one packet after the other


def _settled(*settings: str) -> Fabric:
    return Fabric(simpy.Environment(), load("ideal-16", ["engine=packet", "fabric=two-tier", *settings]).scenario)


def test_bit_errors_that_let_hardly_anything_arrive_are_refused() -> None:
    way_out = r"0.0001 loses over half of all packets of 4096 B on each link.* write 2.1e-05 or less"
    with pytest.raises(SimulationError, match=way_out):
        _settled("fabric.bit_error_rate=1e-4")

    _settled("fabric.bit_error_rate=2.1e-5")
    _settled("fabric.bit_error_rate=1e-4", "transport.mtu=512")


@pytest.mark.parametrize("kind", ["spray", "adaptive"])
def test_go_back_n_among_packets_that_overtake_one_another_is_warned_of(kind: str) -> None:
    with pytest.warns(FabricsimWarning, match=r"transport\.load_balancing\.kind: .*recovery = \"selective\""):
        _settled(f"transport.load_balancing.kind={kind}")

    _settled(f"transport.load_balancing.kind={kind}", "transport.packet.recovery=selective")
    _settled(f"transport.load_balancing.kind={kind}", "fabric=single-switch")
    _settled("transport.load_balancing.kind=flowlet")


KINDS = {
    "given ways": ("fabric.topology=fat-tree", "transport=roce-100g-hpcc"),
    "spraying": ("fabric.topology=fat-tree", "transport=peers-nscc"),
    "PCIe and threads": ("cluster=dgx-a100", "cluster.hosts=3", "transport=tcp-10g", "fabric=single-switch"),
}
PAIRS = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(0, 2)).filter(lambda pair: pair[0] != pair[1]),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(pairs=PAIRS)
@settings(max_examples=15, deadline=None)
def test_routes_and_flows_of_a_batch_are_those_made_one_by_one(kind: str, pairs: list[tuple[int, int, int]]) -> None:
    _, whole, network = _fabric(*KINDS[kind])
    _, single, other = _fabric(*KINDS[kind])
    whole.send_all(_matrix(pairs), [port for _, _, port in pairs])
    for source, target, port in pairs:
        single.wiring.prepare([single.wiring.route(source, target, port=port)], awaited=False)
    assert whole.wiring.connections == single.wiring.connections
    for name in ("routes", "hops"):
        assert getattr(whole.world, name).tobytes() == getattr(single.world, name).tobytes()
    for name in ("world", "flows", "receivers", "stages", "endpoints", "telemetry", "paths", "scoreboard"):
        assert getattr(network, name).tobytes() == getattr(other, name).tobytes()


def test_a_batch_with_a_pair_that_cannot_be_reached_makes_no_route() -> None:
    _, fabric, network = _fabric()
    with pytest.raises(SimulationError, match="rank 99 cannot be reached"):
        fabric.send_all(_matrix([(0, 1, 0), (1, 99, 0)]), [0, 0])
    assert not fabric.wiring.connections
    assert network.used["flows"] == fabric.world.used["routes"] == fabric.world.used["messages"] == 0


def _alone_between_hosts(transport: str) -> float:
    """Time of 20 MB between two hosts whose PCIe takes time, too."""
    changes = ["cluster={include='pinnacles',hosts=2,gpus_per_host=1}", f"transport={transport}"]
    env, fabric, _ = _fabric("fabric={topology='single-switch'}", *changes)
    env.run(fabric.send(0, 1, 20_000_000))
    return float(env.now)


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "share"), [("roce-100g-swift", 1), ("roce-100g-hpcc", 0.95), ("uec-100g", 1)])
def test_no_window_is_too_small_for_a_flow_alone_between_hosts_that_take_time(transport: str, share: float) -> None:
    expected = _alone_between_hosts("roce-100g") / share  # HPCC aims at 95 % of the link
    assert _alone_between_hosts(transport) == pytest.approx(expected, rel=0.02)
