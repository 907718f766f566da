"""The pages on metrics and on the file format say what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricsim.results import columns
from fabricsim.results.columns import Column, ColumnGroup
from fabricsim.run.sweeps import sweep
from tests.reference import format_page

METRICS = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def test_the_page_of_the_format_is_what_the_writer_declares() -> None:
    assert format_page.PAGE.read_text(encoding="utf-8") == format_page.page(), "run tests/reference/format_page.py"


def test_the_page_of_the_format_leaves_out_no_group() -> None:
    declared = {name for name, value in vars(columns).items() if isinstance(value, Column | ColumnGroup)}
    shown = [part for parts in format_page.GROUPS.values() for part in parts]

    assert {name for name in declared - {"_REST"} if getattr(columns, name) not in shown} == {
        "CALLS",
        "FAILED",
    }  # both are in CALLS_OF_FAILURES


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [
        {"scenario": "gpt2-medium-dp", "grid": {"seed": [0, 1]}},
        {"scenario": "ideal-16", "traffic": {"pattern": "incast", "size": "1kB"}, "grid": {"traffic.flows": [1, 2]}},
        {"scenario": "ideal-16", "bench": {"test": "all_reduce"}, "grid": {"bench.size": ["1kB", "1MB"]}},
        {"scenario": "dgx1-v100", "replay": {"trace": "dlrm-v100"}, "grid": {"replay.gpu_speed": [1.0, 2.0]}},
    ],
    ids=json.dumps,
)
def test_each_column_of_an_index_is_among_the_metrics(study: dict[str, object], tmp_path: Path) -> None:
    (row, _) = sweep.run(sweep.read(study), tmp_path).rows
    measured = row.keys() - {"run", "status", "error"} - {key for key in row if "." in key or key == "seed"}

    assert row["status"] == "done"
    for key in measured:
        stem, _, end = key.rpartition("_")
        assert f"`{key}`" in METRICS or (f"`{stem}_min`" in METRICS and f"`_{end}`" in METRICS), key
