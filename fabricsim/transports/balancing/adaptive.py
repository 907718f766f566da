"""Adaptive routing: each switch sends a packet to the port that drains first.

Of all ports; DRILL (Ghorbani et al., SIGCOMM 2017) looks at some.
"""

from fabricsim.jit.compile import kernel
from fabricsim.scenario.balancing import LoadBalancing


class Adaptive(LoadBalancing):
    """Each switch takes the port that drains first, of those whose cable has not failed."""


BALANCING = Adaptive


@kernel
def weigh(law, place, drain):
    """Weigh a link by the time that its queue takes, ps."""
    return drain
