"""Tables that are whole on any terminal: what is in them can be read, and copied.

One idea: a word is never cut, since names and ids are there to be copied. A table that is too wide
first breaks its heads and cells between words; then leaves out columns in which nothing stands; and
if it is too wide still, each row becomes a block of its own. In a pipe there is no width, and each
row is one line; but rows of sentences are blocks there, too.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from paceline.values import dataclass
from paceline_cluster.cli.terminal import escaped

if TYPE_CHECKING:
    from rich.console import Console

ABSENT = "-"
_GAP = "   "
_INDENT = "  "
_UNKNOWN_WIDTH = 80
_BETWEEN_COLUMNS = 2
"""What rich puts between two columns of the table below: the box's space, and the padding."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column heads; cells are shown with ``str``, None as ``-``, lists joined.
    ``is_prose``: there are sentences in them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    is_prose: bool = False

    def cells(self) -> list[list[str]]:
        """Every row as text of one line, control characters escaped: a name with line ends in it
        would be a row, and whoever reads it would believe it."""
        return [[escaped(_cell(value), one_line=True) for value in row] for row in self.rows]


def _cell(value: object) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or ABSENT
    return str(value)


def print_plain(table: Table, file: TextIO) -> None:
    """Aligned columns without any decoration; sentences as blocks, which people can read."""
    if table.is_prose:
        _print_prose(table, file)
        return
    rows = [[column.upper() for column in table.columns], *table.cells()]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    if table.title:
        print(escaped(table.title, one_line=True), file=file)
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip(), file=file)


def _print_prose(table: Table, file: TextIO) -> None:
    heads = [column.replace("_", " ") for column in table.columns]
    for line in _wrapped_blocks(heads, table.cells(), _UNKNOWN_WIDTH):
        print(line, file=file)


def _wrapped_blocks(
    heads: Sequence[str], cells: Sequence[Sequence[str]], room: int
) -> Iterator[str]:
    """:func:`blocks` whose lines are broken between words where they are too wide."""
    wrapper = textwrap.TextWrapper(
        room,
        subsequent_indent=2 * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in blocks(heads, cells, room):
        wrapper.initial_indent = _INDENT if line.startswith(_INDENT) else ""
        yield wrapper.fill(line.strip()) if _width(line) > room else line


def draw(table: Table, file: TextIO) -> None:
    """On a terminal, as wide as that is."""
    from rich.console import Console

    _draw(table, Console(file=file))


def drawn(tables: Sequence[Table], width: int) -> list[str]:
    """The lines of a screen that is as wide."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None)
    for position, table in enumerate(tables):
        if position:
            console.print()
        _draw(table, console)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _draw(table: Table, console: Console) -> None:
    from rich.text import Text

    if table.title:
        console.print(Text(escaped(table.title, one_line=True), style="bold"), soft_wrap=True)
    heads = [column.replace("_", " ") for column in table.columns]
    cells = table.cells()
    widths = fit(heads, cells, console.width)
    if widths is None:
        heads, cells = _without_empty(heads, cells)
        widths = fit(heads, cells, console.width)
    if widths is None:
        for line in _wrapped_blocks(heads, cells, console.width):
            console.print(Text(line), soft_wrap=True)
        return
    console.print(_rich_table(heads, cells, widths))


def _rich_table(heads: list[str], cells: list[list[str]], widths: list[int]) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head, width in zip(heads, widths, strict=True):
        drawn.add_column(Text(head), width=width)
    for row in cells:
        drawn.add_row(*map(Text, row))
    return drawn


def fit(heads: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """How wide each column may be so that all fit into ``room``; None where a word of one would
    have to be cut. A column gets what its longest line wants, or its share of what is left."""
    columns = [[head, *(row[at] for row in cells)] for at, head in enumerate(heads)]
    needs = [
        max((_width(word) for text in texts for word in text.split()), default=1)
        for texts in columns
    ]
    wants = [max(need, *map(_width, texts)) for need, texts in zip(needs, columns, strict=True)]
    spare = room - _BETWEEN_COLUMNS * (len(heads) - 1) - sum(needs)
    if spare < 0:
        return None
    widths = list(needs)
    by_wish = sorted(range(len(heads)), key=lambda at: wants[at] - needs[at])
    for done, at in enumerate(by_wish):
        share = min(wants[at] - needs[at], spare // (len(heads) - done))
        widths[at] += share
        spare -= share
    return widths


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _without_empty(
    heads: Sequence[str], cells: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    kept = [at for at in range(len(heads)) if not at or any(_is_said(row[at]) for row in cells)]
    return [heads[at] for at in kept], [[row[at] for at in kept] for row in cells]


def _is_said(cell: str) -> bool:
    return cell not in ("", ABSENT)


def blocks(heads: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[str]:
    """Each row as its first cell, which is not repeated where the next row has the same, and under
    it what else is said, as many a line as fit. Only a single value that is wider than ``room``
    makes a longer line."""
    lines: list[str] = []
    before = None
    for first, *others in cells:
        if first != before or not any(map(_is_said, others)):
            lines.append(f"{heads[0]} {first}")
        before = first
        line = ""
        for head, cell in zip(heads[1:], others, strict=True):
            if not _is_said(cell):
                continue
            pair = f"{head} {cell}"
            if line and _width(line) + len(_GAP) + _width(pair) > room:
                lines.append(line)
                line = ""
            line = f"{line}{_GAP}{pair}" if line else f"{_INDENT}{pair}"
        if line:
            lines.append(line)
    return lines
