"""The measure of recall: a dangling value is asked for without naming it, and found where it was dropped."""

import json
from pathlib import Path

import numpy as np

from gemjax.encoders import CallableEncoder
from gemjax.evaluation.recall import evaluate, queries, summary
from gemjax.evaluation.replay import load
from gemjax.history.records import BlockContent, ToolCall


def same(texts: list[str]) -> np.ndarray:
    """All in one direction: only letters can tell exchanges apart, and geometry keeps none."""
    return np.tile([1.0, 0.0], (len(texts), 1))


def recording(folder: Path) -> Path:
    """40 reads; the last call opens a file whose path only block 12 showed, next to the words `ledger report`."""
    messages: list[dict] = [{"role": "user", "content": "Look around."}]

    def add(i: int, text: str, name: str, arguments: dict, result: str) -> None:
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"c{i}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": result})

    for i in range(80):
        found = "the ledger report is at /srv/books/q3_ledger.csv" if i == 12 else f"nothing of note in part {i} " * 40
        add(i, "", "look", {"part": i}, found)
    add(80, "Now the ledger report.", "open", {"path": "/srv/books/q3_ledger.csv", "mode": "ledger"}, "opened")
    path = folder / "run.json"
    path.write_text(json.dumps({"source": "test", "domain": "d", "goal": "g", "messages": messages}))
    return path


def test_a_dropped_value_is_found_by_what_stands_beside_it(tmp_path: Path):
    (trajectory,) = load([recording(tmp_path)]).trajectories
    outcome = evaluate(trajectory, CallableEncoder(same, name="same", dim=2), ("letters",))
    assert outcome is not None
    assert outcome.dangling == 1 and outcome.calls - outcome.grounded == 1
    assert outcome.asked == {"call": 1, "text": 1}
    for query in ("call", "text"):
        assert outcome.found[query, "letters", 1] == 1
        assert outcome.recalled[query, "letters"] == outcome.calls
    report = summary([outcome], ("letters",))
    assert report["dangling"] == 1 and {row["top1"] for row in report["recalls"]} == {1.0}
    assert json.loads(json.dumps(report)) == report


def test_a_query_never_names_what_is_gone():
    call = ToolCall("1", "open", json.dumps({"path": "src/a.py", "lines": ["7-secret", 3], "whole": True}))
    content = BlockContent("", "I open src/a.py at 7-secret.", (call,), ())
    made = queries(content, ["7-secret", "src/a.py"])
    assert "secret" not in str(made) and "a.py" not in str(made)
    assert made["call"].split() == ["open", "3"] and made["text"].startswith("I open")
    assert queries(BlockContent("", "7-secret", (call,), ()), ["7-secret"]).keys() == {"call"}
