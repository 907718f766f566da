"""LogGOPS presets against what LogGOPSim makes of the same parameters, and prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.run import pipeline
from fabricsim.scenario.load import LoadedScenario, load
from fabricsim.traces import readers
from fabricsim.traces.rebuild.programs import rebuild
from fabricsim.units import seconds

BARE = """\
cluster = {{ include = "ideal", hosts = {hosts} }}
fabric = {{ include = "single-switch", host_cable = "0m" }}
transport = "{transport}"
collectives = "ideal"
"""
NS = 1e-9
DEFAULT = 2 * 1500 + 2500  # ns, of one byte: 2 o + L


def scenario(folder: Path, transport: str, hosts: int) -> LoadedScenario:
    file = folder / "bare.toml"
    file.write_text(BARE.format(hosts=hosts, transport=transport), encoding="utf-8")
    return load(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "fixed", "per_byte"),
    [
        ("loggops-atlahs-ai", 2 * 200 + 3700, 0.04),
        ("loggops-atlahs-hpc", 2 * 8000 + 3000, 0.18),
        ("loggops-default", DEFAULT, 6),
    ],
)
@pytest.mark.parametrize("size", [1, 4096, 1_000_001])
def test_a_message_takes_what_loggopsim_says(
    tmp_path: Path, transport: str, fixed: float, per_byte: float, size: int
) -> None:
    env = simpy.Environment()
    took = env.run(Fabric(env, scenario(tmp_path, transport, 2).scenario).send(0, 1, size))

    # sender and receiver take o each, the first byte L, each further one G (LogGOPSim.cpp, OP_SEND and OP_MSG)
    assert took == pytest.approx((fixed + (size - 1) * per_byte) * NS, abs=2e-12)


def replayed(folder: Path, goal: Path, ranks: int) -> float:
    rebuilt = rebuild(readers.read([goal]))
    result = pipeline.replay(scenario(folder, "loggops-default", ranks), rebuilt, "goal")
    return seconds(result.iteration)


def test_dissemination_takes_what_loggopsim_prints(tmp_path: Path) -> None:
    ranks, rounds = 16, 4
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        lines.append(f"rank {rank} {{")
        for step in range(rounds):
            lines.append(f"s{step}: send 1b to {(rank + 2**step) % ranks}")
            lines.append(f"r{step}: recv 1b from {(rank - 2**step) % ranks}")
            if step:
                lines.append(f"s{step} requires r{step - 1}")
        lines.append("}")
    goal = tmp_path / "dissemination_16.goal"
    goal.write_text("\n".join(lines), encoding="utf-8")

    # "22000ns for our example with default parameters" (README.md of LogGOPSim, dissemination_16.goal)
    assert replayed(tmp_path, goal, ranks) == pytest.approx(22000 * NS, abs=1e-12)
    assert rounds * DEFAULT == 22000


def test_binomial_tree_takes_its_depth(traces: Path, tmp_path: Path) -> None:
    took = replayed(tmp_path, traces / "goal" / "binary_tree_32.goal", 32)

    assert took == pytest.approx(5 * DEFAULT * NS, abs=1e-12)
