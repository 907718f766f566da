"""CSV files of AICB: the operations of rank 0 one after the other, as generated, or with the times that a run took.

Columns after ``LogItem`` in ``log_analyzer/log.py`` of github.com/aliyun/aicb; what sizes count after
``workload_applyer.py``, which runs them, and times after ``utils/benchmark_logger.py``, which takes them. Each is
waited for before the next is launched, so that what an iteration takes beyond its operations is the host's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fabricsim.files.lines import LineParser, lines
from fabricsim.files.sources import Source
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.form import Form
from fabricsim.traces.rank_groups import strided
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    WAIT,
    Communication,
    Operation,
    ProcessGroup,
    Recording,
    RecordingBuilder,
)
from fabricsim.units import PS_PER_NS

MOST_ROWS = 5_000_000
"""Operations of one file."""
MOST_RANKS = 2**20
"""Ranks of a job, and of a group."""

COLUMNS = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"
"""Header of a file."""

OPERATIONS: dict[str, Operation] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
    "isend": "send",
    "irecv": "recv",
}
"""Communications by their names in ``CommType`` (``utils/utils.py``)."""

_READ = tuple(COLUMNS.split(","))[:-2]  # neither the bus bandwidth nor the count is used
_NEEDED = frozenset(_READ[:4])
_MOST_SIZE = 2**53
_PS_PER_MS = 10**9
_RANKS = re.compile(r"\[rank0 ~ rank(\d{1,7})\]", re.ASCII)
_TIME = re.compile(r"\d{1,16}(?:\.\d{1,30})?(?:e[+-]?\d{1,2})?", re.ASCII)
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:\[rank0 ~ rank\d++\]\s*+)?(?=[^\n]*\bcomm_type\b)[^\n]*\bmsg_size\b")


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  the header says it all
    """Whether a file is of AICB: it begins with its columns, or with ranks and its columns."""
    return _HEAD.match(head) is not None


def read(source: Source) -> Iterator[Recording]:
    """Give the operations of rank 0.

    Yields: one, with one stream, as AICB waits for each operation. Durations are those measured, if there are; the end
        of an iteration is a node of kind WAIT, and where its time was measured a step, too, before which a node of the
        host has what its operations did not take. What comes before the first of them sets up and is no step; nor is
        the first iteration where others follow: connections are opened in it, and AICB reports it as "Init time".
    Raises TraceError if the columns are others, a row is cut, or a value cannot be used.
    """
    reader = _Reader(source)
    for number, line in lines(source):
        reader.number = number
        if line.strip():
            reader.take(line.strip())
    yield reader.finish()


class _Row(NamedTuple):
    type: str
    group: str
    group_size: str
    size: str
    stage: str
    dst: str
    src: str
    additional: str
    elapsed: str
    bandwidth: str


@dataclass
class _Reader(LineParser):
    """Takes the file line by line."""

    world: int = NONE
    columns: tuple[str, ...] = ()
    rows: int = 0
    measured: bool = False
    clock: int = 0  # ps, end of the last iteration
    ends: int = 0  # of iterations, and of what sets up
    busy: int = 0  # ps, operations of this iteration; NONE if one has no time
    sizes: dict[str, int] = field(default_factory=dict)  # of groups, once a row says

    def __post_init__(self) -> None:
        self.builder = RecordingBuilder(self.source.label)
        self.lane = self.builder.lane("stream", "rank")

    def take(self, line: str) -> None:
        if not self.columns:
            self._take_head(line)
            return
        self.rows += 1
        if self.rows > MOST_ROWS:
            self.fail(f"more than {MOST_ROWS} operations; cut the file to fewer iterations")
        parts = line.split(",")
        more = len(parts) - len(self.columns)
        if more < 0:
            self.fail(f"{len(parts)} columns, a row has {len(self.columns)}; the file is cut or damaged")
        size = self.columns.index("msg_size")  # of a matrix product it is two shapes, with commas
        parts[size : size + more + 1] = [",".join(parts[size : size + more + 1])]
        told = dict(zip(self.columns, parts, strict=True))
        row = _Row._make(told.get(name, "None") for name in _READ)
        kind, group = row.type.removeprefix("CommType."), row.group.removeprefix("CommGroup.")[:64]
        self._take_row(row._replace(type=kind, group=group))

    def finish(self) -> Recording:
        if not self.rows:
            self.fail("holds no operations; give the CSV file that AICB wrote")
        missing = self.builder.missing
        missing["what other ranks do: the file describes one rank that stands for all"] = None
        if not self.measured:
            missing["durations of communications: the file is a workload, and not the log of a run"] = None
        if self.builder.steps:
            missing["what of an operation's time is the host's: it launches the next when one has ended"] = None
            self._leave_out_the_first()
        if any(what.operation in {"send", "recv"} for what in self.builder.communications):
            missing["the other end of sends and receives: the file names the direction in the pipeline only"] = None
        self._count_ranks()
        names = [group.name for group in self.builder.groups]
        groups = [ProcessGroup(name, "", self._members(name), self._size_of(name)) for name in names]
        if not all(group.ranks for group in groups):
            missing["which ranks are in a group: the file gives their number"] = None
        self.builder.groups = {group: number for number, group in enumerate(groups)}
        return self.builder.build(0, self.world)

    def _leave_out_the_first(self) -> None:
        """Leave out the iteration in which connections are opened, if there are others."""
        steps = self.builder.steps
        if steps[0][0] != 1:
            return
        if len(steps) > 1:
            del steps[0]
            sentence = "how long the first iteration takes but for opening connections: it is none of the steps"
        else:
            sentence = "iterations but the first, whose time includes opening connections"
        self.builder.missing[sentence] = None

    def _take_head(self, line: str) -> None:
        match = _RANKS.fullmatch(line)
        if match and self.world == NONE:
            self.world = self.integer(match[1], "the last rank", MOST_RANKS - 1) + 1
        elif set(columns := tuple(line.split(","))) >= _NEEDED and len(set(columns)) == len(columns):
            self.columns = columns
        else:
            self.fail(f"{line!r} is not the header of AICB, which has {COLUMNS}")

    def _take_row(self, row: _Row) -> None:
        if row.type == "epoch_end":
            self._end_iteration(row)
        elif row.type == "computation":
            # A log has ms and a bandwidth; a generated workload ns (`workload_applyer.py` divides by 1e9) and none.
            scale = PS_PER_NS if row.bandwidth == "None" else _PS_PER_MS
            duration = self._elapsed(row, scale)
            self.builder.node(COMPUTE, self.lane, self._name(row), duration=duration)
            self._count_time(duration)
        elif row.type in OPERATIONS:
            duration = self._elapsed(row, _PS_PER_MS)
            self.measured |= duration != NONE
            communication = self._communication(row, OPERATIONS[row.type])
            self.builder.node(COMMUNICATION, self.lane, self._name(row), communication=communication, duration=duration)
            self._count_time(duration)
        else:
            self.fail(f"{row.type!r} is no operation of AICB; it is one of {', '.join(OPERATIONS)}, computation")

    def _count_time(self, duration: int) -> None:
        self.busy = NONE if NONE in {duration, self.busy} else self.busy + duration

    def _end_iteration(self, row: _Row) -> None:
        elapsed, number, busy = self._elapsed(row, _PS_PER_MS), self.ends, self.busy
        self.ends, self.busy = number + 1, 0
        if elapsed != NONE:
            end = self.clock + elapsed
            if end > CLOCK_END:
                self.fail(f"iterations of {end / 1e12:.3g} s in all; the simulated clock ends after 92 days")
            if number:
                self.builder.steps.append((number, self.clock, end))
                if NONE != busy < elapsed:
                    self.builder.node(HOST, self.lane, "between operations", duration=elapsed - busy)
            self.clock = end
        self.builder.node(WAIT, self.lane, row.type)

    def _communication(self, row: _Row, operation: Operation) -> Communication:
        if row.group_size != "None":
            size = self.integer(row.group_size, "comm_group_size", MOST_RANKS, least=1)
            if self.sizes.setdefault(row.group, size) != size:
                self.fail(f"{row.group} has {size} ranks here and {self.sizes[row.group]} above; give one job per file")
        root = row.dst if operation == "reduce" else row.src
        return Communication(
            operation,
            group=self.builder.group(row.group),
            size=self.integer(row.size, "msg_size", _MOST_SIZE) if operation != "barrier" else 0,
            peer=NONE if root in {"None", ""} else self.integer(root, "the root", MOST_RANKS - 1),
        )

    def _name(self, row: _Row) -> str:
        words = (word for word in (row.stage, row.additional) if word not in {"", "None"})
        return " ".join(words)[:256] or row.type

    def _size_of(self, name: str) -> int:
        return self.sizes.get(name, self.world if name == "all" else NONE)

    def _members(self, name: str) -> tuple[int, ...]:
        """Ranks of a group of rank 0 in AICB's order of ranks, tp-cp-ep-dp-pp, where sizes leave no choice."""
        size, tensor = self._size_of(name), self.sizes.get("tp_group", 1)
        if size != NONE and (size == self.world or name == "tp_group"):
            return strided(size)
        if name == "dp_group" and size * tensor == self.world:
            return strided(size, tensor)
        return ()

    def _count_ranks(self) -> None:
        """Take the job as all data and tensor parallel ranks (AICB's ``dp_num`` times them), if no stages exchange."""
        data, tensor = self.sizes.get("dp_group", NONE), self.sizes.get("tp_group", 1)
        pipelined = any(what.operation in {"send", "recv"} for what in self.builder.communications)
        if self.world == NONE and data != NONE and not pipelined:
            if data * tensor > MOST_RANKS:
                self.fail(f"dp_group of {data} and tp_group of {tensor} ranks; a job has {MOST_RANKS} at most")
            self.world = data * tensor
            sentence = f"how many ranks there are: data times tensor parallel ones, {data} x {tensor}, are taken"
            self.builder.missing[sentence] = None

    def _elapsed(self, row: _Row, scale: int) -> int:
        if row.elapsed == "None":
            return NONE
        if not _TIME.fullmatch(row.elapsed) or float(row.elapsed) * scale > CLOCK_END:
            self.fail(f"_elapsed_time is {row.elapsed!r}; it is a number of ms, less than 92 days, or None")
        return round(float(row.elapsed) * scale)


FORM = Form("aicb", "CSV workloads and logs of AICB", recognises, read)
