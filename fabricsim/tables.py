"""Record types that cross the border between Python and the compiled engines.

One line per column, with its unit. Times are integer picoseconds, sizes integer bytes, rates float
bytes per second. An index of ``-1`` means none.
"""

from __future__ import annotations

import numpy as np

NONE = -1
"""No index."""

NEVER = int(np.iinfo(np.int64).max)
"""A time that does not come, picoseconds."""

COMPUTE = 0
"""Kind of an op: keeps its rank busy for a given time."""
COLLECTIVE = 1
"""Kind of an op: one rank's part of a collective call."""

MAIN_STREAM = 0
"""The rank waits for the op before it issues its next one."""
OVERLAPPED_STREAM = 1
"""The op runs beside the main stream."""

OP = np.dtype(
    [
        ("rank", np.int32),
        ("kind", np.int8),  # COMPUTE or COLLECTIVE
        ("stream", np.int8),  # MAIN_STREAM or OVERLAPPED_STREAM
        ("timer", np.int16),  # index into Program.timers
        ("call", np.int32),  # index into Program.calls; NONE for compute
        ("member", np.int32),  # the rank's place in the call's ranks; NONE for compute
        ("duration", np.int64),  # of a compute op, ps; 0 otherwise
        ("predecessors", np.int32),  # how many must be done before this op starts
        ("first_successor", np.int64),  # into Program.successors
        ("successors", np.int32),
    ],
    align=True,
)
"""A node of the program's DAG."""

SPAN = np.dtype([("start", np.int64), ("end", np.int64)], align=True)
"""When an op started (its predecessors were done) and ended, ps; one per op of the program."""
