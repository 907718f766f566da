from __future__ import annotations

from pathlib import Path

import pytest

from fabricsim.records.program import NONE
from fabricsim.traces import aicb, readers
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.traces.trace import COMPUTE, Trace
from tests.reference import captured_jobs as jobs

US = 10**6
"""Picoseconds."""
LOG = f"""\
{aicb.COLUMNS}
CommType.all_reduce,CommGroup.dp_group,2,8,init,None,None,,3.5,0.0,0.0,1
CommType.epoch_end,None,None,0,,None,None,,10.0,None,None,1
CommType.all_reduce,CommGroup.dp_group,2,1024,step,None,None,,0.5,0.0,0.0,1
{{ends}}CommType.epoch_end,None,None,0,,None,None,,1.5,None,None,1
"""
END = "CommType.epoch_end,None,None,0,,None,None,,{},None,None,1\n"


@pytest.mark.parametrize(
    ("ends", "times"),
    [("", [1.5]), (END.format(2), [1.5]), (END.format(None), [1.5]), (END.format(9) + END.format(2), [2, 1.5])],
    ids=["one", "two", "unmeasured", "three"],
)
def test_iterations_of_a_log_without_starts_are_those_between_its_waits(
    tmp_path: Path, ends: str, times: list[float]
) -> None:
    file = tmp_path / "log.csv"
    file.write_text(LOG.format(ends=ends))

    rebuilt = rebuild(readers.read([file]))

    assert rebuilt.captured_steps.tolist() == [[ms * 10**9 for ms in times]]
    assert rebuilt.steps.shape == (1, len(times), 2)
    assert (rebuilt.steps[..., 0] < rebuilt.steps[..., 1]).all()
    assert rebuilt.steps.max() == rebuilt.steps[0, -1, 1] == len(rebuilt.program.ops) // 2 - 1  # of two ranks


def test_an_iteration_has_the_flops_of_its_steps_or_all_without_any() -> None:
    def computing(steps: list[tuple[int, int, int]]) -> Trace:
        job = jobs.Captured()
        for start, flops in ((0, 7), (10, 100), (15, 20), (20, 3), (30, NONE)):
            job.builder.node(COMPUTE, job.stream(7), "gemm", start=start * US, duration=US, work=(flops, NONE))
        for step in steps:
            job.step(*step)
        return jobs.trace_of(job.recording(0, 1))

    assert rebuild(computing([(0, 10, 20), (1, 20, 40)])).flops_per_rank == (120 + 3) / 2
    assert rebuild(computing([])).flops_per_rank == 7 + 100 + 20 + 3
