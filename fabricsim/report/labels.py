"""What tells several runs apart."""

from collections.abc import Sequence

from fabricsim.results.result import RunRecord

_NAMES = {"fabric": "name", "transport": "transport", "engine": "engine"}


def tell_apart(runs: Sequence[RunRecord]) -> tuple[str, list[str]]:
    """Name what runs differ in, and each run by it.

    `runs`: at least one.
    Returns: such as ``"transport"`` and the names of the transports; that of a single run is its transport.
    """
    told = {key: [getattr(run, field) for run in runs] for key, field in _NAMES.items()}
    differ = [key for key, names in told.items() if len(set(names)) > 1] or ["transport"]
    return " and ".join(differ), [", ".join(names) for names in zip(*(told[key] for key in differ), strict=True)]
