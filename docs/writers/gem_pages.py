"""Put the measured GEM tables into docs/results.md, between `<!-- NAME -->` and `<!-- /NAME -->`.

    gemjax eval gem PATH --out out/gem --json > out/gem.json
    python docs/writers/gem_pages.py out/gem.json out/gem
    gemjax eval next-action PATH --out out/next-action --json > out/next-action.json
    python docs/writers/gem_pages.py out/next-action.json out/next-action

Each writes its own part of the page, copies the figures that it shows to docs/figures, and refuses an interrupted run.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from pages import ROOT, insert

from gemjax.evaluation.gem.report import markdown
from gemjax.evaluation.gem.table import Cell, Row, Table

PAGE = ROOT / "docs" / "results.md"
FIGURES = ("figure-2-matched-count.png", "figure-5a-exact-count.png")
NEXT_ACTION_FIGURES = ("figure-next-action.png",)


def table_from(entry: dict) -> Table:
    """The table as it was, without its raw values."""
    rows = tuple(Row(r["label"], tuple(Cell(**c) for c in r["cells"])) for r in entry["rows"])
    lists = ("columns", "notes")
    return Table(**{**entry, "rows": rows, **{key: tuple(entry[key]) for key in lists}})


def not_pooled(label: str) -> bool:
    return not label.endswith("(pooled)")


def sentence(tables: dict[str, Table]) -> str:
    """The requirements on matched counts, as measured."""
    one = tables["1"]
    at = {c: i for i, c in enumerate(one.columns)}
    row = {r.label: r.cells for r in one.rows}

    def value(label: str, measure: str) -> float:
        return float(row[label][at[measure]].value or 0.0)

    lines = []
    for suffix, how in (("", "mean over trajectories"), (" (pooled)", "pooled checkpoints")):
        gain = value(f"paper rules{suffix}", "T3") - value(f"geometry only{suffix}", "T3")
        moved = value(f"paper rules{suffix}", "C") - value(f"geometry only{suffix}", "C")
        lines.append(
            f"* {how}: the paper's rules keep {gain:+.3f} of T3 over geometry alone, and C differs by {moved:+.3f}; "
            f"the default rules reach T3 {value(f'default rules{suffix}', 'T3'):.3f} with "
            f"E {value(f'default rules{suffix}', 'E'):.3f} and C {value(f'default rules{suffix}', 'C'):.3f}; recency "
            f"alone T3 {value(f'recency{suffix}', 'T3'):.3f}, latest-action similarity alone "
            f"{value(f'latest-action similarity{suffix}', 'T3'):.3f}."
        )
    return "\n".join(lines)


def next_action_sentences(tables: dict[str, Table]) -> str:
    """What is lost, by which selectors, and which cheap measure says so, as measured."""
    one, three = tables["N.1"], tables["N.3"]
    rise, loss, kept = (
        one.columns.index(f"{name}") for name in ("rise (nats a token)", "loss (nats a token)", "latest block kept")
    )
    row = {r.label: r.cells for r in one.rows}
    full, none = row["full history"][loss], row["no block"][loss]
    chosen = sorted((cells[rise].value, label) for label, cells in row.items() if cells[kept].value is not None)
    ranked = ", ".join(f"{label} {value:+.3f}" for value, label in chosen)
    sure = [
        f"{r.label.removeprefix('rise: ')} {r.cells[0].shown()}"
        for r in tables["N.2"].rows
        if (r.cells[4].value if r.cells[4].value is not None else 1.0) < 0.05
    ]
    lines = [
        f"The loss is {full.shown()} nats a token with the full history and {none.shown()} without any block.",
        f"Rise over the full history, from the least to the most: {ranked}.",
        f"Differences that stand after Holm's correction (Wilcoxon): {'; '.join(sure) or 'none'}.",
    ]
    for at, column in enumerate(three.columns[:3]):
        cells = {r.label: r.cells[at] for r in three.rows if r.cells[at].value is not None}
        best = max(cells, key=lambda label: float(cells[label].value or 0.0), default="none")
        values = ", ".join(f"{label} {cell.shown()} {cell.interval()}" for label, cell in cells.items())
        lines.append(f"Rank correlation with the rise, {column}: {values}. Best: {best}.")
    return "\n".join(f"* {line}" for line in lines)


def footer_lines(report: dict) -> str:
    # Where the recordings lie is the reader's own business.
    names = (re.sub(r"(^|\s)/\S*/(?=\S)", r"\1", line) for line in report["footer"])
    return "\n".join(f"* {line}" for line in names)


def copy_figures(folder: Path, names: tuple[str, ...]) -> None:
    target = PAGE.parent / "figures"
    target.mkdir(exist_ok=True)
    for figure in names:
        shutil.copyfile(folder / figure, target / figure)


def write_gem(report: dict, tables: dict[str, Table], folder: Path) -> None:
    insert(PAGE, "n", f"{tables['1'].n}; vectors by `{report['encoder']}`.")
    insert(PAGE, "summary", sentence(tables))
    for name, table in tables.items():
        insert(PAGE, f"table {name}", markdown(table, rows=not_pooled))
    insert(PAGE, "pooled", markdown(tables["1"], rows=lambda label: not not_pooled(label)))
    insert(PAGE, "footer", footer_lines(report))
    copy_figures(folder, FIGURES)


def write_next_action(report: dict, tables: dict[str, Table], folder: Path) -> None:
    insert(PAGE, "next-action n", f"{tables['N.1'].n}; seed {report['settings']['seed']}. {tables['N.1'].notes[-1]}")
    insert(PAGE, "next-action summary", next_action_sentences(tables))
    for name, table in tables.items():
        insert(PAGE, f"table {name}", markdown(table))
    insert(PAGE, "next-action footer", footer_lines(report))
    copy_figures(folder, NEXT_ACTION_FIGURES)


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    if report["interrupted"]:
        raise SystemExit("not a result: interrupted")
    tables = {entry["name"]: table_from(entry) for entry in report["tables"]}
    if "N.1" in tables:
        write_next_action(report, tables, folder)
    else:
        write_gem(report, tables, folder)


if __name__ == "__main__":
    main()
