"""Pods joined by optical circuits: a schedule of matchings, of which so many stand at a time."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.scenario.fabric import Ports, Switched
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.scenario.quantity import Duration

_Pod = Annotated[int, Field(ge=0, lt=2**20)]
_Matching = Annotated[tuple[Annotated[tuple[_Pod, _Pod], Field(strict=False)], ...], Field(strict=False)]


class OpticalCircuits(Switched):
    """Pods of ``hosts_per_pod`` hosts, or NICs if a host has several, on a switch with ``circuits`` optical uplinks.

    ``matchings`` lists pairs of pods that are joined at one time; without it every pod meets every other one in turn
    (round-robin tournament, as in rotor switches: Mellette et al., "RotorNet", SIGCOMM 2017). If there are as many
    circuits as matchings, each stands all the time. With fewer, each stands for its share of the time, less
    ``reconfiguration`` of every ``slot``; that share of the rate is what a pair has: the wait for its slot, and what
    piles up until then, is not modelled.
    """

    hosts_per_pod: Ports
    matchings: Annotated[tuple[_Matching, ...], Field(strict=False)] = ()
    circuits: Ports | None = None
    slot: Duration | None = None
    reconfiguration: Duration = 0

    def _pods(self, ends: Ends) -> int:
        return -(-ends.count // self.hosts_per_pod)

    def _schedule(self, ends: Ends) -> list[list[tuple[int, int]]]:
        """Give the matchings; those of a tournament are `n - 1`, or `n` of an odd number."""
        if self.matchings:
            return [[(min(pair), max(pair)) for pair in matching] for matching in self.matchings]
        pods = self._pods(ends)
        places = [*range(pods), *[-1] * (pods % 2)]
        rounds = []
        for _ in range(len(places) - 1):
            pairs = zip(places[: len(places) // 2], places[::-1], strict=False)
            rounds.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
            places = [places[0], places[-1], *places[1:-1]]
        return rounds

    def _share(self, matchings: int) -> float:
        """Share of the time for which a matching stands."""
        if self.circuits is None or self.circuits >= matchings:
            return 1.0
        standing = 1.0 if self.slot is None else 1 - self.reconfiguration / self.slot
        return self.circuits / matchings * standing

    def network(self, ends: Ends) -> Network:
        """Join them."""
        network, schedule = Network.of(ends), self._schedule(ends)
        cable = self.up._replace(times_rate=self._share(len(schedule)))
        for end in range(ends.count):
            network.join(ends.name(end), f"pod{end // self.hosts_per_pod}", self.down)
        for (a, b), times in sorted(Counter(pair for matching in schedule for pair in matching).items()):
            network.join(f"pod{a}", f"pod{b}", cable, times)
        return network

    def size(self, ends: Ends) -> FabricSize:
        """Count a cable for each pair of each matching."""
        schedule = self._schedule(ends)
        at = Counter(pod for matching in schedule for pair in matching for pod in pair)
        fill = {pod: min(self.hosts_per_pod, ends.count - pod * self.hosts_per_pod) for pod in range(self._pods(ends))}
        ports = max(fill[pod] + at[pod] for pod in fill)
        return FabricSize(ends.count + sum(map(len, schedule)), ports, len(fill))

    def problems(self, ends: Ends) -> Iterator[Mistake]:
        """Refuse matchings that are none, and times without effect."""
        pods, schedule = self._pods(ends), self._schedule(ends)
        for number, matching in enumerate(schedule):
            met = Counter(pod for pair in matching for pod in pair)
            for pod, times in met.items():
                if times > 1:
                    yield Mistake(f"matchings[{number}]", f"has pod {pod} {times} times", "name a pod once")
                if pod >= pods:
                    problem = f"has pod {pod}, and there are pods 0 to {pods - 1}"
                    yield Mistake(f"matchings[{number}]", problem, "mend it, or raise cluster.hosts")
        if self.circuits is not None and self.circuits > len(schedule):
            problem = f"{self.circuits} are more than the {len(schedule)} matchings"
            yield Mistake("circuits", problem, "lower it, or write more matchings")
        sliced = self.circuits is not None and self.circuits < len(schedule)
        if not sliced and (self.slot is not None or self.reconfiguration):
            key = "slot" if self.slot is not None else "reconfiguration"
            yield Mistake(key, "has no effect if all matchings stand all the time", "take it out, or lower circuits")
        elif self.reconfiguration and (self.slot is None or self.reconfiguration >= self.slot):
            yield Mistake("reconfiguration", "leaves nothing of a slot", "write a longer slot")


TOPOLOGY = OpticalCircuits
