"""Shortest paths with ECMP over a frozen graph in CSR form."""

from __future__ import annotations

from fabricsim.kernels._jit import kernel

_MASK = 0xFFFFFFFF


@kernel
def mix(value):
    """Hash 32 bits to 32 bits (the finaliser of 32-bit MurmurHash3 with one multiplier)."""
    value &= _MASK
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK
    return (value >> 16) ^ value


@kernel
def flow_hash(source, target, port, seed):
    """Hash what a switch looks at: a flow's endpoints and its port, with the run's seed."""
    return mix(mix(mix(mix(seed) ^ source) ^ (target * 0x9E3779B1)) ^ port)


@kernel
def distances_to(first, neighbours, target, distances, queue):
    """Fill `distances` with hops from each node to `target` (breadth first); -1 where unreachable."""
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
def shortest_path(first, neighbours, links, distances, source, key, path):
    """Walk from `source` to the target of `distances`, hashing at every choice; returns the hop count.

    ``path[:count]`` holds the directed links; each node draws among its equally near neighbours
    with a hash of `key` and its own number, as ECMP switches with unequal hash seeds do.
    """
    node = source
    count = 0
    while distances[node] > 0:
        choices = 0
        for i in range(first[node], first[node + 1]):
            if distances[neighbours[i]] == distances[node] - 1:
                choices += 1
        pick = mix(key ^ mix(node + 1)) % choices
        for i in range(first[node], first[node + 1]):
            if distances[neighbours[i]] == distances[node] - 1:
                if pick == 0:
                    path[count] = links[i]
                    count += 1
                    node = neighbours[i]
                    break
                pick -= 1
    return count
