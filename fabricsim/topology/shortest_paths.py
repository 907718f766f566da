"""Shortest paths with ECMP or D-mod-k over a frozen graph in CSR form."""

from __future__ import annotations

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
def distances_to(first, neighbours, target, distances, queue):
    """Fill `distances` with hops from each node to `target` (breadth first); -1 if unreachable."""
    distances[:] = -1
    distances[target] = 0
    queue[0] = target
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        for i in range(first[node], first[node + 1]):
            other = neighbours[i]
            if distances[other] < 0:
                distances[other] = distances[node] + 1
                queue[tail] = other
                tail += 1


@kernel
def _choices(first, neighbours, distances, node):
    """Count the neighbours that are one hop nearer."""
    count = 0
    for i in range(first[node], first[node + 1]):
        if distances[neighbours[i]] == distances[node] - 1:
            count += 1
    return count


@kernel
def _choice(first, neighbours, distances, node, pick):
    """Find the neighbour of that number, from 0, among those that are one hop nearer: its place in the CSR form."""
    for i in range(first[node], first[node + 1]):
        if distances[neighbours[i]] == distances[node] - 1:
            if pick == 0:
                return i
            pick -= 1
    return -1


@kernel
def shortest_path(first, neighbours, links, distances, source, key, path):
    """Walk from `source` to the target of `distances`, hashing at every choice; returns the hop count.

    ``path[:count]`` holds the directed links; each node draws among its equally near neighbours
    with a hash of `key` and its own number, as ECMP switches with unequal hash seeds do.
    """
    node = source
    count = 0
    while distances[node] > 0:
        pick = mix(key ^ mix(node + 1)) % _choices(first, neighbours, distances, node)
        i = _choice(first, neighbours, distances, node, pick)
        path[count] = links[i]
        count += 1
        node = neighbours[i]
    return count


@kernel
def d_mod_k_path(first, neighbours, links, distances, source, host, path):
    """Walk as `shortest_path` does, each choice given by the number of the destination host.

    Of ``n`` equally near neighbours, in the order of their numbers, the one of number ``host // p % n`` is taken, where
    ``p`` is the product of the ``n`` of earlier choices on the way. On a fat tree that is D-mod-k routing (Zahavi,
    "D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees", CCIT 776, 2010).
    """
    node = source
    count = 0
    stride = 1
    while distances[node] > 0:
        choices = _choices(first, neighbours, distances, node)
        i = _choice(first, neighbours, distances, node, host // stride % choices)
        if stride <= host:  # beyond it the quotient stays 0
            stride *= choices
        path[count] = links[i]
        count += 1
        node = neighbours[i]
    return count
