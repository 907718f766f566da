"""The command that says what a report of a bug needs: doctor."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

from fabricsim.cli.common import JsonOption, say
from fabricsim.cli.sweep import cores

if TYPE_CHECKING:
    import typer

_OPTIONAL = ("pandas", "pyarrow", "xarray", "h5netcdf", "distributed", "optuna")


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(doctor)


def doctor(*, as_json: JsonOption = False) -> None:
    """Say what a report of a bug needs: versions, machine, cache of compiled kernels, optional packages."""
    found = _found()
    if as_json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for head, values in found.items():
        say(head)
        for name, value in values.items():
            say(f"  {name}: {value}")


def _found() -> dict[str, dict[str, Any]]:
    from fabricsim.jit.cache import cache_directory, can_keep  # noqa: PLC0415  imports numba
    from fabricsim.jit.compile import is_compiled  # noqa: PLC0415  as above
    from fabricsim.provenance import versions  # noqa: PLC0415  as above
    from fabricsim.scenario import library  # noqa: PLC0415  as above

    variables = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_DISABLE_JIT", "FABRICSIM_TRACES", "FABRICSIM_PEERS")
    return {
        "versions": versions(),
        "optional packages": {name: _version(name) for name in _OPTIONAL},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": cores(),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        },
        "kernels": {
            "cache": str(cache_directory()),
            "can be kept": can_keep(),
            **{f"{engine} compiled": is_compiled(engine) for engine in ("flow", "packet", "reference")},
        },
        "library": {"presets": str(library.root())},
        "environment": {name: os.environ[name] for name in variables if name in os.environ},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
