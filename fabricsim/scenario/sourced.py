"""A scenario or preset with everything included, and beside each value where it was written and its source."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fabricsim.errors import InputError
from fabricsim.scenario import library, toml_text
from fabricsim.scenario.certainty import KEY, grades
from fabricsim.scenario.explain import spec_at
from fabricsim.scenario.include import INCLUDABLE, Includer, TablePath, anchored, is_file_name, names_to_includes
from fabricsim.scenario.load import resolved_tree
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.source import exists, parse, read_text
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.scenario.tree import TreeNode, plain

_SCENARIO = {"cluster", "extends", "fabric", "job"}  # keys of which a scenario has one at least, and a preset none


def show(name: str, overrides: Sequence[str] = (), width: int = 10**9) -> str:
    """Write a scenario or preset as TOML in which each value has its place and source as a comment.

    `name`: of a preset or scenario of the library, also as ``gpus/h100-sxm``; or a file.
    `overrides`: settings over a scenario, as of `fabricsim.scenario.load.load`.
    `width`: columns to stay within as far as values allow.
    Raises InputError if there is nothing or more than one thing of that name, or settings are given for a preset;
        ScenarioError if a scenario has mistakes.
    """
    kind, path = _find(name)
    if kind == "scenarios":
        return _written(resolved_tree(path, overrides), width)
    if overrides:
        raise InputError(f"--set {overrides[0]}: {name} is no scenario; set it where a scenario names it")
    if kind in INCLUDABLE.values():
        place = next(place for place, of in INCLUDABLE.items() if of == kind)
        return _written(_preset(place, str(path)), width)
    return read_text(library.path(kind, str(path)))


def _find(name: str) -> tuple[str, Path | str]:
    """Give the kind of what is named, and its file or name."""
    file = Path(name)
    if is_file_name(name):
        return _kind_of(file), file
    folder, _, short = name.rpartition("/")
    kinds = [kind for kind in library.KINDS if short in library.names(kind) and folder in {"", kind}]
    if len(kinds) > 1:
        msg = f"there are several presets {short!r}; name one of {', '.join(f'{kind}/{short}' for kind in kinds)}"
        raise InputError(msg)
    if not kinds and exists(file):
        read_text(file, name)  # which says what a result, a folder or the like is
        raise InputError(f"{name}: is no TOML file; a scenario or preset has a name that ends in .toml")
    if not kinds:
        known = [preset for kind in library.KINDS for preset in library.names(kind)]
        msg = f"no preset {name!r}; {did_you_mean(short, known, '`fabricsim list` names those that there are')}"
        raise InputError(msg)
    return kinds[0], short


def _kind_of(file: Path) -> str:
    """Tell what a file of the user describes by its keys."""
    keys = set(parse(read_text(file), str(file)).value)
    if keys & _SCENARIO:
        return "scenarios"
    for place, kind in INCLUDABLE.items():
        model = spec_at(place, Scenario)
        if model is not None and keys - {"include", KEY} <= set(model.model_fields):
            return kind
    msg = f"{file}: is neither a scenario, which has a cluster, nor a preset of any kind: {', '.join(sorted(keys))}"
    raise InputError(msg)


def _preset(place: TablePath, name: str) -> TreeNode:
    includer = Includer()
    node = names_to_includes(anchored(TreeNode({"include": TreeNode(name, "")}), Path(), place), place)
    node = includer.resolve(node, place)
    if includer.mistakes:
        raise InputError("; ".join(f"{mistake.key}: {mistake.problem}" for mistake in includer.mistakes))
    return node


def _written(root: TreeNode, width: int) -> str:
    found: toml_text.Comments = {}
    texts: dict[str, dict[int, str]] = {}
    sure = dict(grades(root))
    for path, where in _places(root):
        file, _, line = where.rpartition(":")
        if not line.isdecimal():
            found[path] = where
            continue
        if file not in texts:
            text = read_text(_file(file))
            texts[file] = {number: comment for number, _, comment in toml_text.comments(text) if comment}
        words = where.removeprefix("workloads/"), sure.get(path, ""), texts[file].get(int(line), "")
        found[path] = ": ".join(filter(None, words))
    return "\n".join(toml_text.lines(plain(root), found, width)) + "\n"


def _places(node: TreeNode, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give the path of each value that is no table, and where it was written."""
    for key, item in node.value.items():
        if item.is_table:
            yield from _places(item, (*path, key))
        elif item.where:
            yield (*path, key), item.where


def _file(label: str) -> Path:
    shipped = library.root().parent / label
    return shipped if label.startswith("workloads/") and shipped.is_file() else Path(label)
