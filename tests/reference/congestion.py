"""Experiments on congestion control, and what theory says of them; `congestion_pictures` draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario

FLOWS = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
US, MS = 10**6, 10**9  # ps
PS = 1e12  # per second


@dataclass(frozen=True)
class Trace:
    """A quantity over time: it has ``values[i]`` from ``times[i]`` (ps) on."""

    times: NDArray[np.int64]
    values: NDArray[np.float64]

    def between(self, begin: int, end: int) -> Trace:
        inside = (self.times >= begin) & (self.times < end)
        return Trace(self.times[inside], self.values[inside])

    def mean(self, begin: int, end: int) -> float:
        """Average over time."""
        at = np.searchsorted(self.times, begin, "right") - 1
        part = self.between(begin, end)
        times = np.concatenate([[begin], part.times, [end]])
        values = np.concatenate([[self.values[at] if at >= 0 else 0.0], part.values])
        return float((values * np.diff(times)).sum() / (end - begin))


@dataclass(frozen=True)
class Experiment:
    """What was seen of some flows to host 0 over one switch.

    Attributes
    ----------
    completion
        Of each flow, from its start, ps.
    queue
        Before the link to host 0, bytes, the packet being sent included.
    windows, rates
        Of each flow, packets and bytes/s.
    network
        Tables of the engine after the run.
    """

    completion: NDArray[np.int64]
    queue: Trace
    windows: tuple[Trace, ...]
    rates: tuple[Trace, ...]
    network: Any

    @property
    def flows(self) -> NDArray[np.void]:
        flows: NDArray[np.void] = self.network.flows[: self.network.used["flows"]]
        return flows

    @property
    def bottleneck(self) -> np.void:
        """Link to host 0."""
        links = self.network.links
        return links[np.flatnonzero(links["target"] == 0)[0]]  # type: ignore[no-any-return]


def run(scenario: Scenario, flows: Sequence[tuple[int, int, int]], target: int = 0) -> Experiment:
    """Send flows (source, bytes, start in ps) to one host, and watch them and the queue before it."""
    env = simpy.Environment()
    fabric = Fabric(env, scenario, time_unit=1)
    matrix = np.array([(source, target, size, start) for source, size, start in flows], FLOWS)
    ports = [[source for source, _, _ in flows[:at]].count(flow[0]) for at, flow in enumerate(flows)]
    done: Any = fabric.send_all(matrix, ports)
    world: Any = fabric.world
    network = world.network
    to_target = int(np.flatnonzero(network.links["target"] == target)[0])
    network.links["tap"][to_target] = 0
    network.watch([to_target])
    network.flows["tap"][: len(flows)] = 1 + 2 * np.arange(len(flows))
    network.world["sampling"] = 1
    completion: NDArray[np.int64] = np.asarray(env.run(done))
    samples = network.samples[: int(network.world["sampled"][0])]
    samples = samples[np.argsort(samples["time"], kind="stable")]

    def trace(tap: int, scale: float = 1.0) -> Trace:
        rows = samples[samples["tap"] == tap]
        return Trace(rows["time"].copy(), rows["value"] * scale)

    return Experiment(
        completion,
        trace(0, 1 / float(network.links["ps_per_byte"][to_target])),
        tuple(trace(1 + 2 * flow) for flow in range(len(flows))),
        tuple(trace(2 + 2 * flow) for flow in range(len(flows))),
        network,
    )


def loaded(hosts: int, fabric: str, **transport: str) -> Scenario:
    """Hosts on a fabric, an inline table; `transport` is what is set of the ideal one."""
    keys = [f"transport.{key}={value}" for key, value in transport.items()]
    return load("ideal-16", ["engine=packet", f"cluster.hosts={hosts}", f"fabric={fabric}", *keys]).scenario


def scenario(hosts: int, *, cable: str, switch: str, **transport: str) -> Scenario:
    """Hosts on one switch, an inline table."""
    fabric = f'{{topology = "single-switch", host_cable = "{cable}", switch = {switch}}}'
    return loaded(hosts, fabric, **transport)


def teeth(trace: Trace, middle: float) -> NDArray[np.float64]:
    """Time (ps), highest and lowest value of each swing about a middle value, shape ``(teeth, 3)``."""
    above = trace.values > middle
    ups = np.flatnonzero(~above[:-1] & above[1:])
    rows = [(trace.times[i], trace.values[i:j].max(), trace.values[i:j].min()) for i, j in pairwise(ups.tolist())]
    return np.array(rows, np.float64).reshape(-1, 3)


# ---- DCTCP --------------------------------------------------------------------------------------

DCTCP_THRESHOLD = 40  # packets
DCTCP_PACKET = 1500  # bytes


def dctcp(flows: int, milliseconds: int = 15) -> Experiment:
    """Long flows over one 10 Gb/s link with a round trip of 100 us, as in section 3.3 of the paper."""
    threshold = DCTCP_THRESHOLD * DCTCP_PACKET
    size = int(1.25e9 * milliseconds * 1e-3 / flows)
    step = f'{{low = "{threshold}B", high = "{threshold}B"}}'
    switch = f'{{name = "step", latency = "0ns", forwarding = "store-and-forward", ecn = {step}}}'
    sizes = f'payload = "{DCTCP_PACKET - 40}B", header = "40B", ack_wire = "40B"'
    packets = f'{{{sizes}, recovery = "selective", ack_every = 1, ack_delay = "0us"}}'
    made = scenario(
        flows + 1,
        cable="5000m",
        switch=switch,
        kind="tcp",
        mtu="1500",
        line_rate="10Gbps",
        packet=packets,
        congestion_control='{law = "dctcp", gain = 0.0625}',
    )
    return run(made, [(1 + flow, size, 0) for flow in range(flows)])


@dataclass(frozen=True)
class Sawtooth:
    """Steady state of `flows` synchronised DCTCP flows, in packets and seconds (SIGCOMM 2010, section 3.3)."""

    flows: int
    threshold: float
    product: float  # capacity times round trip, packets
    round_trip: float  # s

    @property
    def amplitude(self) -> float:
        """Equation 8: of the queue."""
        return math.sqrt(2 * self.flows * (self.product + self.threshold)) / 2

    @property
    def highest(self) -> float:
        """Equation 10."""
        return self.threshold + self.flows

    @property
    def lowest(self) -> float:
        """Equation 11."""
        return self.highest - self.amplitude

    @property
    def period(self) -> float:
        """Equation 9, s."""
        return math.sqrt(2 * (self.product + self.threshold) / self.flows) / 2 * self.round_trip

    @classmethod
    def of(cls, seen: Experiment) -> Sawtooth:
        """Of an experiment."""
        round_trip = float(seen.flows["base_rtt"][0]) / PS
        return cls(len(seen.flows), DCTCP_THRESHOLD, round_trip * 1.25e9 / DCTCP_PACKET, round_trip)


# ---- DCQCN --------------------------------------------------------------------------------------

DCQCN_RATE = 5e9
"""Of its paper's testbed: 40 Gb/s, bytes/s."""
DCQCN_STEP, DCQCN_TIMER = 5e6, 55 * US
"""Additive increase, bytes/s, and its timer, ps."""


def dcqcn(milliseconds: int = 60) -> Experiment:
    """Two flows into one 40 Gb/s link, the second 5 ms after the first; parameters of the paper (section 5)."""
    red = '{low = "5kB", high = "200kB", probability = 0.01}'
    switch = f'{{name = "red", latency = "1us", forwarding = "store-and-forward", ecn = {red}}}'
    law = (
        '{law = "dcqcn", gain = 0.00390625, alpha_interval = "55us", cut_interval = "0us", raise_interval = "55us", '
        'raise_bytes = "10MB", stages = 5, additive = "40Mbps", hyper = "200Mbps", minimum_rate = "40Mbps", '
        'clamp = true, cnp_interval = "50us"}'
    )
    packets = '{payload = "1000B", header = "48B", ack_wire = "64B"}'
    made = scenario(
        3,
        cable="100m",
        switch=switch,
        kind="roce",
        line_rate="40Gbps",
        mtu="1024",
        packet=packets,
        congestion_control=law,
    )
    half = int(DCQCN_RATE / 2 * milliseconds * 1e-3)
    return run(made, [(1, half, 0), (2, half, 5 * MS)])


# ---- HPCC ---------------------------------------------------------------------------------------


HPCC_BYTES = 50_000_000  # of all flows together


def hpcc(senders: int) -> Experiment:
    """Long flows into one 100 Gb/s link, packets of 1000 bytes as the authors have them."""
    switch = '{name = "fifo", latency = "1us", forwarding = "store-and-forward"}'
    packets = '{payload = "1000B", header = "48B", ack_wire = "64B"}'
    made = scenario(
        senders + 1,
        cable="200m",
        switch=switch,
        kind="roce",
        mtu="1024",
        packet=packets,
        congestion_control='{law = "hpcc", eta = 0.95, stages = 5}',
    )
    size = HPCC_BYTES // senders
    return run(made, [(1 + flow, size, 0) for flow in range(senders)])


# ---- CUBIC --------------------------------------------------------------------------------------


CUBIC_SCALE, CUBIC_BETA = 0.4, 0.7


def cubic(seconds: float = 20) -> Experiment:
    """One flow over 100 Mb/s and a round trip of 100 ms: it loses when it has filled a queue of 200 packets."""
    switch = '{name = "tail", latency = "0ns", forwarding = "store-and-forward", buffer = {per_port = "300kB"}}'
    packets = (
        '{payload = "1460B", header = "40B", ack_wire = "40B", recovery = "selective", ack_every = 1, '
        'ack_delay = "0us", maximum_window = "64MiB"}'
    )
    law = f'{{law = "cubic", scale = {CUBIC_SCALE}, decrease = {CUBIC_BETA}, initial_threshold = 1000.0}}'
    keys = {"kind": "tcp", "mtu": "1500", "line_rate": "1Gbps", "packet": packets, "congestion_control": law}
    narrow = (
        '{topology = "leaf-spine", hosts_per_leaf = 1, spines = 1, uplink_rate = "100Mbps", switch_cable = "5000km"'
    )
    fabric = f'{narrow}, host_cable = "1m", switch = {switch}}}'
    made = loaded(2, fabric, **keys)
    return run(made, [(1, int(12.5e6 * seconds), 0)])


# ---- incast -------------------------------------------------------------------------------------

INCAST_SIZE = 100_000


_SWITCH = 'latency = "300ns", forwarding = "store-and-forward"'
PAUSING = f'{{name = "pausing", {_SWITCH}, pfc = {{above = "30kB", below = "20kB", headroom = "10kB"}}}}'
TAIL_DROP = f'{{name = "tail", {_SWITCH}, buffer = {{per_port = "150kB"}}}}'


def incast(switch: str, senders: int = 32) -> Experiment:
    """Many senders, 100 kB each, at once to one host over 100 Gb/s."""
    packets = (
        '{payload = "1460B", header = "40B", ack_wire = "64B", recovery = "selective", '
        'minimum_timeout = "10ms", initial_timeout = "10ms", maximum_timeout = "1s"}'
    )
    made = scenario(
        senders + 1,
        cable="10m",
        switch=switch,
        kind="tcp",
        mtu="1500",
        line_rate="100Gbps",
        packet=packets,
        congestion_control='{law = "new-reno"}',
        initial_window="64",
    )
    return run(made, [(1 + sender, INCAST_SIZE, 0) for sender in range(senders)])
