"""What a network consists of, as tables."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from fabricsim.report.tables import FittedTable
from fabricsim.topology.bill import Bill
from fabricsim.topology.inventory import Inventory
from fabricsim.units import human_count, human_percent

_WHOLE = 1000.0  # Gb/s from which on no part of one is shown


def topology_text(name: str, found: Inventory) -> RenderableType:
    """Tell switches, cables, transceivers and tiers.

    `name`: what was built; `found`: of it.
    """
    switches = FittedTable("switches", ("count", "ports in use", "of the fullest"))
    for kind in found.switches:
        switches.add(kind["name"], f"{kind['count']:,}", f"{kind['ports']:,}", str(kind["most_ports"]))
    if found.inside:
        switches.add("inside hosts or adapters", f"{found.inside:,}", "", "")
    cables = FittedTable("cables", ("count", "Gb/s", "m"), words=("medium",))
    for kind in found.cables:
        row = (f"{kind['count']:,}", f"{kind['gbps']:.4g}", f"{kind['metres']:.4g}", kind["medium"])
        cables.add(kind["between"], *row)
    tiers = FittedTable("tiers", ("switches", "Gb/s down", "Gb/s up", "down : up"))
    for tier in found.tiers:
        ratio = "" if tier["oversubscription"] is None else f"{tier['oversubscription']:.3g} : 1"
        rates = (_rate(tier[key]) for key in ("down_gbps", "up_gbps"))
        tiers.add(tier["name"], f"{tier['switches']:,}", *rates, ratio)
    return Group(Text(f"{name}: {headline(found)}"), switches, cables, tiers, Text(_transceivers(found)))


def _rate(gbps: float | None) -> str:
    return "" if not gbps else f"{gbps:,.0f}" if gbps >= _WHOLE else f"{gbps:.4g}"


def headline(found: Inventory) -> str:
    """Say it in a line."""
    count, cables = sum(kind["count"] for kind in found.switches), sum(kind["count"] for kind in found.cables)
    numbers = human_count(found.nics, "NICs"), human_count(count, "switches"), human_count(cables, "cables")
    said = [", ".join(numbers)]
    if found.bisection is not None and found.injection:
        share = found.bisection / found.injection
        said.append(
            f"bisection {found.bisection / 1000:.4g} Tb/s, {human_percent(share, 0)} of what half of the NICs send"
        )
    if not found.joined:
        said.append("not all NICs are joined")
    elif found.diameter is not None:
        inside = " (those inside hosts included)" if found.inside else ""
        said.append(f"at most {human_count(found.diameter, 'switches')}{inside} between two NICs")
    return "; ".join(said)


def bill_text(bill: Bill) -> RenderableType:
    """Tell what each part costs and draws, and all."""
    table = FittedTable(
        escape(f"priced by {bill.prices}"),
        ("count", "US$ each", "W each", "US$", "W"),
        words=("as of",),
        least=("as of", "W each", "US$ each"),
    )
    for part, cost, power, price in bill.lines:
        figures = ("", "", "no price", "")
        if cost is not None and power is not None:
            figures = f"{cost:,.6g}", f"{power:,.4g}", f"{part.count * cost:,.0f}", f"{part.count * power:,.0f}"
        certain = f"{price.date}, {price.certainty}" if price else ""
        table.add(f"{part.name}: {part}", f"{part.count:,}", *figures, certain)
    return Group(table, *map(Text, _nothing(bill)), Text(_total(bill)))


def _nothing(bill: Bill) -> list[str]:
    """Say of each kind of part that costs and draws nothing by the list why that is so."""
    free = [(part.kind, price) for part, cost, power, price in bill.lines if cost == 0 == power and price is not None]
    return list(dict.fromkeys(f"{kind} at 0 in {bill.prices}: {price.source}" for kind, price in free))


def _total(bill: Bill) -> str:
    if bill.cost is None or bill.power is None:
        missing = list(dict.fromkeys(map(str, bill.unpriced)))
        return f"no total, as {bill.prices} has no price of {'; '.join(missing)}: add it to a list of your own"
    each = f"US$ {bill.cost / bill.gpus:,.0f} and {bill.power / bill.gpus:,.1f} W for each of {bill.gpus:,} GPUs"
    return f"all: US$ {bill.cost:,.0f} and {bill.power / 1000:,.4g} kW; {each}"


def _transceivers(found: Inventory) -> str:
    if not found.transceivers:
        return "transceivers: none, as no cable is longer than copper reaches"
    return "transceivers: " + ", ".join(f"{count:,} x {kind}" for kind, count in found.transceivers.items())
