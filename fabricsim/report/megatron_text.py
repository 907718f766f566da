"""What a training log of Megatron-LM says, as text and a table of timers."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fabricsim.report.tables import SHOWN, FittedTable, titled
from fabricsim.traces.megatron_log import IterationSpread, MegatronSummary
from fabricsim.units import human_seconds

_THOUSAND = 1000  # from here on without fractions


def megatron_text(log: MegatronSummary) -> RenderableType:
    """Show times of iterations, throughput, arguments and timers.

    `log`: of `fabricsim.traces.megatron_log.IterationCollector`.
    Returns: for ``rich.console.Console.print``.
    """
    blocks: list[RenderableType] = [Text(_counts(log)), _spreads(log), ""]
    if log["arguments"]:
        named = ", ".join(f"{name} {value:,}" for name, value in log["arguments"].items())
        blocks += [Text(f"Arguments: {named}"), ""]
    else:
        blocks += [Text("Arguments: not in this file; the first host prints them"), ""]
    if log["timers"]:
        blocks.append(titled(f"Timers of {log['timers_of']}, medians", _timers(log), len(log["timers"])))
    return Group(*blocks)


def _counts(log: MegatronSummary) -> str:
    counted = log["iterations"] - log["warm_up"]
    each = f", each the mean of {log['interval']} iterations" if log["interval"] > 1 else ""
    left = (
        f"the first {log['warm_up']} of {log['iterations']} left out as warm-up" if log["warm_up"] else "the only one"
    )
    skipped = log["skipped_updates"]
    updates = f"; {skipped} iterations skipped their update (overflow of the loss scale)" if skipped else ""
    batch = f"; global batch {log['global_batch']:,}" if log["global_batch"] else ""
    return f"Megatron-LM: {counted} times of iterations count, {left}{each}{updates}{batch}\n"


def _spreads(log: MegatronSummary) -> Table:
    time = log["time_s"]
    rows = [("time per iteration", *(human_seconds(time[key]) for key in ("median", "p10", "p90")))]
    rates = {
        "samples/s": log["samples_per_s"],
        "tokens/s": log["tokens_per_s"],
        "TFLOP/s per GPU": log["tflops_per_gpu"],
    }
    rows += [(name, *_numbers(rate)) for name, rate in rates.items() if rate is not None]
    return FittedTable("", ["Median", "p10", "p90"], rows)


def _numbers(rate: IterationSpread) -> tuple[str, ...]:
    return tuple(
        f"{value:,.0f}" if value >= _THOUSAND else f"{value:.4g}"
        for value in (rate["median"], rate["p10"], rate["p90"])
    )


def _timers(log: MegatronSummary) -> Table:
    ranks = any(row["min_s"] is not None for row in log["timers"])
    table = FittedTable("Timer", ["Iterations", *(("Min", "Max") if ranks else ("Time",))], least=["Iterations"])
    for row in log["timers"][:SHOWN]:
        low = () if not ranks else ("-" if row["min_s"] is None else human_seconds(row["min_s"]),)
        table.add(row["name"], f"{row['iterations']:,}", *low, human_seconds(row["max_s"]))
    return table
