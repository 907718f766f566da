"""A console on which no line ends between a number and its unit."""

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.containers import Lines
from rich.segment import Segment
from rich.text import Text

_HELD = "\ue000"
"""Stands for a blank at which no line ends; of one column, and nothing that anybody writes."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mun]?s|d|h|min|k?m|[KMGT]?i?B(?:/s)?|[kMGT]?b/s|TFLOP/s|k?W)(?![\w/]))")


def held(text: str) -> str:
    """Put what `UnitText` takes for a letter in place of the blanks before units."""
    return _BEFORE_UNIT.sub(_HELD, text)


class UnitText(Text):
    """Text whose numbers stay with their units."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:  # noqa: ANN401  as of rich
        """Break it into lines."""
        whole = self.copy()
        whole.plain = held(self.plain)
        lines = whole.wrap(console, width, **options)
        for line in lines:
            line.plain = line.plain.replace(_HELD, " ")
        return lines


class ReportConsole(Console):
    """Prints all text as `UnitText`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render what is printed, and what is in it."""
        if isinstance(renderable, str):
            used = options or self.options
            renderable = self.render_str(renderable, highlight=used.highlight, markup=used.markup)
        if type(renderable) is Text:
            text = renderable
            renderable = UnitText(
                text.plain,
                text.style,
                justify=text.justify,
                overflow=text.overflow,
                no_wrap=text.no_wrap,
                end=text.end,
                tab_size=text.tab_size,
                spans=text.spans,
            )
        return super().render(renderable, options)
