"""What `calibrate --halves` prints: how well halves of a table tell the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.cli.common import say_json, show
from fabricsim.units import human_bytes, human_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group
    from rich.table import Table

    from fabricsim.calibration.halves import Half

_KINDS = {"error of time": "errors", "error of time out of place": "errors_out_of_place", "noise": "noise"}
"""What is summed up, and the attribute of a half that has it."""


def show_halves(found: Sequence[Half], *, as_json: bool) -> None:
    """Print a row per half and a row per size, or JSON."""
    if as_json:
        say_json({"halves": [each.to_dict() for each in found], "summary": summary(found)})
        return
    show(_by_half(found))
    show(_by_size(found))


def summary(found: Sequence[Half]) -> dict[str, Any]:
    """Typical and largest figures over all halves, and how many are within the bounds."""
    from fabricsim.calibration.halves import holds, middle_and_tail  # noqa: PLC0415  --help must not pay for it

    figures: dict[str, Any] = {"halves": len(found)}
    for label, attribute in _KINDS.items():
        errors = [getattr(each, attribute) for each in found]
        middles, tails = np.array([middle_and_tail(each) for each in errors]).T
        figures[f"{label}, halves that hold"] = sum(holds(each) for each in errors)
        for name, values in (("median", middles), ("90th percentile", tails)):
            figures[f"{label}, {name}, typical"] = float(np.median(values))
            figures[f"{label}, {name}, largest"] = float(values.max())
    return figures


def _by_half(found: Sequence[Half]) -> Group:
    from rich.console import Group  # noqa: PLC0415  slow to import

    from fabricsim.calibration.halves import MEDIAN, TAIL, middle_and_tail  # noqa: PLC0415  --help must not pay for it
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  as above

    names = [label.replace(" out", "\nout") for label in _KINDS]
    table = FittedTable("Half that was held out", names, least=[*reversed(names[1:])])
    for each in found:
        figures = (middle_and_tail(getattr(each, attribute)) for attribute in _KINDS.values())
        table.add(each.hold_out, *(f"{human_percent(middle)}, {human_percent(tail)}" for middle, tail in figures))
    whole = summary(found)
    held = (f"{label} {whole[f'{label}, halves that hold']} of {len(found)}" for label in _KINDS)
    below = (
        f"median, 90th percentile; within {human_percent(MEDIAN, 0)} and {human_percent(TAIL, 0)}: {'; '.join(held)}"
    )
    return Group(table, below, "")


def _by_size(found: Sequence[Half]) -> Table:
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  imports rich

    figures = ["Times\nheld out", "Median\nerror", "Largest\nerror", "Noise"]
    table = FittedTable("Size", figures, least=["Times\nheld out"])
    sizes = np.concatenate([each.sizes for each in found])
    errors = np.concatenate([each.errors for each in found])
    noise = np.concatenate([each.noise for each in found])
    for size in np.unique(sizes).tolist():
        rows = sizes == size
        off = np.abs(errors[rows])
        cells = (human_percent(np.median(off)), human_percent(off.max()), human_percent(np.abs(noise[rows]).max()))
        table.add(human_bytes(size), str(int(rows.sum())), *cells)
    return table
