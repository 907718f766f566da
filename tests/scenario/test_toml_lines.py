from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricsim.scenario import library
from fabricsim.scenario.toml_lines import key_lines

TEXT = '''\
# a comment = 1
top = "a # no comment"
"quoted key" = 'b = "c"'

[table]  # [not.this]
dotted.deep = 1
text = """
fake = 1
[fake]
"""
literal = \'\'\'
fake2 = 1\'\'\'
many = [
    1, # one
    { x = "}", y = [2, 3] },
]

[table.sub."odd.key"]
inline = { a = 1, b.c = 2 }
when = 1979-05-27T07:32:00Z

[[row]]
first = "\\" = 1"
[[row]]
[row.inner]
second = true
'''


def _leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("quoted key",), 3),
        (("table",), 5),
        (("table", "dotted"), 6),
        (("table", "dotted", "deep"), 6),
        (("table", "text"), 7),
        (("table", "literal"), 11),
        (("table", "many"), 13),
        (("table", "many", 0), 14),
        (("table", "many", 1, "y", 1), 15),
        (("table", "sub"), 18),
        (("table", "sub", "odd.key", "inline", "b", "c"), 19),
        (("table", "sub", "odd.key", "when"), 20),
        (("row",), 22),
        (("row", 0, "first"), 23),
        (("row", 1), 24),
        (("row", 1, "inner", "second"), 26),
    ],
)
def test_finds_the_line_of_each_key(path: tuple[str | int, ...], line: int) -> None:
    assert key_lines(TEXT)[path] == line


def test_knows_exactly_the_keys_that_the_parser_knows() -> None:
    assert set(key_lines(TEXT)) == set(_leaves(tomllib.loads(TEXT)))


@pytest.mark.parametrize(
    "file", sorted(library.root().rglob("*.toml")), ids=lambda file: f"{file.parent.name}-{file.stem}"
)
def test_knows_every_key_of_the_shipped_files(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()

    found = key_lines(text)

    assert set(found) == set(_leaves(tomllib.loads(text)))
    assert all(isinstance(path[-1], int) or str(path[-1]) in lines[line - 1] for path, line in found.items())


def test_counts_windows_line_ends_once() -> None:
    assert key_lines("a = 1\r\n\r\n[b]\r\nc = 2\r\n") == {("a",): 1, ("b",): 3, ("b", "c"): 4}


@pytest.mark.parametrize(
    "text", ['a = """x""""\nb = 1', "a = '''x'''''\nb = 1", 'a = """\\""""\nb = 1', "a = ''\nb = 1"]
)
def test_strings_end_where_the_parser_ends_them(text: str) -> None:
    assert key_lines(text)["b",] == 2
    assert "b" in tomllib.loads(text)
