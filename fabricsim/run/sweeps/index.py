"""The index of a sweep: a row per run, with what it differs in, its headline results, and the error if it failed.

Nothing in it depends on the clock or on the order in which runs end.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fabricsim.files.atomic import whole
from fabricsim.run.sweeps.runs import SweptRun

_WAY_OUT = "name another folder with -o"


def rows(points: Sequence[Mapping[str, Any]], outcomes: Mapping[int, SweptRun]) -> list[dict[str, Any]]:
    """Put points and what came of them side by side, in the order of the points.

    `outcomes`: by the number of the point; points without one are left out.
    Returns: rows that all have the same keys: ``run``, ``status``, what is varied, headline results and ``error``.
    """
    varied = dict.fromkeys(key for point in points for key in point)
    found = [outcomes[number] for number in sorted(outcomes)]
    measured = dict.fromkeys(key for outcome in found for key in outcome["results"])
    return [
        {
            "run": outcome["run"],
            "status": outcome["status"],
            **{key: points[number].get(key) for key in varied},
            **{key: outcome["results"].get(key) for key in measured if key not in varied},
            "error": outcome["error"],
        }
        for number, outcome in zip(sorted(outcomes), found, strict=True)
    ]


def write(found: Sequence[Mapping[str, Any]], folder: Path, stem: str = "index") -> list[Path]:
    """Write an index as CSV, and as Parquet if pyarrow is installed.

    Returns: the files.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, list(found[0]), lineterminator="\n")
    table.writeheader()
    table.writerows({key: _cell(value) for key, value in row.items()} for row in found)
    path = folder / f"{stem}.csv"
    with whole(path, _WAY_OUT) as part:
        part.write_text(text.getvalue(), encoding="utf-8")
    return [path, *([_parquet(found, folder / f"{stem}.parquet")] if find_spec("pyarrow") else [])]


def _parquet(found: Sequence[Mapping[str, Any]], path: Path) -> Path:
    import pyarrow as pa  # noqa: PLC0415  need not be installed
    from pyarrow import parquet  # noqa: PLC0415  as above

    columns = {key: pa.array(_column([row[key] for row in found])) for key in found[0]}
    with whole(path, _WAY_OUT) as part:
        parquet.write_table(pa.table(columns), part)
    return path


def _column(values: list[Any]) -> list[Any]:
    """Give values of one type; if they have several, their texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values] if float in kinds else values
    return values if len(kinds) == 1 and not kinds & {list, dict} else [None if v is None else _cell(v) for v in values]


def _cell(value: object) -> str | int | float:
    if value is None:
        return ""
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else json.dumps(value)
