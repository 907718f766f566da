"""Dispatch and combine of experts as DeepEP measures them: over rails, over the network alone, and over NVLink.

A token goes once to each host that has experts for it, over the rail of its GPU, and from there over NVLink; in low
latency it goes to each of its experts by itself. Choices are even, so that either is an all-to-all: of the GPUs of one
rail, of all GPUs as if each were a host of its own, or of the GPUs of one host. Nothing is fitted to a row.
"""

from functools import partial

import numpy as np

from fabricsim import measured
from fabricsim.run.bench import collective_times
from fabricsim.run.pipeline import load
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import scatter, signed_agreement

_WIDTH = 7168
_BYTES = {"dispatch": 1 + 4 / 128, "combine": 2.0}  # of an element: FP8 with a scale in fp32 per 128, bf16


def rows() -> list[Published]:
    """List the published rates."""
    return [_row(record, way) for record in measured.load("deepep").rows for way in _BYTES]


def _row(record: np.void, way: str) -> Published:
    table, kind, gpu = measured.load("deepep"), str(record["kind"]), str(record["gpu"])
    name = f"{way}, {kind}, {record['gpus']} {gpu.upper()}, {record['processors'] or 'no'} processors"
    source = f"{table.source.partition(',')[0]}, {record['line']}"
    predict = partial(predicted, record, way)
    return Published(name, "GB/s", float(record[way]), source, table.certainty, predict, (kind, way))


def predicted(record: np.void, way: str) -> float:
    """Simulate the all-to-all; returns GB/s as DeepEP counts."""
    size = round(int(record["tokens"]) * int(record["copies"]) * _WIDTH * _BYTES[way])
    hosts, inside = int(record["hosts"]), int(record["hosts"]) == 1
    gpu = "b200-sxm" if record["gpu"] == "b200" else "h100-sxm"  # H800: NVLink is no limit here
    settings = ["cluster=dgx-h100", f"cluster.hosts={hosts}", f"cluster.gpu={gpu}", "transport=rdma-400g"]
    if not inside:  # one GPU and adapter of each host: the rails do not meet
        settings += ["cluster.gpus_per_host=1", "cluster.nics_per_host=1", "cluster.gpus_per_pcie_switch=1"]
        settings += ["cluster.nic_below_gpu_switch=false"]
    (found,) = collective_times(load("hkbu", settings).scenario, "all_to_all", [size])
    return size / (found.seconds) / 1e9


STUDY = by_row(
    "deepep",
    __doc__,
    rows,
    statistics=signed_agreement,
    pictures=scatter("Rates of dispatch and combine", lambda quantity: quantity.split(",")[1].strip(), "rate"),
)
