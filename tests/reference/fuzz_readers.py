"""Gives readers of traces and logs damaged files, and saves those that do not end as they should.

Each has to end in a trace, or in one error that a user can read; within the time and memory that is allowed, and
without writing, removing or running anything. So has what is done with the traces that were read, as of `fuzz_uses`,
which may write into an output folder only. A reader runs in processes of its own with a limit of memory (what they
have after a first reading, and ``--memory`` more). What the file system or another program would see is caught by an
audit hook of Python. Run from the project's folder::

    python -m tests.reference.fuzz_readers --form kineto --inputs 100000 --jobs 2 --output failures

The forms csv, hdf5, toml, xml and yaml are of files that users write, and of results (`input_samples`).

Inputs are damaged samples of `trace_samples`, and pieces of real files where ``FABRICSIM_TRACES`` names their folder.
One in ``--bombs`` is a decompression bomb. The same ``--seed`` gives the same inputs, however many jobs there are. With
``--atheris SECONDS`` that fuzzer finds inputs instead, guided by what code they reach, for so long or for ``--inputs``
runs, whichever is less (``pip install atheris``).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from tests.reference import fuzz_trial, mutations, trace_samples
from tests.reference.fuzz_trial import FileTrial, Limits, Tally, Trial
from tests.reference.input_samples import KINDS


def input_of(form: str, seed: int, number: int, samples: list[bytes], bombs: int) -> bytes:
    """Make an input; one in `bombs` is such."""
    chance = Random(f"{seed}/{number}")  # noqa: S311  no secret
    if form in KINDS:
        return KINDS[form].damage(chance, samples)
    if bombs and number % bombs == bombs - 1:
        return chance.choice(mutations.bombs())
    return mutations.mutate(chance, samples, jobs=True)


@dataclass
class Plan:
    """What one process has to do."""

    form: str
    first: int
    inputs: int
    jobs: int
    seed: int
    bombs: int
    uses: int
    output: Path
    traces: Path | None
    limits: Limits


def samples_of(form: str, traces: Path | None) -> list[bytes]:
    """Give the samples of a form and, as often, pieces of real files if there are any."""
    if form in KINDS:
        return KINDS[form].samples()
    made, real = trace_samples.SAMPLES[form], trace_samples.real_samples(form, traces) if traces else []
    return made * max(len(real) // len(made), 1) + real


def _work(plan: Plan, sender: Any, at: Any) -> None:  # noqa: ANN401  a connection has no public type
    """Run inputs ``first``, ``first + jobs``, ...; `at` always has the number of the one that is read."""
    samples = samples_of(plan.form, plan.traces)
    with tempfile.TemporaryDirectory() as folder:
        trial = (FileTrial if plan.form in KINDS else Trial)(plan.form, Path(folder), plan.uses)
        trial.prepare(samples, plan.limits)
        if plan.bombs:
            mutations.bombs()
        for number in range(plan.first, plan.inputs, plan.jobs):
            at.value = number
            data = input_of(plan.form, plan.seed, number, samples, plan.bombs)
            problem = trial.one(data, named=number % 4 != 0)
            if problem:
                trial.tally.failures.append(_save(plan, number, data, problem))
        trial.tally.measure()
        trial.tally.slowest_number = plan.first + plan.jobs * trial.tally.slowest_number
        sender.send(asdict(trial.tally))


def _save(plan: Plan, number: int, data: bytes, problem: str) -> str:
    plan.output.mkdir(parents=True, exist_ok=True)
    path = plan.output / f"{plan.form}-{plan.seed}-{number}"
    path.with_suffix(".input").write_bytes(data)
    path.with_suffix(".txt").write_text(problem, encoding="utf-8")
    return str(path.with_suffix(".input"))


def run(plan: Plan) -> Tally:
    """Run the inputs of one process; one that dies is replaced by another that goes on after what it died of."""
    total, first = Tally(), plan.first
    while True:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        at = context.RawValue("q", _NOWHERE)
        process = context.Process(target=_work, args=(Plan(**{**vars(plan), "first": first}), sender, at))
        process.start()
        sender.close()
        tally = _watch(receiver, process, at, plan.limits)
        process.join()
        if tally is not None:
            return _added(total, tally)
        last = at.value
        if last == _NOWHERE:
            raise RuntimeError(f"the reader of {plan.form} cannot even be started")
        data = input_of(plan.form, plan.seed, last, samples_of(plan.form, plan.traces), plan.bombs)
        done = (last - first) // plan.jobs + 1
        died = Tally(inputs=done, failures=[_save(plan, last, data, f"the process ended with {process.exitcode}")])
        total, first = _added(total, died), last + plan.jobs


_NOWHERE = -1
_BUSY = 30
"""How many times its CPU time an input may last on a machine that others use, too."""


def _watch(receiver: Any, process: Any, at: Any, limits: Limits) -> Tally | None:  # noqa: ANN401  as `_work`
    """Follow a process to its end, and end it if one input takes far too long, as compiled code may."""
    last, since = _NOWHERE, time.monotonic()
    while not receiver.poll(0.2):
        if at.value != last:
            last, since = at.value, time.monotonic()
        elif last != _NOWHERE and time.monotonic() - since > _BUSY * limits.seconds:
            process.kill()
    try:
        return Tally(**receiver.recv())
    except EOFError:
        return None


def _added(one: Tally, more: Tally) -> Tally:
    return Tally(
        one.inputs + more.inputs,
        one.read + more.read,
        one.refused + more.refused,
        one.used + more.used,
        {name: one.uses.get(name, 0) + more.uses.get(name, 0) for name in {**one.uses, **more.uses}},
        one.failures + more.failures,
        *max((one.slowest, one.slowest_number), (more.slowest, more.slowest_number)),
        max(one.memory, more.memory),
    )


def fuzz(plan: Plan) -> Tally:
    """Run all inputs of a form in ``jobs`` processes."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  each thread only waits for its process

    with ThreadPoolExecutor(plan.jobs) as pool:
        plans = [Plan(**{**vars(plan), "first": first}) for first in range(plan.jobs)]
        total = Tally()
        for tally in pool.map(run, plans):
            total = _added(total, tally)
    return total


def _instrument(atheris: Any) -> None:  # noqa: ANN401  a module that is seldom there
    """Import the readers anew, so that each branch they take is reported."""
    for name in [name for name in sys.modules if name.startswith("fabricsim.traces")]:
        del sys.modules[name]
    with atheris.instrument_imports(include=["fabricsim.traces"]):
        _ = import_module("fabricsim.traces.form").FORMS.own
        fuzz_trial.inspect = import_module("fabricsim.traces.inspecting").inspect


def guided(plan: Plan, seconds: int) -> None:
    """Let atheris find inputs; it ends the process, with a status that is not 0 if it has found a failure."""
    try:
        import atheris  # noqa: PLC0415  not needed for what stands in CI
    except ImportError:
        sys.exit("atheris is not there: pip install atheris, or leave out --atheris")
    samples = samples_of(plan.form, plan.traces)
    _instrument(atheris)
    folder = Path(tempfile.mkdtemp())
    trial = Trial(plan.form, folder)
    trial.warm = [plan.form]
    trial.prepare(samples, plan.limits)

    def test(data: bytes) -> None:
        problem = trial.one(data, named=True)
        if problem:
            raise AssertionError(f"{_save(plan, trial.tally.inputs, data, problem)}\n{problem}")

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        return mutations.mutate(Random(seed), [data, *samples] if data else samples, jobs=True)[:most]  # noqa: S311  no secret

    corpus = folder.parent / f"{folder.name}-corpus"
    corpus.mkdir()
    for number, sample in enumerate(samples):
        (corpus / str(number)).write_bytes(sample)
    flags = [f"-runs={plan.inputs}", f"-max_total_time={seconds}", f"-seed={plan.seed}", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *flags, "-print_final_stats=1", str(corpus)], test, custom_mutator=mutated)
    atheris.Fuzz()


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description="Give readers damaged files.")
    parser.add_argument(
        "--form", action="append", choices=sorted({**trace_samples.SAMPLES, **KINDS}), help="all traces where left out"
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bombs", type=int, default=5000, help="one input in so many is a bomb; 0: none")
    parser.add_argument("--uses", type=int, default=1, help="one in so many traces that were read is used; 0: none")
    parser.add_argument("--seconds", type=float, default=10, help="of CPU time that one input may take")
    parser.add_argument("--memory", type=int, default=2**30, help="bytes beyond what the process has after one reading")
    parser.add_argument("--output", type=Path, default=Path("failures"), help="where inputs go that fail")
    parser.add_argument("--atheris", type=int, metavar="SECONDS", help="let atheris find inputs, guided by coverage")
    given = parser.parse_args()
    traces = os.environ.get("FABRICSIM_TRACES")
    failed = False
    for form in given.form or sorted(trace_samples.SAMPLES):
        limits = Limits(given.seconds, given.memory)
        folder = Path(traces) if traces else None
        plan = Plan(
            form, 0, given.inputs, given.jobs, given.seed, given.bombs, given.uses, given.output, folder, limits
        )
        if given.atheris:
            guided(plan, given.atheris)
        began = time.monotonic()
        tally = fuzz(plan)
        failed |= bool(tally.failures)
        row = {"form": form, **asdict(tally), "seconds": round(time.monotonic() - began, 1)}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
