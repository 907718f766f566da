"""Where NCCL's trees (`fabricsim.collectives.tree`) leave a host, and what one of them takes before 2.8.

Within a host the GPUs form a chain below the one that talks to the parent's host (``src/graph/connect.cc``).
"""

from collections import Counter
from itertools import pairwise

from fabricsim.collectives.nccl.load import SOCKETS, socket_of
from fabricsim.collectives.tree import binary_parents
from fabricsim.scenario.cluster import Cluster


def chain(cluster: Cluster, rate: float) -> tuple[int, ...]:
    """GPUs of a host in the order of its chain: as on the bus, where the sockets' link carries that both ways.

    Otherwise the GPUs at the NIC's socket come first.

    `rate`: of the tree's channels together, GB/s.
    """
    order = tuple(range(cluster.gpus_per_host))
    if cluster.join == "ideal" or cluster.intra_host == "nvlink":
        return order
    sockets = [socket_of(cluster, gpu) for gpu in order]
    head = sockets[: 2 if splits(cluster) else 1]
    crossed = sum(socket != cluster.nic.socket for socket in head)
    crossed += sum(here != there for here, there in pairwise(sockets))
    if crossed * rate <= SOCKETS:
        return order
    return tuple(sorted(order, key=lambda gpu: (sockets[gpu] != cluster.nic.socket, gpu)))


def splits(cluster: Cluster) -> bool:
    """Whether one GPU talks to the parent and the next to the children: where both are as near to the NIC."""
    return cluster.gpus_per_host > 1 and cluster.intra_host != "nvlink"


def one_after_the_other(hosts: int) -> float:
    """Give how much longer a single tree takes that reduces all before it broadcasts, if hosts are the bottleneck.

    One after the other, the host with most children receives all of them and then sends to all of them; at once, it
    does so beside what goes to its parent and comes from it.
    """
    parents = binary_parents(hosts)
    children = Counter(parents)
    most = max(children[host] for host in range(hosts))
    return 2 * most / max(children[host] + (host != 0) for host in range(hosts)) if hosts > 1 else 1.0
