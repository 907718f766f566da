"""Weighted max-min fair rates, recomputed only if an arrival or a departure is felt.

A flow of weight ``w`` uses ``cost * rate`` of each resource on its route; its *level* is ``rate / w``.
Rates are max-min fair when every flow has a *bottleneck*: a full resource on which no flow has a
higher level (Bertsekas and Gallager, Data Networks, section 6.5.2). Progressive filling finds them:
raise the level of all flows alike, and when a resource is full, freeze the flows on it.

`solve` repeats the filling only as far as it differs from the last one. Flows keep their old level
until the rising water shows that they cannot:

- a resource is full below the level of a flow on it: the flow is squeezed and must be filled anew;
- a resource is not yet full at the level at which it used to freeze its flows: they are freed.

Both are noticed in order of level, before the water reaches the flow's old level, so one pass is
exact and touches only flows next to a change. Once no flow rises any more, resources that free
nobody are left out: nothing else can happen on them. Tests compare it with a full progressive filling.
"""

import numpy as np

from fabricsim.jit.compile import kernel

_TOP = np.int64(0)  # of the heap; numba compiles a function anew for each plain integer
_EPSILON = 1e-9  # relative; float64 sums over thousands of flows keep 1e-12


@kernel
def attach(sim, flow):
    """Enter a flow into the lists of its resources; returns whether it has all of them for itself."""
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    route = sim.routes[flows[flow].route]
    first_leg = flow * (len(legs) // len(flows))
    flows[flow].first_leg = first_leg
    flows[flow].legs = route.hops
    flows[flow].bottleneck = -1
    flows[flow].rate = 0.0
    alone = True
    for i in range(route.hops):
        hop = sim.hops[route.first_hop + i]
        leg = first_leg + i
        first = resources[hop.resource].first
        legs[leg].resource = hop.resource
        legs[leg].cost = hop.cost
        legs[leg].share = hop.share
        legs[leg].flow = flow
        legs[leg].previous = -1
        legs[leg].next = first
        if first >= 0:
            legs[first].previous = leg
            alone = False
        resources[hop.resource].first = leg
        resources[hop.resource].flows += 1
    return alone


@kernel
def detach(sim, flow):
    """Take a flow out of the lists of its resources and note those on which others remain."""
    world = sim.world[0]
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    _leave_bottleneck(sim, flow)
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        resource = legs[leg].resource
        before, after = legs[leg].previous, legs[leg].next
        if before >= 0:
            legs[before].next = after
        else:
            resources[resource].first = after
        if after >= 0:
            legs[after].previous = before
        resources[resource].flows -= 1
        if resources[resource].flows == 0:
            resources[resource].residual = resources[resource].capacity
            continue
        resources[resource].residual += flows[flow].rate * legs[leg].cost
        if not resources[resource].touched:
            resources[resource].touched = 1
            sim.touched[world.touched] = resource
            world.touched += 1


@kernel
def rate_alone(sim, flow):
    """Rate of a flow that shares none of its resources; books it and sets its bottleneck."""
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    first_leg, last_leg = flows[flow].first_leg, flows[flow].first_leg + flows[flow].legs
    rate = np.inf
    bottleneck = -1
    for leg in range(first_leg, last_leg):
        limit = resources[legs[leg].resource].capacity / legs[leg].cost
        if limit < rate:
            rate = limit
            bottleneck = legs[leg].resource
    for leg in range(first_leg, last_leg):
        resource = legs[leg].resource
        resources[resource].residual = resources[resource].capacity - rate * legs[leg].cost
    flows[flow].bottleneck = bottleneck
    resources[bottleneck].limited = 1
    resources[bottleneck].settled = rate / flows[flow].weight
    return rate


@kernel
def _leave_bottleneck(sim, flow):
    """Cross a flow off the resource that limited it."""
    resources, flows = sim.resources, sim.flows
    resource = flows[flow].bottleneck
    flows[flow].bottleneck = -1
    if resource >= 0:
        resources[resource].limited -= 1
        if resources[resource].limited == 0:
            resources[resource].settled = np.inf


@kernel
def _limit(sim, flow, resource):
    sim.flows[flow].bottleneck = resource
    sim.resources[resource].limited += 1


@kernel
def _key(sim, resource):
    """Level at which something may happen on a resource: it is full, or its old flows should freeze."""
    resources = sim.resources
    level = resources[resource].settled
    if resources[resource].open > 0:
        level = min(level, max(resources[resource].residual, 0.0) / resources[resource].demand)
    return level


@kernel
def _before(sim, one, other):
    heap = sim.heap
    here, there = heap[one].level, heap[other].level
    return here < there or (here == there and heap[one].resource < heap[other].resource)


@kernel
def _put(sim, place, level, resource):
    heap = sim.heap
    heap[place].level = level
    heap[place].resource = resource
    sim.resources[resource].place = place


@kernel
def _sift_up(sim, child):
    """Move an entry up to where it belongs in the heap, of four children to a node."""
    heap = sim.heap
    level = heap[child].level
    resource = np.int64(heap[child].resource)
    while child > 0:
        parent = (child - 1) >> 2
        other = np.int64(heap[parent].resource)
        if heap[parent].level < level or (heap[parent].level == level and other < resource):
            break
        _put(sim, child, heap[parent].level, other)
        child = parent
    _put(sim, child, level, resource)


@kernel
def _sift_down(sim, size, hole):
    """Move an entry down to where it belongs in the heap, of four children to a node."""
    heap = sim.heap
    level = heap[hole].level
    resource = np.int64(heap[hole].resource)
    while True:
        least = 4 * hole + 1
        if least >= size:
            break
        for child in range(least + 1, min(least + 4, size)):
            if _before(sim, child, least):
                least = child
        other = np.int64(heap[least].resource)
        if level < heap[least].level or (level == heap[least].level and resource < other):
            break
        _put(sim, hole, heap[least].level, other)
        hole = least
    _put(sim, hole, level, resource)


@kernel
def _see(sim, size, mark, resource):
    """Enter a resource into the filling; returns the heap's size."""
    heap = sim.heap
    sim.resources[resource].mark = mark
    heap[size].level = _key(sim, resource)
    heap[size].resource = resource
    _sift_up(sim, size)
    return size + 1


@kernel
def _fill_anew(sim, size, mark, flow, count):
    """Make a flow a member of the filling; returns the heap's size.

    A flow that crosses a resource already full at this level cannot rise: it only changes bottleneck.
    """
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    heap = sim.heap
    first_leg, last_leg = flows[flow].first_leg, flows[flow].first_leg + flows[flow].legs
    flows[flow].mark = mark
    sim.members[count] = flow
    _leave_bottleneck(sim, flow)
    for leg in range(first_leg, last_leg):
        resource = np.int64(legs[leg].resource)
        if resources[resource].mark == mark and resources[resource].place < 0:
            flows[flow].share = flows[flow].rate
            _limit(sim, flow, resource)
            return size
    flows[flow].share = -1.0
    sim.world[0].rising += 1
    for leg in range(first_leg, last_leg):
        resource = np.int64(legs[leg].resource)
        resources[resource].residual += flows[flow].rate * legs[leg].cost
        if resources[resource].mark != mark:
            resources[resource].demand = flows[flow].weight * legs[leg].cost
            resources[resource].open = 1
            size = _see(sim, size, mark, resource)
            continue
        resources[resource].demand += flows[flow].weight * legs[leg].cost
        resources[resource].open += 1
        key = _key(sim, resource)
        place = np.int64(resources[resource].place)
        if key < heap[place].level:
            heap[place].level = key
            _sift_up(sim, place)
    return size


@kernel
def _freeze(sim, flow, resource, level):
    """Fix a member's level and book it on all its resources."""
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    rate = flows[flow].weight * level
    flows[flow].share = rate
    sim.world[0].rising -= 1
    _limit(sim, flow, resource)
    first_leg = flows[flow].first_leg
    for leg in range(first_leg, first_leg + flows[flow].legs):
        other = legs[leg].resource
        resources[other].residual -= rate * legs[leg].cost
        resources[other].demand -= flows[flow].weight * legs[leg].cost
        resources[other].open -= 1


@kernel
def _join(sim, size, mark, resource, freed, bound, count):
    """Make those flows of a resource members that it frees, or squeezes below their old level.

    Returns the heap's size and the number of members. If none joins, what the resource has left
    and for whom is summed up anew on the way, so that rounding never adds up.
    """
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    spent = 0.0
    demand = 0.0
    before = count
    leg = np.int64(resources[resource].first)
    while leg >= 0:
        flow = np.int64(legs[leg].flow)
        cost = legs[leg].cost
        if flows[flow].mark != mark:
            if freed:
                joins = flows[flow].bottleneck == resource
            else:
                joins = flows[flow].rate > flows[flow].weight * bound * (1.0 + _EPSILON)
            if joins:
                size = _fill_anew(sim, size, mark, flow, count)
                count += 1
            spent += flows[flow].rate * cost
        elif flows[flow].share < 0.0:
            demand += flows[flow].weight * cost
        else:
            spent += flows[flow].share * cost
        leg = np.int64(legs[leg].next)
    if count == before:
        resources[resource].residual = resources[resource].capacity - spent
        if resources[resource].open > 0:
            resources[resource].demand = demand
    return size, count


@kernel
def _freeze_all(sim, mark, resource, level):
    """Freeze the members that are left on a full resource."""
    resources, flows, legs = sim.resources, sim.flows, sim.legs
    leg = resources[resource].first
    while leg >= 0:
        flow = np.int64(legs[leg].flow)
        if flows[flow].mark == mark and flows[flow].share < 0.0:
            _freeze(sim, flow, resource, level)
        leg = legs[leg].next
    # The least, so that it cannot creep up while flows within the tolerance of it stay as they are.
    resources[resource].settled = min(resources[resource].settled, level)


@kernel
def _remove(sim, size, place):
    """Take a resource out of the heap for good; returns the heap's size."""
    heap = sim.heap
    sim.resources[heap[place].resource].place = -1
    size -= 1
    if place < size:
        heap[place].level = heap[size].level
        heap[place].resource = heap[size].resource
        _sift_down(sim, size, place)
    return size


@kernel
def _keep_those_that_free(sim, size):
    """Leave in the heap what may free its old flows, once no member is left that rises; returns the heap's size.

    On others nothing can happen unless a flow is freed that crosses them, which enters them again.
    """
    resources, heap = sim.resources, sim.heap
    left = np.int64(0)
    for place in range(size):
        resource = np.int64(heap[place].resource)
        if resources[resource].settled == np.inf:
            resources[resource].mark = 0
            continue
        heap[left].level = resources[resource].settled
        heap[left].resource = resource
        _sift_up(sim, left)
        left += 1
    return left


@kernel
def solve(sim):
    """Find the new max-min rates after arrivals and departures.

    Begun are flows without a rate yet, touched the resources that lost a flow. ``residual``, ``settled`` and
    ``limited`` of all resources and ``bottleneck`` of all flows are kept between solves.

    Returns: how many `members` there are: flows whose rate may have changed. It stands in their ``share``; all other
        flows keep their rate.
    """
    world = sim.world[0]
    resources, heap = sim.resources, sim.heap
    world.solve += 1
    world.solves += 1
    world.rising = 0
    mark = np.int64(world.solve)
    size, count, kept = np.int64(0), np.int64(0), np.int64(0)
    for i in range(world.arrived):
        size = _fill_anew(sim, size, mark, np.int64(sim.begun[i]), count)
        count += 1
    for i in range(world.touched):
        resource = np.int64(sim.touched[i])
        if resources[resource].mark != mark:
            resources[resource].demand = 0.0
            resources[resource].open = 0
            size = _see(sim, size, mark, resource)
    while size > 0:
        resource = np.int64(heap[0].resource)
        if heap[0].level == np.inf:
            break
        level = _key(sim, resource)
        if level > heap[0].level:
            heap[0].level = level
            _sift_down(sim, size, _TOP)
            continue
        full = np.inf
        if resources[resource].open > 0:
            full = max(resources[resource].residual, 0.0) / resources[resource].demand
        freed = resources[resource].settled < full * (1.0 - _EPSILON)
        bound = resources[resource].settled if freed else full
        before = count
        size, count = _join(sim, size, mark, resource, freed, bound, count)
        if freed:
            resources[resource].settled = np.inf
        if freed or count > before:
            place = np.int64(resources[resource].place)
            heap[place].level = _key(sim, resource)
            _sift_down(sim, size, place)
            continue
        exact = max(resources[resource].residual, 0.0) / resources[resource].demand
        if abs(exact - full) > _EPSILON * full:  # rounding had added up after all: look again
            heap[0].level = _key(sim, resource)
            _sift_down(sim, size, _TOP)
            continue
        _freeze_all(sim, mark, resource, exact)
        size = _remove(sim, size, np.int64(resources[resource].place))
        if world.rising == 0 and size >= 2 * kept:  # half of them are new, or no time is saved by looking at all
            size = kept = _keep_those_that_free(sim, size)
    return count
