"""Put the measured GEM tables into docs/results.md, between `<!-- NAME -->` and `<!-- /NAME -->`.

    gemjax eval gem PATH --out out/gem --json > out/gem.json
    python bench/write_gem_results.py out/gem.json out/gem

Copies the two figures that the page shows to docs/figures, and refuses an interrupted run.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from write_results import ROOT, insert

from gemjax.evaluation.gem.report import markdown
from gemjax.evaluation.gem.table import Cell, Row, Table

PAGE = ROOT / "docs" / "results.md"
FIGURES = ("figure-2-matched-count.png", "figure-5a-exact-count.png")


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


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    if report["interrupted"]:
        raise SystemExit("not a result: interrupted")
    tables = {entry["name"]: table_from(entry) for entry in report["tables"]}
    insert(PAGE, "n", f"{tables['1'].n}; vectors by `{report['encoder']}`.")
    insert(PAGE, "summary", sentence(tables))
    for name, table in tables.items():
        insert(PAGE, f"table {name}", markdown(table, rows=not_pooled))
    insert(PAGE, "pooled", markdown(tables["1"], rows=lambda label: not not_pooled(label)))
    # Where the recordings lie is the reader's own business.
    names = (re.sub(r"(^|\s)/\S*/(?=\S)", r"\1", line) for line in report["footer"])
    insert(PAGE, "footer", "\n".join(f"* {line}" for line in names))
    target = PAGE.parent / "figures"
    target.mkdir(exist_ok=True)
    for figure in FIGURES:
        shutil.copyfile(folder / figure, target / figure)


if __name__ == "__main__":
    main()
