"""What `show` writes: all that counts, and beside each value the line that it is on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fabricsim.errors import InputError
from fabricsim.scenario import library
from fabricsim.scenario.load import load
from fabricsim.scenario.sourced import show


@pytest.mark.slow
@pytest.mark.parametrize("name", library.names("scenarios"))
def test_a_scenario_that_was_shown_is_the_same_scenario(name: str, tmp_path: Path) -> None:
    (tmp_path / "shown.toml").write_text(show(f"scenarios/{name}", width=80))

    shown, own = load(tmp_path / "shown.toml").scenario, load(name).scenario

    assert shown == own
    assert show(str(tmp_path / "shown.toml"), ["seed=3"]).startswith("name = ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", library.KINDS)
def test_every_preset_is_shown(kind: str) -> None:
    for name in library.names(kind):
        text = show(f"{kind}/{name}", width=80)
        assert tomllib.loads(text)
        comments = [line for line in text.splitlines() if line.startswith("#") and "://" not in line]
        assert kind in {"traffic", "traces", "prices"} or all(
            len(line) <= 80 for line in comments
        )  # those are shown as they are


def test_a_value_stands_beside_its_line_and_source() -> None:
    lines = show("gh200-96gb").splitlines()

    own = next(line for line in lines if line.startswith("memory = "))
    included = next(line for line in lines if line.startswith("processors = "))
    assert own.endswith("E: NVIDIA GH200 data sheet")
    assert included.endswith("E: NVIDIA H100 white paper")
    for line in (own, included):
        key, file, number = re.match(r"(\w+) = \S+ # (gpus/\S+):(\d+): ", line).groups()  # type: ignore[union-attr]
        assert (library.root() / file).read_text().splitlines()[int(number) - 1].startswith(key)


def test_settings_say_so() -> None:
    assert "hosts = 16 # --set" in show("gpt2-medium-dp", ["cluster.hosts=16"])


def test_a_file_of_the_user_is_a_preset_of_its_keys(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('include = "h100-sxm"\nname = "mine"\nmemory = "90GB" # T: asked the card\n')

    text = show(str(tmp_path / "mine.toml"))

    assert f'memory = "90GB" # {tmp_path / "mine.toml"}:3: T: asked the card' in text
    assert "processors = 132 # gpus/h100-sxm.toml:" in text


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("h100", [], "no preset 'h100'; did you mean 'h100-sxm'?"),
        ("hkbu", [], "several presets 'hkbu'; name one of scenarios/hkbu, clusters/hkbu"),
        ("h100-sxm", ["memory=1GB"], "h100-sxm is no scenario"),
        ("none.toml", [], "there is no such file"),
        ("odd.toml", [], "neither a scenario, which has a cluster, nor a preset of any kind: tea"),
    ],
)
def test_what_cannot_be_shown(
    name: str, settings: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.toml").write_text("tea = 1\n")

    with pytest.raises(InputError, match=re.escape(message)):
        show(name, settings)
