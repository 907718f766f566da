"""What happens to flows in transfer if a resource changes, or their way does; `settle` then sets all rates anew."""

import numpy as np

from fabricsim.engine.flow.kernels.flows import advance_flow, book
from fabricsim.engine.flow.kernels.maxmin import attach, detach
from fabricsim.engine.program.queue import set_finish
from fabricsim.jit.compile import kernel
from fabricsim.records.program import NEVER


@kernel
def begin_again(sim, flow):
    """Have a flow in transfer get a new rate."""
    world = sim.world[0]
    advance_flow(sim, flow)
    sim.begun[world.arrived] = flow
    world.arrived += 1


@kernel
def set_capacity(sim, resource, capacity):
    """Change what a resource can carry, units per second; 0 has its flows stand still."""
    row = sim.resources[resource]
    row.residual += capacity - row.capacity
    row.capacity = capacity
    if row.flows == 0:
        row.residual = capacity


@kernel
def park(sim, flow):
    """Take a flow in transfer off its way; what it has carried stays booked there."""
    flows = sim.flows
    advance_flow(sim, flow)
    book(sim, flow, flows[flow].bytes - flows[flow].remaining)
    detach(sim, flow)
    flows[flow].legs = 0
    flows[flow].rate = 0.0
    set_finish(sim.tree, flow, np.int64(NEVER))


@kernel
def go_on(sim, flow):
    """Put a parked flow on the present way of its route, on which `finish` will book all its bytes: some too many."""
    flows = sim.flows
    advance_flow(sim, flow)
    attach(sim, flow)
    book(sim, flow, flows[flow].remaining - flows[flow].bytes)
    begin_again(sim, flow)
