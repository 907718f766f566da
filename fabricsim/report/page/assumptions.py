"""How certain the values are that a run took from presets of the library."""

from collections.abc import Iterator, Mapping
from typing import Any

from fabricsim.report.page.html import Html, paragraph, table
from fabricsim.scenario import library
from fabricsim.scenario.certainty import GRADES, grades
from fabricsim.scenario.include import INCLUDABLE, Includer
from fabricsim.scenario.tree import build, plain

_WORST = "UTE"


def assumptions(resolved: Mapping[str, Any]) -> Html:
    """Show the values of presets by their certainty, the least certain first; those that a user set have none.

    `resolved`: scenario of a result. Presets are known by their names, which fabrics and collectives do not have there;
        a value counts as the preset's if it is that of the library as it is now.
    """
    found = dict(_graded(resolved))
    if not found:
        return Html("")
    parts = [paragraph("How certain the values are that hosts, their parts, transports and models have from presets:")]
    for grade in _WORST:
        rows = [[key, value] for key, (own, value) in found.items() if own == grade]
        if rows:
            kind, _, meaning = GRADES[grade].partition(": ")
            listed = table(f"{kind.capitalize()} values", ["Key", "Value"], rows, 2)
            told = f"<details><summary>{len(rows)} {kind}: {meaning}</summary>{listed}</details>"
            parts.append(Html(told))
    return Html("".join(parts))


def _graded(resolved: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    for path, kind in INCLUDABLE.items():
        used = _at(resolved, path)
        name = used.get("name") if isinstance(used, dict) else None
        if isinstance(name, str) and name in library.names(kind):
            preset = Includer(trusted=False).resolve(build({"include": name}), path)
            said = plain(preset)
            for inner, grade in grades(preset):
                value = _at(used, inner)
                if value is not None and value == _at(said, inner):
                    yield ".".join((*path, *inner)), (grade, str(value))


def _at(table_: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401  values of a scenario are of many types
    for key in path:
        table_ = table_.get(key) if isinstance(table_, dict) else None
    return table_
