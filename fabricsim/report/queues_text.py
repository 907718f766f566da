"""The most congested wires of a packet run as a table, and what one of them suffered in words."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable
from fabricsim.results.packets import QueueSummary
from fabricsim.units import human_bytes, human_seconds

_COUNTS = {"marks": "Marked", "drops": "Dropped", "trims": "Trimmed", "errors": "Lost", "pauses": "Pauses"}


def queues_text(rows: Sequence[QueueSummary]) -> RenderableType:
    """Show the wires where packets suffered, and say of the worst what happened there.

    `rows`: of `fabricsim.results.packets.congested`; columns that are zero throughout are left out.
    Returns: for ``rich.console.Console.print``; nothing if there are no rows.
    """
    if not rows:
        return Text()
    counted = [name for name in _COUNTS if any(_count(row, name) for row in rows)]
    counts = [_COUNTS[name] for name in counted]
    paused = ["Paused"] if "pauses" in counted else []
    table = FittedTable("Wire", ["Packets", "Deepest queue", *counts, *paused], least=["Packets", *reversed(counts)])
    for row in rows:
        cells = [f"{row['packets']:,}", human_bytes(row["deepest_queue_bytes"])]
        cells += [f"{_count(row, name):,}" for name in counted]
        if "pauses" in counted:
            cells.append(human_seconds(row["paused_s"]))
        table.add(row["name"], *cells)
    worst = Text("Most congested: ").append(rows[0]["name"], style="bold").append(f", {why(rows[0])}\n")
    return Group(Text("Most congested wires, and the queues before them", style="bold"), table, "", worst)


def why(row: QueueSummary) -> str:
    """Say in words what happened at a wire."""
    packets = row["packets"]
    parts = []
    for name, verb in (("drops", "dropped"), ("errors", "lost"), ("trims", "trimmed")):
        if count := _count(row, name):
            parts.append(f"{count:,} packets {verb}")
    if row["marks"]:
        parts.append(f"{100 * row['marks'] / max(packets, 1):.3g} % of {packets:,} packets marked")
    if row["pauses"]:
        parts.append(f"paused {row['pauses']:,} times for {human_seconds(row['paused_s'])}")
    if row["deepest_queue_bytes"]:
        parts.append(f"up to {human_bytes(row['deepest_queue_bytes'])} waiting")
    return ", ".join(parts)


def _count(row: QueueSummary, name: str) -> int:
    return int(row[name])  # type: ignore[literal-required]  # one of the keys of _COUNTS
