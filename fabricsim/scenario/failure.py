"""What fails, and when: cables, NICs, hosts, switches and GPUs that are down, slow or lossy for a time."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Annotated

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Duration, Rate

_TARGETS = ("link", "switch", "nic", "host", "gpu")
_Interval = Annotated[Duration, Field(gt=0)]

BitErrorRate = Annotated[float, Field(ge=0, le=0.001)]


class Failure(Spec):
    """Something that fails: it is down, or is slower (``rate``) or loses packets (``bit_error_rate``) instead.

    One of ``link``, ``switch``, ``nic``, ``host`` and ``gpu`` names it; ``*`` and ``?`` stand for any characters. A
    link is both directions of a cable, ``"host0-leaf0"``, or one, ``"host0->leaf0"``, which can be slower or lossy; a
    cable that is down is down in both. Without ``until`` it lasts. With ``every`` it comes again, ``times`` times or
    without end; with ``mtbf`` and ``mttr`` it comes at random.
    """

    link: str | None = None
    switch: str | None = None
    nic: str | None = None
    host: str | None = None
    gpu: str | None = None
    begin: Annotated[Duration, Field(alias="from")] = 0
    until: Duration | None = None
    every: _Interval | None = None
    times: Annotated[int, Field(ge=2)] | None = None
    mtbf: _Interval | None = None
    mttr: _Interval | None = None
    rate: Rate | None = None
    bit_error_rate: BitErrorRate | None = None

    @property
    def target(self) -> tuple[str, str]:
        """Kind and name of what fails; the first if several are named."""
        return next((kind, getattr(self, kind)) for kind in _TARGETS if getattr(self, kind) is not None)

    @property
    def degrades(self) -> bool:
        """Whether it is slower or lossy, and not down."""
        return self.rate is not None or self.bit_error_rate is not None

    def intervals(self, draw: Callable[[], float]) -> Iterator[tuple[int, int | None]]:
        """Yield beginning and end (None: never) of each failure, ps, one after the other.

        `draw`: gives exponentially distributed numbers of mean 1, for ``mtbf`` and ``mttr``: failures and repairs that
            come at constant rates.
        """
        if self.mtbf is not None and self.mttr is not None:
            now = self.begin
            while True:
                begin = now + max(round(self.mtbf * draw()), 1)
                now = begin + max(round(self.mttr * draw()), 1)
                yield begin, now
        elif self.every is not None and self.until is not None:
            for turn in count() if self.times is None else range(self.times):
                yield self.begin + turn * self.every, self.until + turn * self.every
        else:
            yield self.begin, self.until

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and way out of each mistake."""
        named = [kind for kind in _TARGETS if getattr(self, kind) is not None]
        if len(named) != 1:
            problem = "names nothing that fails" if not named else f"names {' and '.join(named)}, and one thing fails"
            yield named[0] if named else "link", problem, f"write one of {', '.join(_TARGETS)}"
        if self.gpu is not None and self.degrades:
            yield "gpu", "is a GPU, which is down or not", "take rate and bit_error_rate out, or name its nic"
        if self.until is not None and self.until <= self.begin:
            yield "until", "is not later than from", "write a later time"
        yield from self._of_repetition()

    def _of_repetition(self) -> Iterator[tuple[str, str, str]]:
        if (self.mtbf is None) != (self.mttr is None):
            yield "mtbf", "goes with mttr, the mean time to repair", "write both, or neither"
        if self.mtbf is not None and (self.until is not None or self.every is not None):
            yield "mtbf", "draws the times that until and every would give", "take one of them out"
        if self.every is not None and self.until is None:
            yield "every", "has no effect without until", "write until, the end of the first failure"
        if self.every is not None and self.until is not None and self.every <= self.until - self.begin:
            yield "every", "is no longer than one failure takes", "write a longer time"
        if self.times is not None and self.every is None:
            yield "times", "has no effect without every", "write every, or take it out"
