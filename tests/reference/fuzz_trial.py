"""Reads one damaged file after the other, and uses what was read, within limits; for `fuzz_readers`.

The limits stay for the rest of the process.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from fabricsim.errors import InputError, ScenarioError
from fabricsim.records.program import CLOCK_END
from fabricsim.traces.inspecting import inspect
from tests.reference import fuzz_uses, input_samples, trace_samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from fabricsim.traces.inspecting import Inspection

_NAME = "nccl_trace_rank_1"  # a name from which a rank can be read
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = ("os.", "shutil.", "subprocess.", "socket.", "pickle.", "tempfile.", "ctypes.")
_HARMLESS = (
    "os.listdir",
    "os.scandir",
    "os.getxattr",
    "os.listxattr",
    "os.walk",
    "os.fwalk",
    "shutil.get_terminal_size",
)
_CHANGES = {"os.mkdir": 1, "os.remove": 1, "os.rename": 2}
"""Changes that are allowed in an output folder, and how many paths they have."""


class TooSlow(BaseException):
    """The time allowed is over; no reader may catch it."""


class Forbidden(BaseException):
    """A reader has tried to write, or to run something; no reader may catch it."""

    def __init__(self, event: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(f"{event} {str(arguments)[:300]}")


@dataclass
class Limits:
    """What one input may take: s of CPU time, and bytes beyond what a process has after a first reading."""

    seconds: float = 10.0
    memory: int = 2**30


@dataclass
class Tally:
    """What became of the inputs of one process.

    `used` counts traces with which something was done, `uses` those of them with which it could be; `slowest_number` is
    the place of the input that took longest, counted from 0.
    """

    inputs: int = 0
    read: int = 0
    refused: int = 0
    used: int = 0
    uses: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    slowest_number: int = 0
    memory: int = 0

    def note(self, seconds: float) -> None:
        """Count an input, which took so long."""
        if seconds > self.slowest:
            self.slowest, self.slowest_number = seconds, self.inputs
        self.inputs += 1

    def measure(self) -> None:
        """Note how much memory this process has ever had."""
        self.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Guard:
    """Raises where Python is about to write or run something, while it is armed.

    Attributes
    ----------
    armed
        Whether it is.
    free
        Folder in which files may be made, renamed and removed; none if empty.
    forks
        Whether a copy of the process may be made, as the reader of results does to look at a file.
    """

    def __init__(self) -> None:
        self.armed = False
        self.free = ""
        self.forks = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            mode, flags = arguments[1], arguments[2]
            writes = set(mode or "r") & set("wax+") or (mode is None and (flags or 0) & _WRITES)
            if writes and not self._is_free(arguments[0]):
                raise Forbidden(event, arguments)
        elif event in _CHANGES:
            if not all(self._is_free(path) for path in arguments[: _CHANGES[event]]):
                raise Forbidden(event, arguments)
        elif event.startswith(_FORBIDDEN) and event not in _HARMLESS and not (self.forks and event == "os.fork"):
            raise Forbidden(event, arguments)

    def _is_free(self, path: Any) -> bool:  # noqa: ANN401  a path of any kind, or the number of an open file
        if path == os.devnull:  # which holds nothing
            return True
        if not self.free or isinstance(path, int):
            return False
        whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  pathlib leaves .. in
        return f"{whole}{os.sep}".startswith(f"{self.free}{os.sep}")


class Trial:
    """Reads one input after the other.

    Parameters
    ----------
    form
        Whose reader.
    folder
        Where inputs lie while they are read, beside the output folder; nothing else may be there.
    uses
        Every how many inputs that were read something is done with one; 0: never.
    """

    def __init__(self, form: str, folder: Path, uses: int = 0) -> None:
        self.form = form
        self.folder, self.output = folder, folder / "output"
        self.output.mkdir()
        self.file = folder / _NAME
        self.uses = uses
        self.warm = sorted(trace_samples.SAMPLES)  # forms whose readers are to be there before anything is forbidden
        self.guard = Guard()
        self.tally = Tally()

    def prepare(self, samples: list[bytes], limits: Limits) -> None:
        """Read samples as they are, so that kernels are compiled and modules imported; then set the limits."""
        self._warm_up(samples)
        self._cleared()
        self.limits = limits
        sys.dont_write_bytecode = True
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.signal(signal.SIGPROF, _too_slow)
        warnings.simplefilter("error")

    def _warm_up(self, samples: list[bytes]) -> None:
        fuzz_uses.lessen()
        known = [(sample, form) for form in self.warm for sample in trace_samples.SAMPLES[form]]
        for sample, form in [*known, *((sample, self.form) for sample in samples)]:
            self.file.write_bytes(sample)
            with suppress(InputError):
                inspect([self.file], form)
            for use, seed in product(fuzz_uses.USES, range(5)) if self.uses and form == self.form else ():
                with suppress(InputError):
                    use.run(self.file, form, self.output, Random(seed))  # noqa: S311  no secret

    def one(self, data: bytes, *, named: bool) -> str:
        """Read one input; gives what is wrong, or nothing.

        Parameters
        ----------
        data
            The input.
        named
            Whether the reader is named, or to be found.
        """
        self.file.write_bytes(data)
        began = _cpu_time()
        problem, form = self._read(self.form if named else None)
        if form and not problem and self.uses and self.tally.read % self.uses == 0:
            problem = self._use(form)
        self.tally.note(_cpu_time() - began)
        left = sorted(path.name for path in self.folder.iterdir())
        return problem or ("" if left == [_NAME, self.output.name] else f"left {left} behind")

    def _read(self, form: str | None) -> tuple[str, str]:
        """Give what is wrong, or nothing; and the form, if it is a trace that can be used."""
        found: list[Inspection] = []
        problem, refused = self._guarded(lambda: found.append(inspect([self.file], form)))
        self.tally.refused += refused
        self.tally.read += bool(found)
        trace = found[0]["trace"] if found and found[0] else None
        if trace and not 0 <= (trace["span_s"] or 0) <= CLOCK_END / 1e12:
            problem = f"spans {trace['span_s']} s"  # numbers have wrapped around
        return problem, trace["form"] if trace else ""

    def _use(self, form: str) -> str:
        """Do with a trace what can be done with it."""
        self.tally.used += 1
        self.guard.free = os.path.abspath(self.output)  # noqa: PTH100  as in the guard
        for use in fuzz_uses.USES:
            chance = Random(f"{self.tally.used}/{use.name}")  # noqa: S311  no secret
            problem, refused = self._guarded(
                lambda use=use, chance=chance: use.run(self.file, form, self.output, chance)
            )
            if problem:
                return f"{use.name}: {problem}"
            self.tally.uses[use.name] = self.tally.uses.get(use.name, 0) + (not refused)
            if left := [name for name in self._cleared() if refused or not name.startswith(fuzz_uses.WRITTEN)]:
                return f"{use.name}: left {left} in the output folder"
        self.guard.free = ""
        return ""

    def _cleared(self) -> list[str]:
        """Empty the output folder; gives the names of what was there."""
        there = list(self.output.iterdir())
        for path in there:
            path.unlink()
        return [path.name for path in there]

    def _guarded(self, run: Callable[[], None]) -> tuple[str, bool]:
        """Give what is wrong, or nothing; and whether the input was refused."""
        signal.setitimer(signal.ITIMER_PROF, self.limits.seconds)
        self.guard.armed = True
        try:
            run()
        except InputError as error:
            many = isinstance(error, ScenarioError)  # which lists mistakes, a few lines each
            fine = all(map(_readable, str(error).split("\n") if many else [str(error)]))
            return "" if fine else f"an error that is not one line of text: {str(error)[:300]!r}", True
        except BaseException:  # noqa: BLE001  anything else is what is looked for
            self.guard.armed = False
            return traceback.format_exc(), False
        else:
            return "", False
        finally:
            self.guard.armed = False
            signal.setitimer(signal.ITIMER_PROF, 0)


class FileTrial(Trial):
    """Gives a command one file after the other that is no trace: a kind of `input_samples`."""

    def _warm_up(self, samples: list[bytes]) -> None:
        for sample in samples:
            self.file.write_bytes(sample)
            input_samples.KINDS[self.form].read(self.file, self.output)

    def _read(self, form: str | None) -> tuple[str, str]:  # noqa: ARG002  there is one reader
        self.guard.free = os.path.abspath(self.output)  # noqa: PTH100  as in the guard
        self.guard.forks = self.form == "hdf5"
        problem, refused = self._guarded(lambda: input_samples.KINDS[self.form].read(self.file, self.output))
        self.tally.refused += refused
        self.tally.read += not refused and not problem
        self._cleared()
        return problem, ""


def _cpu_time() -> float:
    """Give the CPU time, s, of this process and of its copies that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _too_slow(number: int, frame: FrameType | None) -> NoReturn:
    raise TooSlow(number, frame)


def _readable(message: str) -> bool:
    return message.isprintable() and 0 < len(message) < 2000
