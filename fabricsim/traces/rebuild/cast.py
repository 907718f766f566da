"""Which recording each rank of a replayed job repeats."""

from dataclasses import dataclass

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.groups import ONE_HOST
from fabricsim.traces.rebuild.roles import resemble
from fabricsim.traces.trace import Recording, Trace

MOST_RANKS = 2**20
"""Of a job that is replayed."""


@dataclass(frozen=True)
class Cast:
    """Which recording each rank of the replayed job repeats.

    `captured`: ranks of the job that was captured.
    `replicas`: how many times the captured job is there, side by side, its data-parallel groups joined.
    `of`: recording of each rank of the captured job, an index into `Trace.recordings`; shape ``(captured,)``.
    `assumptions`: what was assumed, a sentence each.
    """

    captured: int
    replicas: int
    of: tuple[int, ...]
    assumptions: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Ranks of the replayed job."""
        return self.captured * self.replicas


def assign(trace: Trace, scale_to: int | None = None, ranks: int | None = None) -> Cast:
    """Decide which recording each rank repeats.

    `scale_to`: ranks of the job to replay, a multiple of those of the captured one; as many if left out.
    `ranks`: ranks of the captured job, if the trace does not say that.
    Raises TraceError if the size of the job, or of its hosts where that matters, is not known, or `scale_to` is no
        multiple of it.
    """
    alone = ranks is None and _is_alone(trace)
    world = 1 if alone else _world(trace, ranks)
    _check_hosts(trace)
    if max(world, scale_to or 0) > MOST_RANKS:
        msg = f"is to be replayed on {max(world, scale_to or 0)} ranks; at most {MOST_RANKS} can be"
        way_out = "scale to fewer" if (scale_to or 0) > world else "mend the ranks that it names"
        raise TraceError(trace.recordings[0].source, f"{msg}; {way_out}")
    known = {recording.rank: number for number, recording in enumerate(trace.recordings)}
    if NONE in known:
        unnamed = known.pop(NONE)
        if known:
            msg = "does not say its rank, and other files do; name the files after their ranks, such as rank_0"
            raise TraceError(trace.recordings[unnamed].source, msg)
        known[0] = unnamed
    like = resemble({rank: trace.recordings[index] for rank, index in known.items()}, world)
    of = tuple(known[rank] for rank in like.of)
    assumptions = [like.assumption] if like.assumption else []
    if alone:
        assumptions.append(
            "the trace has no communication and does not say how many ranks there were: one (see ranks, --ranks)"
        )
    replicas = 1
    if scale_to is not None:
        replicas = scale_to // world
        if scale_to < world or scale_to % world:
            msg = f"is of {world} ranks: it can be scaled to a multiple of that, not to {scale_to}"
            raise TraceError(trace.recordings[0].source, msg)
    if replicas > 1:
        assumptions.append(
            f"the captured job of {world} ranks is repeated {replicas} times, and its data-parallel groups are joined"
        )
    return Cast(world, replicas, of, tuple(assumptions))


def _is_alone(trace: Trace) -> bool:
    """Whether a trace has nothing of a second rank."""
    (first, *others) = trace.recordings
    nobody = not first.communications and not first.groups
    return not others and nobody and trace.world == NONE and first.rank in {NONE, 0}


def _world(trace: Trace, ranks: int | None) -> int:
    source = trace.recordings[0].source
    if ranks is not None and trace.world not in {NONE, ranks}:
        raise TraceError(source, f"is of a job of {trace.world} ranks, not of {ranks}; leave out ranks (--ranks)")
    least = max(_named(recording) for recording in trace.recordings)
    world = ranks or (least if trace.world == NONE else trace.world)
    if least > world:
        raise TraceError(source, f"names rank {least - 1}, but the job has {world} ranks; mend one of the two")
    open_ended = any(map(_is_open, trace.recordings))
    if ranks is None and trace.world == NONE and (least < 1 or open_ended):
        raise TraceError(source, "does not say how many ranks the job has; say it by ranks (--ranks N)")
    return world


def _check_hosts(trace: Trace) -> None:
    for recording in trace.recordings:
        if any(group.description == ONE_HOST for group in recording.groups):
            msg = "reduces in each host and then between hosts, and does not say how many ranks a host has"
            way_out = "say it by ranks_per_host (--ranks-per-host N), or capture with HOROVOD_HIERARCHICAL_ALLREDUCE=0"
            raise TraceError(recording.source, f"{msg}; {way_out}")


def _named(recording: Recording) -> int:
    """One more than the highest rank that a recording names, or as many as its largest group has."""
    groups = (max(group.size, *(rank + 1 for rank in group.ranks), 0) for group in recording.groups)
    peers = (communication.peer + 1 for communication in recording.communications)
    return max(recording.rank + 1, *groups, *peers, 0)


def _is_open(recording: Recording) -> bool:
    """Whether something is done by a group of which neither ranks nor size are known."""
    collective = [what for what in recording.communications if what.operation not in {"send", "recv"}]
    return any(
        what.group == NONE or (not recording.groups[what.group].ranks and recording.groups[what.group].size == NONE)
        for what in collective
    )
