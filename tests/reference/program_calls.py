"""Calls of whole programs, and who sends in them: what plans are held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fabricsim.collectives.choice import Choose
from fabricsim.collectives.pairs import _added
from fabricsim.results.pairs import Pairs
from fabricsim.workload.program import Program
from fabricsim.workload.tally import EqualCalls, kinds


def program_calls(program: Program) -> Iterator[EqualCalls]:
    """Count the calls of a program, equal ones together, in order of their first appearance."""
    counts: Counter[tuple[str, str, int, int]] = Counter()
    for call, times in kinds(program):
        counts[call.dimension, call.collective, len(call.ranks), call.size] += times
    return (EqualCalls(*key, count) for key, count in counts.items())


def program_pairs(program: Program, choose: Choose, ranks_per_host: int, domain: int) -> Pairs:
    """Add up who sends to whom in a program that has all its ranks."""
    calls = ((call, times, np.array([call.ranks], np.int32)) for call, times in kinds(program))
    return _added(calls, program.ranks, choose, ranks_per_host, domain)
