"""A replay beside its capture, as a headline, a table of transfers, and what was assumed."""

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable, titled
from fabricsim.results.capture import SHOWN, CaptureSummary, TransferSummary, TransferSums
from fabricsim.units import human_bytes, human_percent, human_seconds

AT_MOST = "≤: ranks that were not captured may have been waited for"
"""What a time of a table with this sign is."""
_RULES = 0.95  # share of the critical path from which the host alone rules how long an iteration takes


def capture_text(capture: CaptureSummary, host: float) -> RenderableType:
    """Show what was captured beside what was replayed.

    `capture`: of `fabricsim.results.capture.summarise_capture`.
    `host`: share of the replayed critical path that the host takes, 0 to 1.
    Returns: for ``rich.console.Console.print``.
    """
    blocks: list[RenderableType] = [_headline(capture, host)]
    if capture["transfers"]:
        blocks.append(_transfers(capture["transfers"]))
    blocks += [Text(f"Assumed: {assumption}") for assumption in capture["assumptions"]]
    return Group(*blocks, "") if capture["assumptions"] else Group(*blocks)


def _headline(capture: CaptureSummary, host: float) -> Text:
    steps, captured, change = capture["steps"], capture["captured_iteration_s"], capture["change"]
    if captured is None or change is None:
        return Text("The trace does not say when its operations ran: there is no captured time to compare with\n")
    what = f"mean of {steps} steps" if steps > 1 else "one step" if steps else "whole trace"
    line = Text(f"Captured ({what}) ").append(human_seconds(captured), style="bold").append(", replayed here ")
    line.append(human_seconds(capture["replayed_iteration_s"]), style="bold")
    line.append(f": {human_percent(change, signed=True)}\n")
    if host >= _RULES:
        most = f"a faster fabric gains at most {human_percent(max(1 - host, 0))}"
        line.append(
            f"It waits for the host in {human_percent(host)} of that, which takes as long as captured: {most}\n"
        )
    return line.append(_in_sum(capture["transfers_in_sum"]))


def _in_sum(sums: TransferSums | None) -> str:
    if sums is None or sums["change"] is None:
        return ""
    most, least = ("at most ", "at least ") if sums["captured_at_most"] else ("", "")
    times = f"captured {most}{human_seconds(sums['captured_s'])}, replayed {human_seconds(sums['replayed_s'])}"
    return f"Transfers ({sums['count']} in sum) {times}: {least}{human_percent(sums['change'], 0, signed=True)}\n"


def _transfers(rows: list[TransferSummary]) -> Group:
    more = f" ({SHOWN} of {len(rows)} kinds, the longest)" if len(rows) > SHOWN else ""
    numbers = ["Ranks", "Size", "Count", "Captured", "Replayed", "Change"]
    table = FittedTable("Transfer", numbers, map(transfer_cells, rows[:SHOWN]), least=["Ranks", "Count"])
    title = f"Transfers, from the last rank ready to the last done (medians){more}"
    if any(row["captured_at_most"] for row in rows[:SHOWN]):
        title += f"; {AT_MOST}"
    return titled(title, table)


def transfer_cells(row: TransferSummary) -> list[str]:
    """Name a kind of transfer, its ranks, size, count, time as captured and replayed, and the change."""
    size, captured, change = row["size_bytes"], row["captured_s"], row["change"]
    most, least = ("≤ ", "≥ ") if row["captured_at_most"] else ("", "")
    return [
        f"{row['group']} {row['operation']}".strip(),
        str(row["ranks"]),
        "-" if size is None else human_bytes(size),
        str(row["count"]),
        "-" if captured is None else most + human_seconds(captured),
        human_seconds(row["replayed_s"]),
        "-" if change is None else f"{least}{human_percent(change, 0, signed=True)}",
    ]
