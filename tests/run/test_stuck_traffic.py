"""Traffic beside jobs that stands still is told."""

from __future__ import annotations

import pytest

from fabricsim.run.pipeline import load, simulate

SETTINGS = (
    'jobs={a={ranks="0-7",parallelism={data=8}}}',
    'traffic={bg={pattern="ring",ranks="8-15",size="100MB",every="50ms"}}',
)


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ("[]", ""),
        (
            '[{link="host9-*",from="100ms"}]',
            "; 2 times, 8 ms each in the mean; the next, begun at 100 ms, had not arrived when the jobs were done",
        ),
    ],
)
def test_a_round_that_does_not_arrive_is_told(failures: str, said: str) -> None:
    result = simulate(load("what-if-ring", [*SETTINGS, f"fabric.failures={failures}"]))
    (note,) = [each for each in result.notes if each.startswith("traffic bg")]

    assert note.endswith(said)
    assert ("had not arrived" in note) == bool(said)
