"""The resources of a run by their kind: how many, and how much they were used."""

import re
from collections.abc import Iterable
from operator import itemgetter
from typing import TypedDict

from fabricsim.results.result import LinkRecord, RunRecord
from fabricsim.units import seconds


class ResourceSummary(TypedDict):
    """All resources of one tier, such as the uplinks of all leaves, over the run.

    ``tier`` is their name with ``*`` for numbers. ``utilisation`` is the load over what one could have carried.
    """

    tier: str
    kind: str
    count: int
    utilisation_mean: float
    utilisation_max: float
    busiest: str


def tier(name: str) -> str:
    """Give the name that resources of one tier have in common: ``leaf*->spine*``."""
    return re.sub(r"\d+", "*", name)


def utilisation(link: LinkRecord, time: float) -> float:
    """Give the share of `time`, s, for which a link was in use; acknowledgements behind the end count no more."""
    return min(link.load / (link.capacity * time), 1.0)


def by_use(use: float) -> float:
    """Order uses from the highest: those that differ by rounding alone keep their order."""
    return -round(use, 9)


def resources(result: RunRecord) -> list[ResourceSummary]:
    """Summarise the resources that carried something in an iteration, a row for each tier (`by_tier`)."""
    return by_tier(result.links, seconds(result.iteration))


def by_tier(links: Iterable[LinkRecord], time: float) -> list[ResourceSummary]:
    """Summarise the resources that carried something, a row for each tier, the one with the busiest first.

    `links`: resources and what they carried.
    `time`: over which their use is meant, s.
    """
    tiers: dict[tuple[str, str], list[LinkRecord]] = {}
    for link in links:
        if link.capacity > 0:
            tiers.setdefault((tier(link.name), link.kind), []).append(link)
    rows = [_row(*key, some, time) for key, some in tiers.items()]
    return sorted((row for row in rows if row["utilisation_max"] > 0), key=lambda row: by_use(row["utilisation_max"]))


def _row(name: str, kind: str, links: list[LinkRecord], time: float) -> ResourceSummary:
    used = [utilisation(link, time) for link in links]
    count = sum(link.copies for link in links)
    return {
        "tier": name,
        "kind": kind,
        "count": count,
        "utilisation_mean": sum(use * link.copies for use, link in zip(used, links, strict=True)) / count,
        "utilisation_max": max(used),
        "busiest": min(zip(map(by_use, used), links, strict=True), key=itemgetter(0))[1].name,
    }
