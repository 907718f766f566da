"""Whether a program can be carried out to its end."""

from __future__ import annotations

from fabricsim.kernels._jit import kernel
from fabricsim.tables import NONE


@kernel
def first_in_cycle(ops, successors, waiting, stack):
    """Find an op that waits for itself, through others or not; ``NONE`` where there is none.

    Ops whose predecessors are done are taken away one after the other (Kahn 1962); one that is left is in a cycle, or
    behind one. `waiting` comes with the number of predecessors of each op and `stack` empty, of the same shape; both
    are worked on.
    """
    height = 0
    for op in range(len(ops)):
        if waiting[op] == 0:
            stack[height] = op
            height += 1
    while height:
        height -= 1
        op = stack[height]
        first = ops[op].first_successor
        for place in range(first, first + ops[op].successors):
            successor = successors[place]
            waiting[successor] -= 1
            if waiting[successor] == 0:
                stack[height] = successor
                height += 1
    for op in range(len(ops)):
        if waiting[op] > 0:
            return op
    return NONE
