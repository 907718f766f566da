"""Where the keys of a sweep are written: what is wrong with one names the file and line."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fabricsim.errors import InputError, ScenarioError
from fabricsim.scenario.tree import TreeNode

_ENDS = re.compile(r"[.\[]|$")
"""What a part of a key may end with."""
_INDEX = re.compile(r"\d{1,9}", re.ASCII)


@contextmanager
def placing(tree: TreeNode, sections: Iterable[str] = ("",)) -> Iterator[None]:
    """Put the place of the key with whose name a message begins in front of it, or else the file.

    `sections`: keys before that name, one of which it is under.
    """
    try:
        yield
    except ScenarioError:
        raise
    except InputError as error:
        key = re.match(r"[^\s:]+(?=[:\s])", str(error))
        found = [_at(tree, f"{section}{key[0]}") for section in sections] if key else []
        place = next((node.where for node in found if node), tree.where)
        if not place:
            raise
        raise InputError(f"{place}: {error}") from error


def sections(points: int) -> list[str]:
    """Name what keys may be under if a sweep has so many points that are written out."""
    return ["grid.", *(f"points.{number}." for number in range(points)), "sample.keys."]


def places(tree: TreeNode, keys: Iterable[str], number: int) -> dict[str, str]:
    """Say where keys are written that a run lays over its scenario; those of no file have an empty place.

    `number`: of the point in the list of those that are written out, if it has one.
    """
    under = ["grid.", f"points.{number}.", "sample.keys.", "settings."]
    found = {key: next(filter(None, (_at(tree, f"{section}{key}") for section in under)), None) for key in keys}
    return {key: node.where if node else "" for key, node in found.items()}


def _at(node: TreeNode, key: str) -> TreeNode | None:
    """Find what is written at a key such as ``grid.a.b`` or ``pictures[0].x``; None if nothing is.

    What is quoted, as keys of ``--set`` are, comes before what stands in tables.
    """
    if not key:
        return node
    if isinstance(node.value, list):
        number, _, rest = key.partition(".")
        there = _INDEX.fullmatch(number) and int(number) < len(node.value)
        return _at(node.value[int(number)], rest) if there else None
    for end in reversed([*_ENDS.finditer(key)]) if node.is_table else ():
        inside = node.value.get(key[: end.start()])
        rest = key[end.end() :]
        found = inside and _at(inside, rest.replace("]", "", 1) if end[0] == "[" else rest)
        if found:
            return found
    return None
