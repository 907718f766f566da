"""What modules of the project hold, each read once for all tests of the code itself."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Function(NamedTuple):
    """Name, lines and parameters of a function; ``self`` and ``cls`` do not count."""

    name: str
    lines: int
    parameters: int


class Module(NamedTuple):
    """Functions, public classes at its top, what it imports by module and name, strings and comments."""

    functions: list[Function]
    classes: list[str]
    imports: list[tuple[str, str]]
    told: list[str]


@cache
def read(path: Path) -> Module:
    """Read a module; the same one again costs nothing."""
    return read_text(path.read_text("utf-8"))


def read_text(source: str) -> Module:
    """Read the source of a module."""
    tree = ast.parse(source)
    found = Module([], [], [], list(_comments(source)))
    found.classes.extend(each.name for each in tree.body if isinstance(each, ast.ClassDef) and each.name[0] != "_")
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append(_function(node))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imports.extend((node.module, each.name) for each in node.names)
    if "here " in source:  # which is all that is looked for
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found.told.extend(text for text in constants if isinstance(text, str))
    return found


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements with those inside of them; expressions, which are most of a tree, hold none."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            if isinstance(inner := getattr(node, field, ()), list):
                yield from _statements(inner)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    given = node.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    own = named[:1] in (["self"], ["cls"])
    others = (given.vararg is not None) + (given.kwarg is not None)
    return Function(node.name, (node.end_lineno or 0) - node.lineno + 1, len(named) - own + others)


def _comments(source: str) -> Iterator[str]:
    """Comments, if one of them may say a condition: to split a text into tokens takes long."""
    if re.search(r"#.*\bwhere\b", source, re.IGNORECASE):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
