"""YAML that nobody has vouched for: mappings, lists and words, without anchors, aliases and tags."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from fabricsim.errors import TraceError


def events(path: Path, text: str, depth: int) -> Iterator[yaml.Event]:
    """Yield the parser's events, of which aliases, tags and depth build nothing.

    Raises TraceError if it is no YAML, has an anchor or an alias, or nests deeper than `depth`.
    """
    deep = 0
    try:
        for event in cast(
            "Iterator[yaml.Event]", yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        ):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise TraceError(path, "has anchors or aliases; write out what they stand for", line)
            deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if deep > depth:  # stops before the scanner's time grows with the square of the depth
                raise TraceError(path, f"nests too deep; {depth} levels are enough", line)
            yield event
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise TraceError(path, f"is no YAML: {problem}", mark.line + 1 if mark else None) from error


def read(path: Path, text: str, depth: int) -> Any:  # noqa: ANN401  whatever the file holds
    """Build dictionaries, lists and strings; raises as `events` does."""
    stack: list[Any] = [[]]
    keys: list[str | None] = [None]

    def put(value: object, line: int, *, opens: bool = False) -> None:
        top = stack[-1]
        if isinstance(top, list):
            top.append(value)
        elif keys[-1] is None:
            keys[-1] = str(value)
            if keys[-1] in top:
                raise TraceError(path, f"has {ascii(keys[-1])[:60]} twice; take one out", line)
        else:
            top[keys[-1]], keys[-1] = value, None
        if opens:
            stack.append(value)
            keys.append(None)

    for event in events(path, text, depth):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            put(event.value, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            put({} if isinstance(event, yaml.MappingStartEvent) else [], line, opens=True)
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            keys.pop()
    return stack[0][0] if stack[0] else None
