"""Where two runs of one scenario differ: calls, timers, and the use of links."""

from typing import NamedTuple

from fabricsim.results.resources import tier
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import Summary, summarise
from fabricsim.units import seconds

LARGEST = 10
"""Links named at most."""


class Pair(NamedTuple):
    """One figure of two runs.

    ``first`` and ``second`` are seconds, or for links the share of the iteration in which they were used.
    """

    name: str
    first: float
    second: float

    @property
    def change(self) -> float | None:
        """The second over the first, less one; None if the first is zero."""
        return self.second / self.first - 1 if self.first > 0 else None


class Difference(NamedTuple):
    """Figures of two runs of one scenario.

    ``calls`` has the mean time of each kind of collective call, ``timers`` those timers that are not zero in both, and
    ``links`` the `LARGEST` differences in utilisation, the largest first.
    """

    iteration: Pair
    calls: tuple[Pair, ...]
    timers: tuple[Pair, ...]
    links: tuple[Pair, ...]


def difference(first: RunRecord, second: RunRecord) -> Difference:
    """Compare two runs of one scenario.

    `first`, `second`: runs of one program on one fabric, such as by the flow and by the packet engine.
    """
    one, other = summarise(first), summarise(second)
    kinds = {
        (row["dimension"], row["collective"], row["ranks"], row["size_bytes"], row["bound_bytes_per_s"]): row[
            "time_mean_s"
        ]
        for row in other["collectives"]
    }
    calls = []
    for row in one["collectives"]:
        key = (row["dimension"], row["collective"], row["ranks"], row["size_bytes"], row["bound_bytes_per_s"])
        if key in kinds:
            name = f"{row['dimension']} {row['collective']}, {row['ranks']} ranks, {row['size_bytes']:,} B"
            calls.append(Pair(name, row["time_mean_s"], kinds[key]))
    timers = (Pair(name, time, other["timers_s"].get(name, 0.0)) for name, time in one["timers_s"].items())
    return Difference(
        Pair("iteration", one["iteration_time_s"], other["iteration_time_s"]),
        tuple(calls),
        tuple(pair for pair in timers if pair.first or pair.second),
        _links(first, second),
    )


def _links(first: RunRecord, second: RunRecord) -> tuple[Pair, ...]:
    others = {link.name: link for link in second.links}
    times = seconds(first.iteration), seconds(second.iteration)
    pairs = [
        Pair(
            link.name,
            link.load / (link.capacity * times[0]),
            others[link.name].load / (others[link.name].capacity * times[1]),
        )
        for link in first.links
        if link.name in others and link.capacity > 0
    ]
    used = [pair for pair in pairs if pair.first or pair.second]
    # sorted keeps the fabric's order among equals
    return tuple(sorted(used, key=lambda pair: -abs(pair.second - pair.first))[:LARGEST])


def change_of_causes(first: Summary, second: Summary) -> list[Pair]:
    """List the time that each cause takes on the critical paths of two runs, s, that with the largest change first.

    Which rank computes, and which of a tier's resources is the busiest, does not tell causes apart.
    """
    times = [_by_cause(summary) for summary in (first, second)]
    names = dict.fromkeys(name for time in times for name in time)
    pairs = [Pair(name, *(time.get(name, 0.0) for time in times)) for name in names]
    return sorted(pairs, key=lambda pair: -abs(pair.second - pair.first))


def _by_cause(summary: Summary) -> dict[str, float]:
    times: dict[str, float] = {}
    for cause in summary["causes"]:
        resource = f" {tier(cause['resource'])}" if cause["resource"] else ""
        of = "" if cause["of"].startswith(("rank ", "mostly rank ")) else f", {cause['of']}"
        name = f"{cause['cause']}{resource}{of}"
        times[name] = times.get(name, 0.0) + cause["time_s"]
    return times
