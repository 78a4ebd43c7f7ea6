"""Put the measured compression tables into docs/compression.md and docs/distill.md.

    gemjax eval compression PATH -o all.json
    gemjax eval compression PATH --sample N --ablations --losses N --bounds N -o sample.json
    gemjax eval compression PATH --sample M --no-each-question --ablations --methods fdtd -o parts.json
    python docs/writers/compression_pages.py all.json sample.json parts.json

Refuses an interrupted run.
"""

import json
import sys
from pathlib import Path

from pages import ROOT, insert

from gemjax.commands.compression_tables import difference
from gemjax.evaluation.compression import BASELINE

PAGE = ROOT / "docs" / "compression.md"
DISTILL = ROOT / "docs" / "distill.md"
MEASURES = {
    "recall": "answer words",
    "content_recall": "content words",
    "evidence": "evidence turns",
    "rouge_l": "ROUGE-L",
}


def rows_to_markdown(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def about(report: dict) -> str:
    data = report["data"]
    drawn = "all" if report["sample"] is None else f"a sample (seed {report['seed']}) of {report['questions']} of the"
    return (
        f"{data['conversations']} conversations, {drawn} {data['answered']} questions that carry an answer; "
        f"{report['top']} turns a question by {report['ranking']} with `{report['encoder']}`; tokens of "
        f"`{report['model']}`; ROUGE-L by {report['rouge']}."
    )


def kept_table(methods: dict) -> str:
    """Means over conversations, one row a method and budget."""
    rows = [
        [budget, f"`{name}`", *(share(found[key]["macro"]) for key in ("ratio", *MEASURES))]
        for budget in next(iter(methods.values()))
        for name, found in ((name, entry[budget]) for name, entry in methods.items())
    ]
    return rows_to_markdown(["budget", "method", "tokens kept", *MEASURES.values()], rows)


def difference_table(methods: dict, key: str = "difference", only: tuple[str, ...] | None = None) -> str:
    """Differences with their intervals and signs, one row a method and budget."""
    rows = [
        [budget, f"`{name}`", *(difference(found[measure][key]) for measure in MEASURES)]
        for budget in next(iter(methods.values()))
        for name, found in ((name, entry[budget]) for name, entry in methods.items())
        if name != BASELINE and key in found["recall"] and (only is None or name in only)
    ]
    return rows_to_markdown(["budget", "method", *MEASURES.values()], rows)


def category_table(report: dict) -> str:
    present = {c: category for c, category in report["categories"].items() if category["n"]}
    heads = [f"{c} {category['name']} (n={category['n']})" for c, category in present.items()]
    rows = [
        [
            budget,
            f"`{name}`",
            share(entry[budget]["recall"]["micro"]),
            *(share(entry[budget]["recall"]["categories"].get(c, {}).get("value")) for c in present),
        ]
        for budget in next(iter(report["methods"].values()))
        for name, entry in report["methods"].items()
    ]
    return rows_to_markdown(["budget", "method", f"all (n={report['questions']})", *heads], rows)


def conversation_table(report: dict, names: tuple[str, ...]) -> str:
    """Answer words by conversation."""
    rows = [
        [
            budget,
            f"`{name}`",
            *(
                share(report["methods"][name][budget]["recall"]["by_conversation"].get(c))
                for c in report["conversations"]
            ),
        ]
        for budget in next(iter(report["methods"].values()))
        for name in names
    ]
    return rows_to_markdown(["budget", "method", *report["conversations"].values()], rows)


def change_table(report: dict) -> str:
    """What each changed part does to the answer words, one column a budget."""
    budgets = [str(budget) for budget in report["budgets"]]
    rows = [
        [f"`{name}`", f"`{report['parents'][name]}`", *(difference(entry[b]["recall"]["change"]) for b in budgets)]
        for name, entry in report["ablations"].items()
        if "change" in entry[budgets[0]]["recall"]
    ]
    return rows_to_markdown(["variant", "changed from", *budgets], rows)


def only_reading(sample: dict, parts: dict) -> dict:
    """The sample's ablations that read all turns for every question: those that the larger sample leaves out."""
    kept = {BASELINE, *(name for name in sample["ablations"] if name not in parts["ablations"])}
    return {**sample, "ablations": {name: entry for name, entry in sample["ablations"].items() if name in kept}}


def against_truncation(report: dict) -> str:
    """Answer words of every variant, and the difference to truncation, one column a budget."""
    budgets = [str(budget) for budget in report["budgets"]]
    rows = [
        [
            f"`{name}`",
            *(
                share(entry[b]["recall"]["macro"])
                + ("" if name == BASELINE else f" ({difference(entry[b]['recall']['difference'])})")
                for b in budgets
            ),
        ]
        for name, entry in report["ablations"].items()
    ]
    return rows_to_markdown(["variant", *budgets], rows)


def verdict(report: dict) -> str:
    """In words, where a method's interval excludes zero."""
    lines = []
    for name, entry in report["methods"].items():
        if name == BASELINE:
            continue
        sides: dict[str, list[str]] = {"above": [], "below": []}
        for measure, head in MEASURES.items():
            found = {budget: part[measure]["difference"]["t_interval"] for budget, part in entry.items()}
            at = {
                "above": [budget for budget, interval in found.items() if interval and interval[0] > 0],
                "below": [budget for budget, interval in found.items() if interval and interval[1] < 0],
            }
            for side, budgets in at.items():
                if budgets:
                    sides[side].append(f"{head} ({', '.join(budgets)})")
        told = [f"{side} truncation in {', '.join(parts)}" for side, parts in sides.items() if parts]
        lines.append(f"* `{name}`: {'; '.join(told) or 'nowhere distinguishable from truncation'}.")
    return "\n".join(lines)


def loss_table(losses: dict) -> str:
    first = ["", "no turns", f"{losses['nothing']:.3f}", difference(losses["nothing_above_full"]), ""]
    rows = [[*first, share(losses["nothing_conditional"])]]
    for budget in next(iter(losses["methods"].values())):
        for name, entry in losses["methods"].items():
            found = entry[budget]
            below = "" if name == BASELINE else difference(found["above_baseline"])
            cells = [f"{found['loss']:.3f}", difference(found["above_full"]), below, share(found["conditional"])]
            rows.append([budget, f"`{name}`", *cells])
    heads = ["budget", "method", "loss", "above all turns", "above truncation", "as good as all turns"]
    text = f"{losses['n']} questions; {losses['full']:.3f} given all turns, {losses['nothing']:.3f} given none."
    return f"{text}\n\n{rows_to_markdown(heads, rows)}"


def bound_table(rows: list[dict]) -> str:
    heads = ["embeddings shrunk by", "questions", "bound", "first-order change", "measured change", "bound held"]
    body = [
        [
            f"{row['share']:.0%}",
            str(row["n"]),
            *(f"{row[key]:.3g}" for key in ("bound", "first_order", "change")),
            f"{row['held']} of {row['n']}",
        ]
        for row in rows
    ]
    return rows_to_markdown(heads, body)


def main() -> None:
    every, sample, parts = (json.loads(Path(path).read_text()) for path in sys.argv[1:4])
    for report in (every, sample, parts):
        if report["interrupted"]:
            raise SystemExit("not a result: interrupted")
    known = every["about"] | sample["about"]
    insert(PAGE, "methods", rows_to_markdown(["", ""], [[f"`{name}`", what] for name, what in known.items()]))
    insert(PAGE, "all n", about(every))
    insert(PAGE, "all", kept_table(every["methods"]))
    insert(PAGE, "all differences", difference_table(every["methods"]))
    insert(PAGE, "all verdict", verdict(every))
    insert(PAGE, "sample verdict", verdict(sample))
    insert(PAGE, "categories", category_table(every))
    insert(PAGE, "sample n", about(sample))
    insert(PAGE, "sample", kept_table(sample["methods"]))
    insert(PAGE, "sample differences", difference_table(sample["methods"]))
    insert(PAGE, "conversations", conversation_table(sample, (BASELINE, "fdtd", "fdtd-paper")))
    insert(PAGE, "parts n", about(parts))
    insert(PAGE, "variants", against_truncation(parts))
    insert(PAGE, "changes", change_table(parts))
    insert(PAGE, "reading variants", against_truncation(only_reading(sample, parts)))
    insert(PAGE, "losses", loss_table(sample["answer_loss"]))
    insert(PAGE, "bounds", bound_table(sample["bounds"]["by_share"]))
    shown = tuple(name for name in ("fdtd", "selection") if name in every["methods"])
    insert(DISTILL, "compression", f"{about(every)}\n\n{difference_table(every['methods'], only=shown)}")


if __name__ == "__main__":
    main()
