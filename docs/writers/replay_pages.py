"""Put measured tables into the pages that show them, between `<!-- NAME -->` and `<!-- /NAME -->`.

gemjax replay PATH --json > cached.json
gemjax replay PATH --json --prices 1,1,1 --methods none,paper,cost-aware > uncached.json
python -m gemjax.evaluation.tuning.frontier PATH > frontier.txt
python docs/writers/replay_pages.py cached.json uncached.json [frontier.txt]
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from pages import ROOT, insert

SHOWN = {
    "none": "send everything",
    "paper": "`paper` policy",
    "cost-aware": "**`cost-aware` policy (default)**",
    "keep-last-16": "keep the last 16 blocks",
    "clear-tool-results": "clear old tool results",
    "arrival": "long results short on arrival, nothing dropped",
    "arrival+cost-aware": "long results short on arrival, and `cost-aware`",
    "random": "random blocks, same count and schedule",
    "latest-action": "most similar to the latest action, at each request",
    "latest-action-held": "most similar to the latest action, same schedule",
}


def replay_table(report: dict[str, Any]) -> str:
    """Markdown: one row a method, sums over everything with the mean over trajectories in brackets."""
    lines = [
        "| method | cost | with re-fetches | fully grounded | top-3 retention | characters | rewrites |",
        "|---|---|---|---|---|---|---|",
    ]
    shown = ("cost_ratio", "refetch_ratio", "fully_grounded", "top3", "chars_ratio")
    for name, row in report["methods"].items():
        cells = [f"{row[k]:.2f} ({row[k + '_mean']:.2f})" for k in shown]
        lines.append(f"| {SHOWN.get(name, name)} | {' | '.join(cells)} | {row['events']:,} |")
    return "\n".join(lines)


def length_table(report: dict[str, Any]) -> str:
    """Markdown: mean cost and top-3 of runs of some length."""
    bounds = [(0, 31), (32, 99), (100, 10**9)]
    groups = [[t for t in report["trajectories"] if low <= t["blocks"] <= high] for low, high in bounds]
    heads = ("up to 31 blocks", "32 to 99", "100 and more")
    lines = [
        "| method | " + " | ".join(f"{head} ({len(g)} runs)" for head, g in zip(heads, groups, strict=True)) + " |",
        "|---" * (len(groups) + 1) + "|",
    ]
    for name in report["methods"]:
        if name == "none":
            continue
        cells = []
        for group in groups:
            rows = [t["methods"][name] for t in group]
            retained = [r["top3"] for r in rows if r["top3"] is not None]
            cells.append(f"{sum(r['cost_ratio'] for r in rows) / len(rows):.2f} / {sum(retained) / len(retained):.2f}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def frontier_table(text: str) -> str:
    """Markdown from the table that -m gemjax.evaluation.tuning.frontier prints."""
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.strip()]
    return "\n".join(
        [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|", *(f"| {' | '.join(r)} |" for r in rows[1:])]
    )


def main() -> None:
    cached, uncached = (json.loads(Path(p).read_text()) for p in sys.argv[1:3])
    for report in (cached, uncached):
        broken = [n for n, m in report["methods"].items() if m["invalid"] or m["broken"]]
        if broken or report["interrupted"]:
            raise SystemExit(f"not a result: {broken or 'interrupted'}")
    n = len(cached["trajectories"])
    requests = cached["methods"]["none"]["requests"]
    note = f"{n} recorded runs, {requests:,} requests, {cached['methods']['none']['checkpoints']:,} checkpoints"
    insert(ROOT / "README.md", "replay", f"{note}:\n\n{replay_table(cached)}")
    insert(ROOT / "docs" / "replay.md", "replay", f"{note}:\n\n{replay_table(cached)}")
    insert(ROOT / "docs" / "replay.md", "lengths", length_table(cached))
    insert(ROOT / "docs" / "replay.md", "uncached", replay_table(uncached))
    if len(sys.argv) > 3:
        insert(ROOT / "docs" / "replay.md", "frontier", frontier_table(Path(sys.argv[3]).read_text()))


if __name__ == "__main__":
    main()
