"""The packet engine against closed forms, and against other packet simulators where their results are there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fabricsim import measured
from fabricsim.errors import InputError
from fabricsim.report.validation import to_text
from fabricsim.scenario.load import load
from fabricsim.studies.peers import cases as peers_cases
from fabricsim.studies.peers import patterns as peers_patterns
from fabricsim.studies.peers import runs as peers_runs
from fabricsim.studies.peers import study as peers
from fabricsim.topology.platform import Platform, ProtocolCosts

if TYPE_CHECKING:
    from fabricsim.studies.peers.cases import Case, Comparison

ROOT = Path(__file__).resolve().parents[2]
CLOSE = 0.001
"""Of the closed forms: what the study promises."""


# ---- closed forms -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("packets", "links"), [(1, 2), (1, 6), (250, 4), (2500, 2), (2500, 6)])
def test_a_flow_alone_is_the_closed_form(packets: int, links: int) -> None:
    """h (d + W / C) + (n - 1) W / C + h (d + A / C) with 1 us, 100 Gb/s, W = 4160 B and A = 64 B."""
    source, target = {2: (0, 1), 4: (0, 4), 6: (0, 127)}[links]
    demand = peers_runs.matrix([(source, target)], packets * 4096, 128)

    found = peers_runs.run(peers_runs.scenario("peers-roce", 8), demand, 8)

    byte = 8 / 100e9
    packet, ack = 4160 * byte, 64 * byte
    form = links * (1e-6 + packet) + (packets - 1) * packet + links * (1e-6 + ack)
    assert found.acknowledged[0] == pytest.approx(form, rel=1e-9)
    assert found.links.tolist() == [links]


def test_the_closed_form_is_that_of_the_other_simulators() -> None:
    """Captured: csg-htsim RoCE, one packet over 2 links, 2500 over 6."""
    assert peers_runs.alone(1, 2, 4160, 64) == pytest.approx(4.67584e-6, rel=1e-9)
    assert peers_runs.alone(2500, 6, 4160, 64) == pytest.approx(845.69472e-6, rel=1e-9)


@pytest.mark.slow
def test_the_rows_of_closed_forms_hold() -> None:
    rows = peers.closed_form_rows()

    assert len(rows) == 9
    assert max(abs(row.relative_error or 0) for row in rows) < 1e-9


@pytest.mark.slow
def test_a_ring_whose_acknowledgements_share_the_links_is_its_closed_form() -> None:
    rows = peers.ring_rows()

    # 2500 (4160 + 64) 8 / C and a packet and its acknowledgement over h links
    assert [row.measured for row in rows] == pytest.approx([849.47584, 854.15168, 858.82752], rel=1e-9)
    assert max(abs(row.relative_error or 0) for row in rows) < CLOSE


def test_links_between_hosts_are_those_of_the_routes() -> None:
    chosen = peers_runs.scenario("peers-roce", 4)
    costs = ProtocolCosts(wire=1.0, send_copy=0.0, receive_copy=0.0, packet=4096, staged=False)
    platform = Platform(chosen.cluster, chosen.fabric, chosen.switch, peers_runs.RATE, costs, seed=0)
    pairs = np.array([(here, there) for here in range(16) for there in range(16) if here != there])

    links = peers_runs.links_between(pairs[:, 0], pairs[:, 1], 4)

    assert links.tolist() == [len(platform.path(int(here), int(there)).hops) for here, there in pairs]


# ---- theory -------------------------------------------------------------------------------------


def _error(name: str, pattern: str) -> float:
    case = next(case for case in peers_cases.CASES if case.name == name)
    drawn = next(each for each in peers_patterns.own_patterns() if each.name == pattern)
    ((_, expected, found),) = peers_patterns.theory(case, drawn)
    return found / expected - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern", "within"),
    [
        *[
            (name, f"incast{count}", 0.05)
            for name in ("RoCE", "NSCC, spraying", "NDP, spraying", "EQDS, spraying")
            for count in (8, 127)
        ],
        ("DCTCP of htsim", "incast8", 0.05),
        ("DCTCP of htsim", "incast32", 0.05),  # marks on arrival had one flow wait 250 ms for its timer
        ("DCTCP of ns-3", "incast32", 0.05),
        ("HPCC", "incast127", 0.05),
        ("DCQCN", "incast127", 0.05),
        *[(name, "ring128", 0.02) for name in ("RoCE", "DCQCN", "DCTCP of htsim", "New Reno of htsim")],
        ("NSCC, spraying", "ring128", 0.02),
        ("NDP, spraying", "ring128", 0.02),
        ("HPCC", "ring128", 0.06),  # it leaves 5 % of the wire: eta is 0.95
        *[(name, "perm128 of seed 1", 0.05) for name in ("HPCC", "DCTCP of ns-3", "New Reno of htsim")],
    ],
)
def test_incasts_rings_and_permutations_are_as_theory_has_them(name: str, pattern: str, within: float) -> None:
    assert abs(_error(name, pattern)) < within


def test_patterns_are_as_they_are_called() -> None:
    patterns = {pattern.name: pattern for pattern in peers_patterns.own_patterns()}

    assert [len(patterns[f"incast{count}"].pairs) for count in (8, 32, 127)] == [8, 32, 127]
    assert [len(patterns[f"ring{hosts}"].pairs) for hosts in (16, 128)] == [16, 128]
    drawn = [patterns[f"perm128 of seed {seed}"].pairs for seed in (1, 2)]
    for pairs in drawn:
        assert [source for source, _ in pairs] == sorted(target for _, target in pairs) == list(range(128))
        assert all(source != target for source, target in pairs)
    assert drawn[0] != drawn[1]


# ---- the study ----------------------------------------------------------------------------------


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "closed_form_rows", peers.ring_rows)
    monkeypatch.setattr(peers, "large", dict)
    monkeypatch.setattr(peers, "own_patterns", list)


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
def test_without_the_results_it_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(peers.FOLDER, raising=False)
    shares: list[float] = []

    study = peers.validate(shares.append)

    assert peers.FOLDER in study.summary["other simulators"]
    assert {row.certainty for row in study.rows} == {"inferred"}
    assert shares[-1] == 1.0
    assert json.loads(study.to_json())["study"] == "peers"
    assert "left out" in to_text(study)


def test_a_folder_without_results_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(peers.FOLDER, str(tmp_path))

    with pytest.raises(InputError, match=peers.FOLDER):
        peers.results_folder()


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
def test_rows_agreement_and_pictures_of_made_up_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Results that are ours times a factor: the study has to find that factor."""
    case = peers_cases.Case("RoCE", "peers-roce", "csg_roce_dmodk")
    monkeypatch.setattr(peers, "CASES", (case,))
    ours = peers_runs.run(
        peers_runs.scenario("peers-roce", 4), peers_runs.matrix(peers_runs.ring(16), peers_runs.FLOW, 16), 4
    ).acknowledged
    fct = tmp_path / "fct"
    fct.mkdir()
    lines = [
        f"{here},{there},{time * 1e6 / 0.9!r}"
        for (here, there), time in zip(peers_runs.ring(16), ours.tolist(), strict=True)
    ]
    (fct / "csg_roce_dmodk__ring16.csv").write_text("\n".join(["src,dst,fct_or_finish_us", *lines]), encoding="utf-8")
    (fct / "single_flow.csv").write_text(
        "sim,src,dst,hops,bytes,fct_us\ncsg_roce,0,1,2,4096,4.67584\n", encoding="utf-8"
    )
    monkeypatch.setenv(peers.FOLDER, str(tmp_path))

    study = peers.validate()

    found = study.summary["ring16, completion times in us and how far they differ"]["RoCE / csg_roce_dmodk"]
    assert found["mean_differs"] == pytest.approx(-0.1)
    assert found["flow_median"] == pytest.approx(0.1)
    assert found["our_max"] == pytest.approx(0.9 * found["their_max"])
    assert study.summary["beyond the targets"] == "RoCE, ring16: mean -10.0 %"
    assert [row.relative_error for row in study.rows[-1:]] == [pytest.approx(-0.1)]
    assert len(study.summary["flows, RoCE, ring16"]) == 16
    assert [path.name for path in peers.STUDY.draw(study, tmp_path)] == ["peers-roce-ring16.png"]


def test_what_differs_from_the_simulator_of_the_parameters_is_a_miss() -> None:
    """Others of its kind that are nearer excuse nothing."""
    theirs = {"a": np.array([1.0]), "b": np.array([1.4])}
    case = peers_cases.Case("x", "peers-roce", "a", ("b",))

    def misses(ours: float) -> list[str]:
        both = {"a": np.array([ours]), "b": np.array([ours])}
        return peers_cases.Comparison(case, "ring16", [(0, 1)], both, theirs, 1.0).misses()

    assert misses(1.04) == []
    assert misses(1.2) == ["x, ring16: mean +20.0 %", "x, ring16: median over flows 20.0 %"]


def test_the_shipped_table_has_what_the_study_looks_up() -> None:
    rows = measured.load("peers").rows

    assert {str(row["scenario"]) for row in rows} == {"perm128", "perm1024"}
    runs = set(rows["run"].tolist()) | {"ns3rdma_hpcc_4096"}  # whose result is not at hand
    assert {case.own.removesuffix("_dmodk").removesuffix("_spray64") for case in peers_cases.CASES} <= runs


# ---- other simulators ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Path:
    found = Path(os.environ.get("FABRICSIM_PEERS") or ROOT.parent / "shared" / "peers")
    if not (found / "fct").is_dir():
        pytest.skip("results of other simulators are not here: set FABRICSIM_PEERS")
    return found


def compared(folder: Path, name: str, pattern: str) -> tuple[Case, Comparison]:
    case = next(case for case in peers_cases.CASES if case.name == name)
    return case, peers.compare(folder, case, pattern)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("RoCE", "perm128"),
        ("DCQCN", "perm128"),
        ("DCQCN, 1000 B", "perm128"),
        ("New Reno of ns-3", "perm128"),
        ("NSCC, spraying", "perm128"),
        ("New Reno of htsim", "perm128"),
        ("DCTCP of htsim", "perm128"),
        ("DCTCP of ns-3", "perm128"),
        ("RoCE", "ring16"),
        ("DCQCN", "ring16"),
        ("DCTCP of htsim", "ring16"),
        ("New Reno of htsim", "ring16"),
        ("NSCC, spraying", "ring16"),
        ("New Reno of ns-3", "ring16"),
        ("DCTCP of ns-3", "ring16"),
        ("NDP, spraying", "perm128"),
        ("NDP, spraying", "ring16"),
        ("EQDS, spraying", "perm128"),
        ("EQDS, spraying", "ring16"),
    ],
)
def test_within_the_targets(folder: Path, name: str, pattern: str) -> None:
    case, found = compared(folder, name, pattern)

    own = found.agreement(case.own)
    assert abs(own["mean_differs"]) < 0.05
    assert own["flow_median"] < 0.10


def test_d_mod_k_routes_are_theirs(folder: Path) -> None:
    """Same routes but for the names of switches: a one-to-one relation of names maps theirs onto ours."""
    chosen = load(
        "ideal-16", ["engine=packet", "cluster.hosts=128", "fabric=fat-tree-k8", "fabric.routing=d-mod-k"]
    ).scenario
    costs = ProtocolCosts(wire=1.0, send_copy=0.0, receive_copy=0.0, packet=4096, staged=False)
    platform = Platform(chosen.cluster, chosen.fabric, chosen.switch, peers_runs.RATE, costs, seed=0)
    wires = platform.wires
    names: dict[str, str] = {}
    lines = (folder / "paths" / "perm128_dmodk_htsim_roce.csv").read_text(encoding="utf-8").splitlines()
    for line in lines[1:]:
        _, source, target, _, way = line.split(",")
        ours = [wires.nodes[wires.target[link]] for link in platform.route_links(int(source), int(target), 0, 0)]
        for theirs, our in zip(way.split("-")[1:], ours, strict=True):
            assert names.setdefault(theirs, our) == our
    assert len(set(names.values())) == len(names)


def test_max_min_shares_are_those_of_another_solver(folder: Path) -> None:
    theirs = peers.completion_times(folder, "maxmin_fluid_dmodk", "perm128")
    assert theirs is not None
    pairs = sorted(theirs)
    pattern = peers_patterns.their_pattern(folder, "perm128", pairs)

    found = peers_patterns.max_min(pattern, 2500 * 4160)

    ends = np.array(pairs)
    links = peers_runs.links_between(ends[:, 0], ends[:, 1], 8).tolist()
    idle = [peers_runs.alone(2500, each, 4160, 64) - 2500 * 4160 / peers_runs.RATE for each in links]
    assert found + idle == pytest.approx([theirs[pair] for pair in pairs], rel=1e-6)


def test_the_size_of_flows_is_that_of_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "incast8.csv").write_text("id,src,dst,bytes,start_ns\n1,0,12,4096,0\n", encoding="utf-8")

    sizes = [peers_patterns.their_pattern(tmp_path, name, [(0, 1)]).size for name in ("incast8", "incast9", "ring128")]

    assert sizes == [4096, 1_024_000, 10_240_000]
