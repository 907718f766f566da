from __future__ import annotations

import numpy as np
import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.packet.recorder import Watch
from fabricsim.errors import InputError
from fabricsim.records.packet import ACK, DATA, SENT
from fabricsim.results.traffic import DEMAND, Matrix, TrafficRecord
from fabricsim.run.pipeline import load
from fabricsim.run.traffic import request, simulate

RATE = 12.5e9  # bytes/s
PACKET = 4096  # of ideal-100g, whose packets have no header


def incast(
    senders: int, size: int, taps: tuple[str, ...] = (), captures: tuple[str, ...] = (), settings: str = ""
) -> TrafficRecord:
    scenario = load("ideal-16", ["engine=packet", *settings.split()]).scenario
    flows = np.zeros(senders, DEMAND)
    flows["id"], flows["source"], flows["bytes"] = np.arange(senders) + 10, np.arange(senders) + 1, size
    return simulate(scenario, Matrix(flows, 16, "mine"), watch=Watch.parse(taps, captures))


# ---- queues -------------------------------------------------------------------------------------


@pytest.mark.parametrize("senders", [1, 3])
def test_packets_that_meet_wait_together_and_leave_at_the_rate_of_the_link(senders: int) -> None:
    result = incast(senders, PACKET, ("queue:switch0->host0",))
    assert result.packets is not None
    (tap,) = result.packets.taps

    # all arrive at one time, and nothing comes after them
    assert (tap.kind, tap.of) == ("queue", "switch0->host0")
    assert tap.value.max() == senders * PACKET
    assert tap.value[-1] == 0
    filled = tap.time[np.argmax(tap.value)]
    assert tap.time[-1] - filled == round(senders * PACKET / RATE * 1e12)
    assert (np.diff(tap.time) >= 0).all()


def test_the_queue_holds_what_came_and_has_not_left() -> None:
    result = incast(4, 10 * PACKET, ("queue:switch0->host0",), ("host[1-4]->*", "switch0->host0"))
    assert result.packets is not None
    assert result.packets.log is not None
    (tap,), log = result.packets.taps, result.packets.log
    entries = log.entries[log.entries["kind"] == DATA]
    leaving = entries["wire"] == log.wires.index("switch0->host0")
    came = np.sort(entries["time"][~leaving])
    left = np.sort(entries["time"][leaving])

    # the way in is the same for all packets, so that what came is shifted by one time
    shift = left[0] - came[0]
    middle = int(left[20])
    waiting = int((came + shift <= middle).sum() - (left < middle).sum())
    assert np.interp(middle + 1, tap.time, tap.value) == pytest.approx(waiting * PACKET, abs=1)


def test_summary_has_the_deepest_queue() -> None:
    result = incast(3, PACKET)
    assert result.packets is not None
    wire = result.packets.names.index("switch0->host0")

    assert result.packets.wires["deepest"][wire] == 3 * PACKET
    assert result.packets.wires["packets"][wire] == 3
    assert result.packets.taps == ()
    assert result.packets.log is None


# ---- rates --------------------------------------------------------------------------------------


def test_rate_carries_the_payload_and_no_more_than_the_link_can() -> None:
    result = incast(4, 100 * 1448, ("rate:switch0->host0", "rate:host1->*"), settings="transport=cubic-100g")
    assert result.series is not None
    series = result.series

    assert series.names == ("host1->switch0", "switch0->host0")
    carried = series.rate.sum(axis=1) * series.interval / 1e12
    assert carried == pytest.approx([100 * 1448, 400 * 1448])
    assert (series.rate <= series.capacity[:, None] * (1 + 1e-9)).all()
    assert series.capacity[1] == pytest.approx(RATE * 1448 / 1538)  # a full TCP segment and its frame


def test_what_is_sent_again_is_no_payload() -> None:
    settings = "transport=cubic-100g transport.switch.buffer.shared=40kB"
    result = incast(8, 138 * 1448, ("rate:host*->switch0",), settings=settings)
    assert result.series is not None
    assert result.counters["retransmissions"] > 0

    carried = result.series.rate.sum(axis=1) * result.series.interval / 1e12
    assert carried == pytest.approx([0, *[138 * 1448] * 8, *[0] * 7])


# ---- use of links -------------------------------------------------------------------------------


def test_payload_of_each_link_is_that_of_the_flow_engine() -> None:
    loads = []
    for engine in ("flow", "packet"):
        settings = ["cluster.hosts=16", "fabric=fat-tree-k8", "transport=roce-100g", f"engine={engine}"]
        scenario = load("ideal-16", settings).scenario
        result = simulate(scenario, request("permutation", scenario, size="100kB"))
        loads.append({use.link.name: use.link.payload for use in result.links if use.flows})

    assert sum(loads[0].values()) > 3 * 16 * 100_000  # ways of two, four and six wires
    assert loads[1] == pytest.approx(loads[0])


def test_a_busy_link_is_in_use_throughout() -> None:
    size = 500 * PACKET
    result = incast(4, size)
    use = {each.link.name: each.link.load / each.link.capacity for each in result.links}

    assert use["switch0->host0"] == pytest.approx(4 * size / RATE)
    assert use["host1->switch0"] == pytest.approx(size / RATE)


# ---- flows --------------------------------------------------------------------------------------


def test_slow_start_adds_a_packet_per_acknowledged_packet() -> None:
    # Without software, through which acknowledgements come later than the message is handed over.
    settings = "transport=cubic-100g transport.latency=0us transport.send_overhead=0us"
    result = incast(1, 60 * 1448, ("flow:1->0",), settings=settings)
    assert result.packets is not None
    (tap,) = result.packets.taps

    # RFC 5681: ten packets at first, one more for each that is acknowledged: 16 at once, then every other. The last
    # acknowledgement comes when the message is there, and the run has ended.
    assert (tap.kind, tap.of) == ("window", "1->0")
    assert tap.value.tolist() == [*range(10, 27), *range(28, 70, 2)]
    assert tap.time[0] == 0


def test_windows_and_rates_begin_with_their_flows() -> None:
    flows = np.zeros(2, DEMAND)
    flows["source"], flows["bytes"], flows["start"] = (1, 2), 100 * PACKET, (0, 10**9)
    scenario = load("ideal-16", ["engine=packet", "transport=roce-100g", "transport.send_overhead=0us"]).scenario
    packets = simulate(scenario, Matrix(flows, 16, "mine"), watch=Watch(flows=("*",))).packets
    assert packets is not None

    # DCQCN begins at line rate, 99 % of which the preset reaches, and has no window
    assert [(tap.kind, tap.of, tap.time[0]) for tap in packets.taps] == [("pace", "1->0", 0), ("pace", "2->0", 10**9)]
    assert [tap.value[0] for tap in packets.taps] == pytest.approx([0.99 * RATE] * 2)


@pytest.mark.slow
def test_all_flows_of_a_collective_begin_with_the_first_window() -> None:
    env = simpy.Environment()
    settings = ["engine=packet", "transport=cubic-100g", "cluster.hosts=64"]
    fabric = Fabric(env, load("ideal-16", settings).scenario, watch=Watch(flows=("*",)))
    fabric.all_to_all(range(64), 64_000)
    assert fabric.recorder is not None
    fabric.recorder.tap_flows()
    env.run()

    taps = fabric.recorder.packets().taps
    assert len(taps) == 64 * 63
    assert {tap.value[0] for tap in taps} == {10}


def test_flows_are_found_by_id_and_by_pair() -> None:
    by_id = incast(3, PACKET, ("flow:11",)).packets
    by_pair = incast(3, PACKET, ("flow:[12]->0",)).packets

    assert by_id is not None
    assert by_pair is not None
    assert [tap.of for tap in by_id.taps] == ["2->0"]
    assert [tap.of for tap in by_pair.taps] == ["1->0", "2->0"]


# ---- the log ------------------------------------------------------------------------------------


def test_log_has_each_packet_once_per_wire() -> None:
    result = incast(2, 5 * PACKET, (), ("switch0->host0", "host0->*"))
    assert result.packets is not None
    log = result.packets.log
    assert log is not None
    data = log.entries[log.entries["kind"] == DATA]

    assert (log.source.tolist(), log.target.tolist()) == ([1, 2], [0, 0])
    assert sorted(zip(data["flow"].tolist(), data["number"].tolist(), strict=True)) == [
        (flow, number) for flow in (0, 1) for number in range(5)
    ]
    assert (data["bytes"] == PACKET).all()
    assert (log.entries["fate"] == SENT).all()
    assert int((log.entries["kind"] == ACK).sum()) == 10
    assert {log.wires[wire] for wire in data["wire"]} == {"switch0->host0"}


def test_a_process_of_simpy_can_be_tapped() -> None:
    env = simpy.Environment()
    scenario = load("ideal-16", ["engine=packet"]).scenario
    fabric = Fabric(env, scenario, time_unit=1, watch=Watch(queues=("switch0->host5",)))
    env.run(fabric.send(0, 5, 3 * PACKET))
    assert fabric.recorder is not None
    (tap,) = fabric.recorder.packets().taps

    assert tap.value.max() == PACKET  # one packet after the other
    assert fabric.recorder.counters()["data_hops"] == 2 * 3


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taps", "captures", "message"),
    [
        (("queue",), (), "tap 'queue' is not of the form KIND:GLOB"),
        (("queue:",), (), "tap 'queue:' is not of the form KIND:GLOB"),
        (("qeue:*",), (), "there is no kind 'qeue'; did you mean 'queue'?"),
        (("window:*",), (), "there is no kind 'window'; there are queue, rate, flow"),
        (("queue:leaf*",), (), "tap queue:leaf*: no wire is called so; there are host0->switch0"),
        (("rate:*->host16",), (), "tap rate:*->host16: no wire is called so"),
        (("flow:0->1",), (), "tap flow:0->1: no flow is called so; there are 1->0, 2->0"),
        ((), ("spine*",), "packets spine*: no wire is called so"),
        ((), ("",), "packets '': this names no wire"),
    ],
)
def test_what_is_not_there_is_refused(taps: tuple[str, ...], captures: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as refused:
        incast(2, PACKET, taps, captures)

    assert message in str(refused.value)


def test_flow_engine_has_no_packets() -> None:
    with pytest.raises(InputError, match='set engine = "packet"'):
        incast(2, PACKET, ("queue:*",), settings="engine=flow")
