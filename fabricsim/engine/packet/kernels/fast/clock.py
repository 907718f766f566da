"""When each node has something to do next."""

from fabricsim.engine.program.queue import set_finish
from fabricsim.jit.compile import inlined, kernel


@kernel
def set_next(net, node, time):
    """Set when a node has something to do next, ps."""
    net.next_times[node] = time
    if net.world[0].calendar:
        set_finish(net.tree, node, time)


@inlined
def hasten(net, node, time):
    """Have a node do something no later than at `time` (ps)."""
    if time < net.next_times[node]:
        set_next(net, node, time)
