"""One rank's ops, added in the order in which it launches them."""

from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf

from fabricsim.records.program import OVERLAPPED_STREAM
from fabricsim.units import PS_PER_S
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.issue import EMPTY, Span, collective, waited
from fabricsim.workload.links import Beside, shares
from fabricsim.workload.placement import Placement
from fabricsim.workload.program import Call
from fabricsim.workload.stages import Timed
from fabricsim.workload.work import Exchange, Level, Wait


class RankOps:
    """Adds the ops of one rank to a builder.

    Host and GPU are level at the begin of each pass: Megatron-LM's timers and its sends and receives wait for the
    GPU. From there on the host is ahead, or the GPU waits for it: since the host waits for nothing, what it has
    issued by when is known, and one op beside the main stream, from the begin of the pass, holds the rank's next
    one up. There is none if the GPU cannot be the faster of the two.

    `builder`: takes the ops.
    `placement`: gives the rank's groups.
    `rank`: whose ops they are.
    `beside`: how computing slows beside a collective.
    `launch`: how long the host takes to issue one, ps.
    """

    def __init__(self, builder: ProgramBuilder, placement: Placement, rank: int, beside: Beside, launch: int) -> None:
        self.builder = builder
        self.placement = placement
        self.rank = rank
        self.slowed = beside
        self._launch = collective(launch)
        self._groups: dict[str, tuple[int, ...]] = {}
        self._calls: dict[Exchange, tuple[Call, ...]] = {}
        self._shares: dict[int, tuple[Sequence[Timed], list[float]]] = {}  # by the place of the items in memory
        self._outstanding: dict[str, list[list[int]]] = {}  # exchanges beside what comes next, by dimension
        self._span = EMPTY
        self._timer = ""
        self._level = True  # host and GPU are at the begin of a pass
        self._begun: tuple[int, ...] = ()  # what the pass waited for
        self._issued = 0  # time of the host since then
        self._ran = 0  # least time of the GPU since then

    def group(self, dimension: str) -> tuple[int, ...]:
        """Return the rank's group of a kind, see `fabricsim.workload.placement.Placement.group`."""
        if dimension not in self._groups:
            self._groups[dimension] = self.placement.group(dimension, self.rank)
        return self._groups[dimension]

    def last(self) -> tuple[int, ...]:
        """Return the ops that the rank's next one waits for."""
        self.flush()
        return self.builder.last(self.rank)

    def begin(self) -> None:
        """Begin a pass: the host issues nothing before all so far is done."""
        self.flush()
        self._begun, self._level = self.builder.last(self.rank), True
        self._issued = self._ran = 0

    def wait(self, ops: Iterable[int]) -> None:
        """Let the rank's next op wait for further ones."""
        self.flush()
        self._level = False
        self.builder.wait(self.rank, ops)

    def compute(self, span: Span | int, timer: str) -> None:
        """Run kernels, or keep host and GPU busy for some ps; spans that follow one another become one op."""
        if timer != self._timer:
            self.flush()
        self._span = self._span.then(waited(span) if isinstance(span, int) else span)
        self._timer = timer

    def launch(self, timer: str) -> None:
        """Let the host issue a collective."""
        self.compute(self._launch, timer)

    def flush(self) -> None:
        """Add the op of the spans so far: whoever adds to the builder directly wants them there."""
        span, self._span = self._span, EMPTY
        done = self._issued + span.alone
        self._issued += span.issue
        if not span.alone:
            return
        if self._level:
            self.builder.compute(self.rank, span.alone, self._timer)
        else:
            if span.run:
                self.builder.compute(self.rank, span.run, self._timer)
            if done > self._ran + span.run:
                held = self.builder.issue(self.rank, done, self._timer, after=self._begun)
                self.builder.wait(self.rank, (held,))
        self._ran = max(self._ran + span.run, done)
        self._level = False

    def add(self, items: Sequence[Timed], timer: str, *, slowed: float = 0.0) -> None:
        """Add spans of computing and exchanges; `slowed` is their `share` beside what else goes on."""
        for item, own in zip(items, self._shares_of(items), strict=True):
            if isinstance(item, Span):
                part = max(own, slowed)
                self.compute(item.slowed(self.slowed.factor(part)) if part else item, timer)
            elif isinstance(item, Wait):
                self.wait(chain.from_iterable(self._outstanding.pop(item.dimension, ())))
            elif isinstance(item, Level):
                self.begin()
            else:
                self._exchange(item, timer)

    def _shares_of(self, items: Sequence[Timed]) -> list[float]:
        """Give the `shares` of items, which are the same ones in each pass through blocks alike."""
        if id(items) not in self._shares:
            self._shares[id(items)] = items, shares(items, self._least)
        return self._shares[id(items)][1]

    def _least(self, item: Exchange) -> float:
        """Least time of an exchange, s; infinite if kernels slow beside it all along."""
        group = self.group(item.dimension)
        if len(group) == 1:
            return 0.0
        counted = item.dimension == "expert" or (self.slowed.buffers and item.dimension == "tensor")
        return self.slowed.seconds(item.collective, group, item.size + item.weights) if counted else inf

    def _exchange(self, item: Exchange, timer: str) -> None:
        if item not in self._calls:
            self._calls[item] = self.placement.calls(item, self.rank)
        calls = self._calls[item]
        if not calls:
            return
        more = self._beyond_links(item) + item.behind
        self.launch(timer)
        if not item.asynchronous:
            self.builder.join_all([self._next(call) for call in calls], self.rank, timer)
            if more:
                self.compute(Span(more, 0, more), timer)
            return
        before = self._outstanding.setdefault(item.dimension, [])
        after = (*chain.from_iterable(before[-1:]), *self.last())
        ops = [self.beside(call, timer, after=after) for call in calls]
        before.append([self.builder.compute_beside(self.rank, more, timer, after=ops)] if more else ops)

    def _beyond_links(self, item: Exchange) -> int:
        """Give the time by which kernels that pull an exchange over NVLink are behind the links at their best, ps.

        Between hosts the network is slower, and kernels keep up with it.
        """
        if not item.least or self.placement.expert_hosts > 1:
            return 0
        return round(item.least - min(self._least(item) * PS_PER_S, item.least))

    def join(self, call: Call, timer: str, *, after: Iterable[int] = ()) -> int:
        """Take part in the next call of a group, and wait for it; returns the op."""
        return self.builder.join(self._next(call), self.rank, timer, after=after)

    def beside(self, call: Call, timer: str, *, after: Iterable[int]) -> int:
        """Take part in the next call of a group once `after` are done, and go on beside it; returns the op."""
        return self.builder.join(self._next(call), self.rank, timer, stream=OVERLAPPED_STREAM, after=after)

    def _next(self, call: Call) -> int:
        self.flush()
        self._level = False
        return self.builder.next_call(self.rank, call)
