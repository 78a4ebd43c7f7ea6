"""Tables at the width of a terminal: every cell and every word of a heading is there, in its row, uncut."""

import io
import re

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

from gemjax.evaluation.gem import report
from gemjax.evaluation.gem import run as gem
from gemjax.evaluation.gem.table import Cell, Row
from gemjax.evaluation.gem.table import Table as Measured
from gemjax.terminal import print_table, report_console

HEADS = ("loss (nats a token)", "rise / all blocks' worth", "rise, latest block kept", "T3", "sign test p (Holm)")
LABELS = ("geometry", "latest-action similarity", "kept at random, among those of the same length")


def drawn(draw, width):
    stream = io.StringIO()
    draw(Console(file=stream, width=width, highlight=False))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def made(names=1):
    table = Table(title="A title that is longer than what is under it", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("history", "method")[:names]:
        table.add_column(name, no_wrap=True)
    for head in HEADS:
        table.add_column(head, justify="right")
    for r, label in enumerate(LABELS):
        table.add_row(*(["250"] * (names - 1)), label, *(f"{r}.{c}25 [{r}.686, {c}.767]" for c in range(len(HEADS))))
        table.add_section()
    return table


@pytest.mark.parametrize("names", [1, 2])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_is_cut(width, names):
    lines = drawn(lambda console: print_table(made(names), console, names), width)
    shown = "\n".join(lines)
    assert "…" not in shown
    for r in range(len(LABELS)):
        for c in range(len(HEADS)):
            assert shown.count(f"{r}.{c}25 [{r}.686, {c}.767]") == 1
    parts = sum("geometry" in line for line in lines)
    assert parts == {60: 5, 80: 5, 120: 2, 200: 1}[width] or names == 2
    for word in re.findall(r"\S+", " ".join(HEADS)):
        assert word in shown
    for line in lines:
        # A row's numbers stand beside its own name.
        if found := re.findall(r"(\d)\.\d25 \[", line):
            assert len(set(found)) == 1
            assert LABELS[int(found[0])][:8] in line


def test_without_room_for_a_table_there_is_a_line_a_measure():
    stream = io.StringIO()
    print_table(made(), Console(file=stream, width=24, highlight=False))
    assert "geometry\n  loss (nats a token): 0.025 [0.686, 0.767]\n" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1 + len(LABELS) * (1 + len(HEADS))


def test_the_tables_of_gem_show_their_intervals_at_80_columns():
    values = [(0.7 + c / 100, 0.6 + c / 100, 0.8 + c / 100) for c in range(8)]
    cells = tuple(Cell(*value, paper=0.784387 if c == 1 else None) for c, value in enumerate(values))
    rows = tuple(Row(label, cells) for label in ("geometry", "[recency] and so on"))
    table = Measured("1", "A title", "What it is", "selector", tuple(f"measure {c}" for c in range(8)), rows, "n")
    evaluation = gem.Evaluation([table], "words", ["a"], [])
    shown = "\n".join(drawn(lambda console: report.print_report(evaluation, console), 80))
    for c, (value, low, high) in enumerate(values):
        assert shown.count(f"{value:.3f} [{low:.3f}, {high:.3f}]") == 2
        assert f"measure {c}" in shown
    assert shown.count("(paper 0.784387)") == 2 and "[recency] and so on" in shown and "…" not in shown


def test_a_pipe_has_the_width_that_is_asked_for(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert report_console().width == 200
    monkeypatch.setenv("COLUMNS", "90")
    assert report_console().width == 90
