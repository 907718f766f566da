"""Groups of switches, each of which has cables to every other one: what dragonflies have in common."""

from collections.abc import Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario.network import Cable, Network

GLOBAL_COST = 3
"""Of a cable between groups: a way over two of them is longer than one over one of them and a cable at either end."""


def between_groups(groups: int, ports: int) -> int:
    """Count the cables between two groups whose switches have so many ports to others, all together."""
    return ports // (groups - 1) if groups > 1 else 0


def join_groups(network: Network, switches: list[list[str]], ports: int, cable: Cable) -> None:
    """Join groups of switches with `ports` ports each to other groups.

    Port ``q`` of a group is at its switch ``q // ports`` and leads to the group ``1 + q % (groups - 1)`` further on.
    """
    groups, far = len(switches), cable._replace(cost=GLOBAL_COST)
    each = between_groups(groups, ports * len(switches[0]))
    for here in range(groups):
        for there in range(here + 1, groups):
            for copy in range(each):
                first = copy * (groups - 1)
                near, beyond = first + there - here - 1, first + (here - there - 1) % groups
                network.join(switches[here][near // ports], switches[there][beyond // ports], far)


def most_global_ports(groups: int, ports: int, switches: int) -> int:
    """Count the ports of a switch that lead to other groups, at the first one: it has the most."""
    return min(ports, between_groups(groups, ports * switches) * (groups - 1))


def too_few_ports(groups: int, ports: int, what: str) -> Iterator[Mistake]:
    """Refuse groups that do not have a port for each other group."""
    if groups - 1 > ports:
        problem = f"{ports} cables of a group cannot lead to the {groups - 1} others that {what} needs"
        yield Mistake("global_cables", problem, "raise it, or have larger groups")
