"""The compression report as tables in a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from gemjax.evaluation.compression import BASELINE
from gemjax.terminal import print_table
from gemjax.wording import counted

_HEADS = {
    "recall": "answer words",
    "content_recall": "content words",
    "evidence": "evidence turns",
    "rouge_l": "ROUGE-L",
}


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """Everything in the report: methods, categories, ablations, answer losses and bounds."""
    data = report["data"]
    console.print(
        f"{report['questions']} of {data['answered']} questions that carry an answer, "
        f"{counted(data['conversations'], 'conversation')}; {counted(report['top'], 'turn')} a question "
        f"by {report['ranking']} ({report['encoder']}); tokens of {report['model']}; "
        f"ROUGE-L recall by {report['rouge'] or 'rouge-score, which is not installed'}."
    )

    def show(table: Table) -> None:
        print_table(table, console, names=2)

    if not report["methods"]:
        console.print("no method was finished")
        return
    show(_kept(report["methods"], "What is left, mean over conversations"))
    show(_differences(report["methods"], "difference", "Difference to truncation in retrieval order"))
    show(_categories(report))
    if "ablations" in report:
        show(_kept(report["ablations"], "Ablations: what is left, mean over conversations"))
        show(_differences(report["ablations"], "difference", "Ablations: difference to truncation"))
        changed = {name: f"{name}  (from {parent})" for name, parent in report["parents"].items()}
        show(_differences(report["ablations"], "change", "Ablations: what the change does", changed))
    if "answer_loss" in report:
        _print_losses(report["answer_loss"], console)
    if "bounds" in report:
        _print_bounds(report["bounds"]["by_share"], console)


def _kept(methods: Mapping[str, Any], title: str) -> Table:
    table = _table(title, "budget", "method")
    for head in ("tokens kept", *_HEADS.values()):
        table.add_column(head, justify="right")
    for budget in next(iter(methods.values())):
        for name, entry in methods.items():
            found = entry[budget]
            table.add_row(budget, name, *(_share(found[key]["macro"]) for key in ("ratio", *_HEADS)))
        table.add_section()
    return table


def _differences(methods: Mapping[str, Any], key: str, title: str, labels: Mapping[str, str] | None = None) -> Table:
    table = _table(
        f"{title}: mean, 95 % t interval over conversations, conversations above - below", "budget", "method"
    )
    for head in _HEADS.values():
        table.add_column(head, justify="right")
    for budget in next(iter(methods.values())):
        for name, entry in methods.items():
            found = {measure: entry[budget][measure].get(key) for measure in _HEADS}
            if name != BASELINE and None not in found.values() and (labels is None or name in labels):
                cells = (difference(part) for part in found.values())
                table.add_row(budget, name if labels is None else labels[name], *cells)
        table.add_section()
    return table


def _categories(report: Mapping[str, Any]) -> Table:
    table = _table("Answer words by category", "budget", "method")
    table.add_column(f"all n={report['questions']}", justify="right")
    present = {c: category for c, category in report["categories"].items() if category["n"]}
    for c, category in present.items():
        table.add_column(f"{c} {category['name']} n={category['n']}", justify="right")
    for budget in next(iter(report["methods"].values())):
        for name, entry in report["methods"].items():
            recall = entry[budget]["recall"]
            cells = (_share(recall["categories"].get(c, {}).get("value")) for c in present)
            table.add_row(budget, name, _share(recall["micro"]), *cells)
        table.add_section()
    return table


def _print_losses(losses: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"The model's loss of the gold answer, {losses['unit']}, {counted(losses['n'], 'question')}: "
        f"{losses['full']:.3f} given all turns, {losses['nothing']:.3f} given none."
    )
    table = _table(
        "Loss of the gold answer: difference, 95 % t interval, conversations above - below", "budget", "method"
    )
    for head in ("loss", "above all turns", "above truncation", "as good as all turns"):
        table.add_column(head, justify="right")
    table.add_row(
        "", "no turns", f"{losses['nothing']:.3f}", difference(losses["nothing_above_full"]), "",
        _share(losses["nothing_conditional"]),
    )  # fmt: skip
    table.add_section()
    budgets = list(next(iter(losses["methods"].values()), {}))
    for budget in budgets:
        for name, entry in losses["methods"].items():
            found = entry[budget]
            table.add_row(
                budget,
                name,
                f"{found['loss']:.3f}",
                difference(found["above_full"]),
                "" if found["above_baseline"] is None else difference(found["above_baseline"]),
                _share(found["conditional"]),
            )
        table.add_section()
    print_table(table, console, names=2)


def _print_bounds(rows: list[dict[str, float]], console: Console) -> None:
    table = _table("The bound beside what happens when the dropped tokens' embeddings shrink, nats, means", "shrunk by")
    for head in ("questions", "bound", "first-order change", "measured change", "bound held"):
        table.add_column(head, justify="right")
    for row in rows:
        sizes = (f"{row[key]:.3g}" for key in ("bound", "first_order", "change"))
        table.add_row(f"{row['share']:g}", str(row["n"]), *sizes, f"{row['held']} of {row['n']}")
    print_table(table, console)


def difference(found: Mapping[str, Any]) -> str:
    """`+0.019 [+0.007, +0.030] 5-0`."""
    if found["mean"] is None:
        return ""
    interval = found["t_interval"]
    limits = "" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]"
    return f"{found['mean']:+.3f}{limits} {found['positive']}-{found['negative']}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, no_wrap=True)
    return table
