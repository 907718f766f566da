from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fabricsim.report.sweeps import volume_sweeps
from fabricsim.run.pipeline import load
from fabricsim.studies.anthony2024 import study as anthony2024
from fabricsim.studies.anthony2024.grid import MIXED, RANKS, SCHEMES, SEQUENCES, SIZES, SWEPT, SweptJob, points
from fabricsim.workload.shapes import parameters

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.results.validation import Validation

FEW = (SIZES[0], SWEPT)


@pytest.fixture(scope="module")
def study() -> Validation:
    """The study without its largest models, which take most of its time."""
    few = [point for point in points() if point.size in FEW]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anthony2024, "points", lambda: few)
        patch.setattr(anthony2024, "SIZES", FEW)
        return anthony2024.validate()


def of(study: Validation, sweep: str, scheme: str) -> list[dict[str, Any]]:
    return [point for point in study.summary["points"] if (point["sweep"], point["scheme"]) == (sweep, scheme)]


def test_grid_is_every_scheme_over_both_sweeps() -> None:
    grid = list(points())

    assert len(grid) == len(set(grid)) == len(SCHEMES) * (len(SEQUENCES) + len(SIZES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", list(points()), ids=lambda point: f"{point.sweep}-{point.size.name}-{point.scheme.name}"
)
def test_jobs_are_those_of_gpt_neox(point: SweptJob) -> None:
    scenario = load("anthony2024", point.settings).scenario
    job = scenario.job

    assert job is not None
    assert (job.micro_batch, job.precision, job.recompute) == (4, "fp16", "full")
    assert job.parallelism.ranks in {2, RANKS}
    assert scenario.cluster.ranks == RANKS
    # named after their parameters, from 125M on with those of one embedding
    named = float(point.size.name[:-1]) * {"M": 1e6, "B": 1e9}[point.size.name[-1]]
    tables = job.model.vocabulary * (1 if named >= 100e6 else 2) + job.model.positions
    assert parameters(job.model) - tables * job.model.hidden == pytest.approx(named, rel=0.03)


@pytest.mark.slow
def test_published_volumes_come_out(study: Validation) -> None:
    assert [row.measured for row in study.rows] == [2.0, 1.0, 1.0, 1.0, 1.5]
    assert max(abs(row.error) for row in study.rows) < 1e-3
    assert {row.certainty for row in study.rows} == {"secondary"}


@pytest.mark.slow
def test_every_program_agrees_with_the_formulas(study: Validation) -> None:
    count = len(study.summary["points"])

    assert count == len(SCHEMES) * (len(SEQUENCES) + len(FEW))
    assert study.summary["programs that agree with the formulas"] == f"{count} of {count}"
    assert all(point["agree"] for point in study.summary["points"])


@pytest.mark.slow
def test_longer_sequences_make_larger_messages_of_activations_alone(study: Validation) -> None:
    for scheme in ("tensor", "pipeline"):
        largest = [max(row["largest_bytes"] for row in point["volumes"]) for point in of(study, "sequence", scheme)]
        assert largest == [4 * tokens * SWEPT.hidden * 2 for tokens in SEQUENCES]
    for scheme in ("data", "ZeRO-1", "ZeRO-3"):
        assert len({point["total"]["wire_bytes"] for point in of(study, "sequence", scheme)}) == 1
    for scheme in (each.name for each in SCHEMES):
        assert len({point["total"]["calls"] for point in of(study, "sequence", scheme)}) == 1


@pytest.mark.slow
def test_shares_add_up(study: Validation) -> None:
    shares = [value for key, value in study.summary.items() if key.startswith("share of bytes")]

    assert len(shares) == 2
    for share in shares:
        for parts in share.values():
            assert sum(parts.values()) == pytest.approx(100)


@pytest.mark.slow
def test_picture_shows_every_scheme(study: Validation, tmp_path: Path) -> None:
    (path,) = anthony2024.STUDY.draw(study, tmp_path)
    assert path.stat().st_size > 10_000
    schemes = [scheme.name for scheme in SCHEMES if scheme != MIXED]
    figure = volume_sweeps(study.summary["points"], schemes, MIXED.name)
    sizes, counts, shares = figure.axes[:3]

    assert len(sizes.lines) == len(counts.lines) == len(schemes)
    assert [line.get_label() for line in counts.lines] == schemes
    tops = [patch.get_y() + patch.get_height() for patch in shares.patches]
    assert max(tops) == pytest.approx(100)
