"""Many scenarios at once, in threads: kernels run without the GIL, the Python around them does not."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from fabricsim.run.pipeline import simulate
from fabricsim.run.result import Result
from fabricsim.scenario.load import LoadedScenario


def simulate_all(
    loaded: Sequence[LoadedScenario], *, jobs: int = 1, progress: Callable[[float], None] | None = None
) -> list[Result]:
    """Simulate scenarios, `jobs` at a time.

    `loaded`: what to run.
    `jobs`: threads. Results do not depend on it.
    `progress`: called in this thread with the share that is done: after each run, and with one job also within a run.
    Returns: in the order of `loaded`.
    Raises FabricsimError: the first one of a run; runs that have not begun are given up.
    """
    results: list[Result] = []
    for result in _one_by_one(loaded, progress) if jobs == 1 else _at_once(loaded, jobs):
        results.append(result)
        if progress is not None:
            progress(len(results) / len(loaded))
    return results


def _one_by_one(loaded: Sequence[LoadedScenario], progress: Callable[[float], None] | None) -> Iterator[Result]:
    """Simulate in this thread, where Ctrl-C is felt at once."""
    for index, one in enumerate(loaded):
        yield simulate(one, progress=part(progress, index, len(loaded)))


def _at_once(loaded: Sequence[LoadedScenario], jobs: int) -> Iterator[Result]:
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(simulate, loaded)


def part(progress: Callable[[float], None] | None, index: int, count: int) -> Callable[[float], None] | None:
    """Make a progress callback for one of `count` equal parts of the work out of that for all of it."""
    if progress is None:
        return None
    return lambda share: progress((index + share) / count)
