"""Raw tables of a scenario that remember where each value was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabricsim.spec.toml_lines import KeyPath


@dataclass(frozen=True)
class Node:
    """A value and where it was written.

    Parameters
    ----------
    value
        A ``dict`` from keys to nodes, a ``list`` of nodes, or a plain TOML value.
    where
        ``"file.toml:12"`` or ``"--set"``; empty where it is not known.
    """

    value: Any
    where: str = ""

    @property
    def is_table(self) -> bool:
        """Whether it holds keys."""
        return isinstance(self.value, dict)


def build(value: object, file: str = "", lines: Mapping[KeyPath, int] | None = None, path: KeyPath = ()) -> Node:
    """Wrap plain tables.

    Parameters
    ----------
    value
        What ``tomllib`` returned, or any nested mapping.
    file
        Name of the file for people; empty where there is none.
    lines
        Line of each key path.
    path
        Where `value` stands in the file.
    """
    line = (lines or {}).get(path)
    where = f"{file}:{line}" if line is not None else file
    if isinstance(value, Mapping):
        return Node({str(key): build(item, file, lines, (*path, str(key))) for key, item in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([build(item, file, lines, (*path, index)) for index, item in enumerate(value)], where)
    return Node(value, where)


def overlay(below: Node, above: Node) -> Node:
    """Lay one tree over another: tables merge key by key, anything else is replaced.

    A table with ``include`` lets the keys of a table below stand only where that has an ``include``
    as well: then another library file is taken and the keys written beside the name stay. Laid over
    a table that was written in full, it replaces that.
    """
    replaces = above.is_table and "include" in above.value and "include" not in (below.value if below.is_table else {})
    if not (below.is_table and above.is_table) or replaces:
        return above
    merged = dict(below.value)
    for key, node in above.value.items():
        merged[key] = overlay(merged[key], node) if key in merged else node
    return Node(merged, above.where)


def plain(node: Node) -> Any:  # noqa: ANN401  TOML values are of many types
    """Unwrap a tree into the dicts, lists and values that it was built from."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def where(node: Node, path: KeyPath) -> str:
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
