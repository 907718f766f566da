from __future__ import annotations

from pathlib import Path

from fabricsim.traces import readers
from fabricsim.traces.rebuild.dependencies import order

SCHEDULE = """\
num_ranks 1
rank 0 {
r: recv 8b from 0
a: send 8b to 0
b: calc 5
c: calc 5 cpu 1
d: calc 5
d requires r
e: send 8b to 0
e requires r
f: calc 5
f irequires r
g: calc 5
g requires b
}
"""


def test_operations_of_a_cpu_that_are_ready_together_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "schedule.goal"
    file.write_text(SCHEDULE)
    (recording,) = readers.read([file]).recordings

    written = {(before, after) for before, after, _ in recording.edges.tolist()}
    added = [(before, after) for before, after, _ in order(recording).edges.tolist() if (before, after) not in written]
    assert added == [(1, 2), (4, 5)]  # a before b, d before e; the receive holds up none of them
