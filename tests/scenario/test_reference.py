from __future__ import annotations

import re
from pathlib import Path

import pytest

from fabricsim.scenario.balancing import RULES
from fabricsim.scenario.base import Spec
from fabricsim.scenario.congestion import LAWS
from fabricsim.scenario.explain import spec_at
from fabricsim.scenario.fabric import TOPOLOGIES
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenario.md"
SWITCH = [("switch", table) for table in ("buffer", "ecn", "pfc", "credits", "scheduler")]
TABLES = [
    (),
    ("cluster",),
    ("cluster", "gpu"),
    ("cluster", "gpu_pcie"),
    ("cluster", "nic"),
    ("cluster", "nic", "interrupt_moderation"),
    ("cluster", "ethernet_nic"),
    ("cluster", "cpu"),
    *(("fabric", topology) for topology in TOPOLOGIES.all()),
    *(("fabric", "single-switch", *keys) for keys in [("failures",), ("switch",), *SWITCH]),
    ("transport",),
    ("transport", "mpi"),
    ("transport", "nccl"),
    ("transport", "nccl", "ll"),
    ("transport", "packet"),
    *(("transport", "load_balancing", rule) for rule in RULES.own),
    *(("transport", "congestion_control", law) for law in LAWS.own),
    ("job",),
    ("job", "model"),
    ("job", "model", "experts"),
    ("job", "parallelism"),
    ("collectives",),
]


def _model(path: tuple[str, ...]) -> type[Spec]:
    model = spec_at(path, Scenario)
    assert model is not None
    return model


def _keys(path: tuple[str, ...]) -> set[str]:
    return {info.alias or name for name, info in _model(path).model_fields.items()}


@pytest.mark.parametrize("path", TABLES, ids=".".join)
def test_every_key_is_in_the_reference(path: tuple[str, ...]) -> None:
    words = set(re.findall(r"[a-z_]\w*", " ".join(re.findall(r"`([^`\n]+)`", PAGE.read_text(encoding="utf-8")))))

    assert _keys(path) - words == set()


@pytest.mark.parametrize("path", TABLES, ids=".".join)
def test_required_keys_are_called_so(path: tuple[str, ...]) -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    required = {name for name, info in _model(path).model_fields.items() if info.is_required()}
    for name in required - {"name"}:
        mentions = [row for row in rows if f"`{name}`" in row.split("|")[1] or f".{name}`" in row.split("|")[1]]
        assert not mentions or any("required" in row for row in mentions), name


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    text = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    file = tmp_path / "whole.toml"
    file.write_text(text[1], encoding="utf-8")

    assert load(file).scenario.transport.mtu == 2048
    assert load(file, ["transport=tcp-10g", "cluster.hosts=12", "transport.mtu=1500"]).scenario.cluster.hosts == 12
