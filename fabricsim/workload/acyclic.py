"""Whether a program can be carried out to its end."""

from fabricsim.jit.compile import kernel
from fabricsim.records.program import NONE


@kernel
def first_in_cycle(first_successor, count, successors, waiting, stack):
    """Find an op that waits for itself, through others or not; ``NONE`` if there is none.

    Ops whose predecessors are done are taken away one after the other (Kahn 1962); one that is left is in a cycle, or
    behind one. `first_successor` and `count` are the columns of the ops, ``successors`` that of ``OP`` the latter, and
    `successors` is that of the program. `waiting` comes with the number of predecessors of each op and `stack` empty,
    all of one shape; the last two are worked on.
    """
    height = 0
    for op in range(len(waiting)):
        if waiting[op] == 0:
            stack[height] = op
            height += 1
    while height:
        height -= 1
        op = stack[height]
        first = first_successor[op]
        for place in range(first, first + count[op]):
            successor = successors[place]
            waiting[successor] -= 1
            if waiting[successor] == 0:
                stack[height] = successor
                height += 1
    for op in range(len(waiting)):
        if waiting[op] > 0:
            return op
    return NONE
