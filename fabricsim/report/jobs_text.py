"""Several jobs of one run, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from fabricsim.report.causes_text import cause_name
from fabricsim.report.tables import FittedTable, titled
from fabricsim.units import human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fabricsim.results.causes import Cause
    from fabricsim.results.jobs import JobSummary


def jobs_text(jobs: Sequence[JobSummary]) -> RenderableType:
    """Show what became of each job, and what its own iteration waited for first besides computing."""
    numbers = ["Ranks", "Start", "Iteration", "Compute", "Exposed\ncomm.", "Bubble"]
    least = ["Start", "Ranks", "Bubble", "Compute"]
    table = FittedTable("Job", numbers, words=["First cause beside computing"], least=least)
    for job in jobs:
        times = (job[name] for name in ("iteration_time_s", "compute_s", "exposed_communication_s", "bubble_s"))
        first = next((cause for cause in job["causes"] if cause["cause"] != "compute"), job["causes"][0])
        table.add_row(
            escape(job["name"]),
            str(job["ranks"]),
            human_seconds(job["start_s"]),
            *(human_seconds(time) for time in times),
            escape(_said(first)),
        )
    return titled("Jobs, each from its own start", table)


def _said(cause: Cause) -> str:
    detail = f" ({cause['detail']})" if cause["detail"] else ""
    return f"{cause_name(cause)}{detail}, {100 * cause['share']:.1f} %"
