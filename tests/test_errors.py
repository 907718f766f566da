"""What errors repeat of a file: long values are shortened, and what cannot be printed is escaped."""

from __future__ import annotations

import pytest

from fabricsim.errors import FabricsimError, Mistake, ScenarioError, TraceError, brief


@pytest.mark.parametrize("value", ["x" * 500, "two words " * 50, 'it\'s "quoted" ' * 30, "é" * 10**6])
def test_a_long_value_is_shortened_and_the_way_out_stays(value: str) -> None:
    message = str(TraceError("some/file.xml", f"id={value!r} is no number; write one", 3))
    assert message.startswith("some/file.xml:3: id=")
    assert message.endswith("write one")
    assert len(message) < 600


def test_a_long_number_is_shortened() -> None:
    assert str(FabricsimError(f"9{'0' * 400} ranks")) == f"9{'0' * 59}... ranks"


def test_each_mistake_of_a_scenario_stays_on_a_short_line() -> None:
    error = ScenarioError([Mistake("a" * 5000, repr("b" * 5000)), Mistake("job", repr("c\x1b" * 300), "write a name")])
    lines = str(error).split("\n")
    assert len(lines) == 3
    assert all(len(line) < 200 and line.isprintable() for line in lines)
    assert lines[2].endswith("(write a name)")


def test_what_is_said_otherwise_stays_as_it_is() -> None:
    path = "/".join(["a-folder-with-a-name"] * 30)
    message = f"{path}: NCCL's tables aren't 'short' ones, and users' names are \"good\"; " + "many words " * 100
    assert brief(message) == message


def test_an_error_of_a_trace_is_one_line_of_text() -> None:
    assert str(TraceError("file", "a\nb\x1b[2J")) == "file: a\\nb\\x1b[2J"
