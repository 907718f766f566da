"""Tables that hold at any width: a figure is never cut, and no word is broken as long as there is another way."""

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from fabricsim.report.console import held

SHOWN = 16
"""Rows of a table of what files hold at most; all are in the JSON."""


def titled(title: str, table: Table, rows: int = 0) -> Group:
    """Put a title above a table: inside it would be folded to the table's width.

    `rows`: of which the table has the first `SHOWN`, if it may not have all.
    """
    more = f" ({SHOWN} of {rows}; --json gives all)" if rows > SHOWN else ""
    return Group(Text(title + more, style="bold"), table, "")


class FittedTable(Table):
    """A table that gives up columns if it is wider than the terminal.

    Columns of words fold at spaces; those of figures are as wide as what they hold. If what may not be given up is too
    wide still, each row becomes lines, one for each column.

    `first`: heading of the first column, of names.
    `numbers`: headings of columns of figures.
    `rows`: cells of each row, as of `add`.
    `words`: headings of columns of text, which come last.
    `least`: headings of those to be given up, the least important first.
    `gap`: blanks on either side of a column.
    `elsewhere`: where columns that are given up can be found, said with their headings; a wider terminal if left out.
    """

    def __init__(  # noqa: PLR0913  the rest are rarely given, and by name only
        self,
        first: str,
        numbers: Iterable[str],
        rows: Iterable[Iterable[str]] = (),
        *,
        words: Iterable[str] = (),
        least: Iterable[str] = (),
        gap: int = 1,
        elsewhere: str = "",
    ) -> None:
        super().__init__(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap), show_edge=False)
        self.least, self._gap, self._elsewhere = tuple(least), gap, elsewhere
        self.add_column(first, overflow="fold")
        for name in numbers:
            self.add_column(name, justify="right", no_wrap=True)
        for name in words:
            self.add_column(name, overflow="fold")
        for row in rows:
            self.add(*row)

    def add(self, *cells: str) -> None:
        """Add a row of cells, which are plain text: what may look like markup is none."""
        self.add_row(*map(escape, cells))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Print as many columns as fit."""
        chosen = self.columns
        for count in range(len(self.least) + 1):
            chosen = [column for column in self.columns if column.header not in self.least[:count]]
            if self._narrowest(chosen) <= options.max_width:
                break
        else:
            yield from self._lines()
            return
        yield self._of(chosen, options.max_width - self._narrowest(chosen))
        if len(chosen) < len(self.columns):
            left_out = ", ".join(_title(column) for column in self.columns if column not in chosen)
            there = self._elsewhere or f"COLUMNS={self._narrowest(self.columns)} shows all"
            yield Text(f"Too wide for this terminal: {left_out}; {there}")

    def _lines(self) -> Iterator[RenderableType]:
        """Write each row as lines."""
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            for column, cell in zip(self.columns, cells, strict=True):
                if cell:
                    yield Text(f"{_title(column)}: " if _title(column) else "").append(Text.from_markup(str(cell)))
            yield ""

    def _narrowest(self, columns: Sequence[Column]) -> int:
        between = 2 * self._gap + 1
        return sum(map(_least_width, columns)) + between * (len(columns) - 1)

    def _of(self, columns: Sequence[Column], spare: int) -> Table:
        """Make the table of some columns, with some more room than they need."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, self._gap), show_edge=False)
        for column in columns:
            least, most = _least_width(column), max(map(_length, (column.header, *column.cells)))
            more = max(0, min(spare, most - least))
            spare -= more
            table.add_column(
                column.header, justify=column.justify, no_wrap=column.no_wrap, overflow="fold", width=least + more
            )
        for row, cells in zip(self.rows, zip(*(column.cells for column in columns), strict=True), strict=True):
            table.add_row(*cells, end_section=row.end_section)
        return table


def _title(column: Column) -> str:
    """Write a heading in one line."""
    return Text.from_markup(str(column.header)).plain.replace("-\n", "-").replace("_\n", "_").replace("\n", " ")


def _least_width(column: Column) -> int:
    """Columns that a column needs: its longest line if it holds figures, else its longest word."""
    return max(map(_length if column.no_wrap else _longest_word, (column.header, *column.cells)))


def _length(cell: RenderableType) -> int:
    return max(map(cell_len, Text.from_markup(str(cell)).plain.splitlines()), default=0)


def _longest_word(cell: RenderableType) -> int:
    return max(map(cell_len, held(Text.from_markup(str(cell)).plain).split()), default=0)
