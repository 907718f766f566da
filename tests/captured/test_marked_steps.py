from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.captured.rebuild import rebuild
from fabricsim.traces import aicb, readers

if TYPE_CHECKING:
    from pathlib import Path

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
