"""How certain the values of presets are.

A preset says it in a table of its own, by the paths of its keys::

    [certainty]
    E = ["line_rate", "peak.bf16"]
    T = ["efficiency"]
    U = ["copy_rate"]

What a user writes in a scenario or with ``--set`` has no grade: it is what was asked.
"""

from collections.abc import Iterator

from fabricsim.errors import InputError
from fabricsim.scenario.suggest import show
from fabricsim.scenario.tree import TreeNode, leaves

KEY = "certainty"
"""Of the table in a preset."""

GRADES = {
    "E": "exact: a standard, a data sheet, source code, or arithmetic from these",
    "T": "typical: measured by somebody, or a common default",
    "U": "uncertain: general knowledge, or a single weak source",
}
"""Grades and what they mean."""


def graded(table: TreeNode) -> TreeNode:
    """Take the table of certainties out of a preset, and mark the values that it names.

    Raises InputError if there is no such grade, or the preset has no such key.
    """
    said = table.value.get(KEY)
    if said is None:
        return table
    rest = table.without({KEY})
    met: dict[str, str] = {}
    for grade, path in _said(said):
        if met.setdefault(path, grade) != grade:
            msg = f"{said.where}: {KEY}: {path!r} is under {met[path]} and {grade}; leave it under one of them"
            raise InputError(msg)
        rest = _marked(rest, path.split("."), grade, f"{said.where}: {KEY}: {path!r}")
    return rest


def _said(table: TreeNode) -> Iterator[tuple[str, str]]:
    for grade, paths in table.value.items() if table.is_table else [(KEY, table)]:
        if grade not in GRADES or not isinstance(paths.value, list):
            written = f'write it like T = ["efficiency"], with the grades {", ".join(GRADES)}'
            raise InputError(f"{paths.where}: {KEY}.{grade} is no list of a grade; {written}")
        yield from ((grade, str(path.value)) for path in paths.value)


def _marked(node: TreeNode, path: list[str], grade: str, said: str) -> TreeNode:
    """Mark the value at a path, or all values of the table there."""
    if not path:
        if not node.is_table:
            return TreeNode(node.value, node.where, grade)
        return TreeNode({key: _marked(item, [], grade, said) for key, item in node.value.items()}, node.where)
    if not node.is_table or path[0] not in node.value:
        known = f"; there are {', '.join(node.value)}" if node.is_table else ""
        raise InputError(f"{said} is no key of this preset, {show(path[0])} is missing{known}")
    inner = _marked(node.value[path[0]], path[1:], grade, said)
    return node.laid({path[0]: inner})


def grades(node: TreeNode) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give the path and grade of each value that has one."""
    return ((path, value.grade) for path, value in leaves(node) if value.grade)
