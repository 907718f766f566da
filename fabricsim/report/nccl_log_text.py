"""The set-up that a log of NCCL shows, as tables for the terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fabricsim.report.tables import SHOWN, FittedTable, titled
from fabricsim.traces.nccl_summary import NcclSummary
from fabricsim.units import human_bytes

_RANKS = 24  # of a ring or tree


def nccl_log_text(log: NcclSummary) -> RenderableType:
    """Show the set-up.

    `log`: of `fabricsim.traces.nccl_summary.summarise_nccl`.
    Returns: for ``rich.console.Console.print``.
    """
    versions, networks = ", ".join(log["versions"]) or "of an unknown version", _counted(log["networks"])
    head = Text(f"NCCL {versions}: {log['processes']} processes on {log['hosts']} hosts; network {networks or '-'}")
    blocks: list[RenderableType] = [head]
    if log["adapters"]:
        blocks.append(Text(f"Adapters, and processes that list them: {_counted(log['adapters'])}"))
    blocks += ["", titled("Communicators by size", _communicators(log))]
    if log["rings"]:
        blocks.append(titled("Rings of the largest communicator", _rings(log), len(log["rings"])))
    if log["trees"]:
        title = "Trees of the largest communicator: rank <- its parent"
        blocks.append(titled(title, _trees(log), len(log["trees"])))
    if log["choices"]:
        blocks.append(titled("What NCCL chose", _choices(log), len(log["choices"])))
    if log["calls"]:
        blocks.append(Text(f"Calls: {_counted(log['calls'])}"))
    return Group(*blocks)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _communicators(log: NcclSummary) -> Table:
    rows = (
        (
            *(_number(row[key]) for key in ("size", "ranks", "hosts", "channels", "p2p_channels", "nvls_channels")),
            _counted(row["transports"]) or "-",
        )
        for row in log["communicators"]
    )
    return FittedTable(
        "Ranks",
        ["Logged by", "Hosts", "Channels", "For sends", "NVLS"],
        rows,
        words=["Connections"],
        least=["NVLS", "For sends", "Logged by", "Connections"],
    )


def _rings(log: NcclSummary) -> Table:
    table = FittedTable("Channel", [], words=["Ranks in order"])
    for row in log["rings"][:SHOWN]:
        cut = row["cut"] or len(row["ranks"]) > _RANKS
        table.add(str(row["channel"]), " ".join(map(str, row["ranks"][:_RANKS])) + (" ..." if cut else ""))
    return table


def _trees(log: NcclSummary) -> Table:
    table = FittedTable("Channel", ["Root"], words=["Parents"])
    for row in log["trees"][:SHOWN]:
        places = [(rank, parent) for rank, parent in row["parents"].items() if rank != row["root"]]
        table.add(str(row["channel"]), _number(row["root"]), _shown(places))
    return table


def _shown(places: Sequence[tuple[int, int]]) -> str:
    text = ", ".join(f"{rank}<-{parent}" for rank, parent in places[:_RANKS])
    return f"{text}, ..." if len(places) > _RANKS else text


def _choices(log: NcclSummary) -> Table:
    table = FittedTable(
        "Collective", ["Size", "Algorithm", "Protocol", "Channels", "Times"], least=["Times", "Channels"]
    )
    for row in log["choices"][:SHOWN]:
        table.add(
            row["operation"] or "-",
            human_bytes(row["size_bytes"]),
            row["algorithm"],
            row["protocol"],
            _number(row["channels"]),
            str(row["count"]),
        )
    return table
