"""One message of the flow engine: when it may start, when all of it is handed over, how long it takes alone."""

import math

import numpy as np

from fabricsim.jit.compile import kernel
from fabricsim.records.packet import HEADER_BYTES
from fabricsim.records.program import SLOWDOWN_BINS, SLOWDOWN_BINS_PER_OCTAVE

_PS = 1e12
_FULL = 1e-9  # relative; a resource with no more than this left is full


@kernel
def slow_start_delay(size, rate, round_trip, window):
    """Extra time of a message on a cold TCP connection, ps.

    The congestion window starts at `window` bytes and doubles each round trip (RFC 5681, RFC 6928)
    until it covers ``rate * round_trip``; in each round before that the sender idles for what is
    left of the round trip after its window is sent. The last window needs no acknowledgement.
    """
    delay = 0
    left = size
    while left > window:
        busy = window / rate * _PS
        if busy >= round_trip:
            break
        delay += round_trip - int(busy)
        left -= window
        window *= 2
    return delay


@kernel
def handed_over(sim, route, size, started, received):
    """Time at which a message is handed over whose last byte was sent at `received`, ps."""
    routes = sim.routes
    late = received + routes[route].latency + np.int64(routes[route].byte_latency * size)
    return max(late, started + _moderated(sim, route, size))


@kernel
def _moderated(sim, route, size):
    """Least time from a message's start to its interrupt, ps."""
    routes = sim.routes
    interval = np.int64(0)
    if routes[route].moderation >= 0:
        for i in range(routes[route].moderation_steps):
            step = sim.moderation[routes[route].moderation + i]
            if size > step.above:
                interval = step.interval
    return interval


@kernel
def _slow_start(sim, route, size):
    """Extra time of a message on a route if its connection is cold, ps; none if the transport has no slow start."""
    row = sim.routes[route]
    return np.int64(slow_start_delay(size, row.peak, row.round_trip, row.window) if row.window != 0 else 0)


@kernel
def _cold_start(sim, route, size):
    """Extra time of a message that begins now, ps; none if the connection is warm."""
    return np.int64(0) if sim.world[0].now < sim.routes[route].warm_until else _slow_start(sim, route, size)


@kernel
def first_sent(sim, route, size, started):
    """When the first byte of a message left that has the wire to itself from `started` on, ps.

    What a slow start idles between its windows is put before that time. To be asked before the connection is warm.
    """
    began = started - _slow_start(sim, route, size)
    return began if began >= sim.routes[route].warm_until else started


@kernel
def _leaving(sim, flow):
    """Time that a flow of the host's wire needs for what it has left, ps, if the host limits it; else 0.

    What another part of the network limits is not ahead of the wire.
    """
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    first_leg = flows[flow].first_leg
    rate = np.inf
    full = flows[flow].rate == 0.0  # it has begun in this instant
    for leg in range(first_leg, first_leg + sim.routes[flows[flow].route].out_hops):
        resource = np.int64(legs[leg].resource)
        capacity = resources[resource].capacity
        rate = min(rate, capacity / legs[leg].cost)
        # One that has lost a flow in this instant is filled by the others at the end of it.
        full = full or resources[resource].touched or resources[resource].residual <= _FULL * capacity
    if not full:
        return 0.0
    left = flows[flow].remaining - flows[flow].rate * (sim.world[0].now - flows[flow].updated) / _PS
    return max(left, 0.0) / rate * _PS


@kernel
def _adapter_wait(sim, route):
    """Time for which the adapter has taken other messages already, ps.

    An adapter reads ahead of the wire. A message that finds others waits for what it has read of them; only
    then do they share the wire.
    """
    routes, legs = sim.routes, sim.legs
    most = np.int64(routes[route].read_ahead)
    if most == 0:
        return most
    wire = np.int64(sim.hops[routes[route].first_hop + routes[route].out_hops - 1].resource)
    leg = np.int64(sim.resources[wire].first)
    ahead = 0.0
    while leg >= 0 and ahead < most:
        ahead += _leaving(sim, np.int64(legs[leg].flow))
        leg = np.int64(legs[leg].next)
    return np.int64(min(ahead, float(most)))


@kernel
def entrance(sim, route, size):
    """Time that a message waits before its first byte takes to the wire, ps."""
    cold = _cold_start(sim, route, size)
    return cold if cold > 0 else _adapter_wait(sim, route)


@kernel
def time_alone(route, size):
    """Time of a message of `size` bytes when alone on its route, ps; of packets, the first has to go all the way.

    The framing of a last packet that is not full is counted by its bytes. Also for arrays of both.
    """
    first = np.minimum(size, route["packet"])
    header = np.minimum(first + route["framing"], HEADER_BYTES)
    fill = route["base_time"] + first * route["byte_time"] + header * route["header_time"]
    return fill + (size - first) / route["peak"] * _PS


@kernel
def note_slowdown(sim, route, size, taken):
    """Count a message by how much longer than alone its transfer took; `taken` in ps."""
    slowdowns = sim.slowdowns
    alone = time_alone(sim.routes[route], size)
    # A finish time is rounded up to a whole picosecond, which is no slowdown.
    if taken <= alone + 1.0:
        slowdowns[0] += 1
    else:
        octaves = math.log2(taken / alone) if alone > 0.0 else float(SLOWDOWN_BINS)
        slowdowns[min(int(octaves * SLOWDOWN_BINS_PER_OCTAVE) + 1, SLOWDOWN_BINS - 1)] += 1
