"""The resources of a platform: whatever has a capacity that transfers share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fabricsim.errors import SimulationError


def unusable(capacities: Sequence[float]) -> list[int]:
    """Find the capacities that are not above 0 and finite; returns their numbers."""
    values = np.asarray(capacities, np.float64)
    return np.flatnonzero(~((values > 0) & np.isfinite(values))).tolist()


class Resources(NamedTuple):
    """Names, kinds and capacities of all resources, by index.

    They cannot be edited: what is built of them does not look at them again.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    capacities: tuple[float, ...]


@dataclass
class ResourceList:
    """Resources while they are entered."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    capacities: list[float] = field(default_factory=list)

    def done(self) -> Resources:
        """Return what was entered."""
        return Resources(tuple(self.names), tuple(self.kinds), tuple(self.capacities))

    def add(self, name: str, kind: str, capacity: float) -> int:
        """Enter a resource; returns its index. Raises SimulationError if the capacity is not above 0."""
        if not (capacity > 0 and math.isfinite(capacity)):
            msg = f"{name} ({kind}) has a capacity of {capacity:g}: nothing could pass it; it must be above 0"
            raise SimulationError(msg)
        self.names.append(name)
        self.kinds.append(kind)
        self.capacities.append(capacity)
        return len(self.names) - 1

    def add_all(self, names: Sequence[str], kind: str, capacities: Sequence[float]) -> None:
        """Enter many of a kind; refuses them as `add` does."""
        for wrong in unusable(capacities):
            self.add(names[wrong], kind, capacities[wrong])
        self.names += names
        self.kinds += [kind] * len(names)
        self.capacities += capacities

    def copy(self, other: ResourceList, stem: str, name: str, factors: Mapping[str, float]) -> None:
        """Enter copies of other resources, under names that begin with `name` in place of `stem`.

        `other`: what is copied.
        `stem`, `name`: what names begin with, there and here.
        `factors`: of the capacities of some kinds.
        """
        self.names += [name + there.removeprefix(stem) for there in other.names]
        self.kinds += other.kinds
        pairs = zip(other.kinds, other.capacities, strict=True)
        self.capacities += [capacity * factors.get(kind, 1.0) for kind, capacity in pairs]
