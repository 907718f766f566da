"""Several jobs, and traffic beside them, on one fabric at the same time."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fabricsim.engine.completions import Replay
from fabricsim.engine.wiring import connections
from fabricsim.results.result import JobRecord
from fabricsim.results.traffic import DEMAND
from fabricsim.run.traffic import PatternAmounts, connection_ports, demand, parse_size
from fabricsim.units import PS_PER_S, human_count, human_seconds, seconds
from fabricsim.workload.program import Program, together

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import simpy
    from numpy.typing import NDArray

    from fabricsim.engine.fabric import Fabric
    from fabricsim.scenario.background import Background
    from fabricsim.scenario.scenario import Scenario


_STUCK = 2.0
"""Times the longest round: one that takes longer is told. Most runs end during a round, which nothing holds up."""


class Placed(NamedTuple):
    """A job that is ready to run: its program, its ranks of the cluster (its own if None), and when it begins, ps."""

    name: str
    program: Program
    ranks: tuple[int, ...] | None
    start: int


@dataclass
class Stream:
    """Traffic of one name: its flows, when each round of them began, ps, and how long each that arrived took, s."""

    name: str
    flows: NDArray[np.void]
    traffic: Background
    begun: list[int] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What it is called beside calls, and until when it sent if it sends once."""
        if self.traffic.every is not None or not self.rounds:
            return f"traffic {self.name}"
        return f"traffic {self.name} until {human_seconds(seconds(self.traffic.start) + self.rounds[0])}"

    def sent(self, end: int) -> list[tuple[int, int]]:
        """Say from when to when each round sent, until `end`, ps."""
        over = [round(begin + taken * PS_PER_S) for begin, taken in zip(self.begun, self.rounds, strict=False)]
        whole = zip_longest(self.begun, over, fillvalue=end)
        return [(begin, min(until, end)) for begin, until in whole if begin < end]

    def note(self, end: int) -> str:
        """Say what was sent in a run until `end`, ps."""
        sent = f"{human_count(len(self.flows), 'flows')}, {self.flows['bytes'].sum() / 1e9:.4g} GB in all"
        what = f"traffic {self.name}: {sent}"
        if not self.begun:
            return f"{what}, which were to begin after the jobs were done"
        if not self.rounds:
            return f"{what}, which had not arrived when the jobs were done"
        mean = human_seconds(sum(self.rounds) / len(self.rounds))
        said = f"{what}; {human_count(len(self.rounds), 'times')}, {mean} each in the mean"
        last = seconds(self.begun[-1])
        if len(self.begun) > len(self.rounds) and seconds(end) - last > _STUCK * max(self.rounds):
            said += f"; the next, begun at {human_seconds(last)}, had not arrived when the jobs were done"
        return said


def streams(scenario: Scenario) -> list[Stream]:
    """Draw the traffic of a scenario. Raises InputError if there is no such pattern or file, or it cannot be had so."""
    return [Stream(name, _flows(scenario, traffic), traffic) for name, traffic in scenario.traffic.items()]


def _flows(scenario: Scenario, traffic: Background) -> NDArray[np.void]:
    cluster = scenario.cluster
    ranks = [*range(cluster.ranks)]
    if traffic.ranks is not None:
        ranks = [rank for place in traffic.ranks for rank in place.numbers]
    if traffic.to_host is not None:
        hosts = sorted({rank // cluster.gpus_per_host for rank in ranks} - {traffic.to_host})
        flows = np.zeros(len(hosts), DEMAND)
        flows["id"] = np.arange(1, len(hosts) + 1)
        flows["source"], flows["target"] = np.array(hosts) + cluster.ranks, traffic.to_host + cluster.ranks
        flows["bytes"] = parse_size(str(traffic.size))
        return flows
    amounts: PatternAmounts = {"size": traffic.size, "flows": traffic.flows, "load": traffic.load}
    matrix = demand(str(traffic.pattern), scenario, ranks=len(ranks), **amounts)
    flows = matrix.flows.copy()
    for end in ("source", "target"):
        place: NDArray[np.int64] = flows[end]
        flows[end] = np.array(ranks)[place]
    return flows


def run(env: simpy.Environment, fabric: Fabric, jobs: Sequence[Placed], beside: Sequence[Stream]) -> list[Replay]:
    """Run jobs, each from its start on, and traffic beside them until all jobs are done."""
    waiting = [env.process(_run_job(env, fabric, job)) for job in jobs]
    for stream in beside:
        env.process(_repeat(env, fabric, stream))
    env.run(env.all_of(waiting))
    return [cast("Replay", process.value) for process in waiting]


def _run_job(env: simpy.Environment, fabric: Fabric, job: Placed) -> Generator[simpy.Event, Any, Any]:
    if job.start:
        yield env.timeout(job.start / PS_PER_S)
    event = fabric.replay(job.program, job.ranks)
    if fabric.recorder is not None:
        fabric.recorder.tap_flows()
    replay = yield event
    return replay


def _repeat(env: simpy.Environment, fabric: Fabric, stream: Stream) -> Generator[simpy.Event, Any, Any]:
    ports = connection_ports(stream.flows, fabric.platform.endpoints)
    begin, every = stream.traffic.start / PS_PER_S, stream.traffic.every
    yield env.timeout(begin)
    while True:
        stream.begun.append(round(env.now * PS_PER_S))
        times = cast("NDArray[np.int64]", (yield fabric.send_all(stream.flows, ports)))
        stream.rounds.append(seconds(int((times + stream.flows["start"]).max())))
        if every is None:
            return
        begin += every / PS_PER_S
        yield env.timeout(max(begin - env.now, 0))


def crossing(fabric: Fabric, beside: Sequence[Stream]) -> dict[int, list[Stream]]:
    """Find the traffic that has begun and crosses each resource."""
    found: dict[int, list[Stream]] = {}
    for stream in beside:
        if not stream.begun:
            continue
        ports = connection_ports(stream.flows, fabric.platform.endpoints)
        routes = set(fabric.wiring.routes(connections(stream.flows, ports)))
        for resource in set().union(*(fabric.wiring.route_hops[route] for route in routes)):
            found.setdefault(resource, []).append(stream)
    return found


def crossed_by(crossing: Mapping[int, Sequence[Stream]]) -> dict[int, set[str]]:
    """Name the traffic that crosses each resource."""
    return {resource: {stream.label for stream in streams} for resource, streams in crossing.items()}


def sent_over(crossing: Mapping[int, Sequence[Stream]], end: int) -> dict[int, list[tuple[int, int]]]:
    """Say from when to when traffic was sent over each resource that it crosses, until `end`, ps."""
    found = {resource: [sent for stream in some for sent in stream.sent(end)] for resource, some in crossing.items()}
    return {resource: intervals for resource, intervals in found.items() if intervals}


def joined(jobs: Sequence[Placed], replays: Sequence[Replay]) -> tuple[Program, Replay, tuple[JobRecord, ...]]:
    """Put the programs of several jobs, and what became of them, behind one another."""
    if jobs[0].ranks is None:  # the only one
        return jobs[0].program, replays[0], ()
    whole = together({job.name: job.program.placed(job.ranks or ()) for job in jobs})
    spans, calls = (np.concatenate([getattr(replay, name) for replay in replays]) for name in ("spans", "calls"))
    replay = Replay(0, max(each.end for each in replays), spans, calls)
    records, op, call = [], 0, 0
    for job, each in zip(jobs, replays, strict=True):
        records.append(JobRecord(job.name, op, len(each.spans), call, len(each.calls), each.start, each.end))
        op, call = op + len(each.spans), call + len(each.calls)
    return whole, replay, tuple(records)
