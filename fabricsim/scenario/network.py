"""Networks as topologies make them: hosts and switches by name, and the cables between them."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.errors import SimulationError

if TYPE_CHECKING:
    import networkx as nx


REDUCER = "/reducer"
"""What the name of the adapter inside of a switch ends with, by which packets reach what adds them up."""

END = re.compile(r"host\d+(?:/nic\d+)?", re.ASCII)
"""Names of hosts and their NICs, which no switch may have."""

MOST_CABLES = 2**21
"""Cables of the largest fabric: each takes some 15 us and 1.5 kB to build, and so these half a minute and 3 GB."""


@dataclass(frozen=True)
class Ends:
    """The nodes at the edge of a network: hosts, or their NICs if each host has several."""

    hosts: int
    nics_per_host: int = 1

    @property
    def count(self) -> int:
        """How many there are."""
        return self.hosts * self.nics_per_host

    @property
    def kind(self) -> str:
        """What a user calls one."""
        return "host" if self.nics_per_host == 1 else "NIC"

    def name(self, number: int) -> str:
        """Name one: ``host3``, or ``host3/nic1``."""
        if self.nics_per_host == 1:
            return f"host{number}"
        host, nic = divmod(number, self.nics_per_host)
        return f"host{host}/nic{nic}"

    def number(self, name: str) -> int | None:
        """Find the number of a name; None if it is not one of these."""
        parts = [int(digits) for digits in re.findall(r"\d{1,9}", name)]
        if not 1 <= len(parts) <= 2:  # noqa: PLR2004  a host, and perhaps a NIC
            return None
        number = parts[0] if self.nics_per_host == 1 else parts[0] * self.nics_per_host + parts[-1]
        return number if number < self.count and self.name(number) == name else None


class Cable(NamedTuple):
    """What joins two nodes.

    Attributes
    ----------
    rate
        Bytes per second; None for the host link rate.
    length
        Metres.
    delay
        Picoseconds, in place of the length.
    cost
        What routing adds up: the shortest way is that of the least cost.
    rank
        Among equally short ways, dimension-order routing takes the cable of the lowest rank first.
    times_rate
        What `rate` is multiplied by, such as the time for which an optical circuit stands.
    """

    rate: float | None = None
    length: float = 0.0
    delay: int | None = None
    cost: int = 1
    rank: int = 0
    times_rate: float = 1.0


def _is_cable(given: object) -> bool:
    """Whether it is a cable, and its rate, length and delay can be; there may be millions to look at."""
    if not isinstance(given, Cable):
        return False
    rate = 1 if given.rate is None else given.rate
    numbers = (rate, given.length, given.delay or 0, given.times_rate, given.cost, given.rank)
    if not all(isinstance(each, int | float) for each in numbers):
        return False
    _, length, delay, times, *_ = numbers
    if not (isinstance(given.cost, int) and isinstance(given.rank, int) and given.cost >= 1):
        return False  # over less a way could go back and forth for ever
    return 0 < rate * times < math.inf and 0 <= length < math.inf and 0 <= delay < math.inf


class CableBundle(NamedTuple):
    """Parallel cables between two nodes, which carry the same in both directions."""

    a: str
    b: str
    cable: Cable
    times: int


@dataclass
class Network:
    """Nodes in order, the NICs first, and what joins them.

    Attributes
    ----------
    nodes
        Number of each node by its name.
    links
        Cables in the order in which they were joined.
    group
        Of switches that detours (Valiant) lead through: their group, such as that of a dragonfly.
    embedded
        Switches inside of hosts or their adapters, such as the routers of a torus.
    lowest
        Switches of the tier next to the NICs, though some have none, such as edge switches of a fat tree.
    cables
        How many there are in `links`.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    links: list[CableBundle] = field(default_factory=list)
    group: dict[str, int] = field(default_factory=dict)
    embedded: set[str] = field(default_factory=set)
    lowest: set[str] = field(default_factory=set)
    cables: int = 0
    _usual: Cable | None = None  # one of millions alike is looked at once

    @classmethod
    def of(cls, ends: Ends) -> Network:
        """Make a network of hosts or NICs that nothing joins yet."""
        return cls({ends.name(number): number for number in range(ends.count)})

    def add(self, node: str, group: int | None = None) -> str:
        """Enter a node if it is not there yet; returns its name.

        Raises
        ------
        TypeError, ValueError
            If it has no name, or that of a host or NIC that is not there.
        """
        if node not in self.nodes:
            self._require_switch(node)
            self.nodes[node] = len(self.nodes)
        if group is not None:
            self.group[node] = group
        return node

    def _require_switch(self, node: object) -> None:
        if not isinstance(node, str) or not node:
            raise TypeError(f"a node is called {node!r}; write its name as text, such as 'switch0'")
        if END.fullmatch(node):
            ends = [name for name in self.nodes if END.fullmatch(name)]
            there = f"there are {ends[0]} to {ends[-1]}" if ends else "begin with Network.of(ends)"
            raise ValueError(f"{node!r} is not there: {there}; a switch is called otherwise")

    def join(self, a: str, b: str, cable: Cable, times: int = 1) -> None:
        """Join two nodes, which are entered if they are not there yet, by one or more cables.

        Raises
        ------
        TypeError, ValueError
            If these are no cables between two nodes, or there are more than `MOST_CABLES` with them.
        """
        if cable is not self._usual and not _is_cable(cable):
            msg = f"{a} and {b} are joined by {cable!r}; give a cable, such as self.down or Cable(12.5e9, length=3.0)"
            raise TypeError(msg)
        if not isinstance(times, int) or times < 1:
            raise ValueError(f"{a} and {b} are joined by {times!r} cables; give a whole number, at least 1")
        if a == b:
            raise ValueError(f"{a} is joined to itself; name two nodes")
        self._usual = cable
        self.cables += times
        if self.cables > MOST_CABLES:
            msg = f"{a} and {b} are joined by cable {self.cables}, at most {MOST_CABLES} can be built; join fewer"
            raise ValueError(msg)
        self.links.append(CableBundle(self.add(a), self.add(b), cable, times))

    def add_reducers(self, ends: Ends, rate: float) -> dict[str, str]:
        """Give each switch an adapter inside of it, for what it adds up, numbered behind those of the `ends`.

        It has the rate of all cables of its switch, those that name none being of `rate`, bytes/s. There are a multiple
        of a host's adapters of them, so that no group of as many has switches among it.

        Returns: the name of each, by that of the switch.
        """
        total: dict[str, float] = {}
        for link in self.links:
            for node in (link.a, link.b):
                total[node] = total.get(node, 0.0) + (link.cable.rate or rate) * link.cable.times_rate * link.times
        names = [*self.nodes]
        switches = names[ends.count :]
        made = {switch: f"{switch}{REDUCER}" for switch in switches}
        spare = [f"{switches[-1]}{REDUCER}{number}" for number in range(-len(switches) % ends.nics_per_host)]
        nodes = [*names[: ends.count], *made.values(), *spare, *switches]
        self.nodes = {name: number for number, name in enumerate(nodes)}
        for reducer in [*made.values(), *spare]:
            switch = reducer.partition(REDUCER)[0]
            self.links.append(CableBundle(reducer, switch, Cable(total[switch], delay=0), 1))
        return made

    def require_ports(self, radix: int | None) -> None:
        """Refuse a switch with more cables than `radix`, by a `SimulationError`; those inside of hosts do not count."""
        ports: Counter[str] = Counter()
        for link in self.links if radix is not None else ():
            ports[link.a] += link.times
            ports[link.b] += link.times
        switch = max((node for node in ports if node not in self.embedded), key=ports.__getitem__, default="")
        if radix is not None and ports[switch] > radix:
            msg = (
                f"{switch} has {ports[switch]} cables, and a switch has {radix} ports (fabric.radix): raise radix, or "
            )
            msg += "spread hosts and cables over more switches"
            raise SimulationError(msg)

    def graph(self) -> nx.Graph:
        """Make a graph of it; edges carry ``cable`` and ``times``."""
        import networkx as nx  # noqa: PLC0415  0.13 s that no run needs

        graph = nx.Graph()
        graph.add_nodes_from(self.nodes)
        for link in self.links:
            before = graph.edges[link.a, link.b]["times"] if graph.has_edge(link.a, link.b) else 0
            graph.add_edge(link.a, link.b, cable=link.cable, times=before + link.times)
        return graph

    def embed(self, end: str, inside: str, width: float) -> str:
        """Join a NIC to a switch inside of its host, by no cable: at `width` times the rate of its links."""
        self.embedded.add(self.add(inside))
        self.join(end, inside, Cable(delay=0, times_rate=width))
        return inside


class FabricSize(NamedTuple):
    """Cables of a fabric, those inside of hosts too, ports of its largest switch, and switches."""

    cables: int
    ports: int
    switches: int
