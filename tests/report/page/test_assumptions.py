"""The certainties that a page tells of a result are those that the scenario had when it was read."""

from __future__ import annotations

import pytest

from fabricsim.report.page.assumptions import _graded, assumptions
from fabricsim.scenario.load import load


@pytest.mark.parametrize("name", ["gpt2-medium-dp", "llama3-405b", "dai2024"])
def test_the_library_gives_the_certainties_that_reading_gave(name: str) -> None:
    loaded = load(name)

    found = {key: grade for key, (grade, _) in _graded(loaded.resolved)}

    given = {".".join(path): grade for path, grade in loaded.grades.items()}
    assert all(given.get(key, grade) == grade for key, grade in found.items())  # what was set to the same has none
    # results do not name the presets of fabrics and collectives
    assert {key.partition(".")[0] for key in given.keys() - found.keys()} <= {"fabric", "collectives"}
    assert "U" in found.values()


def test_what_a_user_set_is_no_value_of_a_preset() -> None:
    loaded = load("gpt2-medium-dp", ["transport.send_overhead=7us"])

    assert "transport.send_overhead" not in assumptions(loaded.resolved)
    assert "transport.send_overhead" in assumptions(load("gpt2-medium-dp").resolved)


@pytest.mark.parametrize("name", ["/etc/passwd", "../gpus/t4", "other.toml", 3, None, {"a": 1}])
def test_a_name_that_is_none_of_the_library_opens_no_file(name: object) -> None:
    assert assumptions({"transport": {"name": name}, "cluster": name}) == ""
