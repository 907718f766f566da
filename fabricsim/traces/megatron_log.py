"""Training logs of Megatron-LM: times of iterations, timers, and the arguments that say how the job is divided.

Form after `training_log` and `print_args` of ``megatron/training`` and `Timers` of ``megatron/core/timers.py``::

     iteration        3/     100 | consumed samples: 48 | elapsed time per iteration (ms): 362.6 | ...
    time (ms) | forward-compute: 52.84 | optimizer: 25.15
    (min, max) time across ranks (ms):
        forward-backward ....................: (310.12, 318.95)

The second line is what releases before 2023 print of one rank, the last two what later ones print of all. What is not
there stays unknown: of a job on several hosts only the first prints arguments, and only the last iterations.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.files.text import without_launcher_prefix

MOST_ITERATIONS = 2**20
MOST_TIMERS = 256
MOST_WARM_UP = 10
"""Iterations left out at most."""

ARGUMENTS = (
    "world_size",
    "data_parallel_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "micro_batch_size",
    "seq_length",
    "num_layers",
    "hidden_size",
)
"""Arguments that are told; each a whole number."""

_ITERATION = re.compile(r"(?<!\S)iteration {1,20}(\d{1,9})/ {0,20}\d{1,9} {0,20}\|(.*)")
_ARGUMENT = re.compile(r"\s{0,40}(\w{1,60}) \.{1,80} (\d{1,12})\s{0,20}$")
_ACROSS = re.compile(r"\(min, max\) time across ranks \(ms\):|max time across ranks \(ms\):")
_THROUGHPUT = ("throughput per GPU (TFLOP/s/GPU)", "TFLOPs")


class IterationSpread(TypedDict):
    """Median and percentiles, interpolated, of the iterations that count."""

    median: float
    p10: float
    p90: float


class TimerRow(TypedDict):
    """A timer: medians of its shortest and its longest time on a rank, s, over the iterations that have it.

    Most have it in all `iterations`, others now and then, as saving does. The shortest is null if it is not printed.
    """

    name: str
    iterations: int
    min_s: float | None
    max_s: float


class MegatronSummary(TypedDict):
    """What a training log says.

    `warm_up` of the `iterations` that are printed come first and do not count: the first tenth, at least one and at
    most `MOST_WARM_UP`, as the first ones load data, allocate memory and connect. Each stands for the `interval` that
    came before, of whose times Megatron-LM prints the mean. `skipped_updates` are iterations that an overflow of the
    loss scale ended without an optimizer step. `tflops_per_gpu` is as printed. What is not printed is null.
    """

    iterations: int
    warm_up: int
    interval: int
    skipped_updates: int
    time_s: IterationSpread
    samples_per_s: IterationSpread | None
    tokens_per_s: IterationSpread | None
    tflops_per_gpu: IterationSpread | None
    global_batch: int | None
    arguments: dict[str, int]
    timers: list[TimerRow]
    timers_of: str


@dataclass
class _Iteration:
    number: int
    time: float
    batch: float | None
    tflops: float | None
    skipped: float
    timers: dict[str, tuple[float | None, float]] = field(default_factory=dict)


@dataclass
class IterationCollector:
    """Takes a log line by line. `source`: name of the log, for messages."""

    source: str
    iterations: list[_Iteration] = field(default_factory=list)
    arguments: dict[str, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    across: bool = False

    def take(self, number: int, line: str) -> None:
        """Take a line; raises `TraceError` if it says what no job does."""
        line = without_launcher_prefix(line)
        if (match := _ITERATION.search(line)) is not None:
            self._take_iteration(number, int(match[1]), _fields(match[2]))
        elif line.lstrip().startswith("time (ms) |"):
            found = _fields(line.partition("|")[2])
            self._take_timers(number, {name: (None, value) for name, value in found.items()})
        elif self.across:
            self._take_row(number, line)
        elif _ACROSS.search(line):
            self.across = True
        elif (match := _ARGUMENT.match(line)) is not None and match[1] in ARGUMENTS:
            self.arguments.setdefault(match[1], int(match[2]))

    def finish(self) -> MegatronSummary:
        """Sum up; raises `TraceError` if there is no iteration."""
        if not self.iterations:
            msg = "no iteration of Megatron-LM in it; give the log of the last rank, which prints them"
            raise TraceError(self.source, msg)
        warm_up = min(max(len(self.iterations) // 10, 1), MOST_WARM_UP, len(self.iterations) - 1)
        counted = self.iterations[warm_up:]
        rates = [each.batch / each.time for each in counted if each.batch]
        length = self.arguments.get("seq_length")
        batches = [each.batch for each in counted if each.batch]
        return {
            "iterations": len(self.iterations),
            "warm_up": warm_up,
            "interval": self._interval(),
            "skipped_updates": int(sum(each.skipped for each in self.iterations)),
            "time_s": _spread([each.time for each in counted]),
            "samples_per_s": _spread(rates) if rates else None,
            "tokens_per_s": _spread([rate * length for rate in rates]) if rates and length else None,
            "tflops_per_gpu": _spread(printed)
            if (printed := [each.tflops for each in counted if each.tflops])
            else None,
            "global_batch": int(batches[-1]) if batches else None,
            "arguments": {name: self.arguments[name] for name in ARGUMENTS if name in self.arguments},
            "timers": _timers(counted),
            "timers_of": "all ranks" if any(low is not None for low, _ in self._times()) else "the rank that prints",
        }

    def _times(self) -> list[tuple[float | None, float]]:
        return [times for each in self.iterations for times in each.timers.values()]

    def _interval(self) -> int:
        steps = np.diff([each.number for each in self.iterations])
        return int(np.median(steps[steps > 0])) if np.any(steps > 0) else 1

    def _take_iteration(self, line: int, number: int, found: dict[str, float]) -> None:
        self.across = False
        time = found.get("elapsed time per iteration (s)", found.get("elapsed time per iteration (ms)", math.nan) / 1e3)
        if math.isnan(time):
            return  # of another program, or without its time
        if time <= 0:
            raise TraceError(self.source, f"iteration {number} takes {time} s; the log is damaged", line)
        if len(self.iterations) == MOST_ITERATIONS:
            raise TraceError(self.source, f"more than {MOST_ITERATIONS} iterations; cut the log", line)
        tflops = next((found[name] for name in _THROUGHPUT if name in found), None)
        skipped = found.get("number of skipped iterations", 0.0)
        self.iterations.append(_Iteration(number, time, found.get("global batch size"), tflops, max(skipped, 0.0)))

    def _take_row(self, number: int, line: str) -> None:
        """Take a row of times across ranks; any other line ends their table."""
        name, _, values = line.rpartition(":")
        times = [_number(value) for value in values.strip(" ()").split(",")]
        known = [time for time in times if time is not None]
        self.across = bool(name.strip()) and len(known) == len(times) <= 2  # noqa: PLR2004  min and max
        if self.across:
            self._take_timers(number, {name.strip(" .\t"): (known[0] if len(known) > 1 else None, known[-1])})

    def _take_timers(self, line: int, found: dict[str, tuple[float | None, float]]) -> None:
        if not self.iterations:
            return  # of the set-up
        self.names |= found.keys()
        if len(self.names) > MOST_TIMERS:
            raise TraceError(self.source, f"more than {MOST_TIMERS} timers; the log is damaged", line)
        scaled = {
            name: (None if low is None else low / 1e3, high / 1e3) for name, (low, high) in found.items() if high >= 0
        }
        self.iterations[-1].timers |= scaled


def _fields(text: str) -> dict[str, float]:
    """Give the numbers of ``name: value | name: value``."""
    pairs = (part.rpartition(":") for part in text.split("|"))
    return {name.strip(): value for name, _, text in pairs if (value := _number(text)) is not None and name.strip()}


def _number(text: str) -> float | None:
    try:
        value = float(text) if text.isascii() and len(text) <= 40 else math.nan  # noqa: PLR2004  no number is longer
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None  # noqa: PLR2004  nor larger; of NaN, too


def _spread(values: Sequence[float]) -> IterationSpread:
    low, median, high = np.percentile(values, (10, 50, 90)).tolist()
    return {"median": median, "p10": low, "p90": high}


def _timers(counted: Sequence[_Iteration]) -> list[TimerRow]:
    names = dict.fromkeys(name for each in counted for name in each.timers)
    rows = [_timer(name, [each.timers[name] for each in counted if name in each.timers]) for name in names]
    return sorted(rows, key=lambda row: -row["max_s"] * row["iterations"])


def _timer(name: str, times: Sequence[tuple[float | None, float]]) -> TimerRow:
    lows = [low for low, _ in times if low is not None]
    return {
        "name": name,
        "iterations": len(times),
        "min_s": float(np.median(lows)) if lows else None,
        "max_s": float(np.median([high for _, high in times])),
    }


def recognises(head: bytes) -> bool:
    """Tell whether a file that begins so is such a log; its iterations may come later than its beginning."""
    return b"elapsed time per iteration (" in head or b"- end of arguments -" in head
