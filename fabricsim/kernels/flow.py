"""Flows: messages in fluid transfer over the resources of their route."""

from __future__ import annotations

import math

import numpy as np

from fabricsim.kernels._jit import kernel
from fabricsim.kernels.maxmin import attach, detach, rate_alone, solve
from fabricsim.kernels.queue import set_finish
from fabricsim.tables import CLOCK_END, NEVER

_PS = 1e12  # picoseconds per second
_SAME = 1e-12  # relative; a smaller change of a rate is rounding
_ROUNDING = 1e-3  # ps; what a float64 loses of a second, with a margin of 10


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
def start(world, resources, routes, hops, flows, legs, tree, begun, route, size, weight, owner, connection):
    """Begin a message now; its rate is set at the end of this instant unless it is alone.

    Parameters
    ----------
    route
        Its way, an index into `routes`.
    size, weight
        Bytes, and share relative to other flows.
    owner, connection
        The sending lane and its connection; an external message and NONE.
    """
    flow = np.int64(world[0].free_flow)
    world[0].free_flow = flows[flow].next_free
    now = world[0].now
    flows[flow].route = route
    flows[flow].owner = owner
    flows[flow].connection = connection
    flows[flow].weight = weight
    flows[flow].remaining = float(size)
    flows[flow].bytes = size
    flows[flow].started = now
    flows[flow].updated = now
    world[0].active += 1
    world[0].messages += 1
    if attach(resources, routes, hops, flows, legs, flow):
        rate = rate_alone(resources, flows, legs, flow)
        flows[flow].rate = rate
        world[0].rate_updates += 1
        set_finish(tree, flow, finish_time(now, float(size), rate))
    elif size == 0:
        set_finish(tree, flow, now)
    else:
        begun[world[0].arrived] = flow
        world[0].arrived += 1


@kernel
def _halve(world, series):
    """Double the width of the bins, merging neighbours, so that memory does not grow with time."""
    bins = series.shape[1]
    for tap in range(series.shape[0]):
        for i in range(bins // 2):
            series[tap, i] = series[tap, 2 * i] + series[tap, 2 * i + 1]
        series[tap, bins // 2 :] = 0.0
    world[0].bin *= 2


@kernel
def _record(world, series, tap, start_time, end_time, rate):
    """Add ``rate * time`` bytes to the bins between two times."""
    while end_time > world[0].bin * series.shape[1]:
        _halve(world, series)
    width = world[0].bin
    i = start_time // width
    while start_time < end_time:
        edge = min((i + 1) * width, end_time)
        series[tap, i] += rate * (edge - start_time) / _PS
        start_time = edge
        i += 1


@kernel
def _record_flow(world, resources, flows, legs, series, flow, start_time):
    """Add what a flow carried since a time to the series of its tapped resources."""
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        tap = resources[legs[leg].resource].tap
        if tap >= 0:
            _record(world, series, tap, start_time, world[0].now, flows[flow].rate * legs[leg].copies)


@kernel
def advance_flow(world, resources, flows, legs, series, flow):
    """Bring the bytes left of a flow up to now."""
    now = world[0].now
    before = flows[flow].updated
    if now == before:
        return
    flows[flow].remaining = max(flows[flow].remaining - flows[flow].rate * (now - before) / _PS, 0.0)
    flows[flow].updated = now
    if len(series) > 0:
        _record_flow(world, resources, flows, legs, series, flow, before)


@kernel
def finish(world, resources, flows, legs, tree, series, touched, flow):
    """End a message whose last byte has left: book it on its resources and free its slot."""
    advance_flow(world, resources, flows, legs, series, flow)
    detach(world, resources, flows, legs, touched, flow)
    size = flows[flow].bytes
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        resource = legs[leg].resource
        resources[resource].load += legs[leg].cost * size
        resources[resource].payload += legs[leg].copies * size
    set_finish(tree, flow, np.int64(NEVER))
    flows[flow].next_free = world[0].free_flow
    world[0].free_flow = flow
    world[0].active -= 1


@kernel
def _keep_rate(resources, flows, legs, flow):
    """Book the old rate again where the new one differs by rounding only."""
    excess = flows[flow].share - flows[flow].rate
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        resources[legs[leg].resource].residual += excess * legs[leg].cost


@kernel
def settle(world, resources, flows, legs, tree, series, begun, touched, members, heap):
    """Set new rates after all arrivals and departures of this instant."""
    if world[0].arrived == 0 and world[0].touched == 0:
        return
    for i in range(world[0].touched):
        resources[touched[i]].touched = 0
    count = solve(world, resources, flows, legs, begun, world[0].arrived, touched, world[0].touched, members, heap)
    world[0].arrived = 0
    world[0].touched = 0
    now = world[0].now
    for i in range(count):
        flow = np.int64(members[i])
        rate = flows[flow].share
        if abs(rate - flows[flow].rate) <= _SAME * rate:
            _keep_rate(resources, flows, legs, flow)
            continue
        advance_flow(world, resources, flows, legs, series, flow)
        flows[flow].rate = rate
        world[0].rate_updates += 1
        set_finish(tree, flow, finish_time(now, flows[flow].remaining, rate))
