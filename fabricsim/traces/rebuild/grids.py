"""How groups of ranks lie side by side, and what their names say of them."""

from typing import NamedTuple

from fabricsim.traces.trace import ProcessGroup

DATA_PARALLEL = frozenset({"dp", "data", "default", "ddp", "fsdp"})
PIPELINE = frozenset({"pp", "pipeline"})
MODEL_PARALLEL = PIPELINE | {"tp", "tensor", "cp", "context", "sp", "sequence", "ep", "expert", "model"}
"""Words in names of groups."""


class Grid(NamedTuple):
    """How groups lie side by side: from one of their ranks to the next, and from one block of groups to the next."""

    stride: int
    span: int

    def first(self, rank: int) -> int:
        """Give the lowest rank of the group of a rank."""
        return rank // self.span * self.span + rank % self.stride

    def place(self, rank: int) -> int:
        """Give the place of a rank in its group, in the order of ranks."""
        return rank % self.span // self.stride


def grid_of(members: tuple[int, ...], world: int) -> Grid | None:
    """Give the grid in which groups like this one lie side by side; none if it is not regular."""
    ordered = sorted(members)
    stride = ordered[1] - ordered[0] if len(ordered) > 1 else 1
    grid = Grid(stride, stride * len(ordered))
    first = ordered[0]
    regular = stride > 0 and all(member == first + place * stride for place, member in enumerate(ordered))
    return grid if regular and first == grid.first(first) and not world % grid.span else None


def is_data_parallel(group: ProcessGroup) -> bool:
    """Whether a group is called one whose ranks do the same with other data."""
    return bool(words(group) & DATA_PARALLEL)


def words(group: ProcessGroup) -> set[str]:
    """Take name and description of a group apart."""
    return set(f"{group.name} {group.description}".lower().replace("-", " ").replace("_", " ").split())
