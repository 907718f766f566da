"""All-to-all in two phases: inside the hosts, then between members of the same place in each host.

What a member has for place ``l`` of any host goes first to the member at that place of its own host, which then sends
it along its rail: the forwarding of a network without spines (Wang et al., arXiv 2307.12169). The second phase begins
when all of the first has arrived. With ``k`` members on each of ``h`` hosts, ``n = h k``, ``a1`` and ``B1`` inside a
host and ``a2`` and ``B2`` per member between hosts, for a buffer of ``S`` bytes per rank::

    a1 + (n - h) S / n / B1 + a2 + (n - k) S / n / B2
"""

from fabricsim.collectives.base import Group, Template
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.hierarchical import same_on_each
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import Algorithm


def all_to_all(group: Group) -> Template:
    """Forward inside the hosts, then send along the rails."""
    local, hosts = same_on_each(group, "two_phase all_to_all"), len(group.on_host)
    if group.hosts != tuple(host for host in range(hosts) for _ in range(local)):
        raise SimulationError('two_phase all_to_all needs the members of a host one after the other: choose "direct"')
    builder = Builder(len(group.hosts), shards=len(group.hosts))
    for lane in range(builder.members):
        host, place = divmod(lane, local)
        within = [host * local + other for other in range(local) if other != place]
        rails = [other * local + place for other in range(hosts) if other != host]
        for peer in within:
            builder.send(lane, peer, peer % local, hosts, every=local)
        for peer in within:
            builder.receive(lane, peer, peer % local, every=local)
        for peer in rails:
            builder.send(lane, peer, peer - place, local)
        for peer in rails:
            builder.receive(lane, peer, peer - place)
    return builder.build()


def all_to_all_seconds(local: int, hosts: int, size: float, local_rate: float, rate: float) -> float:
    """Compute the closed form without latencies, s: members per host, hosts, bytes per rank, bytes/s of either kind."""
    members = local * hosts
    return (members - hosts) * size / members / local_rate + (members - local) * size / members / rate


ALGORITHM = Algorithm("two_phase", {"all_to_all": all_to_all}, by_host=True)
