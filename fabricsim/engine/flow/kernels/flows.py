"""Flows: messages in fluid transfer over the resources of their route."""

import math

import numpy as np

from fabricsim.engine.flow.kernels.maxmin import attach, detach, rate_alone, solve
from fabricsim.engine.program.queue import set_finish
from fabricsim.jit.compile import kernel
from fabricsim.records.program import CLOCK_END, NEVER, SERIES_BINS

_PS = 1e12  # picoseconds per second
_SAME = 1e-12  # relative; a smaller change of a rate is rounding
_ROUNDING = 1e-3  # ps; what a float64 loses of a second, with a margin of 10
_TICKS = 16.0  # at least, in the time that a message takes alone


@kernel
def finish_time(now, remaining, rate):
    """When `remaining` bytes at `rate` are through, rounded up to a whole ps; NEVER beyond the clock.

    Rates are known to rounding: what ends at a whole ps must not end a ps later for it.
    """
    if remaining <= 0.0:
        return now
    if rate <= 0.0:
        return NEVER
    duration = remaining / rate * _PS
    if duration >= CLOCK_END - now:
        return NEVER
    return now + np.int64(math.ceil(duration - _ROUNDING))


@kernel
def tick_of(sim, route, size, lane):
    """Grid at whose instants a lane's message begins and leaves, ps.

    Each of them changes the rates of all that share a link with it. If thousands do, at instants that differ by
    less than matters, they are brought together: on a power of two of at most 1/16 of a message's time alone, so that
    the grids of all sizes coincide. In other calls it is 1.
    """
    tick = np.int64(1)
    if sim.communicators[sim.calls[sim.lanes[lane].call].communicator].ticking == 0:
        return tick
    most = size / sim.routes[route].peak * _PS / _TICKS
    while 2 * tick <= most:
        tick *= 2
    return tick


@kernel
def at_tick(time, tick):
    """Round a time (ps) up to the grid."""
    return time if tick == 1 or time == NEVER else -(-time // tick) * tick


@kernel
def _due(sim, flow, rate):
    """When a flow leaves that has been brought up to now, ps."""
    row = sim.flows[flow]
    return at_tick(finish_time(sim.world[0].now, row.remaining, rate), row.tick)


@kernel
def start(sim, route, size, weight, owner, connection):
    """Begin a message now; its rate is set at the end of this instant unless it is alone.

    `route`: its way, an index into `routes`.
    `size`, `weight`: bytes, and share relative to other flows.
    `owner`, `connection`: the sending lane and its connection; an external message and NONE.
    """
    world = sim.world[0]
    flows, tree = sim.flows, sim.tree
    flow = np.int64(world.free_flow)
    world.free_flow = flows[flow].next_free
    now = world.now
    flows[flow].route = route
    flows[flow].owner = owner
    flows[flow].connection = connection
    flows[flow].weight = weight
    flows[flow].remaining = float(size)
    flows[flow].bytes = size
    flows[flow].started = now
    flows[flow].tick = 1 if connection < 0 else tick_of(sim, route, size, owner)
    flows[flow].updated = now
    world.active += 1
    world.messages += 1
    if attach(sim, flow):
        rate = rate_alone(sim, flow)
        flows[flow].rate = rate
        world.rate_updates += 1
        set_finish(tree, flow, _due(sim, flow, rate))
    elif size == 0:
        set_finish(tree, flow, now)
    else:
        sim.begun[world.arrived] = flow
        world.arrived += 1


@kernel
def _halve(sim):
    """Double the width of the bins, merging neighbours, so that memory does not grow with time."""
    for tap in range(len(sim.series)):
        carried = sim.series[tap].bytes
        for i in range(SERIES_BINS // 2):
            carried[i] = carried[2 * i] + carried[2 * i + 1]
        for i in range(SERIES_BINS // 2, SERIES_BINS):
            carried[i] = 0.0
    sim.world[0].bin *= 2


@kernel
def _record(sim, tap, start_time, end_time, rate):
    """Add ``rate * time`` bytes to the bins between two times."""
    world = sim.world[0]
    carried = sim.series[tap].bytes
    while end_time > world.bin * SERIES_BINS:
        _halve(sim)
    width = world.bin
    i = start_time // width
    while start_time < end_time:
        edge = min((i + 1) * width, end_time)
        carried[i] += rate * (edge - start_time) / _PS
        start_time = edge
        i += 1


@kernel
def _record_flow(sim, flow, start_time, end_time):
    """Add what a flow carried between two times to the series of its tapped resources."""
    flows, legs = sim.flows, sim.legs
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        tap = sim.resources[legs[leg].resource].tap
        if tap >= 0:
            _record(sim, tap, start_time, end_time, flows[flow].rate * legs[leg].share)


@kernel
def advance_flow(sim, flow):
    """Bring the bytes left of a flow up to now."""
    flows = sim.flows
    now = sim.world[0].now
    before = flows[flow].updated
    if now == before:
        return
    remaining = flows[flow].remaining
    flows[flow].remaining = max(remaining - flows[flow].rate * (now - before) / _PS, 0.0)
    flows[flow].updated = now
    if len(sim.series) > 0:
        through = now if flows[flow].tick == 1 else min(now, finish_time(before, remaining, flows[flow].rate))
        _record_flow(sim, flow, before, through)


@kernel
def book(sim, flow, size):
    """Count `size` bytes of a flow on the resources of its way."""
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        resource = legs[leg].resource
        resources[resource].load += legs[leg].cost * size
        resources[resource].payload += legs[leg].share * size


@kernel
def finish(sim, flow):
    """End a message whose last byte has left: book it on its resources and free its slot."""
    world = sim.world[0]
    flows = sim.flows
    advance_flow(sim, flow)
    detach(sim, flow)
    book(sim, flow, flows[flow].bytes)
    set_finish(sim.tree, flow, np.int64(NEVER))
    flows[flow].owner = -1
    flows[flow].next_free = world.free_flow
    world.free_flow = flow
    world.active -= 1


@kernel
def cancel(sim, now, message):
    """Cut a message from outside down to what has left by `now` (ps), the time of the next event or before."""
    flows, tree = sim.flows, sim.tree
    sim.messages[message].bytes = 0  # if it has not begun
    for flow in range(len(flows)):
        if flows[flow].owner == message and flows[flow].connection == -1:
            left = flows[flow].remaining - flows[flow].rate * (now - flows[flow].updated) / _PS
            flows[flow].bytes -= np.int64(math.ceil(max(left, 0.0)))
            flows[flow].remaining = 0.0
            set_finish(tree, np.int64(flow), now)
            return


@kernel
def _keep_rate(sim, flow):
    """Book the old rate again where the new one differs by rounding only."""
    flows, legs = sim.flows, sim.legs
    excess = flows[flow].share - flows[flow].rate
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        sim.resources[legs[leg].resource].residual += excess * legs[leg].cost


@kernel
def settle(sim):
    """Set new rates after all arrivals and departures of this instant."""
    world = sim.world[0]
    flows = sim.flows
    if world.arrived == 0 and world.touched == 0:
        return
    for i in range(world.touched):
        sim.resources[sim.touched[i]].touched = 0
    count = solve(sim)
    world.arrived = 0
    world.touched = 0
    for i in range(count):
        flow = np.int64(sim.members[i])
        rate = flows[flow].share
        if abs(rate - flows[flow].rate) <= _SAME * rate:
            _keep_rate(sim, flow)
            continue
        advance_flow(sim, flow)
        flows[flow].rate = rate
        world.rate_updates += 1
        set_finish(sim.tree, flow, _due(sim, flow, rate))
