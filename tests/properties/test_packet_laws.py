"""What must hold of any run of the packet engine: packets are kept, buffers keep to their bounds, all comes to rest.

The suite draws some 120 cases; ``FABRICSIM_EXAMPLES=10000 pytest tests/properties/test_packet_laws.py`` draws as many
as one has time for, others each time; ``--hypothesis-seed`` says which, so that several processes can share them out.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import simpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.engine.fabric import Fabric
from fabricsim.records.packet import CHUNK, CLASS_SHIFT, CLASSES, DATA, DROPPED, HOST, LOST, SENT, TRIMMED
from fabricsim.records.program import NEVER
from fabricsim.records.transport import GO_BACK_N
from fabricsim.scenario.congestion import LAWS
from fabricsim.scenario.load import load

pytestmark = pytest.mark.filterwarnings("ignore:transport.load_balancing.kind")  # go-back-N where packets overtake

_EXAMPLES = int(os.environ.get("FABRICSIM_EXAMPLES", "120"))
_SAME = "FABRICSIM_EXAMPLES" not in os.environ
"""Whether each run draws the same cases."""
_MOST_REPORTS = 20
"""Of progress, one per two million events: the largest case takes one."""
_FLOWS = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
_US = 1_000_000  # ps
_RATE = 12.5e9  # bytes/s of the links
_PAYLOADS = (256, 1024, 4096)
_MOST_WIRE = 4096 + 146
"""Bytes of the longest packet on a wire, its headers included (roce: 82, tcp: 78 of options at most; rounded up)."""


@dataclass(frozen=True)
class Traffic:
    """A random fabric and what is sent on it: settings as ``--set`` takes them, flows (source, target, bytes, ps)."""

    hosts: int
    settings: tuple[str, ...]
    flows: tuple[tuple[int, int, int, int], ...]
    lossless: tuple[int, ...] = ()
    looks: tuple[int, ...] = field(default=())


# ---- what is drawn ------------------------------------------------------------------------------


def _table(keys: dict[str, Any]) -> str:
    """Write an inline TOML table."""

    def value(item: object) -> str:
        if isinstance(item, dict):
            return _table(item)
        if isinstance(item, bool):
            return str(item).lower()
        return repr(list(item)) if isinstance(item, tuple) else repr(item).replace("'", '"')

    return "{" + ", ".join(f"{key} = {value(item)}" for key, item in keys.items()) + "}"


@st.composite
def _topologies(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["single-switch", "leaf-spine", "fat-tree"]))
    metres = draw(st.sampled_from(["1m", "20m", "300m"]))
    keys: dict[str, Any] = {"topology": kind, "host_cable": metres}
    if kind != "single-switch":
        keys["switch_cable"] = draw(st.sampled_from(["1m", "50m"]))
        keys["routing"] = draw(st.sampled_from(["ecmp", "d-mod-k"]))
    if kind == "leaf-spine":
        keys |= {"hosts_per_leaf": draw(st.integers(1, 4)), "spines": draw(st.integers(1, 3))}
        keys["uplink_rate"] = draw(st.sampled_from(["50Gbps", "100Gbps"]))
    keys["bit_error_rate"] = draw(st.sampled_from([0.0, 0.0, 1e-7, 2e-6]))
    return keys


def _bounded(draw: st.DrawFn, classes: int, longest_cable: int) -> dict[str, Any]:
    """Draw the buffers of a switch, and what keeps them from overflowing."""
    small = draw(st.integers(2, 12)) * _MOST_WIRE
    others: list[dict[str, Any]] = [
        {},
        {"buffer": {"per_port": f"{small}B"}},
        {"buffer": {"shared": f"{4 * small}B", "alpha": draw(st.sampled_from([0.25, 1.0, 8.0]))}},
        {"buffer": {"per_port": f"{small}B"}, "trimming": True},
        {"credits": {"per_class": f"{small}B"}},
    ]
    # What still comes after a PAUSE is sent: both ways over the cable, the packet that is being sent there, and one
    # that the sender's servers hold; so IEEE 802.1Qbb, annex N.
    headroom = round(2 * longest_cable * 1e-12 * _RATE) + 3 * _MOST_WIRE
    classes_paused = tuple(draw(st.sets(st.integers(0, classes - 1), min_size=1)))
    pfc = {"below": f"{small // 2}B", "headroom": f"{headroom}B", "classes": classes_paused}
    dynamic = {"shared": f"{64 * (small + headroom)}B", "alpha": 1.0}
    return draw(
        st.sampled_from(
            [*others, {"pfc": pfc | {"above": f"{small}B"}}, {"pfc": pfc | {"alpha": 0.125}, "buffer": dynamic}]
        )
    )


@st.composite
def _switches(draw: st.DrawFn, longest_cable: int) -> dict[str, Any]:
    classes = draw(st.integers(1, 4))
    keys: dict[str, Any] = {"name": "drawn", "latency": draw(st.sampled_from(["0ns", "300ns"]))}
    keys["forwarding"] = draw(st.sampled_from(["cut-through", "store-and-forward"]))
    keys |= _bounded(draw, classes, longest_cable)
    if keys.get("trimming"):
        classes = max(classes, 2)
    keys["classes"] = classes
    if draw(st.booleans()):
        low = draw(st.integers(0, 8)) * 1000
        keys["ecn"] = {"low": f"{low}B", "high": f"{low + draw(st.integers(0, 9)) * 1000}B"}
    if classes > 1 and draw(st.booleans()):
        weights = tuple(f"{draw(st.integers(1, 9)) * 1000}B" for _ in range(classes))
        keys["scheduler"] = {"kind": "dwrr", "weights": weights}
    return keys


def _law(draw: st.DrawFn, name: str) -> dict[str, Any]:
    law: dict[str, Any] = {"law": name}
    if name == "dcqcn":
        law["cut_interval"] = draw(st.sampled_from(["0us", "4us"]))
        law["cnp_interval"] = draw(st.sampled_from(["0us", "4us", "50us"]))
    if name == "nscc":
        law["rtt"] = "12us"
    return law


_LAWS = ("none", "new-reno", "cubic", "dctcp", "dcqcn", "timely", "swift", "hpcc", "nscc")


@st.composite
def _transports(draw: st.DrawFn, switch: dict[str, Any]) -> dict[str, Any]:
    classes, trimming = switch["classes"], switch.get("trimming", False)
    recovery = "selective" if trimming else draw(st.sampled_from(["go-back-n", "selective"]))
    packet: dict[str, Any] = {
        "recovery": recovery,
        "payload": f"{draw(st.sampled_from(_PAYLOADS))}B",
        "ack_wire": "64B",
        "initial_timeout": "100us",
        "minimum_timeout": "100us",
        "maximum_timeout": "2ms",
        "handshake": draw(st.integers(0, 2)),
        "data_class": 1 if trimming else draw(st.integers(0, classes - 1)),
        "ack_class": draw(st.integers(0, classes - 1)),
    }
    packet["nack_interval" if recovery == "go-back-n" else "reordering"] = "20us" if recovery == "go-back-n" else 3
    if draw(st.booleans()):
        packet |= {"ack_every": draw(st.integers(2, 8)), "ack_delay": draw(st.sampled_from(["1us", "30us"]))}
    if draw(st.booleans()):
        packet["maximum_window"] = f"{draw(st.sampled_from([10_000, 100_000, 1_000_000]))}B"
    law = _law(draw, draw(st.sampled_from(_LAWS)))
    if LAWS.own[law["law"]].fixed_window and "maximum_window" not in packet and draw(st.booleans()):
        packet |= {"ack_every": draw(st.sampled_from([2, 8, 256])), "ack_delay": "0us"}
    balance = draw(st.sampled_from(["ecmp", "spray", "flowlet", "adaptive"]))
    if law["law"] == "hpcc":
        balance = "ecmp"  # telemetry is kept by link of the way, which must not change
    return {
        "kind": draw(st.sampled_from(["roce", "tcp", "ideal"])),
        "efficiency": draw(st.sampled_from([1.0, 0.97])),
        "latency": draw(st.sampled_from(["0us", "1us"])),
        "packet": packet,
        "congestion_control": law,
        "load_balancing": {"kind": balance},
    }


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """Draw a fabric and its traffic."""
    hosts = draw(st.integers(2, 16))
    topology = draw(_topologies())
    longest = int(topology["host_cable"][:-1]), int(topology.get("switch_cable", "0m")[:-1])
    switch = draw(_switches(max(longest) * 5000 + 300_000))
    transport = draw(_transports(switch))
    host = st.integers(0, hosts - 1)
    shape = draw(st.sampled_from(["any", "incast", "any"]))
    target = st.just(0) if shape == "incast" else host
    start = st.one_of(st.just(0), st.integers(0, 100 * _US))
    size = st.one_of(st.integers(1, 10_000), st.integers(1, 300_000))
    flow = st.tuples(host, target, size, start).filter(lambda flow: flow[0] != flow[1])
    text = (
        "engine=packet",
        f"cluster.hosts={hosts}",
        f"fabric={_table({**topology, 'switch': switch})}",
        *(f"transport.{key}={_table(item) if isinstance(item, dict) else item}" for key, item in transport.items()),
        f"seed={draw(st.integers(0, 99))}",
    )
    flows = draw(st.lists(flow, min_size=1, max_size=16))
    looks = draw(st.lists(st.integers(1, 400 * _US), max_size=6))
    lossless = range(switch["classes"]) if "credits" in switch else switch.get("pfc", {}).get("classes", ())
    return Traffic(hosts, text, tuple(flows), tuple(lossless), tuple(sorted(looks)))


# ---- how it is run ------------------------------------------------------------------------------


class EndlessRunError(Exception):
    """A run that does not end."""


def _limited() -> Any:  # noqa: ANN401  a callback
    reports = Counter[str]()

    def progress(_: int) -> None:
        reports["all"] += 1
        if reports["all"] > _MOST_REPORTS:
            raise EndlessRunError

    return progress


def _matrix(traffic: Traffic) -> tuple[NDArray[np.void], list[int]]:
    matrix = np.array(list(traffic.flows), _FLOWS)
    seen: Counter[tuple[int, int]] = Counter()
    ports = []
    for source, target, _, _ in traffic.flows:
        ports.append(seen[source, target])
        seen[source, target] += 1
    return matrix, ports


def _look(env: simpy.Environment, fabric: Fabric, times: tuple[int, ...]) -> Generator[simpy.Event]:
    """Check now and then, amid the run, what must hold at all times."""
    for before, time in pairwise((0, *times)):
        yield env.timeout(time - before)
        _check_bounds(fabric)


def _check_bounds(fabric: Fabric) -> None:
    world: Any = fabric.world
    network = world.network
    nodes, ports = network.nodes, network.ports
    queues = network.queues.reshape(-1, CLASSES)
    assert (network.ingress["bytes"] >= 0).all()
    assert (queues["bytes"] >= 0).all()
    assert (queues["waiting"] >= 0).all()
    assert ((queues["bytes"] == 0) == (queues["count"] == 0)).all()
    assert (((queues["count"] > 0) << np.arange(CLASSES)).sum(axis=1) == ports["filled"]).all()
    assert (queues["credits"] >= 0).all()
    assert (queues["credits"] <= ports["credit_bytes"][:, None]).all()
    assert (nodes["used"] >= 0).all()
    if not queues["lossless"].any():
        bounded = nodes["buffer"] > 0
        assert (nodes["used"] <= nodes["buffer"])[bounded].all()
    flows = network.flows[: network.used["flows"]]
    assert (flows["in_flight"] >= 0).all()
    assert (flows["lost"] >= 0).all()
    assert (flows["acknowledged"] <= flows["posted"]).all()


@dataclass
class Run:
    """A run that has come to rest."""

    fabric: Fabric
    completion: NDArray[np.int64]

    @property
    def net(self) -> Any:  # noqa: ANN401  `PacketState`, whose tables are looked at column by column
        return self.fabric.world.network  # type: ignore[attr-defined]

    @property
    def flows(self) -> NDArray[np.void]:
        flows: NDArray[np.void] = self.net.flows[: self.net.used["flows"]]
        return flows

    @property
    def receivers(self) -> NDArray[np.void]:
        receivers: NDArray[np.void] = self.net.receivers[: self.net.used["receivers"]]
        return receivers

    @property
    def log(self) -> NDArray[np.void]:
        log: NDArray[np.void] = self.net.log[: int(self.net.world["logged"][0])]
        return log


def _run(traffic: Traffic, *, reaction: int | None = None, calendar: bool | None = None) -> Run:
    env = simpy.Environment()
    scenario = load("ideal-16", traffic.settings).scenario
    fabric = Fabric(env, scenario, time_unit=1, progress=_limited())
    event = fabric.send_all(*_matrix(traffic))
    world: Any = fabric.world
    if reaction is not None:
        world.react_within(reaction)
    if calendar is not None:
        world.network.use_calendar(on=calendar)
    world.network.links["log"] = 1
    world.network.watch()
    world.network.world["logging"] = 1
    env.process(_look(env, fabric, traffic.looks))
    env.run()
    return Run(fabric, cast("NDArray[np.int64]", event.value))


# ---- laws ---------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=_EXAMPLES, derandomize=_SAME, suppress_health_check=[HealthCheck.too_slow])
@given(traffic=traffics())
def test_packets_are_kept_bounds_hold_and_all_comes_to_rest(traffic: Traffic) -> None:
    run = _run(traffic)
    _check_delivery(run, traffic)
    _check_flows(run)
    _check_nodes(run)
    _check_limits(run, traffic)
    _check_order(run)
    _check_rest(run)
    _check_pools(run)


def _check_delivery(run: Run, traffic: Traffic) -> None:
    """Every message arrives, once, and not before its bytes can have."""
    assert len(run.completion) == len(traffic.flows)
    sizes = np.array([size for _, _, size, _ in traffic.flows])
    assert (run.completion >= np.floor(sizes / _RATE * 1e12)).all()
    assert int(run.fabric.world.world["messages"][0]) == len(traffic.flows)
    assert int(run.fabric.world.world["dag_nodes"][0]) == len(traffic.flows)
    law = run.net.laws[0]
    assert run.flows["posted"].sum() == (-(-sizes // law["payload"])).sum()
    assert (run.receivers["expected"] == run.flows["posted"]).all()
    assert (run.receivers["delivered"] == run.flows["posted"]).all()


def _check_flows(run: Run) -> None:
    """What a flow has sent was received, dropped, lost or trimmed."""
    log, links = run.log, run.net.links
    data = log[log["kind"] == DATA]
    flows = range(len(run.flows))
    first = data[data["link"] == run.flows["first_link"][data["flow"]]]
    taken = np.bincount(first["flow"], minlength=len(flows))
    assert (taken == run.flows["posted"] + run.flows["retransmissions"]).all()
    gone = np.bincount(data["flow"][data["fate"] != SENT], minlength=len(flows))
    headers = (data["state"] & TRIMMED != 0) & (data["fate"] == SENT)
    headers &= links["target"][data["link"]] == run.flows["target"][data["flow"]]
    trimmed = np.bincount(data["flow"][headers], minlength=len(flows))
    assert (run.receivers["received"] + gone + trimmed == taken).all()
    kept = run.receivers["received"] - run.receivers["copies"]
    if run.net.laws[0]["recovery"] == GO_BACK_N:
        assert (kept >= run.flows["posted"]).all()  # what comes out of order is thrown away
    else:
        assert (kept == run.flows["posted"]).all()


def _check_nodes(run: Run) -> None:
    """What enters a switch leaves it or is dropped there; the log tells the same as the counters."""
    links, log = run.net.links, run.log
    nodes = len(run.net.nodes)
    into = np.bincount(links["target"], links["packets"] - links["errors"], minlength=nodes)
    out = np.bincount(links["source"], links["packets"] + links["drops"], minlength=nodes)
    switches = run.net.nodes["kind"] != HOST
    assert (into == out)[switches].all()
    for fate, column in ((DROPPED, "drops"), (LOST, "errors")):
        assert (np.bincount(log["link"][log["fate"] == fate], minlength=len(links)) == links[column]).all()
    wire = np.bincount(log["link"], log["wire"] * (log["fate"] != DROPPED), minlength=len(links))
    assert (wire == links["bytes"]).all()


def _check_limits(run: Run, traffic: Traffic) -> None:
    """No queue beyond its limit; what is lossless loses nothing."""
    assert (run.net.links["deepest"] <= run.net.links["limit"]).all()
    dropped = run.log[run.log["fate"] == DROPPED]
    assert not np.isin(dropped["state"] >> CLASS_SHIFT, traffic.lossless).any()


def _check_order(run: Run) -> None:
    """Packets of one flow and class leave a link in the order in which they left the one before."""
    if run.net.ports["trimming"].any():
        return  # what is trimmed overtakes on purpose
    ways: dict[tuple[int, bool], list[int]] = {}
    for number, flow in enumerate(run.flows):
        for column, data in (("path", True), ("reverse_path", False)):
            if flow[column] >= 0:
                hops = int(flow["hops"])
                ways[number, data] = run.net.paths[flow[column] : flow[column] + hops].tolist()
    left: dict[tuple[int, bool, int], list[tuple[int, ...]]] = defaultdict(list)
    for entry in run.log[run.log["fate"] == SENT].tolist():
        _, link, flow, number, echo, _, kind, _, _ = entry
        left[flow, kind == DATA, link].append((number, echo, kind))
    for (flow, data), way in ways.items():
        for here, there in pairwise(way):
            after = iter(left[flow, data, here])
            assert all(packet in after for packet in left[flow, data, there])


def _check_rest(run: Run) -> None:
    """Nothing is under way any more, nor paused, nor on loan."""
    net, flows = run.net, run.flows
    _check_bounds(run.fabric)
    assert not net.links["count"].any()
    assert not net.links["control_count"].any()
    assert not net.queues["count"].any()
    assert not net.endpoints["count"].any()
    assert not net.ports["filled"].any()
    assert not net.ports["paused"].any()
    assert not net.ingress["pausing"].any()
    assert not net.ingress["bytes"].any()
    assert not net.nodes["used"].any()
    assert (net.queues["credits"].reshape(-1, CLASSES) == net.ports["credit_bytes"][:, None]).all()
    if not net.ports["credit_bytes"].any():
        assert int(net.world["frames"][0]) == 2 * net.links["pauses"].sum()  # a RESUME for each PAUSE
    assert (flows["acknowledged"] == flows["posted"]).all()
    assert (flows["next_number"] == flows["posted"]).all()
    assert not flows["in_flight"].any()
    assert not flows["lost"].any()
    assert not flows["ready"].any()
    assert (flows["timeout_at"] == NEVER).all()
    assert not net.scoreboard.any()
    for times in (net.next_times, net.arrivals, net.frames, net.dues, net.nodes["port_due"]):
        assert (times == NEVER).all()
    assert not net.links["count"].any()
    assert not net.links["control_count"].any()
    assert not net.endpoints["waiting"].any()


def _check_pools(run: Run) -> None:
    """All that was taken from a pool is back in it."""
    net = run.net
    world = net.world[0]
    fifos = (net.links, net.queues, net.endpoints[: net.used["endpoints"]])
    held = sum(int((fifo["head"] >= 0).sum()) for fifo in fifos)  # an empty FIFO keeps one chunk
    scratch = 1
    assert _chain(net.chunk_next, int(world["free_chunk"])) == int(world["chunks"])
    assert int(world["chunks"]) + held + scratch == len(net.chunk_next) == len(net.pool) // CHUNK
    assert (net.nodes["agenda"] < 0).all()
    assert _chain(net.agenda["next"], int(world["free_agenda"])) == int(world["agenda_left"]) == len(net.agenda)
    assert _chain(net.controls["next"], int(world["free_control"])) == int(world["controls_left"]) == len(net.controls)
    kept = sum(_chain(net.transfers["next"], int(flow["first_transfer"])) for flow in run.flows if flow["posted"])
    assert _chain(net.transfers["next"], int(world["free_transfer"])) == int(world["transfers_left"])
    assert int(world["transfers_left"]) + kept == len(net.transfers)


def _chain(following: NDArray[np.integer], first: int) -> int:
    """Length of a free list."""
    links: list[int] = following.tolist()  # a step in a list takes a tenth of one in an array
    length = 0
    while 0 <= first < len(links):
        length += 1
        assert length <= len(links)  # else it leads back into itself
        first = links[first]
    return length


def test_a_lossless_class_loses_nothing_when_its_threshold_falls() -> None:
    # Host 2 leaves 2.3 MB behind four busy senders, below the threshold of then, and is not paused. Eight others take
    # so much of the shared buffer that the threshold falls by more than the headroom before host 2 goes on.
    flows = [(2, 0, 2_300_000, 250 * _US), (2, 0, 100_000, 750 * _US)]
    flows += [(host, 0, 20_000_000, 0) for host in range(3, 7)]
    flows += [(host, 1, 20_000_000, 500 * _US) for host in range(7, 15)]
    settings = ("engine=packet", "fabric.switch=pfc-100g")
    run = _run(Traffic(16, settings, tuple(flows), (0,)))
    assert run.net.links["pauses"].any()
    assert not run.net.links["drops"].any()


# ---- repetition ---------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=max(_EXAMPLES // 5, 1), derandomize=_SAME, suppress_health_check=[HealthCheck.too_slow])
@given(traffic=traffics(), reaction=st.integers(1, 2 * _US))
def test_windows_and_calendar_change_nothing(traffic: Traffic, reaction: int) -> None:
    once = _run(traffic)
    for other in (
        _run(traffic),
        _run(traffic, calendar=False),
        _run(traffic, calendar=True),
        _run(traffic, reaction=reaction, calendar=False),
        _run(traffic, reaction=reaction, calendar=True),
    ):
        assert (once.completion == other.completion).all()
        assert _seen(once) == _seen(other)


def _seen(run: Run) -> tuple[bytes, ...]:
    """All that a run leaves behind, column by column as bytes; the log in order of time, link by link."""
    order = np.lexsort((np.arange(len(run.log)), run.log["time"], run.log["link"]))
    places = {"head", "tail", "control_head", "control_tail"}  # in pools, which fill in the order of windows
    links = [name for name in run.net.links.dtype.names if name not in places]
    flows = ["retransmissions", "timeouts", "window", "rate", "smoothed", "alpha", "draws", "last_send"]
    receivers = ["received", "copies", "nack_at", "stamp"]
    tables = (
        (run.net.links, links),
        (run.flows, flows),
        (run.receivers, receivers),
        (run.log[order], list(run.log.dtype.names or ())),
    )
    return tuple(np.ascontiguousarray(table[name]).tobytes() for table, names in tables for name in names)


@pytest.mark.slow
@settings(max_examples=max(_EXAMPLES // 10, 1), derandomize=_SAME, suppress_health_check=[HealthCheck.too_slow])
@given(
    traffic=traffics(), size=st.integers(1, 400_000), name=st.sampled_from(["all_reduce", "all_gather", "broadcast"])
)
def test_windows_and_calendar_change_no_collective(traffic: Traffic, size: int, name: str) -> None:
    def took(reaction: int | None, *, calendar: bool | None) -> tuple[float, ...]:
        env = simpy.Environment()
        fabric = Fabric(env, load("ideal-16", traffic.settings).scenario, time_unit=1, progress=_limited())
        world: Any = fabric.world
        events = [getattr(fabric, name)(range(traffic.hosts), size), fabric.send(0, 1, size)]
        if reaction is not None:
            world.react_within(reaction)
        if calendar is not None:
            world.network.use_calendar(on=calendar)
        env.run()
        links = world.network.links
        return (*(float(event.value) for event in events), *links["bytes"].tolist(), *links["free_at"].tolist())

    once = took(None, calendar=None)
    assert once == took(None, calendar=True) == took(None, calendar=False)
    assert once == took(1, calendar=True) == took(_US // 7, calendar=False)
