"""What a transport's figures do to the time of one message, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import simpy

from fabricsim.engine.completions import Replay
from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call
from tests.reference.scenarios import ideal_scenario

Make = Callable[..., Scenario]

B = 12.5e9
MB = 10**6
CABLES = 1e-6  # two of 100 m


def _send(made: Scenario, size: int, latency: int | None = None) -> float:
    env = simpy.Environment()
    return cast("float", env.run(Fabric(env, made).send(0, 1, size, latency=latency)))


@pytest.mark.parametrize("kind", ["infiniband", "roce", "tcp", "ipoib"])
def test_latency_and_overhead_come_once_per_message(kind: str) -> None:
    made = ideal_scenario(2, transport={"kind": kind, "latency": "5us", "send_overhead": "2us"})
    assert _send(made, MB) == pytest.approx(MB / B + CABLES + 7e-6, rel=1e-9)


def test_switch_latency_comes_once_per_switch() -> None:
    made = ideal_scenario(16, "fat-tree", k=4, switch_latency="300ns")
    env = simpy.Environment()
    fabric = Fabric(env, made)
    took = [env.run(fabric.send(0, target, MB)) for target in (1, 2, 15)]
    links = [2, 4, 6]
    assert took == pytest.approx([MB / B + n * 0.5e-6 + (n - 1) * 0.3e-6 for n in links], rel=1e-9)


def test_store_and_forward_serialises_a_packet_again_at_every_switch() -> None:
    made = ideal_scenario(16, "fat-tree", k=4, forwarding="store-and-forward", uplink_rate="40Gbps")
    packet = 4096 + 26
    edge = 12.5e9 * packet / 4096
    env = simpy.Environment()
    fabric = Fabric(env, made)
    same_edge = env.run(fabric.send(0, 1, MB))
    across = env.run(fabric.send(0, 15, MB))
    assert same_edge == pytest.approx(MB / B + 2 * 0.5e-6 + packet / edge, rel=1e-6)
    # four uplinks of 5 GB/s are crossed, then the last link
    assert across == pytest.approx(MB * packet / 4096 / 5e9 + 6 * 0.5e-6 + 4 * packet / 5e9 + packet / edge, rel=1e-6)


def test_headers_and_efficiency_take_their_share_of_the_wire() -> None:
    made = ideal_scenario(2, cable="0m", link_rate="100Gbps", transport={"kind": "roce", "efficiency": 0.9})
    assert _send(made, MB) == pytest.approx(MB * (4096 + 82) / 4096 / 0.9 / 12.5e9, rel=1e-6)


def test_the_latency_of_one_message_can_be_given() -> None:
    made = ideal_scenario(2, transport={"latency": "5us", "send_overhead": "2us"})
    assert _send(made, MB, latency=50_000) == pytest.approx(MB / B + CABLES + 50e-9, rel=1e-9)


# ---- sockets ------------------------------------------------------------------------------------


def test_a_copying_thread_bounds_the_rate() -> None:
    copying = {"kind": "ipoib", "mtu": 2044, "send_copy": "0.2ns/B", "receive_copy": "0.4ns/B"}
    assert _send(ideal_scenario(2, transport=copying), MB) == pytest.approx(MB * 0.4e-9 + CABLES, rel=1e-6)


def test_sending_and_receiving_share_one_thread_unless_there_are_more() -> None:
    copying = {"kind": "ipoib", "mtu": 2044, "send_copy": "0.2ns/B", "receive_copy": "0.3ns/B"}

    def both_ways(**more: object) -> float:
        env = simpy.Environment()
        fabric = Fabric(env, ideal_scenario(2, transport={**copying, **more}))
        fabric.send(0, 1, MB)
        fabric.send(1, 0, MB)
        env.run()
        return float(env.now)

    assert both_ways() == pytest.approx(MB * (0.2e-9 + 0.3e-9) + CABLES, rel=1e-6)
    assert both_ways(proxy_threads=2) == pytest.approx(MB * (0.2e-9 + 0.3e-9) / 2 + CABLES, rel=1e-6)


def _tcp(make: Make, cluster: dict[str, object] | None = None, **keys: object) -> Scenario:
    slow = {"kind": "tcp", "mtu": 1500, "latency": "49us", "initial_window": 10, "idle_restart": "1ms"}
    return make(2, transport={**slow, **keys}, cluster=cluster or {})


def _calls(made: Scenario, pauses: list[float], size: int) -> list[float]:
    """Seconds that each of several sends from rank 0 to 1 takes, the pause before each given in seconds."""
    builder = ProgramBuilder(timers=["all"])
    for pause in pauses:
        for rank in (0, 1):
            builder.compute(rank, round(pause * 1e12), "all")
        call = builder.call(Call("send_recv", (0, 1), size, "pipeline"))
        for rank in (0, 1):
            builder.join(call, rank, "all")
    env = simpy.Environment()
    calls = cast("Replay", env.run(Fabric(env, made).replay(builder.build()))).calls
    return list((calls["ended"] - calls["started"]) * 1e-12)


def test_slow_start_waits_for_the_acknowledgements_of_its_first_windows() -> None:
    # Round trip 100 us = 1.25 MB at full rate; windows of 14480, 28960, ... leave the sender idle.
    size, window = 100_000, 14_480
    rounds = [window, 2 * window]  # 100 kB: the third window, of 57,920, holds what is left
    idle = sum(100e-6 - sent / B for sent in rounds)
    assert _calls(_tcp(ideal_scenario), [0.0], size) == pytest.approx([size / B + 50e-6 + idle], rel=1e-6)


def test_a_warm_connection_starts_at_full_rate_and_an_idle_one_anew() -> None:
    cold, warm, still_warm, restarted = _calls(_tcp(ideal_scenario), [0.0, 0.0, 0.9e-3, 1.1e-3], 100_000)
    assert [warm, still_warm] == pytest.approx([100_000 / B + 50e-6] * 2, rel=1e-6)
    assert cold == pytest.approx(restarted) == pytest.approx(warm + 200e-6 - 3 * 14_480 / B, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("law", ["new-reno", "cubic", "dctcp"])
def test_engines_agree_on_when_a_connection_starts_anew(engine: str, law: str) -> None:
    # 1 km of cable on either side: a round trip is 20 us, and acknowledgements come over the cables in both engines.
    # They come for every other packet after so short a pause, and at first as well without `quick_acks`.
    def calls(idle_restart: str | None) -> list[float]:
        law_and_acks = {"congestion_control": {"law": law}, "packet": {"quick_acks": 0}}
        tcp = {"kind": "tcp", "mtu": 1500, "initial_window": 10, **law_and_acks}
        made = ideal_scenario(2, cable="1km", transport={**tcp, "idle_restart": idle_restart})
        return _calls(made.model_copy(update={"engine": engine}), [0.0, 0.1e-3, 0.9e-3, 1.2e-3], 100_000)

    cold, warm, still_warm, restarted = calls("1ms")
    assert cold == pytest.approx(restarted, rel=1e-6)
    assert warm == pytest.approx(still_warm, rel=1e-6)
    assert cold > 1.5 * warm
    assert calls(None)[1:] == pytest.approx([warm] * 3, rel=1e-6)


def test_a_send_of_a_process_starts_as_slowly_as_one_of_a_call() -> None:
    made = _tcp(ideal_scenario)
    assert _send(made, 100_000) == pytest.approx(_calls(made, [0.0], 100_000)[0], rel=1e-6)


def test_without_an_initial_window_there_is_no_slow_start() -> None:
    made = _tcp(ideal_scenario, initial_window=None, idle_restart=None)
    assert _calls(made, [0.0], 100_000) == pytest.approx([100_000 / B + 50e-6], rel=1e-6)


@pytest.mark.parametrize(
    ("size", "least"), [(100, 0.0), (256, 0.0), (257, 20e-6), (8000, 20e-6), (8193, 60e-6), (10 * MB, 60e-6)]
)
@pytest.mark.parametrize("kind", ["tcp", "infiniband"])
def test_moderated_interrupts_hold_messages_back_on_sockets_only(kind: str, size: int, least: float) -> None:
    steps = [{"above": "256B", "interval": "20us"}, {"above": "8KiB", "interval": "60us"}]
    nic = {"name": "round", "pcie": {"generation": 4}, "interrupt_moderation": steps}
    made = ideal_scenario(2, transport={"kind": kind, "latency": "5us"}, cluster={"nic": nic})
    unmoderated = size / B + CABLES + 5e-6
    expected = max(unmoderated, least) if kind == "tcp" else unmoderated
    assert _send(made, size) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("interval", ["84us", "300us"])
def test_an_interrupt_comes_no_sooner_than_its_interval_after_the_first_byte_of_a_slow_start(interval: str) -> None:
    """What the sender idles between its first windows is no addition."""
    nic = {
        "name": "round",
        "pcie": {"generation": 4},
        "interrupt_moderation": [{"above": "256B", "interval": interval}],
    }
    unmoderated = _send(_tcp(ideal_scenario), 100_000)
    assert unmoderated > 100e-6
    moderated = _send(_tcp(ideal_scenario, cluster={"nic": nic}), 100_000)
    assert moderated == pytest.approx(max(unmoderated, float(interval.removesuffix("us")) * 1e-6), rel=1e-6)


def test_byte_latency_is_paid_once_per_message_and_takes_no_bandwidth() -> None:
    made = ideal_scenario(2)
    env = simpy.Environment()
    fabric = Fabric(env, made)
    route = fabric.wiring.route(0, 1, byte_latency=200.0)
    plain = fabric.wiring.route(0, 1)
    routes = fabric.world.routes
    assert (routes["byte_latency"][route], routes["byte_latency"][plain]) == (200.0, 0.0)
    assert routes["peak"][route] == routes["peak"][plain]
    routes["byte_latency"][plain] = 200.0
    assert env.run(fabric.send(0, 1, MB)) == pytest.approx(MB / B + CABLES + MB * 200e-12, rel=1e-9)


def test_host_efficiency_scales_what_pcie_carries() -> None:
    def taken(share: float) -> float:
        made = load("hkbu", [f"transport.host_efficiency={share}", "fabric.link_rate=1000Gbps"]).scenario
        return _send(made, 100 * MB)

    assert taken(0.5) == pytest.approx(2 * taken(1.0), rel=1e-2)
