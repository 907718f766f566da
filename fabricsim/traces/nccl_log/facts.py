"""How the messages of one thread of NCCL describe the communicator that it sets up: rings, trees, channels, transports.

Forms after ``src/init.cc`` and ``src/graph`` of github.com/NVIDIA/nccl, versions 2.4 to 2.30.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from fabricsim.records.program import NONE

_RING = re.compile(r"Channel (\d{1,4})(?:/(\d{1,4}))? :((?:\s+\d{1,9})+)$")
_RANK = r"(-?\d{1,9})"
_CHILDREN = rf"{_RANK}/{_RANK}/{_RANK}"
_TREE = re.compile(rf"\[(\d{{1,4}})\] (?:{_CHILDREN}->{_RANK}->{_RANK}|{_RANK}->{_RANK}->{_CHILDREN})")
_OLD_TREE = re.compile(rf"Tree (\d{{1,4}}) : {_RANK} -> {_RANK} -> {_CHILDREN}")
_VIA = re.compile(
    r"(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? : \d{1,9}(?:\[\w{1,16}\])? -> \d{1,9}(?:\[\w{1,16}\])?"
    r"(?: \[(?:send|receive)\])? via (\w[^\[\]]{1,80})"
)
_OLD_SHARED = "direct shared memory"  # what NCCL 2.4 to 2.6 calls SHM
_INDEX = re.compile(r"/\d+(?![^/(])")
_CHANNELS = re.compile(
    r"(\d{1,4}) coll channels,(?: \d{1,4} collnet channels,)?(?: (\d{1,4}) nvls channels,)? (\d{1,4}) p2p channels"
)
_MOST_TRANSPORTS = 64  # of one communicator


class LoggedPlace(NamedTuple):
    """A rank's place in a tree: ranks of the communicator.

    `parent`: ``None`` for the root.
    `children`: in the order of the log.
    """

    parent: int | None
    children: tuple[int, ...]


@dataclass
class Facts:
    """What a thread says while it sets up a communicator.

    `rank`: that of the trees; NONE if there are none.
    `rings`: by channel its ranks in order, as rank 0 logs them: NCCL up to 2.10 cuts long ones.
    `trees`: by channel this rank's place.
    `channels`, `p2p_channels`, `nvls_channels`: how many for collectives, for sends and receives, and for NVLS; NONE if
        not logged.
    `transports`: how many connections run over which, such as ``"NET/IB/GDRDMA"``.
    `kept`: how much is held.
    """

    rank: int = NONE
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, LoggedPlace] = field(default_factory=dict)
    channels: int = NONE
    p2p_channels: int = NONE
    nvls_channels: int = NONE
    transports: Counter[str] = field(default_factory=Counter)
    kept: int = 0

    def take(self, text: str) -> bool:
        """Take up a message; False if it is of another kind."""
        if text.startswith(("Channel ", "Ring ")):
            return self._ring(text) or self._via(text)
        if text.startswith("Tree"):
            return self._trees(text)
        return " coll channels," in text and self._channels(text)

    def __bool__(self) -> bool:
        """Whether anything has been said."""
        return bool(self.rings or self.trees or self.transports)

    def _ring(self, text: str) -> bool:
        match = _RING.match(text)
        if match is None:
            return False
        ring = tuple(map(int, match[3].split()))
        self.rings.setdefault(int(match[1]), ring)
        self.kept += len(ring)
        if match[2] and self.channels == NONE:
            self.channels = int(match[2])
        return True

    def _via(self, text: str) -> bool:
        match = _VIA.match(text)
        if match is None:
            return False
        name = _INDEX.sub("", match[1].strip()).replace(_OLD_SHARED, "SHM")
        if name in self.transports or len(self.transports) < _MOST_TRANSPORTS:
            self.transports[name] += 1
        return True

    def _trees(self, text: str) -> bool:
        if old := _OLD_TREE.match(text):
            channel, up, rank, *down = map(int, old.groups())
            self._place(channel, rank, up, down)
            return True
        for match in _TREE.finditer(text):
            downwards = match[2] is not None
            numbers = [int(number) for number in match.groups()[1:] if number is not None]
            rank, up, down = (
                (numbers[3], numbers[4], numbers[:3]) if downwards else (numbers[1], numbers[0], numbers[2:])
            )
            self._place(int(match[1]), rank, up, down)
        return text.startswith("Trees [")

    def _place(self, channel: int, rank: int, up: int, down: list[int]) -> None:
        self.rank = rank
        self.trees[channel] = LoggedPlace(up if up >= 0 else None, tuple(child for child in down if child >= 0))
        self.kept += 1

    def _channels(self, text: str) -> bool:
        match = _CHANNELS.search(text)
        if match is None:
            return False
        self.channels, self.p2p_channels = int(match[1]), int(match[3])
        if match[2]:
            self.nvls_channels = int(match[2])
        return True
