"""The reference engine against closed forms; each derivation stands beside its test.

Unless said otherwise links have 100 Gb/s (10 ps per bit, 80 ps per byte) and 1 us of delay, and
packets 4096 bytes of payload in 4160 bytes on the wire.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from fabricsim.engine.reference import Reference
from fabricsim.records.packet import ACK, DATA, DROPPED, LOST, MARKED, NACK, READ_AHEAD, SENT, TRIMMED
from fabricsim.records.program import NEVER
from fabricsim.records.transport import SELECTIVE
from fabricsim.topology.shortest_paths import mix
from tests.reference import packet_cases as cases

PAYLOAD = 4096
WIRE = 4160
PACKET = 80 * WIRE  # its time on a link of 100 Gb/s, ps
HEADER = 80 * 64  # that of an acknowledgement, a control frame, and the header of a packet
DELAY = 1_000_000
US = 1_000_000


def run(builder: Any, *posts: tuple[int, int, int], until: int = 10**12) -> Reference:  # noqa: ANN401  the helper module is not a package
    """Run with messages given as (time, flow, bytes)."""
    case = cases.Case(builder.build(), [], until, "", builder.dispatch)
    network = Reference(case.net)
    for owner, (time, flow, size) in enumerate(posts):
        network.post(time, flow, size, owner)
    network.run(until)
    return network


@cache
def draw(seed: int) -> tuple[Any, Reference]:
    case = cases.draw(seed)
    network = Reference(case.net)
    for post in case.posts:
        network.post(post.time, post.flow, post.size, post.owner)
    network.run(case.until)
    return case, network


def on_link(network: Reference, link: int, kind: int = DATA) -> list[Any]:
    return [entry for entry in network.log if entry.link == link and entry.kind == kind]


def total(network: Reference, counter: str) -> int:
    return sum(counters[counter] for counters in network.counters)


# Time on the way.


@pytest.mark.parametrize("packets", [1, 2, 10])
@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("hops", [2, 3])
def test_an_unloaded_flow_takes_its_store_and_forward_time(packets: int, hops: int, *, managed: bool) -> None:
    options = cases.Options(managed=managed, managed_hosts=managed)
    builder = cases.two_hosts(options=options) if hops == 2 else cases.dumbbell(2, slow=100.0, options=options)
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, packets * PAYLOAD))
    delivered = hops * (DELAY + PACKET) + (packets - 1) * PACKET
    assert network.deliveries == [(delivered, 0, 0)]
    last = max(entry.time for entry in network.log if entry.kind == ACK) + HEADER + DELAY
    assert last == hops * (DELAY + PACKET) + hops * (DELAY + HEADER) + (packets - 1) * PACKET


def test_the_slowest_link_sets_the_pace() -> None:
    # n packets leave the slow link one after the other; the last then crosses the last fast link.
    builder = cases.dumbbell(2, rate=100.0, slow=25.0)
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 7 * PAYLOAD))
    assert network.deliveries[0].time == PACKET + 7 * 4 * PACKET + PACKET + 3 * DELAY


def test_the_last_packet_carries_what_is_left() -> None:
    builder = cases.two_hosts()
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, PAYLOAD + 1), (0, 0, 5))
    assert [entry.wire for entry in on_link(network, 0)] == [WIRE, 65, 69]
    # The second switch link is idle after a short packet, so that the long one decides when the others come.
    arrived = 2 * (PACKET + DELAY)
    assert [delivery.time for delivery in network.deliveries] == [arrived + 80 * 65, arrived + 80 * (65 + 69)]


@pytest.mark.parametrize("managed", [False, True])
def test_cut_through_waits_for_the_header_only(*, managed: bool) -> None:
    builder = cases.two_hosts(options=cases.Options(cut_through=True, managed=managed))
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, PAYLOAD))
    assert network.deliveries[0].time == HEADER + DELAY + PACKET + DELAY


def test_a_slow_server_before_the_wire_sets_the_pace() -> None:
    # 8 GB/s: 125 ps per byte, more than the wire's 80 * 4160 / 4096. The wire idles between packets.
    builder = cases.two_hosts()
    builder.way_out = (8.0,)
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 5 * PAYLOAD))
    assert [entry.time for entry in on_link(network, 0)] == [k * 125 * PAYLOAD for k in range(1, 6)]


def test_a_fast_server_before_the_wire_delays_the_first_packet_only() -> None:
    # 20 GB/s: 50 ps per byte. Packets are fetched early, so that each reaches the wire when that is free.
    builder = cases.two_hosts()
    builder.way_out = (20.0,)
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 5 * PAYLOAD))
    assert [entry.time for entry in on_link(network, 0)] == [50 * PAYLOAD + k * PACKET for k in range(5)]


def test_servers_after_the_wire_delay_delivery_and_acknowledgement() -> None:
    # Two servers in series, the second the slower one (125 ps per byte). Its time is taken from the arrival at the
    # host on, so that it is busy without a gap; a packet also takes at least its services one after the other.
    builder = cases.two_hosts()
    builder.way_in = (20.0, 8.0)
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 5 * PAYLOAD))
    first, fast, slow = 2 * (PACKET + DELAY), 50 * PAYLOAD, 125 * PAYLOAD
    received = [max(first + (k - 1) * PACKET + fast + slow, first + k * slow) for k in range(1, 6)]
    assert network.deliveries[0].time == received[-1]
    assert [entry.time for entry in on_link(network, 2, ACK)] == received


def test_a_shared_thread_serves_both_directions() -> None:
    # The thread of host 0 serves a packet that it sends while one that it receives waits for it.
    builder = cases.two_hosts()
    builder.way_out, builder.way_in, builder.shared_first = (8.0,), (8.0,), True
    builder.add_law()
    builder.add_flow(0, 1)
    builder.add_flow(1, 0)
    service = 125 * PAYLOAD
    arrival = service + 2 * (PACKET + DELAY)  # of the packet from host 1
    network = run(builder, (0, 1, PAYLOAD), (arrival - 1, 0, PAYLOAD))
    assert network.deliveries[0] == (arrival - 1 + 2 * service, 1, 0)


def test_flows_of_a_host_take_turns() -> None:
    builder = cases.star(3)
    builder.add_law()
    builder.add_flow(0, 1)
    builder.add_flow(0, 2)
    network = run(builder, (0, 0, 3 * PAYLOAD), (0, 1, 3 * PAYLOAD))
    # Flow 0 has sent a packet and is in the round again when flow 1 gets its message.
    assert [entry.flow for entry in on_link(network, 0)] == [0, 0, 1, 0, 1, 1]
    assert [entry.time for entry in on_link(network, 0)] == [k * PACKET for k in range(6)]


def test_acknowledgements_do_not_wait_for_all_data() -> None:
    # On a managed NIC an ACK waits for the packet on the wire, and for those that the host holds already.
    builder = cases.two_hosts(options=cases.Options(managed_hosts=True))
    builder.way_out = (20.0,)
    builder.add_law()
    builder.add_flow(0, 1)
    builder.add_flow(1, 0)
    network = run(builder, (0, 0, 20 * PAYLOAD), (0, 1, 20 * PAYLOAD))
    arrivals = {entry.number: entry.time + PACKET + DELAY for entry in on_link(network, 1)}
    waits = [ack.time - arrivals[ack.echo] for ack in on_link(network, 0, ACK)]
    assert len(waits) == 20
    assert 0 < max(waits) <= READ_AHEAD * PACKET


def test_a_handshake_costs_round_trips() -> None:
    builder = cases.two_hosts()
    builder.add_law(handshake=2)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, PAYLOAD), (100 * US, 0, PAYLOAD))
    alone = 2 * (PACKET + DELAY)
    assert [delivery.time for delivery in network.deliveries] == [2 * 4 * (HEADER + DELAY) + alone, 100 * US + alone]


def test_a_window_sends_once_per_round_trip() -> None:
    builder = cases.two_hosts()
    builder.add_law(initial_window=2.0)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 6 * PAYLOAD))
    round_trip = 2 * (PACKET + DELAY) + 2 * (HEADER + DELAY)
    starts = [entry.time for entry in on_link(network, 0)]
    assert starts == [k * round_trip + first for k in range(3) for first in (0, PACKET)]


# Queues, marks, drops.


def incast(packets: int, options: Any, **law: float) -> Reference:  # noqa: ANN401  as above
    """Hosts 0 and 1 send `packets` each to host 2 from time 0 on.

    The k-th packets of both reach the switch (on links 0 and 2) at ``t_k = DELAY + k * PACKET``, that of
    host 0 first. One packet leaves at each ``t_k`` too: A1 B1 A2 B2 ..., from ``t_1`` on.
    """
    builder = cases.star(3, options=options)
    builder.add_law(**law)
    builder.add_flow(0, 2)
    builder.add_flow(1, 2)
    return run(builder, (0, 0, packets * PAYLOAD), (0, 1, packets * PAYLOAD))


@pytest.mark.parametrize("managed", [False, True])
def test_packets_are_marked_above_the_threshold(*, managed: bool) -> None:
    # At t_k the k-th packet of host 0 meets k - 1 packets, that of host 1 meets k. Beyond five packets are
    # marked k >= 7 and k >= 6: n - 6 and n - 5 of n.
    options = cases.Options(managed=managed, mark_low=5 * WIRE, mark_high=5 * WIRE)
    network = incast(20, options)
    assert network.counters[5]["marks"] == (20 - 6) + (20 - 5)
    marked = [(entry.flow, entry.number + 1) for entry in on_link(network, 5) if entry.state & MARKED]
    assert sorted(marked) == [(0, k) for k in range(7, 21)] + [(1, k) for k in range(6, 21)]


def test_flows_without_ecn_are_not_marked() -> None:
    network = incast(20, cases.Options(mark_low=0, mark_high=0), ecn=0)
    assert total(network, "marks") == 0


def test_red_marks_by_the_random_numbers_of_the_link() -> None:
    # Packets that meet a drain time between the thresholds draw, those beyond do not.
    low, high, most = 2, 8, 0.7
    network = incast(12, cases.Options(mark_low=low * WIRE, mark_high=high * WIRE, mark_most=most))
    expected, draws = [], 0
    for k in range(1, 13):
        for flow, met in ((0, k - 1), (1, k)):
            marked = met >= high
            if low < met < high:
                random = mix(mix(mix(1) ^ 5) ^ draws) / 2**32
                marked = random < most * (met - low) / (high - low)
                draws += 1
            expected += [(flow, k - 1)] if marked else []
    assert [(e.flow, e.number) for e in on_link(network, 5) if e.state & MARKED] == expected


@pytest.mark.parametrize("managed", [False, True])
def test_a_full_queue_drops(*, managed: bool) -> None:
    # With room for three packets those that meet three are dropped. A1, B1, A2 (meets 1), B2 (2), A3 (2) fill
    # it, B3 meets 3 and is dropped, and from then on one leaves at each t_k: A4 meets 2 and B4 3, and so on.
    options = cases.Options(managed=managed, limit=3 * WIRE)
    network = incast(8, options, recovery=SELECTIVE, span=64)
    dropped = [(entry.flow, entry.number + 1) for entry in on_link(network, 5) if entry.fate == DROPPED]
    assert dropped[:6] == [(1, k) for k in range(3, 9)]
    assert len(network.deliveries) == 2


def test_a_lossy_class_gets_its_share_of_the_shared_buffer() -> None:
    # alpha = 1 and room for 8 packets: a queue of q packets takes one more if q + 1 <= 8 - q, up to 4 of them.
    # A_k meets k - 1 that wait, and as it is taken in one leaves, so that B_k meets k - 1 too: A5 is the first to
    # be refused, and B5 likewise.
    network = incast(6, cases.Options(buffer=8 * WIRE, alpha=1.0), recovery=SELECTIVE, span=64)
    dropped = [(entry.flow, entry.number + 1) for entry in on_link(network, 5) if entry.fate == DROPPED]
    assert dropped[:2] == [(0, 5), (1, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(WIRE, 2 * WIRE), (2 * WIRE, WIRE)])
def test_deficit_round_robin_shares_by_weight(weights: tuple[int, int]) -> None:
    builder = cases.star(3, options=cases.Options(weights=weights))
    for data_class in (0, 1):
        builder.add_law(data_class=data_class)
        builder.add_flow(data_class, 2, data_class)
    network = run(builder, (0, 0, 60 * PAYLOAD), (0, 1, 60 * PAYLOAD))
    backlogged = [entry.flow for entry in on_link(network, 5)][10:70]
    assert backlogged.count(0) == 60 * weights[0] // sum(weights)


def test_the_first_class_goes_first() -> None:
    # The packet of host 0 is being sent when the first of host 1 comes; then class 0 has all the wire.
    builder = cases.star(3, options=cases.Options(managed=True))
    for data_class in (1, 0):
        builder.add_law(data_class=data_class)
        builder.add_flow(1 - data_class, 2, 1 - data_class)
    network = run(builder, (0, 0, 10 * PAYLOAD), (0, 1, 10 * PAYLOAD))
    order = [entry.flow for entry in on_link(network, 5)]
    assert order == [0, *[1] * 10, *[0] * 9]


# PFC and credits.


def test_pauses_come_when_the_threshold_is_passed() -> None:
    # After t_k the switch has sent k packets, A1 B1 A2 ...: it holds floor(k / 2) of host 0 and ceil(k / 2) of
    # host 1. More than three: B from t_7 on, A from t_8 on.
    pfc = cases.Pfc(above=3 * WIRE, below=2 * WIRE, headroom=100 * WIRE)
    network = incast(30, cases.Options(pfc=pfc, lossless=(1,)))
    assert network.controls[:2] == [(DELAY + 7 * PACKET, 3, 1, 0), (DELAY + 8 * PACKET, 1, 1, 0)]
    # The PAUSE stops host 1 after the packet that it is sending when it comes.
    comes = DELAY + 7 * PACKET + HEADER + DELAY
    starts = [entry.time for entry in on_link(network, 2)]
    resumed = next(time for time, link, _, amount in network.controls if link == 3 and amount == -1)
    before = [start for start in starts if start < comes]
    assert before == [k * PACKET for k in range(-(-comes // PACKET))]
    assert starts[len(before)] == resumed + HEADER + DELAY


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_pfc_with_headroom_loses_nothing(alpha: float) -> None:
    # After a PAUSE as much arrives as fits in two delays, the frame and the two packets being sent.
    headroom = 2 * (2 * DELAY + HEADER + 2 * PACKET) // 80
    pfc = cases.Pfc(above=3 * WIRE, below=2 * WIRE, headroom=headroom, alpha=alpha)
    buffer = 64 * WIRE if alpha else 0
    network = incast(200, cases.Options(pfc=pfc, lossless=(1,), buffer=buffer))
    assert total(network, "drops") == 0
    assert network.counters[0]["pauses"] > 2
    assert network.counters[2]["pauses"] > 2
    assert [delivery.owner for delivery in network.deliveries] == [0, 1]
    assert len(on_link(network, 5)) == 400  # none was sent twice


def test_pfc_without_headroom_drops() -> None:
    pfc = cases.Pfc(above=3 * WIRE, below=2 * WIRE, headroom=0)
    network = incast(30, cases.Options(pfc=pfc, lossless=(1,)), recovery=SELECTIVE, span=64)
    assert total(network, "drops") > 0


def test_a_slow_host_pauses_its_switch() -> None:
    # The server of host 1 takes 500 ps per byte, six times as long as the wire; packets wait in its buffer.
    pfc = cases.Pfc(above=3 * WIRE, below=2 * WIRE, headroom=100 * WIRE)
    builder = cases.two_hosts(options=cases.Options(pfc=pfc, lossless=(1,)))
    builder.way_in = (2.0,)
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 50 * PAYLOAD))
    # The fourth packet is one too many: the first is still being served when it comes.
    assert network.controls[0] == (2 * (DELAY + PACKET) + 3 * PACKET, 2, 1, 0)
    assert network.deliveries[0].time == 2 * (DELAY + PACKET) + 50 * 500 * PAYLOAD


def test_one_credit_allows_one_packet_per_round_trip() -> None:
    # A packet's credit comes back once it has reached the switch and started there, with a frame of 64 bytes.
    builder = cases.two_hosts(options=cases.Options(credits=WIRE, lossless=(0, 1)))
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 5 * PAYLOAD))
    period = PACKET + DELAY + HEADER + DELAY
    assert [entry.time for entry in on_link(network, 0)] == [k * period for k in range(5)]
    assert network.deliveries[0].time == 4 * period + 2 * (PACKET + DELAY)


@pytest.mark.slow
def test_losses_on_the_wire_leak_no_credits() -> None:
    # One packet in thirty is lost on each link (8 * 4160 bits, one in a million wrong): a leak would stop all soon.
    builder = cases.two_hosts(options=cases.Options(credits=2 * WIRE, lossless=(0, 1), bit_error_rate=1e-6))
    builder.add_law(recovery=SELECTIVE, span=128, initial_timeout=100 * US, minimum_timeout=100 * US)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 300 * PAYLOAD))
    assert network.counters[0]["errors"] > 2
    assert len(network.deliveries) == 1


# Load balancing.


def parallel(**law: float) -> Any:  # noqa: ANN401  as above
    """Two hosts on two switches with three cables between them: links 4, 6 and 8 from left to right."""
    builder = cases.dumbbell(2, slow=100.0)
    builder.cables += [builder.cables[-1]] * 2
    builder.add_law(span=128, recovery=SELECTIVE, reordering=1000, **law)
    builder.add_flow(0, 1)
    return builder


def hashed(key: int, entropy: int, node: int) -> int:
    return (4, 6, 8)[mix(mix(key ^ entropy) ^ mix(node + 1)) % 3]


def test_spraying_draws_an_entropy_for_each_packet() -> None:
    network = run(parallel(balance=cases.rule_number("spray")), (0, 0, 30 * PAYLOAD))
    key = network.senders[0].key
    draws = [mix(mix(mix(1) ^ key) ^ n) % 64 for n in range(30)]
    taken = {entry.number: entry.link for link in (4, 6, 8) for entry in on_link(network, link)}
    assert [taken[n] for n in range(30)] == [hashed(key, draws[n], 2) for n in range(30)]
    assert len(set(taken.values())) == 3


def test_a_flowlet_keeps_its_way_until_a_gap() -> None:
    network = run(
        parallel(balance=cases.rule_number("flowlet"), flowlet_gap=5 * US),
        (0, 0, 3 * PAYLOAD),
        (9 * US, 0, 3 * PAYLOAD),
    )
    key = network.senders[0].key
    draws = [0] * 3 + [mix(mix(mix(1) ^ key) ^ 0) % 64] * 3
    taken = {entry.number: entry.link for link in (4, 6, 8) for entry in on_link(network, link)}
    assert [taken[n] for n in range(6)] == [hashed(key, entropy, 2) for entropy in draws]


def test_the_least_loaded_way_is_taken_in_turn() -> None:
    # Cables a tenth as fast: each packet finds those of before still being sent, until all three are taken.
    builder = parallel(balance=cases.rule_number("adaptive"))
    builder.cables[2:] = [cases.Cable(cable.ends, 10.0, DELAY) for cable in builder.cables[2:]]
    network = run(builder, (0, 0, 9 * PAYLOAD))
    taken = {entry.number: entry.link for link in (4, 6, 8) for entry in on_link(network, link)}
    first = (4, 6, 8).index(hashed(network.senders[0].key, 0, 2))
    assert [taken[n] for n in range(9)] == [(4, 6, 8)[(first + n) % 3] for n in range(9)]


def test_the_least_loaded_way_goes_round_a_failed_link() -> None:
    builder = parallel(balance=cases.rule_number("adaptive"))
    builder.cables[2:] = [cases.Cable(cable.ends, 10.0, DELAY) for cable in builder.cables[2:]]
    builder.down = (6,)
    network = run(builder, (0, 0, 30 * PAYLOAD))
    assert {entry.link for entry in network.log if entry.link in {4, 6, 8}} == {4, 8}
    assert not any(entry.fate == LOST for entry in network.log)


def test_where_all_ways_have_failed_the_packet_is_lost_on_one() -> None:
    builder = parallel(balance=cases.rule_number("adaptive"))
    builder.down = (4, 6, 8)
    network = run(builder, (0, 0, PAYLOAD), until=100 * US)
    key = network.senders[0].key
    assert [(entry.link, entry.fate) for entry in network.log if entry.link > 3] == [(hashed(key, 0, 2), LOST)]


# Loss and recovery.


def test_timeouts_double() -> None:
    builder = cases.two_hosts()
    builder.down = (0,)
    timeout = 50 * US
    builder.add_law(initial_timeout=timeout, minimum_timeout=timeout)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, PAYLOAD), until=16 * timeout)
    assert [entry.time for entry in network.log] == [0, timeout, 3 * timeout, 7 * timeout, 15 * timeout]
    assert {entry.fate for entry in network.log} == {LOST}


def test_go_back_n_sends_all_again_from_the_missing_one() -> None:
    # Room for one packet: B1 meets A1 and is dropped. B2 goes through (it meets nothing) and is answered by a NACK.
    builder = cases.star(3, options=cases.Options(limit=WIRE))
    builder.add_law()
    builder.add_flow(0, 2)
    builder.add_flow(1, 2)
    network = run(builder, (0, 0, PAYLOAD), (0, 1, 3 * PAYLOAD))
    nacks = on_link(network, 4, NACK)
    assert [(nack.flow, nack.number, nack.echo) for nack in nacks] == [(1, 0, 1)]
    numbers = [entry.number for entry in on_link(network, 2)]
    assert numbers == [0, 1, 2, 0, 1, 2]
    assert len(network.deliveries) == 2


def test_each_gap_has_a_nack_of_its_own() -> None:
    # As above; the NACK is at host 1 at T = 2 (DELAY + HEADER) after number 1 has come, which then sends 0, 1, 2 again.
    # A second packet of host 0 at T + PACKET reaches the switch together with number 1 and takes its place.
    builder = cases.star(3, options=cases.Options(limit=WIRE))
    builder.add_law(nack_interval=1000 * US)
    builder.add_flow(0, 2)
    builder.add_flow(1, 2)
    sent_again = 2 * DELAY + 3 * PACKET + 2 * (HEADER + DELAY)
    network = run(builder, (0, 0, PAYLOAD), (0, 1, 3 * PAYLOAD), (sent_again + PACKET, 0, PAYLOAD))
    assert [(nack.number, nack.echo) for nack in on_link(network, 4, NACK)] == [(0, 1), (1, 2)]
    assert [entry.number for entry in on_link(network, 2)] == [0, 1, 2, 0, 1, 2, 1, 2]


def test_selective_repeat_sends_the_missing_one_only() -> None:
    # As above; the ACK of number 3 proves that number 0 is lost (reordering of 3).
    builder = cases.star(3, options=cases.Options(limit=WIRE))
    builder.add_law(recovery=SELECTIVE, span=64)
    builder.add_flow(0, 2)
    builder.add_flow(1, 2)
    network = run(builder, (0, 0, PAYLOAD), (0, 1, 6 * PAYLOAD))
    assert [entry.number for entry in on_link(network, 2)] == [0, 1, 2, 3, 4, 5, 0]
    acknowledged = DELAY + 4 * PACKET + PACKET + DELAY + 2 * (HEADER + DELAY)  # of number 3
    assert on_link(network, 2)[-1].time == acknowledged


def test_trimming_turns_losses_into_nacks() -> None:
    options = cases.Options(trimming=True, limit=4 * WIRE)
    network = incast(30, options, recovery=SELECTIVE, span=64)
    trims = total(network, "trims")
    headers = [entry for entry in on_link(network, 5) if entry.state & TRIMMED]
    assert trims == len(headers) > 0
    assert {entry.wire for entry in headers} == {64}
    assert len(on_link(network, 4, NACK)) == trims
    assert sum(int(row["retransmissions"]) for row in network.rows.flows) == trims
    assert sum(int(row["timeouts"]) for row in network.rows.flows) == 0


def test_a_loss_halves_the_window_once() -> None:
    # New Reno from 16 packets in congestion avoidance; B1 is lost. The threshold becomes half of what is in
    # flight when number 3 is acknowledged (RFC 5681, equation 4).
    builder = cases.star(3, options=cases.Options(limit=WIRE))
    builder.add_law()
    builder.add_law(
        law=cases.law_number("new-reno"),
        recovery=SELECTIVE,
        span=64,
        initial_window=16.0,
        initial_threshold=1.0,
        maximum_window=64.0,
    )
    builder.add_flow(0, 2)
    builder.add_flow(1, 2, 1)
    round_trip = 2 * (PACKET + DELAY) + 2 * (HEADER + DELAY)
    network = run(builder, (0, 0, PAYLOAD), (0, 1, 40 * PAYLOAD), until=round_trip + 4 * PACKET)
    # The ACKs of 1 and 2 have each let another packet go: 16 in flight, less the one now acknowledged.
    assert float(network.rows.flows[1]["threshold"]) == pytest.approx(15 / 2)


@pytest.mark.slow
@pytest.mark.parametrize(("idle_restart", "first"), [(900 * US, 2), (2_000 * US, 30), (NEVER, 30)])
def test_an_idle_flow_starts_slowly_anew(idle_restart: int, first: int) -> None:
    # RFC 5681, section 4.1. 64 packets in slow start leave a window of 66; then nothing is sent for 1 ms.
    builder = cases.two_hosts()
    builder.add_law(
        law=cases.law_number("new-reno"), initial_window=2.0, maximum_window=256.0, idle_restart=idle_restart
    )
    builder.add_flow(0, 1)
    # All have arrived by then: six windows of 2, 4, ... 64 packets at most, each waited for.
    idle_since = 6 * 2 * (PACKET + DELAY + HEADER + DELAY) + 64 * PACKET
    begin = idle_since + 1_000 * US
    network = run(builder, (0, 0, 64 * PAYLOAD), (begin, 0, 30 * PAYLOAD))
    sent = [entry.time for entry in on_link(network, 0) if entry.time >= begin]
    assert len(sent) == 30
    assert sum(time < begin + 30 * PACKET for time in sent[:first]) == first
    assert first == 30 or sent[first] >= begin + 2 * (PACKET + DELAY + HEADER + DELAY)  # the first acknowledgement


@pytest.mark.slow
@pytest.mark.parametrize("law", ["new-reno", "cubic", "dctcp"])
def test_a_restart_remembers_three_quarters_of_the_window(law: str) -> None:
    # RFC 2861, section 3: slow start may reach them again.
    builder = cases.two_hosts()
    columns = {"initial_window": 2.0, "initial_threshold": 2.0, "idle_restart": 1_000 * US}
    builder.add_law(**cases.LAW_COLUMNS[law], law=cases.law_number(law), **columns)
    builder.add_flow(0, 1)
    before = run(builder, (0, 0, 64 * PAYLOAD), until=2_000 * US).rows.flows[0]
    after = run(builder, (0, 0, 64 * PAYLOAD), (2_000 * US, 0, 1), until=2_000 * US + 1).rows.flows[0]
    assert before["window"] > 4.0
    assert (after["window"], after["threshold"]) == (2.0, 0.75 * before["window"])


def test_a_flow_that_waits_for_acknowledgements_is_not_idle() -> None:
    # The only acknowledgement of the first message is lost with its link; the timer has not fired yet.
    builder = cases.two_hosts()
    builder.down = (2,)
    builder.add_law(law=cases.law_number("new-reno"), initial_window=4.0, idle_restart=0)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, PAYLOAD), (1_000 * US, 0, 10 * PAYLOAD), until=2_000 * US)
    assert float(network.rows.flows[0]["threshold"]) == 1_000.0
    assert len(on_link(network, 0)) == 4


# Acknowledgements.


def test_acknowledgements_are_delayed_and_joined() -> None:
    # One for every four packets, and one when the message is complete.
    builder = cases.two_hosts()
    builder.add_law(ack_every=4, ack_delay=100 * US)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 10 * PAYLOAD))
    assert [ack.number for ack in on_link(network, 2, ACK)] == [4, 8, 10]


def test_without_a_delay_the_rest_of_a_message_waits_for_its_end() -> None:
    # Ten packets of the first message, which end after two of a third ACK's four; three of the second.
    builder = cases.two_hosts()
    builder.add_law(ack_every=4)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 10 * PAYLOAD), (0, 0, 3 * PAYLOAD))
    acks = on_link(network, 2, ACK)
    assert [(ack.number, ack.echo) for ack in acks] == [(4, 3), (8, 7), (10, 9), (13, 12)]
    assert acks[3].time == network.completed[1].time


def test_a_delayed_acknowledgement_goes_when_it_is_due() -> None:
    builder = cases.two_hosts()
    builder.add_law(ack_every=4, ack_delay=7 * US, initial_window=1.0)
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 2 * PAYLOAD))
    arrived = 2 * (PACKET + DELAY)
    assert on_link(network, 2, ACK)[0].time == arrived + 7 * US


def test_a_change_of_marks_is_told_at_once() -> None:
    # Numbers 6 and up of flow 0 are marked, 5 and up of flow 1 (see the test of marks): the change acknowledges
    # what came before, unmarked; then four at a time.
    options = cases.Options(mark_low=5 * WIRE, mark_high=5 * WIRE)
    network = incast(20, options, ack_every=4, ack_delay=100 * US)
    acks = {flow: [e for e in on_link(network, 4, ACK) if e.flow == flow] for flow in (0, 1)}
    assert [ack.number for ack in acks[0]] == [4, 6, 10, 14, 18, 20]
    assert [ack.number for ack in acks[1]] == [4, 5, 9, 13, 17, 20]
    assert [bool(ack.state & MARKED) for ack in acks[0]] == [False, False, True, True, True, True]


def test_what_fills_a_gap_is_acknowledged_at_once() -> None:
    # Room for one packet: number 0 of flow 1 meets that of flow 0 and comes again after the ACK of number 3.
    builder = cases.star(3, options=cases.Options(limit=WIRE))
    builder.add_law(recovery=SELECTIVE, span=64, initial_window=6.0, ack_every=64, ack_delay=500 * US)
    builder.add_flow(0, 2)
    builder.add_flow(1, 2)
    network = run(builder, (0, 0, PAYLOAD), (0, 1, 30 * PAYLOAD))
    again = next(entry for entry in on_link(network, 5) if (entry.flow, entry.number, entry.fate) == (1, 0, SENT))
    answers = [entry for entry in on_link(network, 4, ACK) if (entry.flow, entry.echo) == (1, 0)]
    assert [answer.time for answer in answers] == [again.time + PACKET + DELAY]


@pytest.mark.slow
def test_telemetry_says_what_each_link_had_sent() -> None:
    # The second packet follows the first without a gap, and finds both links just free: one packet was sent by then.
    builder = cases.two_hosts()
    builder.add_law(law=cases.law_number("hpcc"), span=64, **cases.LAW_COLUMNS["hpcc"])
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, 2 * PAYLOAD))
    rows = network.rows.telemetry[["time", "sent", "drain", "ps_per_byte"]][:4].tolist()
    assert rows == [
        (0, 0, 0, 80.0),
        (PACKET + DELAY, 0, 0, 80.0),
        (PACKET, WIRE, 0, 80.0),
        (2 * PACKET + DELAY, WIRE, 0, 80.0),
    ]


# What always holds.

DRAWN = range(0, 80, 7)
"""Of the cases that have every law with every kind of switch, some of each."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", DRAWN)
def test_packets_are_conserved(seed: int) -> None:
    """What goes into a switch comes out of it or is dropped there, and each link carries one packet at a time."""
    case, network = draw(seed)
    hosts = len(network.hosts)
    into, out = dict.fromkeys(range(len(network.nodes)), 0), dict.fromkeys(range(len(network.nodes)), 0)
    for entry in network.log:
        link = network.links[entry.link]
        out[link.source.index] += 1
        into[link.target.index] += entry.fate == SENT
    moving = {entry.flow for entry in network.log if entry.time > case.until - 100 * US}
    if not moving:
        assert [into[switch] for switch in range(hosts, len(into))] == [out[s] for s in range(hosts, len(out))]
    for link in network.links:
        free_at = 0
        for entry in network.log:
            if entry.link == link.index and entry.fate == SENT:
                assert entry.time >= free_at
                free_at = entry.time + link.serialisation(entry.wire)
    assert all(counters["bytes"] >= 64 * counters["packets"] for counters in network.counters)


@pytest.mark.slow
@pytest.mark.parametrize("seed", DRAWN)
def test_messages_are_delivered_once_and_in_order(seed: int) -> None:
    case, network = draw(seed)
    for flow in range(len(case.tables["flows"])):
        posted = [post.owner for post in sorted(case.posts, key=lambda post: post.time) if post.flow == flow]
        delivered = [delivery.owner for delivery in network.deliveries if delivery.flow == flow]
        assert delivered == posted[: len(delivered)]
        assert delivered == posted or case.tables["links"]["down"].any()


@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    """Buffers are empty, credits are back and nothing is in flight once all has been delivered."""
    for seed in (45, 49, 54, 59, 63, 67):
        _, network = draw(seed)
        for node in network.nodes:
            assert node.used == 0
            assert all(ingress.bytes == 0 and not ingress.pausing for ingress in node.ingress.values())
        for link in network.links:
            if link.port is not None:
                rows = network.tables.queues[link.port.index * 8 :][: len(link.port.queues)]
                assert [queue.credits for queue in link.port.queues] == [int(row["credits"]) for row in rows]
        assert not any(row["in_flight"] for row in network.rows.flows)


@pytest.mark.slow
def test_a_run_repeats_itself_and_leaves_its_tables() -> None:
    case = cases.draw(6)
    before = {name: table.copy() for name, table in case.tables.items()}
    logs = []
    for _ in range(2):
        network = Reference(case.net)
        for post in case.posts:
            network.post(post.time, post.flow, post.size, post.owner)
        network.run(case.until)
        logs.append(network.log)
    assert logs[0] == logs[1]
    assert all((before[name] == table).all() for name, table in case.tables.items())


def test_messages_may_be_posted_while_it_runs() -> None:
    builder = cases.two_hosts()
    builder.add_law()
    builder.add_flow(0, 1)
    network = run(builder, (0, 0, PAYLOAD), until=50 * US)
    network.post(60 * US, 0, PAYLOAD, 1)
    network.run(100 * US)
    assert network.deliveries[-1] == (60 * US + 2 * (PACKET + DELAY), 0, 1)
