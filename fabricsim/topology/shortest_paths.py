"""Shortest paths over a frozen graph in CSR form, each choice by ECMP, D-mod-k or the order of dimensions."""

from fabricsim.jit.compile import inlined, kernel

_MASK = 0xFFFFFFFF


@kernel
def mix(value):
    """Hash 32 bits to 32 bits (the finaliser of 32-bit MurmurHash3 with one multiplier)."""
    value &= _MASK
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK
    return (value >> 16) ^ value


@inlined
def remainder(number, count):
    """Return `number` modulo `count`, without a division where that is a power of two, as it mostly is."""
    return number & (count - 1) if count & (count - 1) == 0 else number % count


@kernel
def flow_hash(source, target, port, seed):
    """Hash what a switch looks at: a flow's endpoints and its port, with the run's seed."""
    return mix(mix(mix(mix(seed) ^ source) ^ (target * 0x9E3779B1)) ^ port)


@kernel
def distances_to(first, neighbours, cost, targets, distances, queue, queued):
    """Fill `distances` with the least sum of costs from each node to the nearest of `targets`; -1 if unreachable.

    Nodes whose distance fell are looked at in turn (Bellman and Ford with a queue): if all cables cost the same, that
    is a breadth-first search. `cost` holds for both directions of a cable. `queue` (as long as there are nodes) and
    `queued` (zeros) are scratch.
    """
    size = len(queue)
    distances[:] = -1
    head, waiting = 0, len(targets)
    for place in range(waiting):
        distances[targets[place]] = 0
        queue[place] = targets[place]
        queued[targets[place]] = 1
    while waiting:
        node = queue[head]
        head = head + 1 if head + 1 < size else 0
        waiting -= 1
        queued[node] = 0
        here = distances[node]
        for i in range(first[node], first[node + 1]):
            other, far = neighbours[i], here + cost[i]
            known = distances[other]
            if known < 0 or far < known:
                distances[other] = far
                if not queued[other] and first[other + 1] - first[other] > 1:  # one cable leads back only
                    queued[other] = 1
                    queue[(head + waiting) % size] = other
                    waiting += 1


@inlined
def _is_nearer(neighbours, cost, distances, node, i):
    """Whether a wire of a node is on a shortest way."""
    return distances[neighbours[i]] == distances[node] - cost[i] and distances[neighbours[i]] >= 0


@kernel
def _choices(first, neighbours, cost, rank, distances, node):
    """Find the lowest rank among the wires of a node that are on shortest ways, and how many of them have it."""
    lowest, count = -1, 0
    for i in range(first[node], first[node + 1]):
        if (lowest < 0 or rank[i] <= lowest) and _is_nearer(neighbours, cost, distances, node, i):
            count = count + 1 if rank[i] == lowest else 1
            lowest = rank[i]
    return lowest, count


@kernel
def _choice(first, neighbours, cost, rank, distances, node, lowest, pick):
    """Find the wire of number `pick`, from 0, among those that `_choices` counts."""
    for i in range(first[node], first[node + 1]):
        if rank[i] == lowest and _is_nearer(neighbours, cost, distances, node, i):
            if pick == 0:
                return i
            pick -= 1
    return -1


@kernel
def shortest_path(graph, distances, source, label, by_destination, base, path, at):
    """Walk from `source` to a target of `distances`; returns the hop count.

    ``graph`` are the first wire of each node, and of each wire its neighbour, cost and rank. ``path[at : at + count]``
    holds the wires. By ECMP each node draws among its equally near neighbours with a hash of the key that `label` is
    and its own number, counted from `base`, as switches with unequal hash seeds do. If `by_destination`, `label` is the
    number of the destination host: of ``n`` equally near neighbours, in the order of their numbers, the one of number
    ``host // p % n`` is taken, where ``p`` is the product of the ``n`` of earlier choices on the way. On a fat tree
    that is D-mod-k routing (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations on real life
    fat trees", CCIT 776, 2010).
    """
    first, neighbours, cost, rank = graph
    node = source
    count = 0
    stride = 1
    while distances[node] > 0:
        lowest, choices = _choices(first, neighbours, cost, rank, distances, node)
        pick = (label // stride if by_destination else mix(label ^ mix(node + base + 1))) % choices
        i = _choice(first, neighbours, cost, rank, distances, node, lowest, pick)
        if stride <= label:  # beyond it the quotient stays 0
            stride *= choices
        path[at + count] = i
        count += 1
        node = neighbours[i]
    return count


@kernel
def walk_all(graph, distances, base, sources, labels, by_destination, place, path):
    """Walk from each source as `shortest_path` does, each with its label.

    ``place`` is where the wires of each begin in ``path``, shape ``(sources + 1,)``; the last is filled in.
    """
    at = place[0]
    for number in range(len(sources)):
        place[number] = at
        at += shortest_path(graph, distances, sources[number], labels[number], by_destination, base, path, at)
    place[len(sources)] = at


@kernel
def hash_all(sources, targets, ports, seed, keys):
    """Fill ``keys`` with the `flow_hash` of each connection."""
    for number in range(len(keys)):
        keys[number] = flow_hash(sources[number], targets[number], ports[number], seed)
