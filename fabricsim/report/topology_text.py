"""What a network consists of, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from fabricsim.report.tables import FittedTable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fabricsim.topology.inventory import Inventory


def topology_text(name: str, found: Inventory) -> RenderableType:
    """Tell switches, cables, transceivers and tiers.

    `name`: what was built; `found`: of it.
    """
    switches = FittedTable("switches", ("count", "ports in use", "of the fullest"))
    for kind in found.switches:
        switches.add_row(kind["name"], f"{kind['count']:,}", f"{kind['ports']:,}", str(kind["most_ports"]))
    if found.inside:
        switches.add_row("inside hosts or adapters", f"{found.inside:,}", "", "")
    cables = FittedTable("cables", ("count", "Gb/s", "m"), words=("medium",))
    for kind in found.cables:
        row = (f"{kind['count']:,}", f"{kind['gbps']:.4g}", f"{kind['metres']:.4g}", kind["medium"])
        cables.add_row(kind["between"], *row)
    tiers = FittedTable("tiers", ("switches", "Gb/s down", "Gb/s up", "down : up"))
    for tier in found.tiers:
        ratio = "" if tier["oversubscription"] is None else f"{tier['oversubscription']:.3g} : 1"
        rates = (f"{tier[key]:,.6g}" if tier[key] else "" for key in ("down_gbps", "up_gbps"))
        tiers.add_row(tier["name"], f"{tier['switches']:,}", *rates, ratio)
    return Group(Text(f"{name}: {headline(found)}"), switches, cables, tiers, Text(_transceivers(found)))


def headline(found: Inventory) -> str:
    """Say it in a line."""
    count, cables = sum(kind["count"] for kind in found.switches), sum(kind["count"] for kind in found.cables)
    said = [f"{found.nics:,} NICs, {count:,} switches, {cables:,} cables"]
    if found.bisection is not None and found.injection:
        share = found.bisection / found.injection
        said.append(f"bisection {found.bisection / 1000:.4g} Tb/s, {share:.0%} of what half of the NICs send")
    if not found.joined:
        said.append("not all NICs are joined (rails)")
    elif found.diameter is not None:
        said.append(f"at most {found.diameter} switches between two NICs")
    return "; ".join(said)


def _transceivers(found: Inventory) -> str:
    if not found.transceivers:
        return "transceivers: none, as no cable is longer than copper reaches"
    return "transceivers: " + ", ".join(f"{count:,} x {kind}" for kind, count in found.transceivers.items())
