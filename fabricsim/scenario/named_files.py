"""Files that a scenario names: what a run reads beside them, and must not write over."""

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fabricsim.scenario.collectives import chakra_files, is_described
from fabricsim.scenario.fabric import file_keys
from fabricsim.scenario.source import exists


def named_files(tables: Mapping[str, Any]) -> Iterator[Path]:
    """Give the files that checked tables name: of cables, paths, traffic matrices, algorithms and Python files.

    `tables`: with everything included, as `fabricsim.scenario.load.LoadedScenario.resolved`.
    """
    fabric = tables.get("fabric", {})
    yield from (Path(fabric[key]) for key in sorted(file_keys() & fabric.keys()) if isinstance(fabric[key], str))
    yield from map(Path, tables.get("extensions", {}))
    patterns = (Path(str(table["pattern"])) for table in tables.get("traffic", {}).values() if "pattern" in table)
    yield from (pattern for pattern in patterns if exists(pattern) and pattern.is_file())
    algorithm = tables.get("collectives", {}).get("algorithm")
    for name in algorithm.values() if isinstance(algorithm, dict) else ():
        if is_described(name):
            yield from _described(name)


def _described(algorithm: str) -> Iterator[Path]:
    """Give the files of an algorithm: one of MSCCL, or those of all ranks of Chakra."""
    files = chakra_files(algorithm)
    if files is None:
        yield Path(algorithm)
    else:
        pattern = Path(files.pattern)
        yield from sorted(pattern.parent.glob(f"{glob.escape(pattern.name.removesuffix('*.et'))}*.et"))
