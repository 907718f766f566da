"""What keys of scenarios and columns of an index are called on an axis, with units."""

from __future__ import annotations

import re
from typing import NamedTuple

from fabricsim.units import BYTES, DURATION, PS_PER_S, RATE, parse


class AxisName(NamedTuple):
    """Name of an axis, its unit if it has one, what values are multiplied by, and whether more is better."""

    name: str
    unit: str
    scale: float
    more_is_better: bool = False

    def __str__(self) -> str:
        """Give the label of the axis."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def up_to(self, largest: float) -> AxisName:
        """Give an axis of seconds the unit that suits the largest of its values."""
        if self.unit != "s" or largest >= _LEAST_SECONDS:
            return self
        unit, scale = next((pair for pair in (("ms", 1e3), ("µs", 1e6)) if largest * pair[1] >= 1), ("ns", 1e9))
        return self._replace(unit=unit, scale=self.scale * scale)


_COLUMNS = {
    "iteration_time_s": AxisName("Iteration time", "s", 1.0),
    "makespan_s": AxisName("Makespan", "s", 1.0),
    "time_s": AxisName("Time", "s", 1.0),
    "mfu": AxisName("MFU", "%", 100.0, more_is_better=True),
    "hfu": AxisName("HFU", "%", 100.0, more_is_better=True),
    "exposed_communication_s": AxisName("Exposed communication", "s", 1.0),
    "busbw_bytes_per_s": AxisName("Bus bandwidth", "GB/s", 1e-9, more_is_better=True),
    "algbw_bytes_per_s": AxisName("Algorithm bandwidth", "GB/s", 1e-9, more_is_better=True),
    "tokens_per_s": AxisName("Tokens per second", "", 1.0, more_is_better=True),
    "tflops_per_gpu": AxisName("TFLOP/s per GPU", "", 1.0, more_is_better=True),
    "network_cost_per_gpu_usd": AxisName("Cost of the network per GPU", "US$", 1.0),
    "network_power_per_gpu_w": AxisName("Power of the network per GPU", "W", 1.0),
    "slowdown_p50": AxisName("Slowdown, median", "", 1.0),
    "slowdown_p99": AxisName("Slowdown, 99th percentile", "", 1.0),
}
_KEYS = {
    "cluster.hosts": "Hosts",
    "cluster.gpus_per_host": "GPUs per host",
    "cluster.gpu": "GPU",
    "job.global_batch": "Global batch (samples)",
    "job.micro_batch": "Micro-batch (samples)",
    "job.sequence": "Sequence length (tokens)",
    "job.recompute": "Recomputation",
    "job.parallelism.zero": "ZeRO stage",
    "engine": "Engine",
    "seed": "Seed",
}
_LEAST_SECONDS = 0.1
"""Longest time on an axis from which it is in seconds."""
_OF_MANY = {"min", "mean", "p50", "p99", "max"}
_PARALLEL = "job.parallelism."
_QUANTITY = re.compile(r"([0-9.]+) *([A-Za-zµ]{1,4})")
_ENDS = (("_bytes_per_s", "GB/s", 1e-9), ("_bytes", "GB", 1e-9), ("_s", "s", 1.0))


def heading(name: str) -> str:
    """Begin what a column or legend is called with a capital; keys are called as they are written."""
    return name if "." in name else name[:1].upper() + name[1:]


def axis_name(key: str) -> AxisName:
    """Name a column of an index: a result, or a key of a scenario."""
    if key in _COLUMNS:
        return _COLUMNS[key]
    if key in _KEYS:
        return AxisName(_KEYS[key], "", 1.0)
    if key.startswith(_PARALLEL):
        return AxisName(f"{_worded(key.removeprefix(_PARALLEL)).capitalize()}-parallel ranks", "", 1.0)
    if "." not in key:
        for end, unit, scale in _ENDS:
            head, found, rest = key.partition(f"{end}_") if f"{end}_" in key else key.rpartition(end)
            if found and head and (rest == "" or rest in _OF_MANY):
                return AxisName(", ".join(filter(None, [_worded(head).capitalize(), rest])), unit, scale)
    *_, table, own = ("", *key.split("."))
    named = _worded(f"{table} {own}" if table not in {"", "job"} else own)
    return AxisName(named[:1].upper() + named[1:], "", 1.0)


def _worded(key: str) -> str:
    return " ".join(key.replace("_", " ").split())


def value_name(value: object) -> str:
    """Write a value of a key on an axis or in a legend: quantities with their unit apart, ``100 Gb/s``."""
    if isinstance(value, float):
        return _digits(value)
    if not isinstance(value, str):
        return "not set" if value is None else str(value)
    parts = _QUANTITY.fullmatch(value)
    return (
        value if parts is None else f"{_digits(float(parts[1]))} {parts[2].replace('bps', 'b/s').replace('Bps', 'B/s')}"
    )


def _digits(value: float) -> str:
    """Four digits, or as many as stand before the point."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"  # noqa: PLR2004  beyond, powers of ten


def number(value: object) -> float | None:
    """Give a number or quantity as a number of its base unit, seconds and bytes; None if it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    for dimension in (RATE, DURATION, BYTES) if isinstance(value, str) else ():
        try:
            found = float(parse(value, dimension))
        except ValueError:
            continue
        return found / PS_PER_S if dimension is DURATION else found
    return None
