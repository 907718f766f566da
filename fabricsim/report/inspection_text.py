"""What trace and log files hold, as tables for the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fabricsim.report.megatron_text import megatron_text
from fabricsim.report.nccl_log_text import nccl_log_text
from fabricsim.report.tables import SHOWN, FittedTable, titled
from fabricsim.traces.inspecting import Inspection
from fabricsim.traces.inspection import TraceSummary
from fabricsim.traces.log_views import LogSummary, TableRow, TableSummary
from fabricsim.units import human_bytes, human_seconds


def inspection_text(inspection: Inspection) -> RenderableType:
    """Show what files hold.

    `inspection`: of `fabricsim.traces.inspecting.inspect`.
    Returns: for ``rich.console.Console.print``.
    """
    blocks = [_log(log) for log in inspection["logs"]]
    if inspection["trace"] is not None:
        blocks.append(_trace(inspection["trace"]))
    return Group(*blocks)


def _trace(trace: TraceSummary) -> RenderableType:
    of = "" if trace["world"] is None else f"of {trace['world']} "
    count = trace["captured_ranks"]
    hosts = f", {trace['hosts']} hosts" if trace["hosts"] else ""
    head = Text(trace["form"], style="bold")
    ranks = "rank" if (trace["world"] or count) == 1 else "ranks"
    head.append(f": {count} {of}{ranks}{hosts}, span {_seconds(trace['span_s'])}\n", "not bold")
    blocks: list[RenderableType] = [head, titled("Ranks", _ranks(trace), len(trace["ranks"]))]
    if trace["steps"]:
        blocks.append(titled("Steps", _steps(trace), len(trace["steps"])))
    blocks.append(titled("Streams and threads, the busiest first", _lanes(trace), len(trace["lanes"])))
    blocks.append(titled("Operations", _kinds(trace), len(trace["kinds"])))
    if trace["communications"]:
        title = "Communications by kind, group and size"
        blocks += [titled(title, _communications(trace), len(trace["communications"]))]
        blocks += [Text(_operations(trace)), Text(_TIMES)]
    if trace["histogram"]:
        blocks += ["", titled("Sizes: from a power of two up to the next", _histogram(trace))]
    if trace["missing"]:
        blocks.append(Text("Missing", style="bold"))
        blocks += [Text(f"{row['what']} ({_ranks_of(row['ranks'])})") for row in trace["missing"][:SHOWN]]
    return Group(*blocks)


_TIMES = (
    "Times are of the parts of ranks, waiting included; a transfer is from the last start to the last end (median)."
)


def _operations(trace: TraceSummary) -> str:
    each = [f"{_number(row['per_rank'])} {row['operation']} ({_ranks_of(row['ranks'])})" for row in trace["operations"]]
    return f"On each rank that has any: {', '.join(each)}."


def _ranks_of(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _seconds(value: float | None) -> str:
    return "-" if value is None else human_seconds(value)


def _bytes(value: int | None) -> str:
    return "-" if value is None else human_bytes(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


def _ranks(trace: TraceSummary) -> Table:
    rows = (
        (
            _number(row["rank"]),
            row["host"] or "-",
            row["device"] or "-",
            _number(row["nodes"]),
            _number(row["edges"]),
            _seconds(row["span_s"]),
        )
        for row in trace["ranks"][:SHOWN]
    )
    names = ["Host", "Device", "Operations", "Edges", "Span"]
    return FittedTable("Rank", names, rows, least=["Edges", "Device", "Host"])


def _steps(trace: TraceSummary) -> Table:
    rows = ((str(row["number"]), _number(row["ranks"]), _seconds(row["time_s"])) for row in trace["steps"][:SHOWN])
    return FittedTable("Step", ["Ranks", "Mean time"], rows)


def _lanes(trace: TraceSummary) -> Table:
    rows = (
        (row["name"] or row["kind"], _number(row["ranks"]), _number(row["nodes"]), _seconds(row["busy_s"]))
        for row in trace["lanes"][:SHOWN]
    )
    return FittedTable("Name", ["Ranks", "Operations", "Busy, mean"], rows)


def _kinds(trace: TraceSummary) -> Table:
    rows = ((row["kind"], _number(row["nodes"]), _seconds(row["time_s"])) for row in trace["kinds"])
    return FittedTable("Kind", ["Count", "Time together"], rows)


def _communications(trace: TraceSummary) -> Table:
    table = FittedTable(
        "Kind",
        ["Size", "Ranks", "Per rank", "Bytes", "Time", "Shortest", "Median", "Longest", "Transfer"],
        words=["Group"],
        least=["Shortest", "Longest", "Per rank", "Transfer", "Bytes", "Ranks", "Group", "Median"],
    )
    for row in trace["communications"][:SHOWN]:
        size = row["group_size"]
        table.add(
            row["operation"],
            _bytes(row["size_bytes"]),
            _number(row["ranks"]),
            _number(row["per_rank"]),
            _bytes(row["total_bytes"]),
            *(_seconds(row[key]) for key in ("total_s", "min_s", "median_s", "max_s", "transfer_s")),
            (row["group"] or "-") + (f" ({size})" if size is not None else ""),
        )
    return table


def _histogram(trace: TraceSummary) -> Table:
    rows = (
        (_bytes(row["from_bytes"]), _number(row["parts"]), _bytes(row["total_bytes"])) for row in trace["histogram"]
    )
    return FittedTable("From", ["Count", "Bytes"], rows)


def _log(log: LogSummary) -> RenderableType:
    blocks: list[RenderableType] = [Text(log["source"], style="bold"), ""]
    blocks += [_measured(table) for table in log["tables"]]
    if log["megatron"] is not None:
        blocks.append(megatron_text(log["megatron"]))
    if log["nccl"] is not None:
        blocks.append(nccl_log_text(log["nccl"]))
    blocks += [Text(f"Not read: {problem}") for problem in log["problems"]]
    return Group(*blocks)


def _measured(table: TableSummary) -> RenderableType:
    ranks = f", {_ranks_of(table['ranks'])} on {table['hosts']} hosts" if table["ranks"] else ""
    gpus = f" ({', '.join(table['gpus'])})" if table["gpus"] else ""
    version = f" {table['version']}" if table["version"] else ""
    head = Text(f"Table of {table['test'] or 'a test'}{version}{ranks}{gpus}: {len(table['rows'])} rows\n")
    shown = FittedTable("Size", ["Time", "GB/s", "Bus GB/s"])
    for row in _spread(table["rows"]):
        rates = (row["algorithm_bandwidth"], row["bus_bandwidth"])
        shown.add(
            _bytes(row["size_bytes"]),
            _seconds(row["time_s"]),
            *("-" if rate is None else f"{rate / _GIGA:.4g}" for rate in rates),
        )
    return Group(head, shown, "")


_GIGA = 1e9


def _spread(rows: Sequence[TableRow]) -> list[TableRow]:
    """Take rows spread over all of the table."""
    if len(rows) <= SHOWN:
        return list(rows)
    return [rows[place * (len(rows) - 1) // (SHOWN - 1)] for place in range(SHOWN)]
