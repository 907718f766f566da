"""A run as a timeline for Perfetto, chrome://tracing, TensorBoard and Holistic Trace Analysis (HTA).

The form is the JSON of "Trace Event Format" (Google, 2016), with categories, names and arguments as PyTorch's profiler
has them. What a collective moves is counted in bytes (``"dtype": "Byte"``): a result does not know its data type.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from isal.igzip import IGzipFile
from numpy.typing import NDArray

from fabricsim.errors import ResultError
from fabricsim.files.atomic import whole
from fabricsim.report.trace_events import counters
from fabricsim.report.trace_events.lines import Lines, compact, lines
from fabricsim.report.trace_events.slices import (
    BESIDE_STREAM,
    COMPUTE_STREAM,
    FIRST_STREAM,
    HOST_THREAD,
    PLACE,
    STEPS,
    THREAD,
    DrawnOps,
    Slices,
)
from fabricsim.results.breakdown import rank_count
from fabricsim.results.places import place_of
from fabricsim.results.result import RunRecord
from fabricsim.units import PS_PER_S

_WAY_OUT = "name a file in a folder that exists and has room"
_AT_ONCE = 2**20
_AHEAD = 4
"""Bunches of lines that may wait for the thread that writes them."""
_BUNCH = 256


def write_timeline(result: RunRecord, path: Path) -> None:
    """Write one file with all ranks, arrows from sends to receives, and counters.

    `path`: file to write; packed if its name ends with ``.gz``.
    Raises ResultError if nothing ran, or the file cannot be written.
    """
    slices = _drawn(result)
    pid = rank_count(result)
    with whole(path, _WAY_OUT, ResultError) as part, _opened(part, path.name) as file:
        _write(file, _about(result, slices, None), _all(slices, pid))


def write_timelines(result: RunRecord, folder: Path) -> int:
    """Write one file for each simulated rank, such as ``rank0.json.gz``, into a folder that is there.

    Returns: how many.
    Raises ResultError if nothing ran, or a file cannot be written.
    """
    slices, files = _drawn(result), 0
    for (rank,), drawn in slices.ranks(each=True):
        path = folder / f"rank{rank}.json.gz"
        with whole(path, _WAY_OUT, ResultError) as part, _opened(part, path.name) as file:
            _write(file, _about(result, slices, rank), _of_ranks(slices, [rank], drawn))
        files += 1
    return files


def _drawn(result: RunRecord) -> Slices:
    slices = Slices.of(result)
    if not len(slices.order):
        raise ResultError(f"{result.name}: there is nothing to draw; the program holds no work")
    return slices


@contextmanager
def _opened(part: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file to be written, packed if its name ends with ``.gz``: by ISA-L, six times as fast as zlib.

    No time and no name is in it, so that the same run gives the same bytes.
    """
    with part.open("wb", buffering=_AT_ONCE) as file:
        if not name.endswith(".gz"):
            yield file
            return
        packed = IGzipFile("", "wb", 1, file, mtime=0)  # type: ignore[no-untyped-call]
        with packed, BufferedWriter(packed, _AT_ONCE) as text:
            yield cast("BinaryIO", text)


def _write(file: BinaryIO, about: dict[str, Any], events: Iterable[bytes | Lines]) -> None:
    """Write the head, and what ends with a comma and a line's end each.

    Lines are written out, packed and stored by a thread of their own, while the next ones are chosen.
    """
    file.write(compact(about)[:-1] + b',"traceEvents":[\n')
    with ThreadPoolExecutor(1) as thread:
        ahead = deque[Future[None]]()
        for bunch in _bunches(events):
            ahead.append(thread.submit(_store, file, bunch))
            if len(ahead) > _AHEAD:
                ahead.popleft().result()
        for each in ahead:
            each.result()
    last = {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 0}}
    file.write(compact(last) + b"\n]}\n")


def _bunches(events: Iterable[bytes | Lines]) -> Iterator[list[bytes | Lines]]:
    bunch = list[bytes | Lines]()
    for event in events:
        bunch.append(event)
        if isinstance(event, Lines) or len(bunch) == _BUNCH:
            yield bunch
            bunch = []
    yield bunch


def _store(file: BinaryIO, bunch: list[bytes | Lines]) -> None:
    file.writelines(event.text() if isinstance(event, Lines) else event for event in bunch)


def _about(result: RunRecord, slices: Slices, rank: int | None) -> dict[str, Any]:
    """Say what a reader of distributed traces looks for."""
    world = rank_count(result)
    _, calls = np.unique(slices.groups.number, return_index=True)
    of_group = [result.calls.kinds[kind].dimension for kind in result.calls.kind[calls]]
    groups = [
        {"pg_name": f"{number:08}", "pg_desc": of_group[number], "pg_size": len(ranks), "ranks": list(ranks)}
        for number, ranks in enumerate(slices.groups.members)
        if ranks and (rank is None or rank in ranks)
    ]
    distributed = {"backend": "nccl", "world_size": world, "pg_count": len(groups), "pg_config": groups}
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "otherData": {"name": result.name, "transport": result.transport, "fabricsim": result.version},
        "distributedInfo": distributed if rank is None else {"rank": rank, **distributed},
    }


def _all(slices: Slices, pid: int) -> Iterator[bytes | Lines]:
    for ranks, drawn in slices.ranks():
        yield from _of_ranks(slices, ranks, drawn)
    result = slices.result
    yield _named("process_name", pid, 0, "name", '"fabric"')
    yield from counters.rates(result.series, pid)
    yield from counters.held(result, pid)
    if result.packets is not None:
        yield from counters.taps(result.packets, pid)


def _of_ranks(slices: Slices, ranks: list[int], drawn: DrawnOps) -> Iterator[bytes | Lines]:
    result = slices.result
    folded = result.ranks is not None
    for rank in ranks:
        place = place_of(slices.places, rank)
        name = f"rank {rank}{f' ({place})' if place else ''}{', stands for others alike' if folded else ''}"
        yield _named("process_name", rank, 0, "name", json.dumps(name))
        yield _named("process_sort_index", rank, 0, "sort_index", str(rank))
        yield b"".join(_steps(result, rank))
    yield from _names_of_threads(result.ops["rank"][drawn.ops], drawn.threads, result.calls.dimensions)
    yield from slices.text(drawn)


def _names_of_threads(rank: NDArray[np.int32], threads: NDArray[np.int64], names: list[str]) -> Iterator[Lines]:
    """Write how the threads that ranks use are called and ordered."""
    most = int(threads.max()) + 1
    ranks, mine = np.divmod(np.unique(rank * np.int64(most) + threads), most)
    used, which = np.unique(mine, return_inverse=True)
    streams = [compact(_stream(thread, names)) for thread in used.tolist()]
    head, rest = b'{"ph":"M","name":"thread_name"', b',"args":{"name":'
    yield lines([[head, *PLACE, rest + stream + b"}},\n"] for stream in streams], which, (ranks, mine))
    head, rest = b'{"ph":"M","name":"thread_sort_index"', b',"args":{"sort_index":'
    yield lines([[head, *PLACE, rest, THREAD, b"}},\n"]], np.zeros(len(mine), np.int64), (ranks, mine))


def _steps(result: RunRecord, rank: int) -> Iterator[bytes]:
    """Write the iterations of a rank, as the profiler marks them."""
    marked = [(step.number, step.start, step.replayed) for step in result.steps if step.rank == rank]
    for number, start, duration in marked or [(0, 0, result.iteration)]:
        event = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": rank, "tid": STEPS}
        times = f',"ts":{_exact(start)},"dur":{_exact(duration)}}},\n'
        yield compact(event)[:-1] + times.encode()


def _exact(time: int) -> str:
    """Write ps as us."""
    us, ps = divmod(time, PS_PER_S // 10**6)
    return f"{us}.{ps:06}"


def _stream(thread: int, names: list[str]) -> str:
    if thread >= FIRST_STREAM:
        return f"stream {thread}: {names[thread // FIRST_STREAM - 1]}"
    if thread == HOST_THREAD:
        return "host"
    return f"stream {thread}: compute{'' if thread < BESIDE_STREAM else ' beside'}" if thread >= COMPUTE_STREAM else ""


def _named(what: str, pid: int, tid: int, key: str, value: str) -> bytes:
    """Write metadata; there are dozens of them for a rank, so not by json."""
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"{key}":{value}}}}},\n'.encode()
