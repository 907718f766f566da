"""The flow engine against the packet engine: the draw of workloads, and a sample of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fabricsim.cli import studies
from fabricsim.errors import InputError
from fabricsim.studies import engines
from fabricsim.studies.engines import BLOCKING, COLLECTIVES, FABRICS, HOSTS, TRANSPORTS, Workload, compare


def test_workloads_cover_what_they_are_drawn_from() -> None:
    drawn = engines.workloads()

    assert len(drawn) == engines.WORKLOADS
    assert {each.collective for each in drawn} == set(COLLECTIVES)
    assert {(each.transport, each.fabric) for each in drawn} == {(name, one) for name in TRANSPORTS for one in FABRICS}
    assert {len(each.ranks) for each in drawn} == set(range(2, HOSTS + 1))
    assert all(each.ranks[0] >= 0 and each.ranks[-1] < HOSTS for each in drawn)
    assert all(2**16 <= each.size <= 2**26 for each in drawn)
    # even in the logarithm: half lies below the geometric mean, 2 MiB; four standard deviations of 100 draws
    assert abs(np.mean([each.size < 2**21 for each in drawn]) - 0.5) < 4 * 0.5 / 10


def test_draws_do_not_depend_on_their_number() -> None:
    assert engines.workloads(100)[:7] == engines.workloads(7)
    assert engines.workloads(7, seed=2) != engines.workloads(7)


def test_distribution_is_of_sizes_but_for_the_signed_mean() -> None:
    found = engines.distribution([-0.1, 0.1, 0.3, -0.5])

    assert found == pytest.approx(
        {"workloads": 4, "mean_signed": -0.05, "mean": 0.25, "median": 0.2, "p90": 0.3 + 0.7 * 0.2, "max": 0.5}
    )


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("fabric", [name for name in FABRICS if name != BLOCKING])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_engines_agree_over_infiniband(collective: str, fabric: str, channels: int) -> None:
    """Within 10 %: the mean is to be below 5 %, and what single workloads may reach is twice that."""
    workload = Workload(collective, tuple(range(3, 9)), 3 * 2**20, fabric, "rdma-100g")

    found = compare(workload, [f"collectives.max_channels={channels}"])

    assert abs(found.error) < 2 * engines.TARGET
    assert found.flow != found.packet


@pytest.mark.slow
def test_study_has_a_row_per_workload_and_all_distributions() -> None:
    seen: list[float] = []
    study = engines.validate(seen.append, count=4)

    assert seen[-1] == pytest.approx(1.0)
    found = json.loads(study.to_json())
    assert len(found["rows"]) == 4
    errors = [row["relative_error"] for row in found["rows"]]
    assert found["summary"]["packet against flow"]["all"]["mean"] == pytest.approx(np.mean(np.abs(errors)))
    assert found["summary"]["packet against flow, one channel"]["all"]["workloads"] == 4


@pytest.mark.parametrize(
    ("study", "engine", "message"),
    [
        (None, "packet", "needs a study"),
        ("hkbu", "packet", "it has flow"),
        ("engines", "flow", "runs on both engines"),
        ("dai2024", "packets", "it has flow, packet"),
    ],
)
def test_studies_without_runs_by_an_engine_are_refused(study: str | None, engine: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        studies.validate(study, engine=engine)
