"""Check that a wheel carries what a user needs besides modules.

Run as ``python check_wheel.py WORKLOADS WHEEL``: every file under the folder ``WORKLOADS`` has to be
in the wheel under ``fabricsim/workloads/``, byte for byte, and the typing marker and licence too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile


def missing(workloads: Path, wheel: Path) -> list[str]:
    """Name what the wheel lacks.

    Parameters
    ----------
    workloads
        The folder in the source tree.
    wheel
        The wheel.

    Returns
    -------
    list of str
        One line per file that is absent or differs; empty if all is well.
    """
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        lacking = [] if "fabricsim/py.typed" in names else ["fabricsim/py.typed"]
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
            lacking.append("LICENSE")
        for path in sorted(path for path in workloads.rglob("*") if path.is_file()):
            name = f"fabricsim/workloads/{path.relative_to(workloads).as_posix()}"
            if name not in names or archive.read(name) != path.read_bytes():
                lacking.append(name)
    return lacking


def main() -> None:
    """Check the wheel named on the command line."""
    workloads, wheel = (Path(argument) for argument in sys.argv[1:])
    if not any(workloads.rglob("*.toml")):
        sys.exit(f"{workloads} has no TOML file: there is nothing to compare the wheel with")
    if lacking := missing(workloads, wheel):
        sys.exit("\n".join([f"{wheel.name} lacks or differs in:", *(f"  {name}" for name in lacking)]))
    sys.stdout.write(f"{wheel.name} carries the workloads, py.typed and the licence\n")


if __name__ == "__main__":
    main()
