"""The words of the code and the docs are those of the field and of plain English."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.reference import modules

ROOT = Path(__file__).resolve().parents[1]
CODE = sorted([*(ROOT / "fabricsim").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PRIVATE = re.compile(r"\b(?:desk|calm|hear|minds_frames)\b")
"""Names that once stood for SCRATCH, a queue that is not deep, and taking a packet or a frame in."""
WHERE = re.compile(
    r"(?:(?<=[.:;!?|] )|^\s*)Where (?:it|there|that|they|the file|the log|no|none|nothing|a|an|not|left)\b"
    r"(?! goes| stands| lie)"
    r"|; \S+ where\b"
    r"|\b(?:NONE|None|NEVER|empty|none|False|0|-1) where (?:it|there|that|they|not|none|nothing|no|the)\b"
    r"(?! (?:stands|lies))"
    r"|\bwhere (?:left out|the preset|not captured|not known|unknown|there (?:is|are) (?:no|none|such|one))",
    re.MULTILINE,
)
"""``where`` that says a condition: write ``if``."""


@pytest.mark.slow
def test_conditions_are_said_with_if() -> None:
    texts = [(path, text) for path in CODE for text in modules.read(path).told] + [
        (page, page.read_text("utf-8")) for page in PAGES
    ]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}{text[match.end() : match.end() + 40]!r}"
        for path, text in texts
        if "here" in text
        for match in WHERE.finditer(text)
    ]

    assert found == []


def test_no_private_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}" for path in CODE for match in PRIVATE.finditer(path.read_text("utf-8"))
    ]

    assert found == []


@pytest.mark.slow
def test_a_class_name_is_one_thing() -> None:
    """Names that begin with an underscore are known in their module only."""
    homes = defaultdict(list)
    for path in CODE:
        for name in modules.read(path).classes:
            homes[name].append(path.relative_to(ROOT).as_posix())

    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(
    "text", ["    Where it is not there.", "The rank; NONE where there is none.", "0 where not known"]
)
def test_the_list_finds_what_it_is_for(text: str) -> None:
    assert WHERE.search(text)


@pytest.mark.parametrize("text", ["Where the time goes", "up to where it belongs", "the node where it is"])
def test_places_are_said_with_where(text: str) -> None:
    assert not WHERE.search(text)
