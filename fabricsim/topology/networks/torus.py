"""Tori: routers in a grid, each joined to its neighbours, the last of a row to the first."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, product
from math import prod
from typing import Annotated, ClassVar

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import Ports, Routing, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network

_Length = Annotated[int, Field(ge=1, le=1024)]


class Torus(Switched):
    """A grid of ``dimensions``, the first fastest, of hosts with a router each, ``parallel`` cables to each neighbour.

    The router is part of the host and forwards what is for others, as those of TPUs and of Blue Gene do; its host's
    NICs hang on it at the rate of all its cables together. Hosts are routers in order. With ``direct = false``
    routers are switches, with the NICs of ``hosts_per_router`` hosts on cables of ``host_cable``. Two neighbours in a
    dimension of two are joined once. Dimension order takes the first dimension first, its shorter way round; at equal
    lengths the flow's hash decides.
    """

    routings = ("dimension-order", "ecmp")
    wraps: ClassVar[bool] = True

    dimensions: Annotated[tuple[_Length, ...], Field(strict=False, min_length=1, max_length=6)]
    parallel: Ports = 1
    direct: bool = True
    hosts_per_router: Ports = 1
    routing: Routing = "dimension-order"

    def _neighbours(self, size: int) -> list[tuple[int, int]]:
        """Pairs of places in a row of routers that a cable joins."""
        around = [(size - 1, 0)] if self.wraps and size > 2 else []  # noqa: PLR2004  of two, both ways round are one
        return [(i, i + 1) for i in range(size - 1)] + around

    def _width(self) -> int:
        """Count the cables of a router that has the most."""
        ends = [min(2, 2 * len(self._neighbours(size)) // size if self.wraps else size - 1) for size in self.dimensions]
        return self.parallel * sum(ends)

    def _widths(self) -> list[int]:
        """Count the cables of each router: those at the ends of rows of a mesh have fewer."""
        ends = [Counter(chain.from_iterable(self._neighbours(size))) for size in self.dimensions[::-1]]
        places = product(*map(range, self.dimensions[::-1]))  # the first dimension fastest
        return [self.parallel * sum(counts[x] for counts, x in zip(ends, place, strict=True)) for place in places]

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, widths = Network.of(ends), self._widths()
        for end in range(ends.count):
            number = end // ends.nics_per_host // self.hosts_per_router
            if self.direct:
                network.embed(ends.name(end), f"router{number}", max(1, widths[number]))
            else:
                network.join(ends.name(end), f"router{number}", self.down)
        for number in range(prod(self.dimensions)):
            router = network.add(f"router{number}")
            if self.direct:
                network.embedded.add(router)
        stride = 1
        for rank, size in enumerate(self.dimensions):
            for place in product(*(range(1 if i == rank else each) for i, each in enumerate(self.dimensions))):
                first = sum(x * prod(self.dimensions[:i]) for i, x in enumerate(place))
                for a, b in self._neighbours(size):
                    pair = f"router{first + a * stride}", f"router{first + b * stride}"
                    network.join(*pair, self.up._replace(rank=rank), self.parallel)
            stride *= size
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count the rows of each dimension, and the cables of each."""
        routers = prod(self.dimensions)
        rows = sum(routers // size * len(self._neighbours(size)) for size in self.dimensions)
        nics = min(ends.count, self.hosts_per_router * ends.nics_per_host)
        return FabricSize(ends.count + rows * self.parallel, self._width() + nics, routers)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse grids that do not hold the hosts."""
        routers = prod(self.dimensions)
        if self.direct and self.hosts_per_router > 1:
            problem = f"{self.hosts_per_router} has no meaning with direct = true: a router is in a host"
            yield Mistake("hosts_per_router", problem, "take it out, or set direct = false")
            return
        grid = f"{' x '.join(map(str, self.dimensions))} routers"
        if routers * self.hosts_per_router < ends.hosts:
            yield Mistake("dimensions", f"{grid} are too few for {ends.hosts} hosts", "raise one, or lower hosts")
        elif self.direct and routers > ends.hosts:
            problem = f"{grid} are too many for {ends.hosts} hosts, as each is in a host, with all its NICs"
            yield Mistake("dimensions", problem, "lower one, raise hosts, or set direct = false")


TOPOLOGY = Torus
