"""Groups as ASTRA-sim names them: by numbers from 1, for ``"0"`` is all ranks."""

from __future__ import annotations

from collections import Counter
from itertools import count

from fabricsim.records.program import NONE
from fabricsim.traces.groups import ALL_RANKS
from fabricsim.traces.trace import ProcessGroup, Recording, Trace

DEFAULT = "0"
"""``pg_name`` of all ranks."""


class Numbered:
    """Numbers the groups of a trace; those that have a number of their own keep it.

    `listed`: ranks of each group by its number, for ``--comm-group-configuration``.
    `unlisted`: names of groups whose ranks are not known.
    `shared`: names that several groups have, which are called by their numbers instead.
    """

    def __init__(self, trace: Trace) -> None:
        groups = dict.fromkeys(
            (group.name, group.ranks) for recording in trace.recordings for group in recording.groups
        )
        counts = Counter(name for name, _ in groups)
        self.shared = {name for name, count in counts.items() if count > 1}
        everyone = (DEFAULT, tuple(range(trace.world)))
        free = (str(number) for number in count(1) if str(number) not in counts)
        self._numbers: dict[tuple[str, tuple[int, ...]], str] = {}
        self.listed: dict[str, list[int]] = {}
        self.unlisted: list[str] = []
        for name, ranks in groups:
            known = _is_number(name) or (name, ranks) in {everyone, (DEFAULT, ())}
            number = self._numbers[name, ranks] = name if known and name not in self.shared else next(free)
            if number != DEFAULT and ranks:
                self.listed[number] = list(ranks)
            elif number != DEFAULT:
                self.unlisted.append(name)

    def number(self, group: ProcessGroup) -> str:
        """Give the ``pg_name`` of a group."""
        return self._numbers[group.name, group.ranks]

    def renamed(self, recording: Recording) -> dict[str, Named]:
        """Give name, description and ranks of those groups of a recording whose number does not say them."""
        named = {
            number: (number if group.name in self.shared else group.name, group.description, group.ranks)
            for group in recording.groups
            for number in [self.number(group)]
        }
        return {number: names for number, names in named.items() if names[:2] != plain_names(number)}


Named = tuple[str, str, tuple[int, ...]]
"""Name, description and ranks of a group."""


def plain_names(number: str) -> tuple[str, str]:
    """Give name and description of a group of which only the ``pg_name`` is known."""
    return number, ALL_RANKS if number == DEFAULT else ""


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name and name != DEFAULT  # noqa: PLR2004


def size_of(group: ProcessGroup | None, world: int) -> int:
    """Count the ranks of a group, None standing for all; NONE if not known."""
    if group is None or (group.description == ALL_RANKS and group.size == NONE):
        return world
    return group.size
