"""The set-up that a log of NCCL shows, in numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypedDict

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.traces.nccl_log.records import Communicator, NcclLog


class CommunicatorsRow(TypedDict):
    """All communicators of one size; `ranks` counts each rank of each. Channels are those that most have."""

    size: int | None
    ranks: int
    hosts: int
    channels: int | None
    p2p_channels: int | None
    nvls_channels: int | None
    transports: dict[str, int]


class RingRow(TypedDict):
    """A ring of the largest communicator; `cut` if NCCL has not logged all of it."""

    channel: int
    ranks: list[int]
    cut: bool


class TreeRow(TypedDict):
    """A tree of the largest communicator: parents by rank, -1 of the root; `root` is ``None`` if not logged."""

    channel: int
    root: int | None
    parents: dict[int, int]


class ChoiceRow(TypedDict):
    """What NCCL chose for a collective, and how often."""

    operation: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int | None
    count: int


class NcclSummary(TypedDict):
    """What a log of NCCL says; `calls` counts by name what was called."""

    versions: list[str]
    networks: dict[str, int]
    adapters: dict[str, int]
    processes: int
    hosts: int
    communicators: list[CommunicatorsRow]
    rings: list[RingRow]
    trees: list[TreeRow]
    choices: list[ChoiceRow]
    calls: dict[str, int]


def summarise_nccl(log: NcclLog) -> NcclSummary:
    """Count what a log says."""
    largest = _largest(log.communicators)
    counts = np.bincount(log.calls["operation"], minlength=len(log.operations)).tolist()
    return {
        "versions": list(log.versions),
        "networks": dict(log.networks),
        "adapters": dict(log.adapters),
        "processes": len({each.process for each in log.communicators}),
        "hosts": len({each.host for each in log.communicators}),
        "communicators": _communicators(log.communicators),
        "rings": _rings(largest),
        "trees": _trees(largest),
        "choices": [
            {
                "operation": choice.operation,
                "size_bytes": choice.size,
                "algorithm": choice.algorithm,
                "protocol": choice.protocol,
                "channels": _known(choice.channels),
                "count": count,
            }
            for choice, count in sorted(log.choices.items())
        ],
        "calls": dict(zip(log.operations, counts, strict=True)),
    }


def _known(number: int) -> int | None:
    return None if number == NONE else number


def _communicators(communicators: Sequence[Communicator]) -> list[CommunicatorsRow]:
    by_size: dict[int, list[Communicator]] = {}
    for each in communicators:
        by_size.setdefault(each.size, []).append(each)
    rows: list[CommunicatorsRow] = []
    for size, some in sorted(by_size.items(), reverse=True):
        transports: Counter[str] = Counter()
        for each in some:
            transports.update(each.facts.transports)
        rows.append(
            {
                "size": _known(size),
                "ranks": len(some),
                "hosts": len({each.host for each in some}),
                "channels": _most(each.facts.channels for each in some),
                "p2p_channels": _most(each.facts.p2p_channels for each in some),
                "nvls_channels": _most(each.facts.nvls_channels for each in some),
                "transports": dict(transports.most_common()),
            }
        )
    return rows


def _most(numbers: Iterable[int]) -> int | None:
    counts = Counter(number for number in numbers if number != NONE)
    return counts.most_common(1)[0][0] if counts else None


def _largest(communicators: Sequence[Communicator]) -> dict[int, Communicator]:
    """First of the largest communicators, by rank."""
    size = max((each.size for each in communicators), default=NONE)
    found: dict[int, Communicator] = {}
    for each in communicators:
        if each.size == size:
            found.setdefault(each.rank, each)
    return found


def _rings(ranks: dict[int, Communicator]) -> list[RingRow]:
    first = next((each for each in ranks.values() if each.facts.rings), None)
    if first is None:
        return []
    return [
        {"channel": channel, "ranks": list(ring), "cut": len(ring) < first.size}
        for channel, ring in sorted(first.facts.rings.items())
    ]


def _trees(ranks: dict[int, Communicator]) -> list[TreeRow]:
    parents: dict[int, dict[int, int]] = {}
    for rank, each in sorted(ranks.items()):
        for channel, place in each.facts.trees.items():
            parents.setdefault(channel, {})[rank] = NONE if place.parent is None else place.parent
    return [
        {"channel": channel, "root": next((rank for rank, parent in of.items() if parent == NONE), None), "parents": of}
        for channel, of in sorted(parents.items())
    ]
