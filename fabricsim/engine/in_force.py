"""What befalls the parts of a fabric at present, failure by failure, so that the end of one leaves the others."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

BY_HAND = -1
"""Number of all that processes do, which only processes end."""


class InForce(Generic[T]):
    """What each failure makes of each part, such as a rate of a wire, while it lasts."""

    def __init__(self) -> None:
        self._of: dict[int, dict[int, T]] = {}

    def __len__(self) -> int:
        """How many parts anything befalls."""
        return len(self._of)

    def of(self, part: int) -> dict[int, T]:
        """Give what each failure makes of a part, by number, the first one first."""
        return self._of.get(part, {})

    def begin(self, failure: int, parts: Iterable[int], value: T) -> list[int]:
        """Have a failure befall parts; returns those that nothing befell before."""
        parts = list(parts)
        new = [part for part in parts if part not in self._of]
        for part in parts:
            self._of.setdefault(part, {})[failure] = value
        return new

    def end(self, failure: int, parts: Iterable[int]) -> list[int]:
        """End a failure, if nobody has before; returns the parts that nothing befalls any more."""
        over = []
        for part in parts:
            own = self._of.get(part, {})
            if own.pop(failure, None) is not None and not own:
                del self._of[part]
                over.append(part)
        return over

    def clear(self, parts: Iterable[int]) -> list[int]:
        """End all that befalls parts; returns those that anything befell."""
        return [part for part in parts if self._of.pop(part, None) is not None]


@dataclass(frozen=True)
class Degradation:
    """What failures and processes make of a property of wires, such as their rate: processes any, failures no better.

    `built`: its values as built, by wire.
    `worst`: the worst of several values.
    `put`: has the engine take a value for some wires; NaN: that as built.
    """

    built: Sequence[float] | NDArray[np.float64]
    worst: Callable[[Iterable[float]], float]
    put: Callable[[Sequence[int], float], None]
    _in_force: InForce[float] = field(default_factory=InForce, init=False)

    def change(self, failure: int, wires: Sequence[int], value: float) -> None:
        """Have wires become as bad as a failure says, or (NaN) be so no more; a process stands for all before."""
        if failure == BY_HAND:
            self._in_force.clear(wires)
        if np.isnan(value):
            self._in_force.end(failure, wires)
        else:
            self._in_force.begin(failure, wires, value)
        self._put_worst(wires)

    def clear(self, wires: Sequence[int]) -> None:
        """Have wires be as built."""
        self._in_force.clear(wires)
        self._put_worst(wires)

    def _put_worst(self, wires: Sequence[int]) -> None:
        found: dict[float | None, list[int]] = {}
        for wire in wires:
            found.setdefault(self._worst(wire), []).append(wire)
        for value, some in found.items():
            self.put(some, np.nan if value is None else value)

    def _worst(self, wire: int) -> float | None:
        """Value of a wire; None: as built."""
        values, built = self._in_force.of(wire), float(self.built[wire])
        worst = self.worst([values.get(BY_HAND, built), *values.values()])
        return None if worst == built else worst
