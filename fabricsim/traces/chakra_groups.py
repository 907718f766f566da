"""Groups as ASTRA-sim names them: by numbers from 1, for ``"0"`` is all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.tables import NONE
from fabricsim.traces.groups import ALL_RANKS

if TYPE_CHECKING:
    from fabricsim.traces.trace import Group, Recording, Trace

DEFAULT = "0"
"""``pg_name`` of all ranks."""


class Numbered:
    """Numbers the groups of a trace; those that have a number of their own keep it.

    Attributes
    ----------
    listed
        Ranks of each group by its number, for ``--comm-group-configuration``.
    unlisted
        Names of groups whose ranks are not known.
    """

    def __init__(self, trace: Trace) -> None:
        groups = {group: None for recording in trace.recordings for group in recording.groups}
        self._numbers: dict[tuple[str, tuple[int, ...]], str] = {}
        self.listed: dict[str, list[int]] = {}
        self.unlisted: list[str] = []
        taken = {group.name for group in groups if _is_number(group.name)}
        free = (str(number) for number in range(1, len(groups) + len(taken) + 2) if str(number) not in taken)
        for group in groups:
            key = (group.name, group.ranks)
            if key in self._numbers:
                continue
            everyone = group.name == DEFAULT and group.description == ALL_RANKS
            keep = everyone or (_is_number(group.name) and group.name not in self._numbers.values())
            number = self._numbers[key] = group.name if keep else next(free)
            if group.ranks and not everyone:
                self.listed[number] = list(group.ranks)
            elif not everyone:
                self.unlisted.append(group.name)

    def number(self, group: Group) -> str:
        """Give the ``pg_name`` of a group."""
        return self._numbers[group.name, group.ranks]

    def renamed(self, recording: Recording) -> dict[str, tuple[str, str]]:
        """Give name and description of those groups of a recording whose number does not say them."""
        named = {self.number(group): (group.name, group.description) for group in recording.groups}
        return {number: names for number, names in named.items() if names != plain_names(number)}


def plain_names(number: str) -> tuple[str, str]:
    """Give name and description of a group of which only the ``pg_name`` is known."""
    return number, ALL_RANKS if number == DEFAULT else ""


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name and name != DEFAULT  # noqa: PLR2004


def size_of(group: Group | None, world: int) -> int:
    """Count the ranks of a group, None standing for all; NONE where not known."""
    if group is None or (group.description == ALL_RANKS and group.size == NONE):
        return world
    return group.size
