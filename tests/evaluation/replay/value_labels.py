"""How often a value that grounding counts was really copied: 200 recorded calls, labelled by hand.

    python -m tests.evaluation.replay.value_labels [FOLDER...]

Of each call the first 14 values in alphabetical order were read beside the call and the newest place that holds the
value. *Copied*: the agent could not have written it without having seen it there. *Not copied*: a name of a language, a
library, a tool or a catalogue that a model knows, a number of its own choosing (limits, time-outs, line numbers that
only happen to stand in a listing), a word of its own. The file holds digests of `folder|run|request|value`: the
recordings themselves stay where they are.
"""

import hashlib
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

from gemjax.evaluation.replay import NeedIndex, load, requests

LABELS = Path(__file__).with_name("value_labels.json")


def kind(value: str) -> str:
    if "://" in value:
        return "URL"
    if "/" in value:
        return "path"
    if re.fullmatch(r"[#$]?[\d.,:-]+[A-Za-z]?", value):
        return "number"
    return "quoted" if " " in value else "name"


def labelled(folder: Path) -> list[tuple[str, bool, bool]]:
    """Every labelled value of a folder's recordings: kind, whether a result shows it, whether it was copied."""
    known = json.loads(LABELS.read_text("utf-8"))[folder.name]
    labels = {d: True for d in known["copied"]} | {d: False for d in known["not copied"]}
    found = []
    for trajectory in load(folder).trajectories:
        index = NeedIndex(trajectory)
        for turn in requests(trajectory):
            for need in index.needs(turn).values:
                text = f"{folder.name}|{trajectory.id}|{turn.index}|{need.value}"
                label = labels.get(hashlib.blake2b(text.encode(), digest_size=6).hexdigest())
                if label is not None:
                    found.append((kind(need.value), bool(need.results), label))
    return found


def main(folders: list[str]) -> None:
    data = Path(os.environ.get("GEMJAX_DATA", "../shared/data")) / "trajectories"
    rows = []
    for name in folders or ["openai", "native", "long"]:
        own = labelled(data / name)
        rows += own
        print(f"{name:8} {len(own):4} values, {sum(row[2] for row in own) / len(own):.3f} copied")
    total, copied = Counter(row[0] for row in rows), Counter(row[0] for row in rows if row[2])
    for name, count in total.most_common():
        print(f"{name:8} {count:4} values, {copied[name] / count:.3f} copied")
    for shown in (True, False):
        own = [row for row in rows if row[1] == shown]
        what = "stood in a result" if shown else "only in calls"
        print(f"{what}: {len(own)} values, {sum(row[2] for row in own) / len(own):.3f} copied")
    print(f"all: {len(rows)} values, {sum(row[2] for row in rows) / len(rows):.3f} copied")


if __name__ == "__main__":
    main(sys.argv[1:])
