"""Tables that lie beside the modules of a package."""

import tomllib
from importlib import resources
from typing import Any


def tables(package: str, name: str) -> dict[str, Any]:
    """Read the TOML file of a name in a package."""
    return tomllib.loads((resources.files(package) / name).read_text(encoding="utf-8"))
