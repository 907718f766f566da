"""How far a prediction may be off, and what it owes that to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

from fabricsim.report.tables import FittedTable
from fabricsim.units import human_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fabricsim.results.uncertainty import UncertaintySummary

ROWS = 5
"""Parameters shown; the JSON has all that bring something."""


def uncertainty_text(found: UncertaintySummary) -> RenderableType:
    """Show the interval of an iteration, and the parameters that it owes most to."""
    low, high = human_seconds(found["low_s"]), human_seconds(found["high_s"])
    title = f"{100 * found['inside']:.0f} % of {found['runs']} runs with drawn parameters take {low} to {high}"
    table = FittedTable("What to measure first", ["Certainty", "Spread", "Iteration", "Share"], words=["Value"])
    for row in found["influences"][:ROWS]:
        spread, change = f"{100 * row['spread']:.0f} %", f"{100 * row['change']:+.1f} %"
        table.add_row(escape(row["key"]), row["certainty"], spread, change, f"{100 * row['share']:.0f} %", row["value"])
    return Group(title, table, "") if found["influences"] else Group(title, "")
