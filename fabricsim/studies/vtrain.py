"""Megatron-LM iterations measured on A100 nodes by the authors of vTrain (Bang et al., arXiv 2312.12391).

The tables lie outside the project: the folder named by ``FABRICSIM_TRACES`` has them under ``vtrain/``. That all runs
recompute all activations, run 1F1B without interleaving and have 800 Gb/s per node is in the configurations that their
repository ships (github.com/VIA-Research/vTrain@f8dda84, config/validation).

Small models wait for the host, which issues their kernels. How long it takes for one is not published: it is that at
which the runs that `calibrates` names, 14 of 535, come out right on average. They are judged apart from all others.
"""

import csv
import os
from pathlib import Path
from typing import Any

from fabricsim.errors import AbsentTracesError, InputError
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, ranked_agreement, scatter, settings

SOURCE = "github.com/VIA-Research/vTrain@f8dda84"
TABLES = {"several nodes": "measured_multi_node.csv", "one node": "measured_single_node.csv"}
"""File of each table."""
_SCENARIO = "megatron-vtrain"
_COLUMNS = {
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "hidden size": "model.hidden",
    "attention heads": "model.heads",
    "# layers": "model.layers",
    "sequence length": "sequence",
    "tensor parallelism": "parallelism.tensor",
    "data parallelism": "parallelism.data",
    "pipeline parallelism": "parallelism.pipeline",
}
_TIME = "iteration time (ms)"
_CALIBRATION = ", calibration"
_CALIBRATING = {"tensor parallelism": "1", "pipeline parallelism": "1", "hidden size": "1024", "micro batch": "1"}


def rows() -> list[Published]:
    """List the measured configurations.

    Raises AbsentTracesError if the tables are not there; InputError if they cannot be read.
    """
    return [_row(table, record) for table, name in TABLES.items() for record in read(folder() / name)]


def _row(table: str, record: dict[str, str]) -> Published:
    run = run_of(table, record)
    part = f"{table}{_CALIBRATION}" if calibrates(table, record) else f"{table}, others"
    groups = (table, part) if table == "one node" else (table,)
    return Published(
        run.name, "s", float(record[_TIME]) / 1e3, SOURCE, "published", run.iteration, groups, drawn=run.drawn
    )


def calibrates(table: str, record: dict[str, str]) -> bool:
    """Whether a run is one of those that give the host's time per kernel, ``cluster.gpu.kernel_launch``.

    These are the smallest models, on one stage, without tensor parallelism, with one sequence in a micro-batch:
    nothing but the host holds them up.
    """
    return table == "one node" and all(record[column] == value for column, value in _CALIBRATING.items())


def folder() -> Path:
    """Folder of the measured tables. Raises AbsentTracesError if ``FABRICSIM_TRACES`` does not lead to one."""
    path = Path(os.environ.get("FABRICSIM_TRACES", "traces")) / "vtrain"
    if not path.is_dir():
        msg = f"{path} is not there: set FABRICSIM_TRACES to a folder with vtrain/{TABLES['one node']} of {SOURCE}"
        raise AbsentTracesError(msg)
    return path


def read(path: Path) -> list[dict[str, str]]:
    """Read a table of measured iterations.

    Raises InputError if the file cannot be read, lacks a column, or a cell is no number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error
    for column in (*_COLUMNS, _TIME):
        for line, row in enumerate(rows, start=2):
            cell = row.get(column)
            if cell is None or not cell.replace(".", "", 1).isdigit():
                raise InputError(f"{path}: line {line}: column {column!r} is {cell!r}, not a number")
    return rows


def run_of(table: str, record: dict[str, str]) -> PublishedRun:
    """Describe a measured run; tensor-parallel ranks send parts to the next stage, as Megatron-LM does unasked."""
    values: dict[str, object] = {key: int(record[column]) for column, key in _COLUMNS.items()}
    names = ("tensor", "data", "pipeline")
    degrees = {name: int(record[f"{name} parallelism"]) for name in names}
    values["parallelism.scatter_gather"] = degrees["tensor"] > 1 and degrees["pipeline"] > 1
    group = table + (_CALIBRATION if calibrates(table, record) else "")
    shape = f"{values['model.layers']} layers of {values['model.hidden']}"
    split = " ".join(f"{name[0]}{degree}" for name, degree in degrees.items())
    batch = f"{values['global_batch']} in {values['micro_batch']}"
    return PublishedRun(f"{group}: {shape}, {split}, batch {batch}", _SCENARIO, settings(_SCENARIO, values))


def _parameters() -> dict[str, Any]:
    rule = ", ".join(f"{column} {value}" for column, value in _CALIBRATING.items())
    return {
        "scenario": _SCENARIO,
        "recompute": "full",
        "schedule": "1f1b",
        "host time per kernel": f"calibrated on the runs of one node with {rule}",
    }


STUDY = by_row(
    "vtrain",
    __doc__,
    rows,
    statistics=ranked_agreement,
    parameters=_parameters,
    pictures=scatter("Megatron-LM on A100 nodes", lambda quantity: quantity.split(":")[0]),
    first=(*TABLES, f"one node{_CALIBRATION}", "one node, others"),
)
