"""Ways of messages: by one NIC, or in equal parts by several of the same host."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives.choice import Choice
from fabricsim.engine.in_network import Switches
from fabricsim.records.program import NONE
from fabricsim.topology.host import Hop
from fabricsim.topology.platform import Path, Platform

Numbers = NDArray[np.int64]

Stripes = tuple[tuple[int, int], ...]
"""Pairs of endpoints by whose ways a message goes in equal parts; none if it goes by that of its own.

Of two hosts, each by another NIC; of one host, each over other NVLinks.
"""


class Connection(NamedTuple):
    """What distinguishes one connection from another.

    `port`: tells connections of one pair apart.
    `network_step`, `intra_host_step`: added to the latency if the route leaves the host, or if it does not, ps.
    `latency`: takes the place of the transport's own latency, ps.
    `stripes`: pairs of endpoints by whose ways the message goes in equal parts; its own if left out.
    `byte_latency`: added to the latency for each byte of a message that leaves the host, ps.
    `polled`: whether no interrupt that may be moderated announces a message.
    `posts`: how often the transport's overhead comes before each message.
    `layout`: that of the group in a folded run.
    """

    source: int
    target: int
    port: int = 0
    network_step: int = 0
    intra_host_step: int = 0
    latency: int | None = None
    stripes: Stripes = ()
    byte_latency: float = 0.0
    polled: bool = False
    posts: int = 1
    layout: int = NONE


@dataclass(frozen=True)
class Ways:
    """Ways over a platform."""

    platform: Platform
    switches: Switches

    @property
    def endpoints(self) -> int:
        """How many numbers `number` gives."""
        return self.platform.endpoints + self.switches.count

    def number(self, endpoint: int) -> int:
        """Give an endpoint, a switch as well, a number; there are no gaps."""
        if not self.switches.is_switch(endpoint):
            return endpoint
        return self.platform.endpoints + self.switches.place(endpoint)

    def endpoint(self, number: int) -> int:
        """Return the endpoint of a `number`."""
        place = number - self.platform.endpoints
        return number if place < 0 else self.switches.at(place)

    def pairs_of_gpus(self, sources: Numbers, targets: Numbers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Tell which pairs of numbers are GPUs of different hosts, and which are two of one host."""
        cluster = self.platform.cluster
        gpus = np.maximum(sources, targets) < cluster.ranks
        within = sources // cluster.gpus_per_host == targets // cluster.gpus_per_host
        return gpus & ~within, gpus & within & (sources != targets)

    def stripes(self, source: int, target: int, ranks: tuple[int, ...], choice: Choice, channel: int) -> Stripes:
        """Choose the pairs of a group's ranks by whose ways the messages of a channel go.

        NCCL and RCCL turn each channel's ring or tree so that it leaves a host at another GPU, next to a NIC of its
        own. Here its messages between hosts go by that NIC; if there are fewer channels than NICs, each has several.
        If no switch joins the GPUs of a host, channels take these in orders that use all links; here messages to the
        next GPU go in parts over all links that their sender has to others of the group.
        """
        if not choice.is_striped or self.switches.is_switch(max(source, target)):
            return ()
        here, there = self.platform.host_of(source), self.platform.host_of(target)
        if here == there:
            return tuple((source, other) for other in self.platform.linked(source, ranks)) if choice.by_links else ()
        if choice.stripes == 1:
            return ()
        ways: dict[int, list[int]] = {here: [], there: []}
        for host, found in ways.items():
            nics: set[int] = set()
            for rank in ranks:
                nic = self.platform.nics_of(rank, rank)[1]
                if self.platform.host_of(rank) == host and nic not in nics:
                    nics.add(nic)
                    found.append(rank)
        pairs = tuple(zip(ways[here][: choice.stripes], ways[there][: choice.stripes], strict=False))
        if len(pairs) == 1:
            return ()
        return pairs[channel :: choice.channels] if choice.channels < len(pairs) else (pairs[channel % len(pairs)],)

    def path(self, source: int, target: int, port: int, stripes: Stripes) -> Path:
        """Find the way of a message; of one in parts each resource once, at its share of the bytes.

        That is what as many channels with an equal load do, each by a NIC of its own.
        """
        if self.switches.is_switch(max(source, target)):
            return self.switches.path(source, target, port)
        if len(stripes) <= 1:
            return self.platform.path(*(stripes[0] if stripes else (source, target)), port)
        paths = [self.platform.path(*pair, port) for pair in stripes]
        costs: dict[int, float] = {}
        shares: Counter[int] = Counter()
        for path in paths:
            shares.update({resource for resource, _ in path.hops})
            for resource, cost in path.hops:
                costs[resource] = costs.get(resource, 0.0) + cost / len(paths)
        latency = max(path.latency for path in paths)
        crossing = tuple(shares[resource] / len(paths) for resource in costs)
        return Path(tuple(costs.items()), latency, network=paths[0].network, shares=crossing)

    def out(self, source: int, target: int, stripes: Stripes) -> Sequence[Hop]:
        """List what a message passes before its adapter's wire; nothing if it is in parts or a switch sends it."""
        if len(stripes) > 1 or self.switches.is_switch(source):
            return ()
        if stripes:
            source, target = stripes[0]
        beyond = None if self.switches.is_switch(target) else target
        return self.platform.way_out(source, target=beyond)
