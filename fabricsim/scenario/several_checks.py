"""Checks of what runs side by side: several jobs, and traffic beside them."""

from collections.abc import Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario import library
from fabricsim.scenario.background import Background
from fabricsim.scenario.cluster import Cluster
from fabricsim.scenario.jobs import given
from fabricsim.scenario.packet import SOCKET_KINDS
from fabricsim.scenario.parts import Parts
from fabricsim.scenario.suggest import did_you_mean, show
from fabricsim.units import BYTES, parse


def placement_problems(scenario: Parts) -> Iterator[Mistake]:
    """Find jobs that do not fit beside one another."""
    there, needed = scenario.cluster.ranks, 0
    taken: dict[int, str] = {}
    for name, job in scenario.jobs.items():
        key, wanted = f"jobs.{name}", job.parallelism.ranks
        needed += wanted
        if job.ranks is None:
            continue
        ranks = given(job)
        if "placement" in job.model_fields_set:
            yield Mistake(f"{key}.placement", "has no effect beside ranks", "take one out")
        if len(ranks) != wanted or len(set(ranks)) != wanted:
            problem = f"names {len(set(ranks))} ranks, and the job has {wanted}"
            yield Mistake(f"{key}.ranks", problem, "name as many as its degrees of parallelism multiply to")
        elif max(ranks) >= there:
            yield Mistake(f"{key}.ranks", f"names rank {max(ranks)}, and there are 0 to {there - 1}", "lower it")
        elif shared := sorted(set(ranks) & taken.keys()):
            problem = f"names rank {shared[0]}, which {taken[shared[0]]} has"
            yield Mistake(f"{key}.ranks", problem, "give each job ranks of its own")
        taken |= dict.fromkeys(ranks, name)
    if needed > there:
        problem = f"need {needed} ranks together, and the cluster has {there}"
        yield Mistake("jobs", problem, "raise cluster.hosts, or lower a degree of parallelism")


def kind_problems(scenario: Parts) -> Iterator[Mistake]:
    """Find kinds of hosts that do not go together."""
    cluster = scenario.cluster
    transports = [scenario.transport]
    for name, kind in cluster.kinds.items():
        key = f"cluster.kinds.{name}"
        if (last := max(place.last for place in kind.hosts)) >= cluster.hosts:
            yield Mistake(f"{key}.hosts", f"names host {last}, and there are 0 to {cluster.hosts - 1}", "lower it")
        if not kind.changes and kind.transport is None:
            yield Mistake(key, "changes nothing", "write gpu, nic, cpu, transport or another key of cluster")
        for count in ("gpus_per_host", "nics_per_host"):
            if getattr(kind, count) not in {None, getattr(cluster, count)}:
                problem = f"is {getattr(kind, count)}, and other hosts have {getattr(cluster, count)}"
                yield Mistake(f"{key}.{count}", problem, "take it out: all hosts have as many")
        if kind.transport is not None and kind.transport not in transports:
            transports.append(kind.transport)
            if scenario.engine != "flow":
                problem = "is another than that of other hosts, and the packet engine takes one for all"
                yield Mistake(f"{key}.transport", problem, 'take it out, or set engine = "flow"')
    sockets = [each.kind in SOCKET_KINDS for each in transports]
    if sockets.count(True) > 1 or sockets.count(False) > 1:
        names = " and ".join(each.name for each in transports)
        problem = f"hosts speak {names}, of which two are of one sort, so that it is open which they share"
        yield Mistake("cluster.kinds", problem, "give them one RDMA transport and one over sockets at most")


def background_problems(scenario: Parts) -> Iterator[Mistake]:
    """Find traffic that says too little or too much."""
    cluster = scenario.cluster
    if scenario.traffic and scenario.job is None and not scenario.jobs:
        yield Mistake("traffic", "has no effect without a job, beside which it runs", "add job, or take it out")
    for name, traffic in scenario.traffic.items():
        key = f"traffic.{name}"
        if (traffic.pattern is None) == (traffic.to_host is None):
            yield Mistake(key, "wants one of pattern and to_host", "write one of them")
        if traffic.to_host is not None:
            yield from _host_problems(key, traffic, cluster)
        yield from _size_problems(f"{key}.size", traffic)
        if traffic.ranks is not None and (last := max(place.last for place in traffic.ranks)) >= cluster.ranks:
            yield Mistake(f"{key}.ranks", f"names rank {last}, and there are 0 to {cluster.ranks - 1}", "lower it")
        if traffic.every == 0:
            yield Mistake(f"{key}.every", "is zero, so that it would never end", "write a longer time")


def _host_problems(key: str, traffic: Background, cluster: Cluster) -> Iterator[Mistake]:
    """Find traffic to a host that is not there, from none, or that says too little or too much."""
    if traffic.to_host is not None and traffic.to_host >= cluster.hosts:
        problem = f"is host {traffic.to_host}, and there are 0 to {cluster.hosts - 1}"
        yield Mistake(f"{key}.to_host", problem, "lower it, or raise cluster.hosts")
    elif not _senders(traffic, cluster.gpus_per_host, cluster.hosts):
        problem = f"is host {traffic.to_host}, and no other host sends"
        yield Mistake(f"{key}.to_host", problem, "name ranks of other hosts, or another host")
    if traffic.size is None:
        yield Mistake(f"{key}.size", "is missing: it is what each host sends", 'write it like "10GB"')
    for idle in {"flows", "load"} & traffic.model_fields_set:
        yield Mistake(f"{key}.{idle}", "has no effect with to_host", "take it out")


def _senders(traffic: Background, per_host: int, hosts: int) -> set[int]:
    """Give the hosts that send to one."""
    if traffic.ranks is None:
        return {*range(hosts)} - {traffic.to_host}
    return {rank // per_host for place in traffic.ranks for rank in place.numbers} - {traffic.to_host}


def _size_problems(key: str, traffic: Background) -> Iterator[Mistake]:
    """Find a size that is none, or of nothing; a distribution is one of flows that a pattern draws."""
    known = library.names("traffic")
    if traffic.size is None or (traffic.size in known and traffic.to_host is None):
        return
    if traffic.size in known:
        problem = f"{show(traffic.size)} is a distribution, and each host sends one amount"
        yield Mistake(key, problem, 'write it like "10GB"')
        return
    try:
        size = int(parse(traffic.size, BYTES))
    except ValueError as error:
        problem, _, way_out = str(error).partition("; ")
        hint = did_you_mean(traffic.size, known, f"or name a distribution: {', '.join(known)}")
        yield Mistake(key, problem, way_out if traffic.to_host is not None else f"{way_out}; {hint}")
    else:
        if size < 1:
            yield Mistake(key, f"{show(traffic.size)} is less than a byte, and moves nothing", 'write it like "10MB"')
