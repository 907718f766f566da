"""The system layer of ASTRA-sim 2 (JSON).

Keys after ``Sys::initialize_sys`` in ``astra-sim/system/Sys.cc`` of github.com/astra-sim/astra-sim.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fabricsim.errors import TraceError
from fabricsim.topology.astrasim_file import MOST_DIMENSIONS, read_text, refused

IMPLEMENTATIONS = {
    "all-reduce-implementation": "all_reduce",
    "reduce-scatter-implementation": "reduce_scatter",
    "all-gather-implementation": "all_gather",
    "all-to-all-implementation": "all_to_all",
}
"""Collectives by the keys that give their algorithm for each dimension."""
CUSTOM = {f"{key}-custom": collective for key, collective in IMPLEMENTATIONS.items()}
"""Collectives by the keys that name Chakra files of their algorithm (``CollectiveImplLookup.cc``)."""

_ALGORITHM = re.compile(r"[A-Za-z]{1,32}\d{0,5}", re.ASCII)


@dataclass(frozen=True)
class System:
    """What a system configuration says.

    `algorithms`: for each collective that it names, the algorithm of each dimension.
    `custom`: for some collectives the beginning of the names of Chakra files, which end in ``.<rank>.et``; these go
        before.
    `others`: other keys, as written and shortened.
    """

    path: Path
    algorithms: dict[str, tuple[str, ...]]
    custom: dict[str, str]
    others: dict[str, str]


def read_system(path: Path | str) -> System:
    """Read a system configuration.

    `path`: JSON of at most 64 KiB.
    Raises TraceError if it cannot be read, is no object, or an algorithm is no list of names, or of one beginning of
        files.
    """
    path = Path(path)
    try:
        decoded = msgspec.json.decode(read_text(path), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise TraceError(
            path, f"is no system configuration: {error}; give the JSON file of the system layer"
        ) from error
    algorithms: dict[str, tuple[str, ...]] = {}
    custom: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, value in decoded.items():
        if key in IMPLEMENTATIONS:
            algorithms[IMPLEMENTATIONS[key]] = _algorithms(path, key, value)
        elif key in CUSTOM:
            custom[CUSTOM[key]] = _files(path, key, value)
        else:
            others[ascii(key)[1:-1][:60]] = ascii(value)[:60]
    return System(path, algorithms, custom, others)


def _algorithms(path: Path, key: str, value: object) -> tuple[str, ...]:
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(names) != len(value) or not 1 <= len(names) <= MOST_DIMENSIONS:
        raise refused(path, key, str(value)[:100], "it is a list of names, one per dimension")
    for name in names:
        if not _ALGORITHM.fullmatch(name):
            raise refused(path, key, name, "an algorithm is a word such as ring, direct or halvingDoubling")
    return tuple(names)


def _files(path: Path, key: str, value: object) -> str:
    """Read the one beginning of file names that ASTRA-sim takes for all dimensions."""
    match value:
        case [str() as name] if name and name.isprintable():
            return name
    raise refused(path, key, str(value)[:100], "it is a list of one name, that of Chakra files without .<rank>.et")
