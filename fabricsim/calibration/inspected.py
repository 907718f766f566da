"""Times of collectives from logs of NCCL's inspector: what a job's own calls took, by size."""

from collections import defaultdict
from pathlib import Path

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.files.sources import sources
from fabricsim.run.bench import COLLECTIVES
from fabricsim.traces import inspector
from fabricsim.traces.inspector import InspectedOp

_MOST = 5_000_000  # rows that are held at most: about half a gigabyte


def times_by_size(path: Path, test: str | None) -> tuple[str, list[int], list[float], int, int]:
    """Give the time of a collective over the largest communicator, by size.

    A rank's time includes that for which it waits for the others, and only the last to come waits for nobody: of each
    call the least of all ranks counts, of each size the median of the calls.

    `path`: a log, or a folder of logs, one per process.
    `test`: the collective; where None, that of most calls.
    Returns: collective, sizes (bytes), times (s), ranks, and hosts or 0.
    Raises TraceError if the log is damaged, too long, or has no such call.
    """
    rows = [row for row in _rows(path) if row.operation in COLLECTIVES]
    most = max((row.ranks for row in rows), default=0)
    rows = [row for row in rows if row.ranks == most]
    calls: list[str] = [row.operation for row in rows]
    name = test or max(COLLECTIVES, key=calls.count)
    by_size: dict[int, dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.operation == name and row.size and row.seconds > 0:
            by_size[row.size][row.group, row.rank].append(row.seconds)
    if not by_size:
        msg = f"has no call of {test or ', '.join(COLLECTIVES)} over its largest communicator, of {most} ranks"
        raise TraceError(path, msg)
    sizes = sorted(by_size)
    hosts = max(row.nodes for row in rows)
    return name, sizes, [_undisturbed(by_size[size]) for size in sizes], most, hosts


def _rows(path: Path) -> list[InspectedOp]:
    found: list[InspectedOp] = []
    for source in sources([path]):
        if not inspector.recognises(source.name, source.head):
            msg = "is JSON, but no log of NCCL's inspector; give one, a log of nccl-tests or a table of OSU"
            raise TraceError(source.label, msg)
        for row in inspector.rows(source):
            if len(found) == _MOST:
                raise TraceError(source.label, f"the logs have more than {_MOST} operations; give fewer of them")
            found.append(row)
    return found


def _undisturbed(ranks: dict[tuple[str, int], list[float]]) -> float:
    """Median over calls of the least over ranks; calls of a size come in the same order on all ranks of a group."""
    groups: dict[str, list[list[float]]] = defaultdict(list)
    for (group, _), times in ranks.items():
        groups[group].append(times)
    calls = [min(at_once) for of_ranks in groups.values() for at_once in zip(*of_ranks, strict=False)]
    return float(np.median(calls))
