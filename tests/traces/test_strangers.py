"""Files that are no traces: what they are is said, and what takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricsim.errors import TraceError
from fabricsim.traces.inspecting import inspect
from fabricsim.traces.readers import read

AICB = "comm_type,comm_group,comm_group_size,msg_size"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"topology-name": "Hierarchical", "topologies-per-dim": ["Ring"], "units-count": [2]}', "of ASTRA-sim 1.0"),
        ("topology: [ Ring ]\nnpus_count: [ 8 ]\n", "is a network of ASTRA-sim: `fabricsim convert"),
        ('{\n  "scheduling-policy": "LIFO"\n}', "is a system configuration"),
        ("scheduling-policy: LIFO\n", "is a system configuration"),
        ("[cluster]\nhosts = 2\n", "`fabricsim run` runs it"),
        ("\x00SQLite", "no trace"),
        ('[{"name":"hcom_allReduce_","pid":1,"ts":"1.0","dur":3.0,"ph":"X"}]', "of Ascend's own profiler"),
    ],
)
def test_a_file_that_is_no_trace_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(text, encoding="utf-8")
    for reader in (read, inspect):
        with pytest.raises(TraceError, match=says) as caught:
            reader([path])
        assert "nccl-tests table" not in str(caught.value)


def test_a_table_is_not_replayed_but_inspected(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text("# nThread 1 nGpus 1\n#\n#       size         count\n", encoding="utf-8")
    with pytest.raises(TraceError, match="is a table of nccl-tests, which has no job"):
        read([path])


@pytest.mark.parametrize(
    ("head", "row"),
    [
        (AICB, "CommType.all_reduce,CommGroup.dp_group,8,1024"),
        (f"stage,{AICB}", "step,CommType.all_reduce,CommGroup.dp_group,8,1024"),
        ("msg_size,comm_group_size,comm_group,comm_type,other", "1024,8,CommGroup.dp_group,CommType.all_reduce,x"),
    ],
)
def test_aicb_files_with_other_columns_are_read(head: str, row: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(f"{head}\n{row}\n", encoding="utf-8")
    trace = read([path])
    (what,) = trace.recordings[0].communications
    assert (trace.form, trace.world, what.operation, what.size) == ("aicb", 8, "all_reduce", 1024)
