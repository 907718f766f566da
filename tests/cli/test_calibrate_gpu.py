from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.scenario.load import load
from tests.conftest import Outcome
from tests.reference import kineto_traces

Run = Callable[..., Outcome]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A trace of some operators of a layer, in the folder where the program runs."""
    kineto_traces.write_calls(tmp_path / "trace.json", kineto_traces.LAYER)
    return "trace.json"


def test_the_command_prints_tables_and_writes_a_preset(trace: str, fabricsim: Run, tmp_path: Path) -> None:
    ended = fabricsim("calibrate", trace, "--gpu", "a100-sxm-40gb", "-o", "gpu.toml")

    assert ended.code == 0, ended.err
    assert "these are 90.7 % of the time of all kernels" in ended.out
    assert "aten::tanh" in ended.out
    assert "wrote gpu.toml" in ended.err
    assert len(load("gpt2-medium-dp", [f"cluster.gpu={tmp_path / 'gpu.toml'}"]).scenario.cluster.gpu.kernels) == 4


def test_json(trace: str, fabricsim: Run) -> None:
    printed = json.loads(fabricsim("calibrate", trace, "--gpu", "a100-sxm-40gb", "--json").out)

    assert (printed["gpu"], printed["device"]) == ("a100-sxm-40gb", "NVIDIA A100-SXM4-40GB")
    assert [(kind["kind"], kind["shapes"]) for kind in printed["kinds"]] == [("product bf16", 4), ("layer norm", 1)]
    assert printed["kernels"][0]["shape"] == [1, 3072, 8192, 1024]
    assert printed["kernels"][0]["median_us"] == 246.0
    assert printed["unmatched"][0]["operator"] == "aten::tanh"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "a trace of kernels needs --gpu"),
        (["--gpu", "a100"], "no preset 'a100' in gpus"),
        (["--gpu", "none.toml"], "none.toml"),
        (["--gpu", "a100-sxm-40gb", "--transport", "tcp-10g"], "--transport: of no use with a trace of kernels"),
        (["--gpu", "a100-sxm-40gb", "--hold-out", "half", "--set", "seed=1"], "--hold-out, --set: of no use"),
        (["--gpu", "a100-sxm-40gb", "-o", "gpu.json"], "name it gpu.toml"),
        (["hkbu-10gbe-default", "--gpu", "a100-sxm-40gb"], "hkbu-10gbe-default is none"),
    ],
)
def test_mistakes_end_with_one_message(arguments: list[str], problem: str, trace: str, fabricsim: Run) -> None:
    ended = fabricsim("calibrate", trace, *arguments)

    assert ended.code == 2
    assert problem in ended.err.replace("\n", " ")


@pytest.mark.parametrize("arguments", [[], ["--cluster", "hkbu"], ["--transport", "tcp-10g"]])
def test_a_log_needs_a_cluster_and_a_transport(arguments: list[str], fabricsim: Run) -> None:
    ended = fabricsim("calibrate", "hkbu-10gbe-default", *arguments)

    assert ended.code == 2
    assert "a log needs --cluster and --transport" in ended.err
