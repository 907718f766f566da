"""What a Kineto file says of its job beside the events: rank, groups and devices."""

import re
from typing import Any

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.kineto.messages import MOST_RANKS, Note
from fabricsim.traces.rank_groups import strided
from fabricsim.traces.trace import RecordingBuilder

_RANK = re.compile(r"(?:rank|worker|kineto)[-_]?(\d{1,7})(?!\d)", re.IGNORECASE)
_MOST_TEXT = 256


class CapturedJob:
    """What the head of a file says of the job, each part checked; what is odd counts as not there.

    `source`: the file; its name says the rank if its head does not.
    `head`: values beside the events, decoded.
    `base`: ns that all times of the file count from.
    """

    def __init__(self, source: Source, head: dict[str, Any]) -> None:
        about = head.get("distributedInfo")
        about = about if isinstance(about, dict) else {}
        named = _RANK.search(source.name)
        self.world = _whole(about.get("world_size"), 1)
        self.rank = _whole(about.get("rank"))
        if self.rank == NONE and named is not None:
            self.rank = int(named[1])
        if self.world != NONE and self.rank >= self.world:
            msg = f"distributedInfo says rank {self.rank} of {self.world}; the file is damaged"
            raise TraceError(source.label, msg)
        self.base = max(_whole(head.get("baseTimeNanoseconds"), most=2**62), 0)
        host = head.get("hostname", head.get("host_name"))
        self.host = host[:_MOST_TEXT] if isinstance(host, str) else ""
        self.devices = head.get("deviceProperties")
        self.groups: dict[str, tuple[str, tuple[int, ...], int]] = {}
        configured = about.get("pg_config")
        for one in configured if isinstance(configured, list) else ():
            if isinstance(one, dict) and isinstance(one.get("pg_name"), str):
                self.groups[one["pg_name"]] = self._configured(one)

    def _configured(self, group: dict[str, Any]) -> tuple[str, tuple[int, ...], int]:
        size, listed, description = _whole(group.get("pg_size"), 1), group.get("ranks"), group.get("pg_desc")
        ranks: tuple[int, ...] = ()
        if listed == [] and self.world != NONE and size in {NONE, self.world}:
            ranks = strided(self.world)
        elif isinstance(listed, list) and all(_whole(rank) != NONE for rank in listed):
            ranks = tuple(listed) if len(set(listed)) == len(listed) and size in {NONE, len(listed)} else ()
        return description[:_MOST_TEXT] if isinstance(description, str) else "", ranks, len(ranks) or size

    def group(self, builder: RecordingBuilder, note: Note) -> tuple[int, tuple[int, ...], int]:
        """Give number, members and size of the group of a collective; NONE or empty if not known."""
        if not note.group:
            return NONE, note.ranks, len(note.ranks) or note.size
        description, ranks, size = self.groups.get(note.group, ("", (), NONE))
        ranks = ranks or note.ranks
        size = len(ranks) or (note.size if size == NONE else size)
        return builder.group(note.group, description or note.description, ranks, size), ranks, size

    def device(self, number: int) -> str:
        """Name a GPU."""
        listed = self.devices if isinstance(self.devices, list) else []
        names = {
            one.get("id"): one.get("name") for one in listed if isinstance(one, dict) and type(one.get("id")) is int
        }
        name = names.get(number, "")
        return name[:_MOST_TEXT] if isinstance(name, str) else ""


def _whole(value: object, least: int = 0, most: int = MOST_RANKS) -> int:
    return value if type(value) is int and least <= value <= most else NONE
