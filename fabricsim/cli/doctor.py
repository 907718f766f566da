"""The command that says what a report of a bug needs: doctor."""

import os
import platform
import shutil
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from fabricsim.cli.common import JsonOption, columns, say, say_json
from fabricsim.cli.sweep import cores

_OPTIONAL = ("pandas", "pyarrow", "xarray", "h5netcdf", "distributed", "optuna")

_VARIABLES = ("XDG_CACHE_HOME", "PYTHONPATH", "OMP_NUM_THREADS", "COLUMNS", "LANG", "LC_ALL", "SLURM_JOB_ID")


def doctor(*, as_json: JsonOption = False) -> None:
    """Say what a report of a bug needs.

    That is versions, machine, cache of compiled kernels, and optional packages.
    """
    found = _found()
    if as_json:
        say_json(found)
        return
    for head, values in found.items():
        say(head)
        for name, value in values.items():
            say(f"  {name}: {', '.join(value) or 'none' if isinstance(value, list) else value}")


def _found() -> dict[str, dict[str, Any]]:
    from fabricsim.jit.cache import can_keep  # noqa: PLC0415  imports numba
    from fabricsim.jit.compile import is_compiled  # noqa: PLC0415  as above
    from fabricsim.provenance import versions  # noqa: PLC0415  as above
    from fabricsim.scenario import library  # noqa: PLC0415  as above

    variables = (*_VARIABLES, *sorted(name for name in os.environ if name.startswith(("NUMBA_", "FABRICSIM_"))))
    points = metadata.entry_points()
    return {
        "versions": versions(),
        "optional packages": {name: _version(name) for name in _OPTIONAL},
        "installation": {
            "python": sys.executable,
            "fabricsim": str(Path(__file__).resolve().parents[1]),
            "presets": str(library.root()),
            "extensions": [
                f"{group} {point.name}"
                for group in sorted(points.groups)
                if group.startswith("fabricsim.")
                for point in points.select(group=group)
            ],
        },
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": cores(),
            "cores of the machine": os.cpu_count(),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
            "memory limit": _memory_limit(),
        },
        "kernels": {
            **_cache(),
            "can be kept": can_keep(),
            "threads": "one for each run; compare --jobs and sweep --workers run several at once",
            **{f"{engine} compiled": is_compiled(engine) for engine in ("flow", "packet", "reference")},
        },
        "output": {"encoding": sys.stdout.encoding, "terminal": sys.stdout.isatty(), "columns": columns()},
        "environment": {name: os.environ[name] for name in dict.fromkeys(variables) if name in os.environ},
    }


def _cache() -> dict[str, str]:
    """Say where compiled kernels are, how many there are, and what room there is."""
    from fabricsim.jit.cache import cache_directory  # noqa: PLC0415  imports numba

    folder = cache_directory()
    if folder is None or not folder.is_dir():
        return {"cache": str(folder)}
    sizes = [file.stat().st_size for file in folder.rglob("*.nbc")]
    room = shutil.disk_usage(folder).free / 2**30
    held = f"{len(sizes)} programs, {sum(sizes) / 2**20:.0f} MiB; {room:.1f} GiB free"
    return {"cache": str(folder), "cache holds": held}


def _processor() -> str:
    """Model of the processor, as Linux has it."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return f"{platform.machine()}, {named[0]}" if named else platform.machine()
    return platform.machine()


def _memory_limit() -> str:
    """Say what a container, such as a job of Slurm, may take, by cgroup version 2."""
    with suppress(OSError, ValueError):
        told = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
        return "none" if told == "max" else f"{int(told) / 2**30:.1f} GiB"
    return "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
