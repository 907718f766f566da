"""Published studies, held against what is predicted; each a module or a package that has its ``STUDY``."""

import pkgutil

_FRAME = "frame"


def names() -> list[str]:
    """Names of the studies that ship, without loading one."""
    found = (info.name for info in pkgutil.iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in found if name != _FRAME)
