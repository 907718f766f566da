"""HammingMesh: boards that are meshes, whose rows and columns are joined by switches (Hoefler et al., SC 2022)."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import Ports, Routing, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network

_Side = Annotated[int, Field(ge=1, le=512)]
_Sides = Annotated[tuple[_Side, _Side], Field(strict=False)]


class HammingMesh(Switched):
    """Boards of ``board`` hosts (width and height), ``boards`` of them in a row and in a column.

    On a board each host is joined to its neighbours; the first and the last of a row have a cable each to the switch
    of that row, which all boards beside share, and likewise those of a column. ``parallel`` cables stand for one, as
    those of the planes of the paper do. A host has a router inside, as in a torus. Source: Hoefler et al.,
    "HammingMesh: a network topology for large-scale deep learning", SC 2022; a switch stands for its trees.
    """

    routings = ("dimension-order", "ecmp")

    board: _Sides
    boards: _Sides
    parallel: Ports = 1
    routing: Routing = "dimension-order"

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network = Network.of(ends)
        for end in range(ends.count):
            network.embed(ends.name(end), f"router{end // ends.nics_per_host}", 4 * self.parallel)
        for host in range(self._hosts):
            network.embedded.add(network.add(f"router{host}"))
        a, b, x, y = *self.board, *self.boards

        def router(column: int, row: int) -> str:
            board = row // b * x + column // a
            return f"router{(board * b + row % b) * a + column % a}"

        for row in range(y * b):
            self._line(network, [router(column, row) for column in range(x * a)], a, f"row{row}", rank=0)
        for column in range(x * a):
            self._line(network, [router(column, row) for row in range(y * b)], b, f"column{column}", rank=1)
        return network

    def _line(self, network: Network, routers: list[str], side: int, switch: str, rank: int) -> None:
        """Join a row or a column: neighbours on each board, and the ends of each board to the line's switch."""
        cable = self.up._replace(rank=rank)
        for start in range(0, len(routers), side):
            board = routers[start : start + side]
            for pair in pairwise(board):
                network.join(*pair, cable, self.parallel)
            if len(routers) > side:
                network.join(board[0], switch, cable, self.parallel)
                network.join(board[-1], switch, cable, self.parallel)

    @property
    def _hosts(self) -> int:
        return self.board[0] * self.board[1] * self.boards[0] * self.boards[1]

    def size(self, ends: Ends) -> FabricSize:
        """Count ``side + 1`` cables in each line of a board, and a switch for each line."""
        (a, b), (x, y) = self.board, self.boards
        rows, columns = y * b, x * a
        far = [2 if count > 1 else 0 for count in (x, y)]
        cables = rows * x * (a - 1 + far[0]) + columns * y * (b - 1 + far[1])
        nics = min(ends.count, ends.nics_per_host)
        own = nics + self.parallel * sum(2 if count > 1 else min(2, side - 1) for side, count in ((a, x), (b, y)))
        switches = self._hosts + rows * (x > 1) + columns * (y > 1)
        ports = max(own, 2 * x * self.parallel * (x > 1), 2 * y * self.parallel * (y > 1))
        return FabricSize(ends.count + cables * self.parallel, ports, switches)

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse boards that do not hold the hosts."""
        if self._hosts < ends.hosts:
            problem = f"the boards hold {self._hosts} hosts, not the {ends.hosts} of the cluster"
            yield Mistake("boards", problem, "raise one, or lower hosts")


TOPOLOGY = HammingMesh
