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
        Called after each run with the share that is done.

    Returns
    -------
    list of Result
        In the order of `loaded`.
    """
    results: list[Result] = []
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for result in pool.map(simulate, loaded):
            results.append(result)
            if progress is not None:
                progress(len(results) / len(loaded))
    return results
