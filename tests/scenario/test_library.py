from __future__ import annotations

import re
import tomllib

import pytest

from fabricsim.errors import InputError
from fabricsim.scenario import library
from fabricsim.scenario.load import load
from fabricsim.scenario.toml_text import comments

ALL = [(kind, name) for kind in library.KINDS for name in library.names(kind)]
SETTING = {
    "clusters": "cluster",
    "gpus": "cluster.gpu",
    "nics": "cluster.nic",
    "cpus": "cluster.cpu",
    "fabrics": "fabric",
    "switches": "fabric.switch",
    "transports": "transport",
    "models": "job.model",
    "collectives": "collectives",
}
BASE = """
cluster = { include = "pinnacles" }
fabric = "single-switch"
transport = "rdma-100g"
job = { model = "gpt2-medium", micro_batch = 1, global_batch = 1, sequence = 128 }
"""
SEVERAL = ["cluster.gpus_per_host=8", "cluster.nics_per_host=8"]
NEEDS = {  # what a model, GPU or fabric cannot do without
    ("fabrics", "superpod-a100"): SEVERAL,
    ("fabrics", "superpod-h100"): SEVERAL,
    ("fabrics", "superpod-gb200"): SEVERAL,
    ("fabrics", "hpn-segment"): SEVERAL,
    ("fabrics", "tpu-v4-cube"): ["cluster.hosts=64"],
    ("fabrics", "tpu-v5p-slice"): ["cluster.hosts=512"],
    ("models", "t5-base"): ["job.decoder_sequence=128"],
    ("models", "t5-large"): ["job.decoder_sequence=128"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [pair for pair in ALL if pair[0] not in {"traffic", "traces", "prices"}], ids=lambda value: value
)
def test_every_preset_is_accepted(kind: str, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    if kind == "scenarios":
        assert load(name).scenario.name == name
        return
    file = tmp_path_factory.mktemp("scenario") / "base.toml"
    file.write_text(BASE, encoding="utf-8")

    scenario = load(file, [f"{SETTING[kind]}={name}", *NEEDS.get((kind, name), [])]).scenario

    value = scenario
    for key in SETTING[kind].split("."):
        value = getattr(value, key)
    assert getattr(value, "name", name) == name if kind not in {"fabrics", "collectives"} else value


@pytest.mark.parametrize(("kind", "name"), ALL, ids=lambda value: value)
def test_every_preset_says_what_it_is_and_is_called_as_its_file(kind: str, name: str) -> None:
    text = library.path(kind, name).read_text(encoding="utf-8")

    assert len(library.described(kind)[name]) > 10
    assert text.startswith("# ")
    if kind not in {"fabrics", "collectives"}:
        assert tomllib.loads(text)["name"] == name


@pytest.mark.parametrize("kind", ["gpus", "transports", "switches", "cpus"])
def test_every_preset_of_hardware_says_how_certain_it_is_or_is_ideal(kind: str) -> None:
    for name in library.names(kind):
        if not name.startswith("ideal"):
            tables = tomllib.loads(library.path(kind, name).read_text(encoding="utf-8"))
            assert {"certainty", "include"} & tables.keys(), name


@pytest.mark.parametrize("kind", sorted(set(library.KINDS) - {"scenarios", "models", "traces", "prices", "traffic"}))
def test_certainties_are_data_and_no_comments(kind: str) -> None:
    for name in library.names(kind):
        text = library.path(kind, name).read_text(encoding="utf-8")
        said = [each.comment for each in comments(text) if re.match(r"[ETU]:", each.comment)]
        assert not said, f"{name}: write them into the table certainty: {said}"


def test_a_preset_is_described_by_the_first_comment_of_its_file() -> None:
    found = library.described("scenarios")["gpt2-medium-dp"]

    assert found == "GPT-2 medium, data parallel over 8 hosts with one GPU each"


def test_unknown_names_are_answered_with_the_closest_one() -> None:
    with pytest.raises(InputError, match=r"no presets of kind 'gpu'; did you mean 'gpus'\?"):
        library.names("gpu")
    with pytest.raises(InputError, match=r"no preset 'h100' in gpus; did you mean 'h100-sxm'\?"):
        library.path("gpus", "h100")


@pytest.mark.parametrize("name", ["../gpus/h100-sxm", "/etc/passwd", "", "."])
def test_names_are_no_paths(name: str) -> None:
    with pytest.raises(InputError, match="no preset"):
        library.path("gpus", name)


def test_presets_of_the_study_are_not_made_from_its_results() -> None:
    """60, 20 and 9 Gb/s are what the study measured; they must come out, so they may not go in."""
    for name in ("tcp-10g", "ipoib-100g", "rdma-100g", "roce-100g"):
        transport = load("gpt2-medium-dp", [f"transport={name}"]).scenario.transport
        assert transport.line_rate in {10e9 / 8, 100e9 / 8}
        assert transport.efficiency >= 0.97


@pytest.mark.parametrize("kind", library.KINDS)
def test_the_line_that_is_listed_is_whole(kind: str) -> None:
    """What stands below it is apart from it, or the source of what follows."""
    for name in library.names(kind):
        _, second, *_ = library.path(kind, name).read_text("utf-8").splitlines()
        assert second == "#" or second.startswith("# T:") or not second.startswith("#"), f"{kind}/{name}"
