"""Which software made a result."""

import functools
import platform
from importlib import metadata

UNKNOWN = "0+unknown"
"""Version of a package that runs from its sources and was never installed."""

_PACKAGES = ("numpy", "numba", "simpy", "networkx", "h5py", "pydantic")


@functools.cache
def version(package: str = "fabricsim") -> str:
    """Version of a package as installed.

    Returns: the version of the installed distribution; `UNKNOWN` if there is none.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return UNKNOWN


def versions() -> dict[str, str]:
    """Versions of everything that a result's numbers depend on.

    Returns: ``"fabricsim"``, ``"python"`` and the packages by name, always in this order. Nothing is imported for it,
        and nothing in it depends on the time or the machine's name.
    """
    return {
        "fabricsim": version(),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }
