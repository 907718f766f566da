"""What `fabricsim topology` counts, against closed forms."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

from fabricsim.cli.main import app
from fabricsim.report.style import paper
from fabricsim.report.topology_picture import topology_picture
from fabricsim.scenario.load import load
from fabricsim.scenario.network import Network
from fabricsim.topology.inventory import Inventory, take_inventory
from fabricsim.topology.resources import ResourceList
from fabricsim.topology.wires import Wires, freeze


def survey(hosts: int, fabric: str, *more: str) -> tuple[Inventory, Wires]:
    scenario = load("ideal-16", [f"cluster.hosts={hosts}", f"fabric={fabric}", *more], with_job=False).scenario
    network = scenario.fabric.network(scenario.ends)
    wires = freeze(network, scenario.link_rate, ResourceList(), scenario.fabric)
    return take_inventory(network, wires, scenario.ends.count), wires


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "fabric", "bisection", "diameter"),
    [
        (16, "{topology='single-switch'}", 800, 1),
        (16, "{topology='leaf-spine', hosts_per_leaf=4, spines=2}", 400, 3),  # 2:1
        (16, "{topology='fat-tree', k=4}", 800, 5),
        (16, "{topology='torus', dimensions=[4, 4]}", 2 * 4 * 100, 5),  # 2 k rows are cut: Dally and Towles, 5.2.1
        (64, "{topology='torus', dimensions=[4, 4, 4]}", 2 * 16 * 100, 7),
        (16, "{topology='mesh', dimensions=[4, 4]}", 4 * 100, 7),
        (24, "{topology='dragonfly', hosts_per_switch=2, switches_per_group=3, global_cables=1}", 400, 4),
        (32, "{topology='full-mesh', hosts_per_switch=4}", 4 * 4 * 100, 2),
        (16, "{topology='multi-plane', hosts_per_leaf=4, spines=4, planes=2}", 1600, 5),
    ],
)
def test_bisection_and_diameter_have_their_closed_forms(
    hosts: int, fabric: str, bisection: float, diameter: int
) -> None:
    found, _ = survey(hosts, fabric)
    assert (found.bisection, found.diameter) == (pytest.approx(bisection), diameter)


def test_rails_that_nothing_joins_are_told() -> None:
    found, _ = survey(8, "{topology='rail-only'}", "cluster.gpus_per_host=2", "cluster.nics_per_host=2")
    assert not found.joined
    assert found.diameter is None
    assert [kind["count"] for kind in found.switches] == [2]


def test_a_tier_of_cables_is_one_row_whichever_end_is_listed_first() -> None:
    found, _ = survey(16, "{topology='fat-tree', k=4}")

    assert {kind["between"]: kind["count"] for kind in found.cables} == {
        "NIC - edge": 16,
        "edge - aggregation": 16,
        "aggregation - core": 16,
    }


def test_transceivers_are_two_for_each_cable_beyond_copper() -> None:
    fabric = "{topology='leaf-spine', hosts_per_leaf=4, spines=2, host_cable='3m', switch_cable='300m'}"
    found, _ = survey(16, fabric, "fabric.uplink_rate=400Gbps")
    assert found.transceivers == {"400G DR": 2 * 8}
    assert [(kind["count"], kind["medium"]) for kind in found.cables] == [(16, "copper"), (8, "DR")]
    assert found.tiers[0]["oversubscription"] == pytest.approx(0.5)


@pytest.mark.slow
def test_the_command_counts_and_draws(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["topology", "ideal-16", "--json", "-o", str(tmp_path / "a.png")])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["nics"] == 16
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["{topology='fat-tree', k=8}", "{topology='torus', dimensions=[4, 4, 4]}"])
def test_every_switch_is_in_the_picture_at_a_place_of_its_own(fabric: str) -> None:
    found, wires = survey(64, fabric)
    axes = topology_picture(wires, found.nics, "t", (4, 4, 4) if "torus" in fabric else ()).axes[0]
    spots = [tuple(spot) for dots in axes.collections for spot in dots.get_offsets().tolist()]  # type: ignore[union-attr]
    assert len(set(spots)) == len(wires.nodes) - found.nics


@pytest.mark.slow
def test_rails_that_no_cable_joins_lie_side_by_side() -> None:
    scenario = load("rail-only", with_job=False).scenario
    network = scenario.fabric.network(scenario.ends)
    wires = freeze(network, scenario.link_rate, ResourceList(), scenario.fabric)
    (axes,) = topology_picture(wires, scenario.ends.count, "t", ()).axes

    left, right = axes.dataLim.intervalx
    across = [float(np.ptp(line.get_xdata())) for line in axes.get_lines()]  # type: ignore[arg-type]  # numbers
    assert len(across) == 8 * 4 * 2  # each leaf of each rail to each spine of it
    assert max(across) < (right - left) / 8


@pytest.mark.slow
def test_more_kinds_of_switches_than_colours_and_marks_are_all_drawn() -> None:
    scenario = load("ideal-16", with_job=False).scenario
    network = Network.of(scenario.ends)
    cable = scenario.fabric.network(scenario.ends).links[0].cable
    for end in range(16):
        network.join(scenario.ends.name(end), f"{'abcdefghijklmnop'[end]}-leaf", cable)
        network.join(f"{'abcdefghijklmnop'[end]}-leaf", "core", cable)
    wires = freeze(network, scenario.link_rate, ResourceList(), scenario.fabric)
    (axes,) = topology_picture(wires, 16, "t", ()).axes
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == 17  # type: ignore[arg-type]  # of points
    assert len({str(dots.get_label()) for dots in axes.collections}) == 17


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.3, 7.0])
@pytest.mark.parametrize(
    ("fabric", "named"),
    [
        ("{topology='leaf-spine', hosts_per_leaf=20, spines=4}", True),
        ("{topology='full-mesh', hosts_per_switch=9}", True),
        ("{topology='fat-tree', k=8}", False),
        ("{topology='torus', dimensions=[4, 4, 4]}", False),
    ],
)
def test_names_in_the_picture_keep_clear_of_one_another(fabric: str, width: float, *, named: bool) -> None:
    found, wires = survey(64, fabric)
    with paper(width):
        figure = topology_picture(wires, found.nics, "t", (4, 4, 4) if "torus" in fabric else ())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,), whole = figure.axes, figure.bbox.padded(1)
    boxes = [text.get_window_extent() for text in (*axes.texts, axes.title) if text.get_text()]

    assert any(text.get_text()[0].isalpha() for text in axes.texts) == named
    assert not any(box.overlaps(other) for box, other in combinations(boxes, 2))
    assert all(whole.contains(*corner) for box in boxes for corner in box.get_points().tolist())
    assert " each" in figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize("slow", ["leaf0->spine*", "spine*->leaf0"])
def test_a_cable_that_is_slow_in_one_direction_counts_alike_whichever_it_is(slow: str) -> None:
    fabric = "{topology='leaf-spine', hosts_per_leaf=2, spines=2}"
    found, _ = survey(4, fabric, f"fabric.cables={{'{slow}'={{rate='25Gbps'}}}}")

    assert found.bisection == pytest.approx(2 * 25)  # what leaf0 sends, or what it gets
    assert [(kind["between"], kind["count"], kind["gbps"]) for kind in found.cables] == [
        ("NIC - leaf", 4, pytest.approx(100)),
        ("leaf - spine", 4, pytest.approx(100)),
    ]
    assert found.tiers[0]["up_gbps"] == pytest.approx(2 * 25 + 2 * 100)


@pytest.mark.parametrize("slow", ["host0->leaf0", "leaf0->host0"])
def test_an_adapter_has_the_rate_of_the_faster_direction(slow: str) -> None:
    fabric = "{topology='leaf-spine', hosts_per_leaf=2, spines=2}"
    found, _ = survey(4, fabric, f"fabric.cables={{'{slow}'={{rate='25Gbps'}}}}")

    assert found.adapters == [{"gbps": pytest.approx(100), "count": 4}]
    assert found.bisection == pytest.approx(100 + 25)


NAMES = (("leaf0", "leaf1", "spine0", "spine1"), ("hostleaf0", "hostleaf1", "edgespine0", "edgespine1"))


@pytest.mark.parametrize("names", NAMES)
def test_switches_of_a_file_may_have_any_name(names: tuple[str, ...], tmp_path: Path) -> None:
    below, above = names[:2], names[2:]
    ends = [(f"host{host}", below[host // 2]) for host in range(4)] + [
        (leaf, spine) for leaf in below for spine in above
    ]
    file = tmp_path / "cables.csv"
    file.write_text("a,b,gbps,delay_ns\n" + "".join(f"{one},{other},100,25\n" for one, other in ends))
    found, _ = survey(4, f"{{topology='file', links='{file}'}}")

    leaf, spine = (name.rstrip("01") for name in (below[0], above[0]))
    counts = {frozenset(kind["between"].split(" - ")): kind["count"] for kind in found.cables}
    assert counts == {frozenset(("NIC", leaf)): 4, frozenset((leaf, spine)): 4}
    assert [(tier["name"], tier["switches"]) for tier in found.tiers] == [(leaf, 2), (spine, 2)]


def _told(*failures: str, as_json: bool = True) -> tuple[str, str]:
    fabric = f'fabric={{topology="leaf-spine",hosts_per_leaf=2,spines=2,failures=[{",".join(failures)}]}}'
    command = ["topology", "ideal-16", "--set", "cluster.hosts=4", "--set", fabric, *(["--json"] if as_json else [])]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.mark.slow
def test_what_is_down_from_the_start_is_counted_and_achieves_nothing() -> None:
    stdout, stderr = _told('{link="leaf0-spine1"}')
    found = json.loads(stdout)

    assert found["bisection"] == pytest.approx(100)  # leaf0 has one cable of 100 Gb/s up
    assert found["tiers"][0]["up_gbps"] == pytest.approx(3 * 100)
    assert (found["diameter"], found["joined"], found["cables_down"]) == (3, True, 1)
    assert sum(kind["count"] for kind in found["cables"]) == 8
    assert "1 cable is down from the start (fabric.failures)" in stderr


@pytest.mark.slow
@pytest.mark.parametrize("failure", ['{link="leaf0-spine*"}', '{host="host3"}'])
def test_a_fabric_of_which_a_part_is_cut_off_is_not_joined(failure: str) -> None:
    found = json.loads(_told(failure)[0])

    assert (found["joined"], found["diameter"]) == (False, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure",
    [
        '{link="leaf0-spine1",from="1ms"}',
        '{link="leaf0-spine1",until="1ms"}',
        '{link="leaf0-spine1",rate="1Gbps"}',
        '{link="leaf0-spine1",mtbf="1s",mttr="1s"}',
    ],
)
def test_what_fails_later_or_for_a_time_is_in_the_fabric(failure: str) -> None:
    assert _told(failure) == _told()


def test_check_tells_the_fabric_without_what_is_down() -> None:
    fabric = 'fabric={topology="leaf-spine",hosts_per_leaf=2,spines=2,failures=[{switch="spine1"}]}'
    done = CliRunner().invoke(app, ["check", "ideal-16", "--set", "cluster.hosts=4", "--set", fabric])

    assert "2 leaves x 2 down (100 Gb/s) / 1 up (100 Gb/s), 2:1; 1 spine x 2 down" in " ".join(done.output.split())
    assert "2 cables are down from the start" in " ".join(done.output.split())
