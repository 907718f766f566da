"""Notebooks of the documentation show what they give."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

BOOKS = sorted((Path(__file__).resolve().parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def outputs(book: Any) -> list[list[tuple[list[str], str]]]:  # noqa: ANN401  nbformat says no more
    """Kinds and text of what each cell of code gives; of a picture only that it is there."""
    return [
        [(sorted(each.get("data", {})), each.get("text") or each["data"]["text/plain"]) for each in cell.outputs]
        for cell in book.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_it_shows(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[test]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[test]'")
    shown = nbformat.read(path, as_version=4)

    again = nbclient.execute(copy.deepcopy(shown), cwd=str(tmp_path), timeout=600)

    assert outputs(again) == outputs(shown)
    assert len(BOOKS) == 3
