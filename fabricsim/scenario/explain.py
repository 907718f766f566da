"""What pydantic found wrong, in the words of someone who writes scenarios."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args, get_origin

from fabricsim.errors import Mistake
from fabricsim.scenario.include import INCLUDABLE
from fabricsim.scenario.partial import chosen_by, is_within, spec_type, spec_types, tagged
from fabricsim.scenario.suggest import closest, did_you_mean, show
from fabricsim.units import human_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from fabricsim.scenario.base import Spec
    from fabricsim.scenario.toml_lines import KeyPath

_MAP_KEY = "[key]"  # how pydantic marks that the key of a mapping is wrong, not its value

_WORDS: dict[str, Callable[[str, dict[str, Any]], tuple[str, str]]] = {
    "int_type": lambda value, _: (f"{value} is no whole number", "write it without quotes, unit or point"),
    "int_parsing_size": lambda value, _: (f"{value} is too large", ""),
    "float_type": lambda value, _: (f"{value} is no number", "write it without quotes or unit"),
    "string_type": lambda value, _: (f"{value} is no text", "put it in quotes"),
    "bool_type": lambda value, _: (f"{value} is neither true nor false", "write it without quotes"),
    "union_tag_not_found": lambda _value, context: ("is missing", f"one of {', '.join(context['choices'])}"),
    "union_tag_invalid": lambda _value, context: (
        f"{context['tag']!r} is not one of {', '.join(context['choices'])}",
        did_you_mean(str(context["tag"]), context["choices"], ""),
    ),
    "tuple_type": lambda value, _: (f"{value} is no list", "write it in square brackets"),
    "dict_type": lambda value, _: (f"{value} is no table", "write it as { key = value }"),
    "greater_than_equal": lambda value, limit: (f"{value} is too small", f"at least {limit['ge']}"),
    "greater_than": lambda value, limit: (f"{value} is too small", f"more than {limit['gt']}"),
    "less_than_equal": lambda value, limit: (f"{value} is too large", f"at most {limit['le']}"),
    "less_than": lambda value, limit: (f"{value} is too large", f"less than {limit['lt']}"),
    "multiple_of": lambda value, limit: (f"{value} does not fit", f"a multiple of {limit['multiple_of']}"),
    "too_short": lambda _, size: (
        f"has {human_count(size['actual_length'], 'values')}",
        f"at least {size['min_length']}",
    ),
    "too_long": lambda _, size: (
        f"has {human_count(size['actual_length'], 'values')}",
        f"at most {size['max_length']}",
    ),
    "string_too_short": lambda value, size: (f"{value} is too short", f"at least {size['min_length']} letters"),
    "finite_number": lambda value, _: (f"{value} is not finite", ""),
}
"""From pydantic's error types to (problem, way out); the rest is said by `_words`."""


def explain(
    error: ValidationError, model: type[Spec], broken: AbstractSet[tuple[str, ...]] = frozenset()
) -> list[Mistake]:
    """Turn a validation error into mistakes without places.

    `error`: what pydantic raised.
    `model`: the model that was validated.
    `broken`: tables whose library file was not found; that they lack keys is not said again.
    """
    mistakes = []
    for detail in error.errors(include_url=False):
        path = tuple(key for key in detail["loc"] if key != _MAP_KEY)
        keys = _walk(path, model)[0]
        follows = detail["type"] == "default_factory_not_called" or _lacks_wrong_ones_only(detail)
        lacking = keys[:-1] if detail["type"] == "missing" else keys
        absent = detail["type"] in {"missing", "union_tag_not_found"} and is_within(lacking, broken)
        if follows or absent:  # what follows from a mistake of another key is not said
            continue
        if detail["type"].startswith("union_tag"):
            detail, keys = _choice(detail, path, model)  # noqa: PLW2901  said of the key that chooses
        problem, way_out = _words(detail, path, model)
        mistakes.append(Mistake(dotted(keys), problem, way_out))
    return mistakes


def _lacks_wrong_ones_only(detail: ErrorDetails) -> bool:
    """Whether a list is too short without its wrong values only, each of which is said."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _choice(detail: ErrorDetails, path: KeyPath, model: type[Spec]) -> tuple[ErrorDetails, KeyPath]:
    """Return a mistake of the key that chooses a table's model, with its choices, and its path."""
    parent = spec_at(path[:-1], model)
    info = parent.model_fields[str(path[-1])] if parent else None
    choices = list(tagged(info)) if info else []
    named: ErrorDetails = {**detail, "ctx": {**detail.get("ctx", {}), "choices": choices}}
    return named, (*_walk(path, model)[0], (chosen_by(info) or "") if info else "")


def dotted(path: KeyPath) -> str:
    """Write a key path as users do: ``cluster.nic.interrupt_moderation[0].above``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{_quoted(key)}" for key in path).removeprefix(".")


def _quoted(key: str) -> str:
    """Write a key that holds a point in quotes, as TOML does."""
    return f'"{key}"' if "." in key else key


def _words(detail: ErrorDetails, keys: KeyPath, model: type[Spec]) -> tuple[str, str]:
    kind, value, context = detail["type"], show(detail["input"]), detail.get("ctx", {})
    words = (f"{value}: {detail['msg']}", "")
    if kind == "missing":
        words = "is missing", _how_to_write(keys, model)
    elif kind == "extra_forbidden":
        words = _of_another(keys, model) or ("unknown key", _known_keys(keys, model))
    elif kind == "value_error":
        problem, _, way_out = str(context["error"]).partition("; ")
        words = problem, way_out
    elif kind == "literal_error":
        choices = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        problem = f"{value} is not one of {', '.join(choices)}" if len(choices) > 1 else f"{value} is not {choices[0]}"
        words = problem, did_you_mean(str(detail["input"]), choices, "")
    elif kind in {"model_type", "model_attributes_type"}:
        words = f"{value} is no table", _how_to_write(keys, model)
    elif kind in _WORDS:
        words = _WORDS[kind](value, context)
        if isinstance(detail["input"], float) and math.isnan(detail["input"]):  # neither too small nor too large
            words = f"{value} is not a number", words[1]
    return words


def _how_to_write(keys: KeyPath, model: type[Spec]) -> str:
    parent = spec_at(keys[:-1], model)
    field = parent.model_fields.get(str(keys[-1])) if parent else None
    table = spec_type(field.annotation) if field else None
    if field is not None and (key := chosen_by(field)) is not None:
        return f"a table with {key}{', or the name of a preset' if keys in INCLUDABLE else ''}"
    if table is None:
        return f"add it to [{dotted(_walk(keys[:-1], model)[0])}]" if len(keys) > 1 else "add it at the top of the file"
    required = [name for name, info in table.model_fields.items() if info.is_required()]
    preset = ", or the name of a preset" if keys in INCLUDABLE else ""
    return f"a table with {', '.join(required)}{preset}" if required else "write it as a table"


def _known_keys(keys: KeyPath, model: type[Spec]) -> str:
    parent = spec_at(keys[:-1], model)
    if parent is None:
        return ""
    word = str(keys[-1])
    if "." in word:
        return "this is one key, point and all; write tables, in Python nested dicts, or give it as an override"
    known = [info.alias or name for name, info in parent.model_fields.items()]
    match = closest(word, known)
    elsewhere = [path for path in _all_keys(model) if path.rpartition(".")[2] == word]
    if match is None and elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return f"did you mean {match!r}?" if match else f"known here: {', '.join(known)}"


def _of_another(keys: KeyPath, model: type[Spec]) -> tuple[str, str] | None:
    """Say of a key that it belongs to another choice of its table, such as ``k`` in a leaf-spine fabric."""
    if len(keys) < 3:  # noqa: PLR2004  a table, the choice of its model, and the key
        return None
    *table, name, choice, key = keys
    parent = spec_at(tuple(table), model)
    info = parent.model_fields.get(str(name)) if parent else None
    if info is None or choice not in tagged(info):
        return None
    having = [name for name, other in tagged(info).items() if key in other.model_fields]
    if not having:
        return None
    return f'has no effect with {chosen_by(info)} = "{choice}"', f"take it out, or choose {' or '.join(having)}"


def spec_at(path: KeyPath, model: type[Spec]) -> type[Spec] | None:
    """Return the model of the table at `path`; None if there is none.

    The key of a table that has several models is followed by the choice among them, as in pydantic's
    places: ``("transport", "congestion_control", "dctcp")``.
    """
    return _walk(path, model)[1]


def _walk(path: KeyPath, model: type[Spec]) -> tuple[KeyPath, type[Spec] | None]:
    """Follow a place of pydantic's; returns its keys without choices, and the model of the table there."""
    current: type[Spec] | None = model
    choices: Mapping[str, type[Spec]] = {}
    keys: list[str | int] = []
    free = False  # whether a key may be any: a name among tables of one model
    for key in path:
        if choices:
            current, choices = choices.get(str(key)), {}
            continue
        keys.append(key)
        if isinstance(key, int) or free:
            free = False
            continue  # an element of a list or mapping has the model that its key led to
        info = current.model_fields.get(key) if current else None
        choices = tagged(info) if info else {}
        current = _element_type(info.annotation) if info and not choices else None
        free = info is not None and get_origin(info.annotation) is dict and current is not None
    return tuple(keys), current


def _element_type(annotation: object) -> type[Spec] | None:
    origin = get_origin(annotation)
    return spec_type(get_args(annotation)[origin is dict] if origin in {tuple, dict} else annotation)


def _all_keys(model: type[Spec], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield f"{prefix}{name}"
        for nested in {**tagged(info)}.values() or spec_types(info.annotation):
            yield from _all_keys(nested, f"{prefix}{name}.")
