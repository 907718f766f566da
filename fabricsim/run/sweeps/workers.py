"""Who makes the runs of a sweep: this process, processes beside it, or a cluster of dask.

All are `concurrent.futures.Executor`; workers live as long as the sweep. Processes are copies of one that has imported
what runs need and has loaded the kernels (`fabricsim.run.sweeps.ready`), so that none has to do so again.
"""

import contextlib
import gc
import itertools
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any, NamedTuple

from fabricsim.errors import InputError, SimulationError

AHEAD = 4
"""Tasks of each worker that are handed out at once: what others wait for is short, and few are lost with a worker."""
PATIENCE = 3
"""Workers that may end with a task before it is given up."""
_OBJECTS = 50_000  # as on the command line: a run makes many objects and few circles
_SCHEMES = ("tcp://", "tls://", "ucx://", "ws://", "wss://", "inproc://")


class Workers(NamedTuple):
    """Who makes runs: so many processes, or a cluster of dask, as of `results`."""

    processes: int = 1
    scheduler: str | None = None


ALONE = Workers()
"""This process."""


class _InThisProcess(Executor):
    """Does what it is given at once: no second process is started for it, and none has to be waited for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401  as of the base
        """Call, and give a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  as an executor does
            future.set_exception(error)
        return future


def results(
    work: Callable[[Any], Any], tasks: Iterable[Any], workers: int, scheduler: str | None = None
) -> Iterator[tuple[Any, Any, BaseException | None]]:
    """Do some work for each task, and give each task when it is done, with what came of it or the error.

    `tasks`: each is asked for when a worker is about to be free, so that it may depend on what came of those before.
    `workers`: processes; with 1 this one does it all.
    `scheduler`: ``dask`` for a cluster of dask on this machine, an address such as ``tcp://host:8786`` for one that is
        there; None without dask.
    Raises InputError if dask is wanted and not installed, or there is nobody at the address.
    """
    if scheduler is not None:
        with _dask(scheduler, workers) as executor:
            ahead = AHEAD * (workers if scheduler == "dask" else _threads(executor))
            yield from _each(executor, work, tasks, ahead)
    elif workers == 1:
        yield from _each(_InThisProcess(), work, tasks, 1)
    else:
        yield from _by_processes(work, tasks, workers)


def _each(
    executor: Executor, work: Callable[[Any], Any], tasks: Iterable[Any], ahead: int
) -> Iterator[tuple[Any, Any, BaseException | None]]:
    """Keep `ahead` tasks handed out; ends with `BrokenProcessPool` if the pool does."""
    coming = iter(tasks)
    handed: dict[Future[Any], Any] = {}
    while True:
        for task in itertools.islice(coming, ahead - len(handed)):
            handed[executor.submit(work, task)] = task
        if not handed:
            return
        for future in wait(handed, return_when=FIRST_COMPLETED).done:
            error = future.exception() if not future.cancelled() else CancelledError("the scheduler gave it up")
            if isinstance(error, BrokenProcessPool):
                raise error
            yield handed.pop(future), None if error else future.result(), error


def _by_processes(
    work: Callable[[Any], Any], tasks: Iterable[Any], workers: int
) -> Iterator[tuple[Any, Any, BaseException | None]]:
    """Begin anew with those that are left when a worker is killed, its tasks first and one by one.

    Nobody knows which of the tasks that were handed out ended the worker, if one did; alone each one shows.
    """
    left: dict[int, Any] = {}
    suspects: list[int] = []
    ended: Counter[int] = Counter()
    coming = enumerate(tasks)

    def handed() -> Iterator[tuple[int, Any]]:
        yield from list(left.items())
        for number, task in coming:
            left[number] = task
            yield number, task

    while True:
        chosen = [(number, left[number]) for number in suspects] if suspects else handed()
        count, ahead = (1, 1) if suspects else (workers, AHEAD * workers)
        try:
            with _pool(count) as pool:
                for (number, task), found, error in _each(pool, partial(_numbered, work), chosen, ahead):
                    del left[number]
                    yield task, found, error
            if not suspects:
                return
            suspects = []
        except BrokenProcessPool:
            if not suspects:
                suspects = list(left)[:ahead]
                continue
            suspects = [number for number in suspects if number in left]
            ended[suspects[0]] += 1
            if ended[suspects[0]] == PATIENCE:
                msg = f"{PATIENCE} processes ended while they ran it; perhaps there is too little memory"
                yield left.pop(suspects.pop(0)), None, SimulationError(msg)


def _numbered(work: Callable[[Any], Any], task: tuple[int, Any]) -> Any:  # noqa: ANN401  of any work
    """Do the work of a task that has a number."""
    return work(task[1])


def make_ready() -> None:
    """Start the process that workers are copied from, unless it is there; it gets ready while this one goes on.

    It has one thread and does nothing more: a copy of this process could hold a lock or a kernel in its midst.
    """
    forkserver.set_forkserver_preload(["fabricsim.run.sweeps.ready"])
    # Ctrl-C and kill end this process; what it started follows, and says nothing of semaphores that it clears away
    warned = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [warned, "ignore:resource_tracker:UserWarning"]))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        resource_tracker.ensure_running()  # lets SIGINT through when it has started, so that it has to be there first
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONWARNINGS") if warned is None else os.environ.update(PYTHONWARNINGS=warned)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes; what is not begun when the block is left is given up."""
    make_ready()
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(dict(os.environ),))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(environment: dict[str, str]) -> None:
    """Make a process a worker, which ends when its parent does, even if that is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    gc.set_threshold(_OBJECTS, 20, 20)
    os.environ.clear()  # of the process that it is a copy of, which began earlier
    os.environ.update(environment)


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _dask(scheduler: str, workers: int) -> Iterator[Executor]:
    try:
        from distributed import Client, LocalCluster  # noqa: PLC0415  an extra
    except ImportError as error:
        msg = f"--scheduler {scheduler}: dask.distributed is not installed: pip install 'fabricsim[cluster]'"
        raise InputError(msg) from error
    if scheduler != "dask" and not scheduler.startswith(_SCHEMES):
        raise InputError(f"--scheduler {scheduler}: is no address; write dask, or an address such as tcp://host:8786")
    with contextlib.ExitStack() as stack:
        try:
            if scheduler == "dask":
                local = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
                cluster = stack.enter_context(LocalCluster(**local))
                client = stack.enter_context(Client(cluster))
            else:
                client = stack.enter_context(Client(scheduler, timeout=10, set_as_default=False))
        except OSError as error:
            msg = f"--scheduler {scheduler}: nobody answers ({error}); start dask scheduler there, or leave it out"
            raise InputError(msg) from error
        yield client.get_executor(pure=False)


def _threads(executor: Any) -> int:  # noqa: ANN401  of dask
    """Count the threads of a cluster of dask, at least 1."""
    return max(1, int(sum(executor._client.nthreads().values())))  # noqa: SLF001  the executor has no other way
