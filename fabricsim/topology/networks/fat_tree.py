"""k-ary fat trees of two and three tiers (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008)."""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from fabricsim.errors import Mistake, SimulationError
from fabricsim.scenario.fabric import MOST_PORTS, Ports, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network


class _Shape(NamedTuple):
    """A tree of `k`-port switches with `parallel` cables; of three tiers if it has `cores`."""

    k: int
    down: int  # ports of an edge switch to hosts
    edges: int  # of a pod
    spines: int  # of a pod: aggregation switches
    cores: int  # for each of these
    pods: int  # at most

    @property
    def hosts(self) -> int:
        """How many it holds."""
        return self.down * self.edges * self.pods


class FatTree(Switched):
    """Edge switches of ``k`` ports, of which as many go up as down, or with ``oversubscription`` that many times fewer.

    With three tiers pods have ``k / 2`` edge and as many aggregation switches, and ``(k / 2) ** 2`` core switches join
    up to ``k`` pods: it holds ``k ** 3 / 4`` hosts. With two tiers ``k`` edge switches and ``k / 2`` core switches hold
    ``k ** 2 / 2``. ``parallel`` cables in place of one make so many times fewer switches above, pods and hosts.
    Without ``k`` the smallest one that holds the hosts is taken. Ports that no host needs stay empty, and pods, or with
    two tiers edge switches, without hosts are left out.
    """

    k: Annotated[int, Field(ge=2, le=MOST_PORTS, multiple_of=2)] | None = None
    tiers: Literal[2, 3] = 3
    oversubscription: Ports = 1
    parallel: Ports = 1

    def _shape(self, k: int) -> _Shape | None:
        """Divide ports; None if they do not divide."""
        up, rest = divmod(k, 1 + self.oversubscription)
        half, odd = divmod(k // 2, self.parallel)
        if rest or up % self.parallel or (odd if self.tiers == 3 else k % self.parallel):  # noqa: PLR2004  tiers
            return None
        if self.tiers == 3:  # noqa: PLR2004  tiers
            return _Shape(k, k - up, half, up // self.parallel, half, k // self.parallel)
        return _Shape(k, k - up, 1, up // self.parallel, 0, k // self.parallel)

    def _smallest(self, ends: Ends) -> _Shape | None:
        """Find the shape, of the given or the smallest k; None if there is none."""
        some = [self._shape(k) for k in ([self.k] if self.k else range(2, MOST_PORTS + 1, 2))]
        return next((shape for shape in some if shape is not None and shape.hosts >= ends.count), None)

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, shape = Network.of(ends), self._smallest(ends)
        if shape is None:
            raise SimulationError("; ".join(map(str, self.problems(ends))))
        pods = -(-ends.count // (shape.down * shape.edges))
        for end in range(ends.count):
            network.join(ends.name(end), f"edge{end // shape.down}", self.down)
        for pod in range(pods):
            self._join_pod(network, shape, pod)
        network.lowest.update(f"edge{number}" for number in range(pods * shape.edges))
        return network

    def _join_pod(self, network: Network, shape: _Shape, pod: int) -> None:
        """Join the switches of a pod, and those to the cores; with two tiers a pod is one edge switch."""
        above = [f"aggregation{pod * shape.spines + i}" if shape.cores else f"core{i}" for i in range(shape.spines)]
        for i in range(max(shape.edges, shape.spines)):
            for j in range(max(shape.cores, shape.spines)):
                if i < shape.edges and j < shape.spines:
                    network.join(f"edge{pod * shape.edges + i}", above[j], self.up, self.parallel)
                if i < shape.spines and j < shape.cores:
                    network.join(above[i], f"core{i * shape.cores + j}", self.up, self.parallel)

    def size(self, ends: Ends) -> FabricSize | None:
        """Count those of the pods: ``edges * spines + spines * cores`` bundles in each."""
        shape = self._smallest(ends)
        if shape is None:
            return None
        pods = -(-ends.count // (shape.down * shape.edges))
        bundles = pods * shape.spines * (shape.edges + shape.cores)
        core = (shape.cores or 1) * shape.spines
        switches = pods * (shape.edges + shape.spines * (self.tiers - 2)) + core
        return FabricSize(ends.count + bundles * self.parallel, shape.k, switches)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse a ``k`` that does not hold the hosts, or cannot be divided."""
        if self.k is None:
            if self._smallest(ends) is None:
                problem = f"no switch of up to {MOST_PORTS} ports gives a fat tree for {ends.count} {ends.kind}s"
                yield Mistake("topology", problem, "lower fabric.parallel or oversubscription, or set tiers = 3")
            return
        shape = self._shape(self.k)
        if shape is None:
            divisors = f"1 + oversubscription {self.oversubscription} and {self.parallel} parallel cables"
            yield Mistake("k", f"{self.k} ports cannot be divided by {divisors}", "choose a multiple of both")
        elif shape.hosts < ends.count:
            whole = self.model_copy(update={"k": None})._smallest(ends)  # noqa: SLF001  of the same class
            formula = "" if (self.tiers, self.oversubscription, self.parallel) != (3, 1, 1) else " (k^3/4)"
            problem = (
                f"a fat tree of {self.k}-port switches holds {shape.hosts} {ends.kind}s{formula},"
                f" not the {ends.count} of the cluster"
            )
            yield Mistake("k", problem, f"at least {whole.k}, or leave it out" if whole else "set tiers = 3")


TOPOLOGY = FatTree
