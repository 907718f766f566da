"""The study of the abstracts on packets: ceilings from first principles, and agreement on a small case."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fabricsim import measured
from fabricsim.studies.dai2024 import packets
from fabricsim.studies.dai2024.grid import DATA, PIPELINE, WEAK
from fabricsim.studies.dai2024.packets import AGREEMENT, CEILINGS, rate

pytestmark = pytest.mark.slow

SMALL = replace(packets.SMALL, nodes=(2,), scalings=(WEAK,), families=("bert-base",))


@pytest.fixture(scope="module")
def study() -> packets.Study:
    return packets.validate(assumptions=SMALL)


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_tcp_ends_at_its_framing(engine: str) -> None:
    """1448 B of payload in 1538 B on the wire: 18 of Ethernet, 20 of preamble and gap, 20 of IP, 32 of TCP."""
    tcp = CEILINGS[0]

    found = rate(tcp, engine, size=2**27)

    assert found == pytest.approx(10e9 * 1448 / 1538, rel=0.01)


def test_there_is_a_row_per_figure_and_per_ceiling(study: packets.Study) -> None:
    figures = [figure.quantity for figure in measured.figures("dai2024").values()]

    assert [row.quantity for row in study.rows] == [*figures, *(ceiling.quantity for ceiling in CEILINGS)]


def test_summary_counts_the_rows_that_agree(study: packets.Study) -> None:
    beyond = [row.quantity for row in study.rows if abs(row.predicted / row.measured - 1) > AGREEMENT]

    assert study.summary["figures that do not"] == beyond
    assert study.summary["figures that agree"] == len(study.rows) - len(beyond)


def test_points_are_those_of_both_engines(study: packets.Study) -> None:
    points = json.loads(study.to_json())["summary"]["points"]

    assert [(point["parallel"], point["transport"]) for point in points] == [
        (parallel, name) for parallel in (DATA, PIPELINE) for name in ("tcp-10g", "ipoib-100g", "rdma-100g")
    ]
    for point in points:
        assert point["difference"] == pytest.approx(point["packet_s"] / point["flow_s"] - 1)
        assert point["flow_s"] != point["packet_s"]  # of different engines


def test_iterations_over_tcp_and_rdma_agree(study: packets.Study) -> None:
    points = [point for point in study.summary["points"] if point["transport"] != "ipoib-100g"]

    assert max(abs(point["difference"]) for point in points) < AGREEMENT
