"""Many scenarios at once. Kernels run without the GIL, so threads are enough."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fabricsim.pipeline import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.results.result import Result
    from fabricsim.spec.load import LoadedScenario


def simulate_all(
    loaded: Sequence[LoadedScenario], *, jobs: int = 1, progress: Callable[[float], None] | None = None
) -> list[Result]:
    """Simulate scenarios, `jobs` at a time.

    Parameters
    ----------
    loaded
        What to run.
    jobs
        Threads. Results do not depend on it.
    progress
        Called in this thread with the share that is done: after each run, and with one job also
        within a run.

    Returns
    -------
    list of Result
        In the order of `loaded`.

    Raises
    ------
    FabricsimError
        The first one of a run; runs that have not begun are given up.
    """
    if jobs == 1:  # in this thread, so that Ctrl-C is felt at once
        return [simulate(one, progress=part(progress, index, len(loaded))) for index, one in enumerate(loaded)]
    results: list[Result] = []
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for result in pool.map(simulate, loaded):
            results.append(result)
            if progress is not None:
                progress(len(results) / len(loaded))
    return results


def part(progress: Callable[[float], None] | None, index: int, count: int) -> Callable[[float], None] | None:
    """Make a progress callback for one of `count` equal parts of the work out of that for all of it."""
    if progress is None:
        return None
    return lambda share: progress((index + share) / count)
