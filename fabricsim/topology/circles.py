"""Walks over pairs of wires that follow one another: ways to a switch, and circles.

A graph is the first wire of each node, the target of each wire, the place of its first pair, and the mark of each pair.
"""

from fabricsim.jit.compile import kernel

_DONE = 2
MARKED, REFUSED = 1, 2
"""What is kept of a dependency: it is there, or it would close a circle."""


@kernel
def mark_shortest(graph, near, onwards, ends, order, reached):
    """Mark each pair of wires that follow one another on ways from nodes that are ``reached`` to ``ends``.

    ``order`` are the nodes from far to near, ``near`` tells which wires lead nearer, ``onwards`` which wires a packet
    may take from an end on.
    """
    first, target, offset, marks = graph
    for node in order:
        if not reached[node]:
            continue
        for i in range(first[node], first[node + 1]):
            if near[i]:
                beyond = target[i]
                reached[beyond] = 1
                for j in range(first[beyond], first[beyond + 1]):
                    if near[j] or (ends[beyond] and onwards[j]):
                        marks[offset[i] + j - first[beyond]] = MARKED


@kernel
def find_circle(graph, colour, stack, place):
    """Search in depth for a circle of marked pairs: its place on the stack, and its length; 0 if there is none."""
    first, target, offset, marks = graph
    for root in range(len(target)):
        if colour[root]:
            continue
        depth = 0
        stack[0], place[0], colour[root] = root, 0, 1
        while depth >= 0:
            i, k = stack[depth], place[depth]
            node = target[i]
            if k == first[node + 1] - first[node]:
                colour[i] = _DONE
                depth -= 1
                continue
            place[depth] = k + 1
            j = first[node] + k
            if marks[offset[i] + k] != MARKED or colour[j] == _DONE:
                continue
            if colour[j] == 1:
                begin = depth
                while stack[begin] != j:
                    begin -= 1
                return begin, depth - begin + 1
            depth += 1
            stack[depth], place[depth], colour[j] = j, 0, 1
    return 0, 0


@kernel
def leads_to(graph, start, goal, seen, stamp, stack):
    """Whether marked pairs lead from one wire to another; ``seen`` holds smaller stamps."""
    first, target, offset, marks = graph
    count = 1
    stack[0] = start
    seen[start] = stamp
    while count:
        count -= 1
        i = stack[count]
        if i == goal:
            return True
        node = target[i]
        for k in range(first[node + 1] - first[node]):
            j = first[node] + k
            if marks[offset[i] + k] == MARKED and seen[j] != stamp:
                seen[j] = stamp
                stack[count] = j
                count += 1
    return False
