"""Volumes as tables for the terminal: what each parallelism sends, and how large its messages are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable, titled
from fabricsim.units import human_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from fabricsim.workload.volume_summary import VolumeRow, VolumeSummary


def volumes_text(summary: VolumeSummary) -> RenderableType:
    """Show what one iteration sends, beside the formulas.

    `summary`: of `fabricsim.workload.volume_summary.summarise_volumes`.
    Returns: for ``rich.console.Console.print``.
    """
    head = Text(summary["name"], style="bold").append(f": {summary['ranks']} ranks, one iteration\n", style="not bold")
    if not summary["volumes"]:
        return Group(head, Text("Nothing is sent: every group has one rank."))
    return Group(
        head,
        titled("Calls and bytes, counted in the program", _volumes(summary)),
        titled("Calls by size: from a power of two up to the next", _histogram(summary["volumes"])),
        Text(_verdict(summary)),
        *([Text(_busiest(summary["expert_load"]))] if summary["expert_load"] > 1 else []),
    )


def _volumes(summary: VolumeSummary) -> Table:
    sizes = ["Smallest", "Median", "Largest", "Buffers"]
    numbers = ["Calls", *sizes, "Sent", "Sent\nper GPU", "Formula\nper GPU", "Off by"]
    table = FittedTable("Collective", numbers, least=["Median", "Smallest", "Largest", "Buffers", "Sent", "Calls"])
    for row in summary["volumes"]:
        table.add(
            f"{row['dimension']} {row['collective']}",
            f"{row['calls']:,}",
            human_bytes(row["smallest_bytes"]),
            human_bytes(row["median_bytes"]),
            human_bytes(row["largest_bytes"]),
            human_bytes(row["buffer_bytes"]),
            human_bytes(row["wire_bytes"]),
            human_bytes(row["wire_bytes_per_gpu"]),
            human_bytes(row["formula"]["wire_bytes"] / summary["ranks"]),
            _off(row),
        )
    table.add_section()
    total = summary["total"]
    sums = [human_bytes(total["buffer_bytes"]), human_bytes(total["wire_bytes"])]
    sums.append(human_bytes(summary["wire_bytes_per_gpu"]))
    table.add("all", f"{total['calls']:,}", "", "", "", *sums, "", "")
    return table


def _off(row: VolumeRow) -> str:
    """Say by how much; rows of the same bytes can differ in their calls, or in the sizes of these."""
    if row["agrees"]:
        return "0"
    off = row["difference"]
    if off["wire_bytes"]:
        return f"{off['wire_bytes']:+,} B"
    return f"{off['calls']:+,} calls" if off["calls"] else "sizes"


def _histogram(rows: list[VolumeRow]) -> Table:
    cells = (
        (f"{row['dimension']} {row['collective']}", human_bytes(size), f"{count:,}")
        for row in rows
        for size, count in sorted((int(size), count) for size, count in row["histogram"].items())
    )
    return FittedTable("Collective", ["From", "Calls"], cells)


def _busiest(load: float) -> str:
    return (
        "Tokens of experts are counted evenly: imbalance moves them and makes none. Experts of the busiest rank get"
        f" {load:g} times as many, and a run sends so many from each."
    )


def _verdict(summary: VolumeSummary) -> str:
    if summary["agree"]:
        return "The program sends what the formulas say: calls, sizes and bytes agree exactly."
    wrong = [f"{row['dimension']} {row['collective']}" for row in summary["volumes"] if not row["agrees"]]
    return f"The program and the formulas differ in {', '.join(wrong)}."
