"""The resources of a platform: whatever has a capacity that transfers share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fabricsim.errors import SimulationError


@dataclass
class Resources:
    """Names, kinds and capacities of all resources, by index."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    capacities: list[float] = field(default_factory=list)

    def add(self, name: str, kind: str, capacity: float) -> int:
        """Enter a resource; returns its index.

        Raises
        ------
        SimulationError
            Where the capacity is not above 0.
        """
        if not (capacity > 0 and math.isfinite(capacity)):
            msg = f"{name} ({kind}) has a capacity of {capacity:g}: nothing could pass it; it must be above 0"
            raise SimulationError(msg)
        self.names.append(name)
        self.kinds.append(kind)
        self.capacities.append(capacity)
        return len(self.names) - 1
