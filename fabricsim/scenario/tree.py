"""Raw tables of a scenario that remember where each value was written."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabricsim.scenario.toml_lines import KeyPath


@dataclass(frozen=True)
class TreeNode:
    """A value and where it was written.

    `value`: a ``dict`` from keys to nodes, a ``list`` of nodes, or a plain TOML value.
    `where`: ``"file.toml:12"`` or ``"--set"``; empty if it is not known.
    `grade`: how certain a value of a preset is, see `fabricsim.scenario.certainty`; empty for what a user wrote.
    """

    value: Any
    where: str = ""
    grade: str = ""

    @property
    def is_table(self) -> bool:
        """Whether it holds keys."""
        return isinstance(self.value, dict)

    def table(self, key: str) -> TreeNode | None:
        """Return the table at a key; None if there is none."""
        found = self.value.get(key) if self.is_table else None
        return found if found is not None and found.is_table else None

    def laid(self, keys: Mapping[str, TreeNode]) -> TreeNode:
        """Lay keys over those of a table."""
        return TreeNode({**self.value, **keys}, self.where)

    def without(self, keys: Container[str]) -> TreeNode:
        """Take keys out of a table."""
        return TreeNode({key: node for key, node in self.value.items() if key not in keys}, self.where)


def build(value: object, file: str = "", lines: Mapping[KeyPath, int] | None = None, path: KeyPath = ()) -> TreeNode:
    """Wrap plain tables.

    `value`: what ``tomllib`` returned, or any nested mapping.
    `file`: name of the file for people; empty if there is none.
    `path`: of `value` in the file.
    """
    line = (lines or {}).get(path)
    where = f"{file}:{line}" if line is not None else file
    if isinstance(value, Mapping):
        return TreeNode({str(key): build(item, file, lines, (*path, str(key))) for key, item in value.items()}, where)
    if isinstance(value, list | tuple):
        return TreeNode([build(item, file, lines, (*path, index)) for index, item in enumerate(value)], where)
    return TreeNode(value, where)


def leaves(node: TreeNode, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TreeNode]]:
    """Give all values of a tree that are no tables, with their paths; a list is one value."""
    if not node.is_table:
        yield path, node
        return
    for key, item in node.value.items():
        yield from leaves(item, (*path, key))


def plain(node: TreeNode) -> Any:  # noqa: ANN401  TOML values are of many types
    """Unwrap a tree into the dicts, lists and values that it was built from."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def where(node: TreeNode, path: KeyPath) -> str:
    """Place of the value at `path`, or of the innermost table on the way there that exists."""
    place = node.where
    for key in path:
        inside = node.value
        if isinstance(inside, dict) and key in inside:
            node = inside[str(key)]
        elif isinstance(inside, list) and isinstance(key, int) and key < len(inside):
            node = inside[key]
        else:
            break
        place = node.where or place
    return place
