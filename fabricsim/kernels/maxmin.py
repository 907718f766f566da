"""Weighted max-min fair rates, recomputed only where an arrival or a departure is felt.

A flow ``f`` of weight ``w`` uses ``cost * rate`` of each resource on its route. Rates are max-min
fair when every flow has a *bottleneck*: a resource that is full and on which no flow has a higher
rate per weight (Bertsekas and Gallager, Data Networks, section 6.5.2). That condition is local, so a
solve starts with the flows next to the change, fills them progressively into what the others leave,
and takes in a neighbour only where the condition fails for it. The result is the unique max-min
allocation of all flows; `fabricsim.kernels` tests compare it with a full progressive filling.
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
def _sift_up(heap, resources, child, resource):
    level = resources[resource].level
    while child > 0:
        parent = (child - 1) >> 1
        other = resources[heap[parent]].level
        if other < level or (other == level and heap[parent] < resource):
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = resource


@kernel
def _sift_down(heap, resources, size, resource):
    level = resources[resource].level
    hole = 0
    child = 1
    while child < size:
        if child + 1 < size:
            left, right = resources[heap[child]].level, resources[heap[child + 1]].level
            if right < left or (right == left and heap[child + 1] < heap[child]):
                child += 1
        other = resources[heap[child]].level
        if level < other or (level == other and resource < heap[child]):
            break
        heap[hole] = heap[child]
        hole = child
        child = 2 * hole + 1
    heap[hole] = resource


@kernel
def _gather(resources, routes, flows, legs, members, count, seen, mark):
    """Fill `seen` with the resources of the member flows and set their residual and demand."""
    width = len(legs) // len(flows)
    found = 0
    for i in range(count):
        flow = members[i]
        for j in range(routes[flows[flow].route].hops):
            resource = legs[flow * width + j].resource
            if resources[resource].mark == mark:
                continue
            resources[resource].mark = mark
            seen[found] = resource
            found += 1
            residual = resources[resource].capacity
            demand = 0.0
            leg = resources[resource].first
            while leg >= 0:
                other = leg // width
                if flows[other].mark == mark:
                    demand += flows[other].weight * legs[leg].cost
                else:
                    residual -= flows[other].rate * legs[leg].cost
                leg = legs[leg].next
            resources[resource].residual = max(residual, 0.0)
            resources[resource].demand = demand
    return found


@kernel
def _freeze(resources, routes, flows, legs, flow, resource, level):
    """Fix the rate of a member flow at `level` and give the rest of its resources back."""
    width = len(legs) // len(flows)
    weight = flows[flow].weight
    flows[flow].share = weight * level
    flows[flow].bottleneck = resource
    for j in range(routes[flows[flow].route].hops):
        leg = flow * width + j
        other = legs[leg].resource
        resources[other].residual -= weight * level * legs[leg].cost
        resources[other].demand -= weight * legs[leg].cost


@kernel
def _fill(resources, routes, flows, legs, seen, found, heap, mark):
    """Progressive filling of the member flows: saturate the resource of the lowest level, repeat."""
    width = len(legs) // len(flows)
    for i in range(found):
        resource = seen[i]
        resources[resource].level = resources[resource].residual / resources[resource].demand
        _sift_up(heap, resources, i, resource)
    size = found
    while size > 0:
        resource = heap[0]
        demand = resources[resource].demand
        # Rounding may leave a demand where no flow is open; such a resource freezes none and is closed.
        open_flows = demand > 0.0
        if open_flows:
            level = max(resources[resource].residual, 0.0) / demand
            if level > resources[resource].level * (1.0 + _EPSILON):
                resources[resource].level = level
                _sift_down(heap, resources, size, resource)
                continue
            frozen = 0
            leg = resources[resource].first
            while leg >= 0:
                flow = leg // width
                if flows[flow].mark == mark and flows[flow].share < 0.0:
                    _freeze(resources, routes, flows, legs, flow, resource, level)
                    frozen += 1
                leg = legs[leg].next
            open_flows = frozen > 0
            resources[resource].demand = 0.0
        if not open_flows:
            resources[resource].level = np.inf
        size -= 1
        if size > 0:
            _sift_down(heap, resources, size, heap[size])


@kernel
def _take_in(resources, flows, legs, members, count, seen, found, mark):
    """Add the outside flows whose bottleneck condition the new rates break; returns the new count."""
    width = len(legs) // len(flows)
    for i in range(found):
        resource = seen[i]
        highest = 0.0  # level of the member flows here
        bottlenecked = np.inf  # level of those that are limited here
        leg = resources[resource].first
        while leg >= 0:
            flow = leg // width
            if flows[flow].mark == mark:
                level = flows[flow].share / flows[flow].weight
                highest = max(highest, level)
                if flows[flow].bottleneck == resource:
                    bottlenecked = min(bottlenecked, level)
            leg = legs[leg].next
        full = resources[resource].residual <= _EPSILON * resources[resource].capacity
        leg = resources[resource].first
        while leg >= 0:
            flow = leg // width
            if flows[flow].mark != mark:
                level = flows[flow].rate / flows[flow].weight
                squeezes = level > bottlenecked * (1.0 + _EPSILON)
                freed = flows[flow].bottleneck == resource and (not full or highest > level * (1.0 + _EPSILON))
                if squeezes or freed:
                    members[count] = flow
                    count += 1
                    flows[flow].mark = mark  # so that its other resources do not add it again
                    flows[flow].share = flows[flow].rate
            leg = legs[leg].next
    return count


@kernel
def solve(world, resources, routes, flows, legs, members, count, seen, heap):
    """Find new max-min rates around the flows ``members[:count]``.

    The rates are left in ``share``; returns how many flows `members` then holds. Flows outside keep
    their rate.
    """
    while True:
        world[0].solve += 1
        mark = world[0].solve
        for i in range(count):
            flows[members[i]].mark = mark
            flows[members[i]].share = -1.0
        found = _gather(resources, routes, flows, legs, members, count, seen, mark)
        _fill(resources, routes, flows, legs, seen, found, heap, mark)
        world[0].solves += 1
        grown = _take_in(resources, flows, legs, members, count, seen, found, mark)
        if grown == count:
            return count
        count = grown
