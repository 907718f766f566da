"""Several jobs of one run, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from fabricsim.report.causes_text import cause_text, first_beside_compute
from fabricsim.report.tables import FittedTable, titled
from fabricsim.units import human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fabricsim.results.jobs import JobSummary


def jobs_text(jobs: Sequence[JobSummary]) -> RenderableType:
    """Show what became of each job, and what its own iteration waited for first besides computing."""
    numbers = ["Ranks", "Start", "Iteration", "Compute", "Exposed\ncomm.", "Bubble"]
    least = ["Start", "Ranks", "Bubble", "Compute"]
    table = FittedTable("Job", numbers, words=["First cause beside computing"], least=least)
    for job in jobs:
        times = (job[name] for name in ("iteration_time_s", "compute_s", "exposed_communication_s", "bubble_s"))
        first = first_beside_compute(job["causes"])
        table.add_row(
            escape(job["name"]),
            str(job["ranks"]),
            human_seconds(job["start_s"]),
            *(human_seconds(time) for time in times),
            escape(f"{cause_text(first)}, {100 * first['share']:.1f} %"),
        )
    return titled("Jobs, each from its own start", table)
