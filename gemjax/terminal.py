"""Tables on a console of any width: what does not fit beside the row names comes below, and nothing is cut."""

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_PIPE_WIDTH = 200


def report_console() -> Console:
    """Standard output: as wide as the terminal; in a pipe as wide as `COLUMNS` says, else 200."""
    wide = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if wide else _PIPE_WIDTH, highlight=False)


def printable(text: str) -> str:
    """A text that cannot steer the terminal that it is shown on."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def print_table(table: Table, console: Console, names: int = 1) -> None:
    """Print a table whose cells are texts; one too wide for the console in parts, each with the row names.

    Args:
        names: how many of the first columns name the row. The last of them may be broken between words to make room.
    """
    columns = table.columns
    lead = [_widest(column) for column in columns[:names]]
    least = [max(_cells(column), _longest_word(column.header)) for column in columns[names:]]
    room = console.width - _extra(table, names + 1) - max(least, default=0)
    if sum(lead) > room:
        last = columns[names - 1]
        lead[-1] = room - sum(lead[:-1])
        if lead[-1] < max(_longest_word(text) for text in (last.header, *last.cells)):
            _print_lines(table, console, names)
            return
    title = table.title
    for part in _parts(least, lambda count, used: sum(lead) + used + _extra(table, names + count) <= console.width):
        used = sum(least[i] for i in part)
        free = console.width - _extra(table, names + len(part)) - sum(lead) - used
        chosen = [_fixed(column, width, i) for i, (column, width) in enumerate(zip(columns, lead, strict=False))]
        for i in part:
            # A heading in one line where there is room for it.
            more = min(max(_widest(columns[names + i]) - least[i], 0), free)
            free -= more
            chosen.append(_fixed(columns[names + i], least[i] + more, len(chosen)))
        shown = _with_columns(table, chosen)
        shown.title = title
        console.print(shown)
        title = None


def _parts(widths: Sequence[int], fits: Callable[[int, int], bool]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        part = parts[-1]
        if part and not fits(len(part) + 1, sum(widths[j] for j in part) + width):
            parts.append([i])
        else:
            part.append(i)
    return parts


def _print_lines(table: Table, console: Console, names: int) -> None:
    """One measure a line, for a console that has no room for the row's name and one measure."""
    if table.title:
        console.print(table.title, style="italic", soft_wrap=True)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        console.print(Text(" ".join(str(cell) for cell in row[:names] if str(cell))), soft_wrap=True)
        for column, cell in zip(table.columns[names:], row[names:], strict=True):
            console.print(Text(f"  {column.header}: {cell}"), soft_wrap=True)


def _with_columns(table: Table, columns: list[Column]) -> Table:
    """The table's rows and looks with other columns."""
    out = Table(box=table.box, padding=table.padding, title_justify=table.title_justify)
    out.columns = columns
    out.rows = table.rows
    return out


def _fixed(column: Column, width: int, index: int) -> Column:
    return dataclasses.replace(column, width=width, no_wrap=False, overflow="fold", _index=index)


def _extra(table: Table, count: int) -> int:
    """What edges, rules and padding take in a table of `count` columns."""
    _, right, _, left = table.padding
    return count * (left + right) + count + 1


def _cells(column: Column) -> int:
    return max((cell_len(str(cell)) for cell in column.cells), default=0)


def _widest(column: Column) -> int:
    return max(_cells(column), cell_len(str(column.header)))


def _longest_word(text: object) -> int:
    return max((cell_len(word) for word in str(text).split()), default=0)
