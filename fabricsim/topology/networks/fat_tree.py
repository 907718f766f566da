"""Three-tier k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import MOST_PORTS, Switched
from fabricsim.scenario.network import Ends, Network, Size

if TYPE_CHECKING:
    from collections.abc import Iterator


class FatTree(Switched):
    """Pods of ``k / 2`` edge and as many aggregation switches of ``k`` ports, and ``(k / 2) ** 2`` core switches.

    It holds ``k ** 3 / 4`` hosts; without ``k`` the smallest one that holds the hosts is taken. Ports that no host
    needs stay empty, and pods without hosts are left out.
    """

    k: Annotated[int, Field(ge=2, le=MOST_PORTS, multiple_of=2)] | None = None

    def _half(self, ends: Ends) -> int:
        return (smallest_k(ends.count) if self.k is None else self.k) // 2

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, half = Network.of(ends), self._half(ends)
        for end in range(ends.count):
            network.join(ends.name(end), f"edge{end // half}", self.down)
        for pod in range(-(-ends.count // half**2)):
            for i in range(pod * half, (pod + 1) * half):
                for j in range(half):
                    network.join(f"edge{i}", f"aggregation{pod * half + j}", self.up)
                    network.join(f"aggregation{i}", f"core{i % half * half + j}", self.up)
        return network

    def size(self, ends: Ends) -> Size:
        """Count those of the pods, which have ``(k / 2) ** 2`` cables in each of the two upper tiers."""
        half = self._half(ends)
        return Size(ends.count + -(-ends.count // half**2) * 2 * half**2, 2 * half)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse a ``k`` that does not hold the hosts."""
        if self.k is not None and self.k**3 // 4 < ends.count:
            kind = f"{ends.kind}s"
            problem = (
                f"a fat tree of {self.k}-port switches holds {self.k**3 // 4} {kind} (k^3/4),"
                f" not the {ends.count} of the cluster"
            )
            yield Mistake("k", problem, f"at least {smallest_k(ends.count)}, or leave it out")


def smallest_k(hosts: int) -> int:
    """Smallest even port count whose fat tree, of ``k**3 / 4`` hosts, holds them."""
    return next(k for k in range(2, 2 * hosts + 4, 2) if k**3 // 4 >= hosts)


TOPOLOGY = FatTree
