"""What is counted before a fabric is built is what is then built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.errors import SimulationError
from fabricsim.run.pipeline import load
from fabricsim.scenario.network import FabricSize
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.size_checks import size_of

FABRICS = [
    "{ topology = 'single-switch' }",
    "{ topology = 'single-switch', rails = true }",
    "{ topology = 'leaf-spine', hosts_per_leaf = 3, spines = 2 }",
    "{ topology = 'leaf-spine', hosts_per_leaf = 2, spines = 5, rails = true }",
    "{ topology = 'leaf-spine', hosts_per_leaf = 3, spines = 2, cables_per_spine = 3 }",
    "{ topology = 'fat-tree' }",
    "{ topology = 'fat-tree', k = 8 }",
]


def _scenario(hosts: int, fabric: str, nics: int = 1, engine: str = "flow") -> Scenario:
    several = [] if nics == 1 else ["cluster.gpus_per_host=4", f"cluster.nics_per_host={nics}"]
    overrides = [f"cluster.hosts={hosts}", f"fabric={fabric}", f"engine={engine}", *several]
    return load("ideal-16", overrides).scenario


def _built(scenario: Scenario) -> FabricSize:
    graph = scenario.fabric.network(scenario.ends).graph()
    ports = dict(graph.degree(weight="times"))
    at_switches = [ports[node] for node in ports if not node.startswith("host")]
    return FabricSize(sum(ports.values()) // 2, max(at_switches), len(at_switches))


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.sampled_from(FABRICS), st.sampled_from([1, 2, 4]))
def test_cables_and_ports_are_counted_as_they_are_built(hosts: int, fabric: str, nics: int) -> None:
    if nics == 1:
        fabric = fabric.replace(", rails = true", "")
    scenario = _scenario(hosts, fabric, nics)
    counted, built = size_of(scenario), _built(scenario)
    assert counted.cables == built.cables
    # the last pod or pods of a fat tree that is not full leave ports of all its switches empty
    assert counted.ports >= built.ports if scenario.fabric.topology == "fat-tree" else counted.ports == built.ports


def test_ports_in_a_file_of_cables_are_counted_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import simpy  # noqa: PLC0415  as above

    from fabricsim.engine.fabric import Fabric  # noqa: PLC0415  compiles

    (tmp_path / "cables.csv").write_text("a,b,gbps,delay_ns\n0,3,1,1\n1,3,1,1\n2,3,1,1\n")
    scenario = _scenario(3, f"{{ topology = 'file', links = {str(tmp_path / 'cables.csv')!r} }}", engine="packet")
    monkeypatch.setattr("fabricsim.engine.packet.network.MOST_PACKET_PORTS", 2)
    with pytest.raises(SimulationError, match="switch3 has 3 ports; the packet engine takes 2: share its cables"):
        Fabric(simpy.Environment(), scenario)


def test_a_window_of_the_largest_switch_has_a_place_for_a_packet_of_each_port() -> None:
    from fabricsim.engine.packet.kernels.fast.order import INDEX_BITS  # noqa: PLC0415  compiles
    from fabricsim.scenario.size_checks import MOST_PACKET_PORTS  # noqa: PLC0415  beside what it is held against

    assert np.floor_divide(1 << INDEX_BITS, 8 * MOST_PACKET_PORTS) - 2 >= 1
