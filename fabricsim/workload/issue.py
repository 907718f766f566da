"""Kernels as the host issues them and the GPU runs them.

The host issues kernels one after the other, and goes on while they run and while the GPU takes part in
collectives. The GPU runs them in that order, none before it is issued. So the GPU waits if the host is behind,
and only there; what the host has gained while the GPU computed or communicated it uses up later.

With ``h`` per kernel and runs ``r_1 .. r_n`` on a GPU that the host starts out level with, kernel ``k`` is done at
``d_k = max(d_{k-1} + r_k, k h)``. Three numbers say that of any row of kernels: the sum of the runs, ``n h``, and
``d_n``. Rows put one behind the other are a product in the max-plus algebra (Baccelli et al., "Synchronization and
Linearity", 1992, chapter 1): a GPU that is free at ``f``, and a host that begins to issue the row at ``b``, are done
with it at ``max(f + sum of runs, b + d_n)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SHARE_OF_PYTORCH = 37.1 / 99.7
"""Share of the host's time for a kernel of Transformer Engine that PyTorch takes for its own.

Of their linear layers on Grace (NVIDIA/TransformerEngine, issue 2053); 0.31 by forward and backward pass of one on H100
(issue 445)."""


class Span(NamedTuple):
    """A row of kernels, all times in ps.

    `run`: how long the GPU is busy with it.
    `issue`: how long the host is.
    `alone`: from when the host begins to issue it until a GPU that waits for it is done.
    """

    run: int
    issue: int
    alone: int

    def then(self, following: Span) -> Span:
        """Put another row behind this one."""
        return Span(
            self.run + following.run,
            self.issue + following.issue,
            max(self.alone + following.run, self.issue + following.alone),
        )

    def slowed(self, factor: float) -> Span:
        """Give the same row where all kernels run longer.

        Exact where the GPU or the host holds up all of it; where they take turns, at most `factor` times the
        time that the row takes alone.
        """
        run = round(self.run * factor)
        return Span(run, self.issue, max(self.alone, run))


EMPTY = Span(0, 0, 0)
"""No kernels."""


def kernel(run: int, launch: int) -> Span:
    """One kernel."""
    return Span(run, launch, max(run, launch))


def collective(launch: int) -> Span:
    """One collective: the host issues it, too; how long it runs is not known here."""
    return Span(0, launch, 0)


def waited(duration: int) -> Span:
    """Work of the host while the GPU waits."""
    return Span(duration, duration, duration)


def row(spans: Iterable[Span]) -> Span:
    """Put rows one behind the other."""
    total = EMPTY
    for span in spans:
        total = total.then(span)
    return total
