"""The report: terminal tables, one JSON file a table, figures, and one self-contained page of HTML."""

import base64
import html
import importlib.util
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as Shown
from rich.text import Text

from gemjax.evaluation.gem.run import Evaluation
from gemjax.evaluation.gem.table import Cell, Table, count_trajectories
from gemjax.terminal import print_table

Write = Callable[[Path, str], None]

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:78rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}
th:first-child,td:first-child{text-align:left}
thead th{border-bottom:2px solid #444}
.wide{overflow-x:auto}
small{display:block;color:#555;white-space:nowrap}
.paper{color:#7a4000}
.note{color:#444;max-width:60rem}
img{max-width:100%;height:auto}
"""


def compared(tables: list[Table]) -> list[tuple[Table, str, str, Cell]]:
    """Every cell for which the paper prints a number: (table, row, column, cell)."""
    return [
        (table, row.label, column, cell)
        for table in tables
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell.paper is not None
    ]


def print_report(evaluation: Evaluation, console: Console) -> None:
    """The tables in the terminal, and under them what was left out."""
    for table in evaluation.tables:
        # Not the table's own title, which would be broken at the table's width.
        console.print(f"Table {table.name}. {table.title} ({table.n})", style="bold", markup=False)
        shown = Shown(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        shown.add_column(table.head)
        for column in table.columns:
            shown.add_column(column, justify="right")
        for row in table.rows:
            shown.add_row(Text(row.label), *(_in_text(cell) for cell in row.cells))
        print_table(shown, console)
        for line in (table.definition, f"Paper: {table.paper}" if table.paper else "", *table.notes):
            if line:
                console.print(line, style="dim", markup=False)
        console.print()
    console.print(
        f"{count_trajectories(len(evaluation.trajectories))}; vectors by {evaluation.encoder}.",
        style="dim",
    )
    for line in evaluation.footer:
        console.print(line, style="yellow", markup=False)


def _in_text(cell: Cell) -> str:
    paper = "" if cell.paper is None else f" (paper {cell.paper:g})"
    return f"{cell.shown()} {cell.interval()}".strip() + paper


def file_name(table: Table) -> str:
    """A table's file: `table-D.1.json`."""
    return f"table-{re.sub(r'[^A-Za-z0-9.-]', '-', table.name)}.json"


def attempt_write(troubles: list[str], path: Path, work: Callable[[], object]) -> None:
    """Do it, and note what could not be written."""
    try:
        work()
    except OSError as error:
        troubles.append(f"not written: {path}: {error.strerror or error}")


def save(evaluation: Evaluation, folder: Path, write: Write) -> list[str]:
    """Write `table-*.json`, figures and `report.html` into a folder.

    Returns: what could not be written, one line a file: a full disk costs files, not the report on the screen.
    """
    troubles: list[str] = []
    attempt = partial(attempt_write, troubles)
    attempt(folder, lambda: folder.mkdir(parents=True, exist_ok=True))
    if troubles:
        return troubles
    for table in evaluation.tables:
        path = folder / file_name(table)
        attempt(path, partial(write, path, json.dumps(table.to_json(), allow_nan=False) + "\n"))
    pictures: list[Path] = []
    if importlib.util.find_spec("matplotlib") is None:
        troubles.append("figures: not drawn, matplotlib is not installed (pip install 'gemjax[figures]')")
    else:
        from gemjax.evaluation.gem.figures import draw

        attempt(folder, lambda: pictures.extend(draw(evaluation.tables, folder)))
    page = folder / "report.html"
    attempt(page, lambda: write(page, html_page(evaluation, pictures, troubles)))
    return troubles


def html_page(
    evaluation: Evaluation,
    pictures: list[Path],
    troubles: list[str] | tuple[str, ...] = (),
    title: str = "GEM on recorded trajectories",
) -> str:
    """One page with everything in it: no script, no other file."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><h1>{_text(title)}</h1>",
        f"<p>{count_trajectories(len(evaluation.trajectories))}; vectors by {_text(evaluation.encoder)}. "
        "Intervals are 95 % bootstrap intervals that resample trajectories.</p>",
    ]
    if rows := compared(evaluation.tables):
        body = "".join(
            f"<tr><td>Table {_text(t.name)}: {_text(label)}, {_text(column)}</td><td>{cell.paper:g}</td>"
            f"<td>{cell.shown()}</td><td>{cell.interval()}</td><td>{_text(t.n)}</td><td>{_text(t.paper)}</td></tr>"
            for t, label, column, cell in rows
        )
        parts.append(
            "<h2>The paper and these trajectories</h2><div class='wide'><table><thead><tr><th>quantity</th>"
            "<th>paper</th>"
            f"<th>here</th><th>95 % interval</th><th>n here</th><th>paper's data</th></tr></thead><tbody>{body}</tbody>"
            "</table></div>"
        )
    for picture in pictures:
        encoded = base64.b64encode(picture.read_bytes()).decode("ascii")
        alt = _text(picture.stem.replace("-", " "))
        parts.append(f"<p><img alt='{alt}' src='data:image/png;base64,{encoded}'></p>")
    parts += [_html_table(table) for table in evaluation.tables]
    left_out = "".join(f"<li>{_text(line)}</li>" for line in (*evaluation.footer, *troubles))
    parts.append(f"<h2>Left out, and other remarks</h2><ul>{left_out or '<li>nothing</li>'}</ul></body></html>\n")
    return "\n".join(parts)


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in table.columns)
    rows = "".join(
        f"<tr><td>{_text(row.label)}</td>{''.join(_html_cell(cell) for cell in row.cells)}</tr>" for row in table.rows
    )
    lines = [table.definition, f"Paper: {table.paper}." if table.paper else "", *table.notes]
    notes = "".join(f"<p class='note'>{_text(line)}</p>" for line in lines if line)
    return (
        f"<h2 id='table-{_text(table.name)}'>Table {_text(table.name)}</h2><div class='wide'><table>"
        f"<caption>{_text(table.title)} ({_text(table.n)})</caption>"
        f"<thead><tr><th>{_text(table.head)}</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>{notes}"
    )


def _html_cell(cell: Cell) -> str:
    interval = f"<small>{cell.interval()}</small>" if cell.interval() else ""
    paper = "" if cell.paper is None else f"<small class='paper'>paper {cell.paper:g}</small>"
    return f"<td>{cell.shown()}{interval}{paper}</td>"


def _text(text: str) -> str:
    return html.escape(text, quote=True).encode("utf-8", "replace").decode("utf-8")


def markdown(table: Table, columns: tuple[str, ...] | None = None, rows: Callable[[str], bool] | None = None) -> str:
    """The table for a docs page, intervals in brackets."""
    wanted = [i for i, c in enumerate(table.columns) if columns is None or c in columns]
    lines = [
        f"| {table.head} | " + " | ".join(table.columns[i] for i in wanted) + " |",
        "|---" * (len(wanted) + 1) + "|",
    ]
    for row in table.rows:
        if rows is None or rows(row.label):
            cells = (row.cells[i] for i in wanted)
            lines.append(f"| {row.label} | " + " | ".join(_in_text(cell) for cell in cells) + " |")
    return "\n".join(lines)
