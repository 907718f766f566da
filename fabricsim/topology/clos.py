"""Folded Clos networks: what stands above a row of leaves, in one tier of spines or in pods below cores."""

from collections.abc import Iterator
from dataclasses import dataclass

from fabricsim.errors import Mistake
from fabricsim.scenario.network import Cable, FabricSize, Network

MOST_TIERS = 3


@dataclass(frozen=True)
class Clos:
    """Spines, and cores if there are three tiers, over leaves that have as many uplinks each.

    In two tiers a leaf has as many cables to each spine; there are as few spines as that and their ports allow, which
    gives the counts of a DGX SuperPOD (docs.nvidia.com, DGX SuperPOD H100, network fabrics). In three tiers half of a
    spine's ports go down, so that a pod has ``radix / 2`` leaves and as many spines as a leaf has uplinks; cores are
    as few as their ports allow.

    `leaves`, `uplinks`: leaves, and uplinks of each.
    `radix`: ports of a spine or core.
    `tiers`: 1 (leaves that nothing joins), 2 or 3; None for as few as hold the leaves.
    """

    leaves: int
    uplinks: int
    radix: int
    tiers: int | None = None

    @property
    def height(self) -> int:
        """Tiers, leaves counted."""
        if self.tiers is not None:
            return self.tiers
        return 1 if self.leaves == 1 else 2 if self.leaves <= self.radix else 3

    @property
    def _half(self) -> int:
        return max(1, self.radix // 2)

    @property
    def pods(self) -> int:
        """Pods; the only one of two tiers is all of it."""
        return -(-self.leaves // self._half) if self.height == MOST_TIERS else 1

    @property
    def spines(self) -> int:
        """Spines of a pod."""
        if self.height == MOST_TIERS:
            return self.uplinks
        return _least_divisor(self.uplinks, -(-self.leaves * self.uplinks // self.radix)) if self.height > 1 else 0

    @property
    def cores(self) -> int:
        """Cores that each spine of a pod has cables to."""
        return _least_divisor(self._half, -(-self.pods * self._half // self.radix)) if self.height == MOST_TIERS else 0

    def join(self, network: Network, cable: Cable, number: int = 0) -> None:
        """Join the leaves of the `number`-th of several such networks."""
        spines, cores = self.spines, self.cores
        leaf, spine, core = number * self.leaves, number * self.pods * spines, number * spines * cores
        for each in range(self.leaves if self.height > 1 else 0):
            pod = each // self._half if self.height == MOST_TIERS else 0
            for above in range(spines):
                name = f"spine{spine + pod * spines + above}"
                network.join(f"leaf{leaf + each}", name, cable, self.uplinks // spines)
        for each in range(self.pods * spines):
            for above in range(cores):
                name = f"core{core + each % spines * cores + above}"
                network.join(f"spine{spine + each}", name, cable, self._half // cores)

    def size(self, below: int, down: int) -> FabricSize:
        """Count it with the leaves: `below` cables below them all, and `down` below the fullest."""
        high, joined = self.height == MOST_TIERS, self.height > 1
        between = self.leaves * self.uplinks if joined else 0
        upper = self.pods * self.spines * self._half if high else 0
        under = min(self.leaves, self._half) if high else self.leaves * self.uplinks // self.spines if joined else 0
        ports = [down + self.uplinks * joined, under + self._half * high]
        ports += [self.pods * self._half // self.cores] if high else []
        switches = self.leaves + self.pods * self.spines + self.spines * self.cores
        return FabricSize(below + between + upper, max(ports), switches)

    def problems(self, key: str, ends: int) -> Iterator[Mistake]:
        """Refuse what the ports do not hold; `key` is that of the topology's ports."""
        most = {1: 1, 2: self.radix, 3: self._half * self.radix}[self.height]
        if self.uplinks < 1 or self.leaves > most or (self.height > 1 and self.radix < 2):  # noqa: PLR2004  two sides
            problem = f"{self.radix} ports hold {most} leaves in {self.height} tiers, not {self.leaves} for {ends} NICs"
            yield Mistake(key, problem, "raise it, put more NICs on a leaf, or allow more tiers")


def _least_divisor(number: int, least: int) -> int:
    """Find the least divisor of a number that is not below `least`; the number if none is."""
    return next((each for each in range(max(1, least), number) if number % each == 0), max(1, number))
