"""What befalls the parts of a fabric at present, failure by failure, so that the end of one leaves the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

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
