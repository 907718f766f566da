"""Tables that hold at any width: a figure is never cut, and no word is broken as long as there is another way."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


class FittedTable(Table):
    """A table that gives up columns if it is wider than the terminal.

    Columns of words fold at spaces; those of figures are as wide as what they hold.

    Parameters
    ----------
    first
        Heading of the first column, of names.
    numbers
        Headings of columns of figures.
    words
        Headings of columns of text, which come last.
    least
        Headings of those to be given up, the least important first.
    gap
        Blanks on either side of a column.
    """

    def __init__(
        self, first: str, numbers: Iterable[str], *, words: Iterable[str] = (), least: Iterable[str] = (), gap: int = 1
    ) -> None:
        super().__init__(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap), show_edge=False)
        self.least = tuple(least)
        self.add_column(first, overflow="fold")
        for name in numbers:
            self.add_column(name, justify="right", no_wrap=True)
        for name in words:
            self.add_column(name, overflow="fold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print as many columns as fit."""
        shown, spare = self, 0
        for count in range(len(self.least) + 1):
            shown = self._without(self.least[:count])
            spare = options.max_width - shown.__rich_measure__(console, options).minimum
            if spare >= 0:
                break
        for column in shown.columns:
            if spare > 0 and not column.no_wrap and column.width is not None:
                more = min(spare, max(map(_length, (column.header, *column.cells))) - column.width)
                column.width, spare = column.width + more, spare - more
        yield from Table.__rich_console__(shown, console, options)

    def _without(self, headings: Iterable[str]) -> FittedTable:
        """Leave columns out, and make the others as narrow as they may be."""
        gone = set(headings)
        fewer = copy(self)
        fewer.columns = [copy(column) for column in self.columns if column.header not in gone]
        for column in fewer.columns:
            cells = (column.header, *column.cells)
            column.width = max(_length(cell) if column.no_wrap else _longest_word(cell) for cell in cells)
        return fewer


def _length(cell: RenderableType) -> int:
    return max(map(cell_len, Text.from_markup(str(cell)).plain.splitlines()), default=0)


def _longest_word(cell: RenderableType) -> int:
    return max(map(cell_len, Text.from_markup(str(cell)).plain.split()), default=0)
