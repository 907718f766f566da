"""A simulated benchmark as a table that fits any terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable
from fabricsim.units import human_bytes, human_percent


def bench_text(bench: Mapping[str, Any]) -> RenderableType:
    """Show a benchmark in the units of nccl-tests: us, and GB/s of 10^9 bytes per second.

    `bench`: of `fabricsim.run.benchtable.Bench.to_dict`.
    """
    collective = bench["test"] != "latency"
    compared = bench["errors"] is not None
    names = ["Time (us)", *(["algbw (GB/s)", "busbw (GB/s)"] if collective else [])]
    names += ["Measured (us)", "Error"] if compared else []
    table = FittedTable("Size", names, least=["algbw (GB/s)", "Measured (us)"])
    for row in bench["rows"]:
        cells = [f"{row['time_s'] * 1e6:.2f}"]
        cells += [f"{row[name] / 1e9:.2f}" for name in ("algbw_bytes_per_s", "busbw_bytes_per_s") if collective]
        cells += [f"{row['measured_s'] * 1e6:.2f}", human_percent(row["error"], signed=True)] if compared else []
        table.add(human_bytes(row["size_bytes"]), *cells)
    head = Text(bench["test"], style="bold").append(f" on {bench['cluster']}, {bench['ranks']} ranks", style="not bold")
    head.append(f" over {bench['transport']}, {bench['collectives']}\n")
    return Group(head, table, *(Text(line) for line in bench["findings"]))
