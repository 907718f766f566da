"""Kernels whose times were measured, and which of a job they are.

The measured time of a product of the same shape is taken, or else that of its transpose, ``C^T = B^T A^T``: which of
both a library is asked for hangs on how a framework stores weights, and the work is the same. An attention is known by
its shape and whether a causal mask hid half of it, a memory-bound kernel by what it does and the bytes it moves.
"""

from functools import lru_cache
from typing import NamedTuple

from fabricsim.scenario.cluster import MeasuredKernel, MeasuredStream, Precision
from fabricsim.workload.attention import is_causal, is_windowed
from fabricsim.workload.work import Operation

_Shape = tuple[int, int, int, int]


class MeasuredTimes(NamedTuple):
    """Measured times, ps, by what they are of."""

    products: dict[tuple[_Shape, str], int]
    attentions: dict[tuple[str, _Shape, str, bool], int]
    streams: dict[tuple[str, int], int]

    def of(self, operation: Operation, precision: Precision) -> int | None:
        """Give the time of a kernel; None if it was not measured."""
        shape = operation.shape
        if shape is None:
            return self.streams.get((operation.name, operation.traffic))
        if operation.kernel != "product":
            if is_windowed(operation):  # no list tells windows
                return None
            return self.attentions.get((operation.kernel, shape, precision, is_causal(operation)))
        batch, rows, inner, columns = shape
        found = self.products.get((shape, precision))
        return self.products.get(((batch, columns, inner, rows), precision)) if found is None else found


@lru_cache(maxsize=16)
def measured_times(kernels: tuple[MeasuredKernel, ...], streams: tuple[MeasuredStream, ...]) -> MeasuredTimes | None:
    """Put what a GPU says was measured in order; None if that is nothing."""
    if not kernels and not streams:
        return None
    attentions: dict[tuple[str, _Shape, str, bool], int] = {}
    for each in sorted(kernels, key=lambda each: each.causal is not None):  # what says it is causal or not counts more
        if each.kernel != "product":
            for causal in (False, True) if each.causal is None else (each.causal,):
                attentions[each.kernel, each.shape, each.precision, causal] = each.time
    return MeasuredTimes(
        {(each.shape, each.precision): each.time for each in kernels if each.kernel == "product"},
        attentions,
        {(each.operation, each.bytes): each.time for each in streams},
    )
