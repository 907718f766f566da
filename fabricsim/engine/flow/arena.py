"""Extents of a growing table, given out and taken back."""


class Arena:
    """First-fit allocator of index ranges.

    The table behind it must be at least `size` long after every `take`.
    """

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # sorted (start, length), never adjacent

    def take(self, length: int) -> int:
        """Start of a free extent of `length`."""
        for i, (start, free) in enumerate(self._free):
            if free >= length:
                if free == length:
                    del self._free[i]
                else:
                    self._free[i] = (start + length, free - length)
                return start
        start = self.size
        self.size += length
        return start

    def give_back(self, start: int, length: int) -> None:
        """Free an extent that `take` gave."""
        extents = sorted([*self._free, (start, length)])
        merged: list[tuple[int, int]] = []
        for begin, free in extents:
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + free)
            elif free:
                merged.append((begin, free))
        if merged and sum(merged[-1]) == self.size:
            self.size = merged.pop()[0]
        self._free = merged
