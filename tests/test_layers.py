from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

from tests.reference import modules

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fabricsim"
MOST_FLOORS = 11


def floors() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return [str(floor) for floor in contracts[0]["layers"]]


def tree(path: Path, depth: int = 0) -> Iterator[str]:
    """The lines of a package and of those in it, with what their docstrings say first."""
    source = path / "__init__.py" if path.is_dir() else path
    summary = (ast.get_docstring(ast.parse(source.read_text("utf-8"))) or "").split("\n")[0]
    name = "  " * depth + path.name + "/" * path.is_dir()
    yield f"{name:<20} {summary}"
    if path.is_dir():
        for inner in sorted(path.glob("*/__init__.py")):
            yield from tree(inner.parent, depth + 1)


def test_imports_keep_the_contracts() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed: pip install 'fabricsim[lint]'")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  our own words

    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 broken" in run.stdout


def test_there_are_few_floors() -> None:
    assert len(floors()) <= MOST_FLOORS


def test_the_tree_in_the_docs_is_that_of_the_packages() -> None:
    names = [name for floor in floors() for name in floor.split(" | ")]
    paths = [PACKAGE / name if (PACKAGE / name).is_dir() else PACKAGE / f"{name}.py" for name in names]
    text = "\n".join(line for path in paths for line in tree(path))

    assert f"```text\n{text}\n```" in (ROOT / "docs" / "explanation" / "design.md").read_text("utf-8")


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type hints count."""
    graph = nx.DiGraph()
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    for name, path in paths.items():
        for module, inner in modules.read(path).imports:
            graph.add_edge(name, f"{module}.{inner}" if f"{module}.{inner}" in paths else module)
    graph.remove_node("fabricsim")  # whose public names are imported when they are used

    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []
