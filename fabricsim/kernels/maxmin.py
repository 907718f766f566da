"""Weighted max-min fair rates, recomputed only where an arrival or a departure is felt.

A flow of weight ``w`` uses ``cost * rate`` of each resource on its route; its *level* is ``rate / w``.
Rates are max-min fair when every flow has a *bottleneck*: a full resource on which no flow has a
higher level (Bertsekas and Gallager, Data Networks, section 6.5.2). Progressive filling finds them:
raise the level of all flows alike, and when a resource is full, freeze the flows on it.

`solve` repeats the filling only as far as it differs from the last one. Flows keep their old level
until the rising water shows that they cannot:

- a resource is full below the level of a flow on it: the flow is squeezed and must be filled anew;
- a resource is not yet full at the level at which it used to freeze its flows: they are freed.

Both are noticed in order of level, before the water reaches the flow's old level, so one pass is
exact and touches only flows next to a change. Tests compare it with a full progressive filling.
"""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import kernel

_EPSILON = 1e-9  # relative; float64 sums over thousands of flows keep 1e-12


@kernel
def attach(resources, routes, hops, flows, legs, flow):
    """Enter a flow into the lists of its resources; returns whether it has all of them for itself."""
    width = len(legs) // len(flows)
    route = routes[flows[flow].route]
    alone = True
    for i in range(route.hops):
        hop = hops[route.first_hop + i]
        leg = flow * width + i
        first = resources[hop.resource].first
        legs[leg].resource = hop.resource
        legs[leg].cost = hop.cost
        legs[leg].previous = -1
        legs[leg].next = first
        if first >= 0:
            legs[first].previous = leg
            alone = False
        resources[hop.resource].first = leg
        resources[hop.resource].flows += 1
    return alone


@kernel
def detach(world, resources, routes, flows, legs, touched, flow):
    """Take a flow out of the lists of its resources and note those on which others remain."""
    width = len(legs) // len(flows)
    for i in range(routes[flows[flow].route].hops):
        leg = flow * width + i
        resource = legs[leg].resource
        before, after = legs[leg].previous, legs[leg].next
        if before >= 0:
            legs[before].next = after
        else:
            resources[resource].first = after
        if after >= 0:
            legs[after].previous = before
        resources[resource].flows -= 1
        if resources[resource].flows > 0 and not resources[resource].touched:
            resources[resource].touched = 1
            touched[world[0].touched] = resource
            world[0].touched += 1


@kernel
def rate_alone(resources, routes, flows, legs, flow):
    """Rate of a flow that shares none of its resources; sets its bottleneck."""
    width = len(legs) // len(flows)
    rate = np.inf
    for i in range(routes[flows[flow].route].hops):
        leg = flow * width + i
        limit = resources[legs[leg].resource].capacity / legs[leg].cost
        if limit < rate:
            rate = limit
            flows[flow].bottleneck = legs[leg].resource
    return rate


@kernel
def _key(resources, resource):
    """Level at which something may happen on a resource: it is full, or its old flows should freeze."""
    level = resources[resource].settled
    if resources[resource].open > 0:
        level = min(level, max(resources[resource].residual, 0.0) / resources[resource].demand)
    return level


@kernel
def _before(resources, one, other):
    here, there = resources[one].level, resources[other].level
    return here < there or (here == there and one < other)


@kernel
def _sift_up(heap, resources, child):
    resource = heap[child]
    while child > 0:
        parent = (child - 1) >> 1
        if not _before(resources, resource, heap[parent]):
            break
        heap[child] = heap[parent]
        resources[heap[child]].place = child
        child = parent
    heap[child] = resource
    resources[resource].place = child


@kernel
def _sift_down(heap, resources, size, hole):
    resource = heap[hole]
    child = 2 * hole + 1
    while child < size:
        if child + 1 < size and _before(resources, heap[child + 1], heap[child]):
            child += 1
        if not _before(resources, heap[child], resource):
            break
        heap[hole] = heap[child]
        resources[heap[hole]].place = hole
        hole = child
        child = 2 * hole + 1
    heap[hole] = resource
    resources[resource].place = hole


@kernel
def _see(resources, flows, legs, heap, size, mark, resource):
    """Enter a resource into the filling: what is left of it, and for whom; returns the heap's size."""
    width = len(legs) // len(flows)
    residual = resources[resource].capacity
    demand = 0.0
    unfrozen = 0
    settled = np.inf
    leg = resources[resource].first
    while leg >= 0:
        flow = leg // width
        if flows[flow].mark != mark:
            residual -= flows[flow].rate * legs[leg].cost
            if flows[flow].bottleneck == resource:
                settled = min(settled, flows[flow].rate / flows[flow].weight)
        elif flows[flow].share < 0.0:
            demand += flows[flow].weight * legs[leg].cost
            unfrozen += 1
        else:
            residual -= flows[flow].share * legs[leg].cost
        leg = legs[leg].next
    resources[resource].mark = mark
    resources[resource].residual = residual
    resources[resource].demand = demand
    resources[resource].open = unfrozen
    resources[resource].settled = settled
    resources[resource].level = _key(resources, resource)
    heap[size] = resource
    _sift_up(heap, resources, size)
    return size + 1


@kernel
def _fill_anew(resources, routes, flows, legs, heap, size, mark, flow, members, count):
    """Make a flow a member of the filling; returns the heap's size.

    A flow that crosses a resource already full at this level cannot rise: it only changes bottleneck.
    """
    width = len(legs) // len(flows)
    hops = routes[flows[flow].route].hops
    flows[flow].mark = mark
    members[count] = flow
    for j in range(hops):
        resource = legs[flow * width + j].resource
        if resources[resource].mark == mark and resources[resource].place < 0:
            flows[flow].share = flows[flow].rate
            flows[flow].bottleneck = resource
            return size
    flows[flow].share = -1.0
    for j in range(hops):
        leg = flow * width + j
        resource = legs[leg].resource
        if resources[resource].mark != mark:
            size = _see(resources, flows, legs, heap, size, mark, resource)
            continue
        resources[resource].residual += flows[flow].rate * legs[leg].cost
        resources[resource].demand += flows[flow].weight * legs[leg].cost
        resources[resource].open += 1
        key = _key(resources, resource)
        if key < resources[resource].level:
            resources[resource].level = key
            _sift_up(heap, resources, resources[resource].place)
    return size


@kernel
def _freeze(resources, flows, legs, hops, flow, resource, level):
    """Fix a member's level and book it on all its resources."""
    width = len(legs) // len(flows)
    rate = flows[flow].weight * level
    flows[flow].share = rate
    flows[flow].bottleneck = resource
    for j in range(hops):
        leg = flow * width + j
        other = legs[leg].resource
        resources[other].residual -= rate * legs[leg].cost
        resources[other].demand -= flows[flow].weight * legs[leg].cost
        resources[other].open -= 1


@kernel
def solve(world, resources, routes, flows, legs, begun, begun_count, touched, touched_count, members, heap):
    """Find the new max-min rates after arrivals and departures.

    Parameters
    ----------
    begun
        Flows without a rate yet, ``begun[:begun_count]``.
    touched
        Resources that lost a flow, ``touched[:touched_count]``.
    members
        Filled with the flows whose rate may have changed; it stands in their ``share``.

    Returns
    -------
    int
        How many `members` there are. All other flows keep their rate.
    """
    world[0].solve += 1
    world[0].solves += 1
    mark = world[0].solve
    width = len(legs) // len(flows)
    size = 0
    count = 0
    for i in range(begun_count):
        size = _fill_anew(resources, routes, flows, legs, heap, size, mark, begun[i], members, count)
        count += 1
    for i in range(touched_count):
        if resources[touched[i]].mark != mark:
            size = _see(resources, flows, legs, heap, size, mark, touched[i])
    while size > 0:
        resource = heap[0]
        if resources[resource].level == np.inf:
            break
        level = _key(resources, resource)
        if level > resources[resource].level:
            resources[resource].level = level
            _sift_down(heap, resources, size, 0)
            continue
        full = np.inf
        if resources[resource].open > 0:
            full = max(resources[resource].residual, 0.0) / resources[resource].demand
        freed = resources[resource].settled < full * (1.0 - _EPSILON)
        bound = resources[resource].settled if freed else full
        joined = 0
        leg = resources[resource].first
        while leg >= 0:
            flow = leg // width
            if flows[flow].mark != mark:
                if freed:
                    joins = flows[flow].bottleneck == resource
                else:
                    joins = flows[flow].rate > flows[flow].weight * bound * (1.0 + _EPSILON)
                if joins:
                    size = _fill_anew(resources, routes, flows, legs, heap, size, mark, flow, members, count)
                    count += 1
                    joined += 1
            leg = legs[leg].next
        if freed:
            resources[resource].settled = np.inf
        if freed or joined > 0:
            resources[resource].level = _key(resources, resource)
            _sift_down(heap, resources, size, resources[resource].place)
            continue
        leg = resources[resource].first
        while leg >= 0:
            flow = leg // width
            if flows[flow].mark == mark and flows[flow].share < 0.0:
                _freeze(resources, flows, legs, routes[flows[flow].route].hops, flow, resource, full)
            leg = legs[leg].next
        place = resources[resource].place
        resources[resource].place = -1
        size -= 1
        if place < size:
            heap[place] = heap[size]
            resources[heap[place]].place = place
            _sift_down(heap, resources, size, place)
    return count
