"""Traffic between pairs of ranks as tables for the terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable
from fabricsim.results.pairs import DISTANCES, PairsSummary
from fabricsim.units import human_bytes


def pairs_text(name: str, summary: PairsSummary) -> RenderableType:
    """Show how few pairs carry how much, and how far it goes."""
    head = Text(name, style="bold").append(f": {summary['ranks']:,} ranks, one iteration\n", style="not bold")
    silent, total = summary["pairs_without_traffic"], summary["total_bytes"]
    lines = [f"{_percent(silent)} of the {summary['pairs']:,} pairs of ranks exchange nothing."]
    if total:
        lines.append(
            f"90 % of the {human_bytes(total)} go between {_percent(summary['pairs_for_90_percent'])} of them."
        )
        lines += [
            f"The busiest {_percent(each['share_of_pairs'])} carry {_percent(each['share_of_bytes'])} of the bytes."
            for each in summary["busiest"]
            if each["share_of_bytes"]
        ]
    if summary["in_network_bytes"]:
        lines.append(f"Besides, {human_bytes(summary['in_network_bytes'])} go to and from switches that reduce.")
    table = FittedTable("Dimension", [*(each.capitalize() for each in DISTANCES), "Share"])
    for dimension, carried in summary["bytes"].items():
        share = sum(carried.values()) / total if total else 0.0
        table.add(dimension, *(human_bytes(carried[each]) for each in DISTANCES), _percent(share))
    domain = f"\nScale-up domains of {summary['ranks_per_domain']}; the rail of a rank is its place in its domain."
    return Group(head, *map(Text, lines), "", table, Text(domain))


def _percent(share: float) -> str:
    """Write a share with as many digits as tell it from none and from all."""
    percent = 100 * share
    return f"{percent:.3g} %" if percent < 99 or share == 1.0 else f"{percent:.2f} %"  # noqa: PLR2004  99.996 is not 100
