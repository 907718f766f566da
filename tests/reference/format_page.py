"""Write the page of the file format, of what the writer declares: python tests/reference/format_page.py."""

from __future__ import annotations

from pathlib import Path

from fabricsim.results import columns
from fabricsim.results.columns import Column, ColumnGroup

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "file-format.md"
HEAD = f"""# The file format

Made by `python tests/reference/format_page.py` of what the writer of results declares; a test holds it to that.

A result is one HDF5 file. Root attributes are `format` (`"{columns.FORMAT}"`, or `"{columns.TRAFFIC_FORMAT}"`),
`format_version` ({columns.FORMAT_VERSION}) and those that [Results](results.md#result-file) names. Every dataset has
the attributes `units` and `long_name`; numbers that stand for names have `flag_values` and `flag_meanings`, as the CF
conventions have them. The first row of each table is the index, to which the others are attached as to a dimension
scale.

A file of another `format_version` is refused; so far there has been one.
"""
NOTES = {
    "calls": "`copies` only in folded runs. `failed`, and the flag `failure` of `rest`, only if a call waited for a\n"
    "link that was down; `beside` only if traffic beside the calls used a link that limits one.",
    "links": "`copies` only in folded runs, `flows` in the place of `crossing_call` in traffic.\n"
    "`capacity` is the mean of the run: of a link that failures slowed down less than as built.",
    "failures": "If one slowed a link down or took it down before the run ended.",
    "demand": "In files of traffic.",
    "packets": "Of packet runs.",
    "packet_log": "If `--pcap` logged packets.",
    "steps": "Of replays.",
    "transfers": "Of replays.",
    "pairs": "If `--matrix` asked for them.",
    "series": "Of the busiest links, or of the wires tapped with `--tap rate:`.",
    "series/tap0": "And `tap1`, ...: one for each `--tap queue:` or `flow:`, of which `value` has the unit.",
}
GROUPS: dict[str, tuple[Column | ColumnGroup, ...]] = {
    "ops": (columns.OPS, *columns.SPANS, columns.TIMER_NAME),
    "calls": (columns.CALLS_OF_FAILURES, columns.BESIDE, columns.CALL_COPIES),
    "links": (columns.LINKS, columns.COPIES, columns.CROSSED, columns.CROSSING),
    "series": (columns.SERIES_TIME, columns.SERIES_LINK, columns.SERIES_RATE, columns.SERIES_CAPACITY),
    "series/tap0": (columns.TAP_TIME, *columns.TAP_VALUES.values()),
    "flows": (columns.FLOWS,),
    "packets": (columns.WIRES,),
    "packet_log": (columns.LOG, columns.LOG_WIRE, columns.LOG_FLOWS),
    "failures": (columns.FAILURES,),
    "demand": (columns.DEMAND,),
    "steps": (columns.STEPS,),
    "transfers": (columns.TRANSFERS,),
    "pairs": (columns.PAIRS, columns.DIMENSION_NAME),
}
TYPES = {"i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "f8": "float64", "text": "UTF-8"}


def page() -> str:
    """Give the page as Markdown."""
    return HEAD + "".join(_section(name, parts) for name, parts in GROUPS.items())


def _section(name: str, parts: tuple[Column | ColumnGroup, ...]) -> str:
    rows = [
        row for part in parts for row in ((part.index, *part.columns) if isinstance(part, ColumnGroup) else (part,))
    ]
    note = f"{NOTES[name]}\n\n" if name in NOTES else ""
    return f"\n## `/{name}`\n\n{note}| dataset | type | unit | meaning |\n|---|---|---|---|\n" + "".join(
        map(_row, rows)
    )


def _row(column: Column) -> str:
    flags = ": " + ", ".join(f"{number} {name}" for number, name in enumerate(column.flags)) if column.flags else ""
    unit = "" if column.units == "1" else column.units
    return f"| `{column.name}` | {TYPES[column.kind]} | {unit} | {column.meaning}{flags} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
