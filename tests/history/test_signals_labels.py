"""Precision and recall of the signals on hand-labelled blocks of real recordings. `pytest -s` prints the table."""

import json
from pathlib import Path

import pytest

from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals import signals

LABELS = json.loads(Path(__file__).with_name("labels").joinpath("blocks.json").read_text())
KINDS = ("error", "mutates", "source")
PAGE = Path(__file__).parents[2] / "docs" / "protection-rules.md"


def text_of(content) -> str:
    return content if isinstance(content, str) else json.dumps(content or "")


def recorded_blocks(path: Path) -> list[BlockContent]:
    """Every assistant message with calls, and the tool messages that follow it. Shares no code with the parser."""
    messages = json.loads(path.read_text())["messages"]
    out = []
    for i, message in enumerate(messages):
        if message.get("tool_calls"):
            calls = [
                ToolCall(str(c["id"]), c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]
            ]
            results = []
            for answer in messages[i + 1 :]:
                if answer["role"] != "tool":
                    break
                results.append(ToolResult(str(answer.get("tool_call_id")), text_of(answer["content"])))
            out.append(BlockContent("", text_of(message.get("content")), tuple(calls), tuple(results)))
    return out


@pytest.mark.data
def test_precision_and_recall_on_real_blocks(data_dir):
    folder = data_dir / "trajectories" / "openai"
    counts: dict[tuple[str, str], list[int]] = {}
    blocks: dict[str, list[BlockContent]] = {}
    for sample, rows in LABELS["samples"].items():
        for name, index, *truth in rows:
            path = folder / f"{name}.json"
            if not path.is_file():
                pytest.skip(f"{path} is not there; the labels need the recorded trajectories")
            content = blocks.setdefault(name, recorded_blocks(path))[index]
            found = signals(content)
            for kind, expected, got in zip(
                KINDS, truth, (found.error is not None, found.mutates, bool(found.sources)), strict=True
            ):
                for key in ((sample, kind), ("all", kind)):
                    counts.setdefault(key, [0, 0, 0, 0])[2 * bool(expected) + got] += 1
    promised = on_page()
    print("\nsample signal    blocks  true  precision  recall")
    for (sample, kind), (_, wrong, missed, right) in sorted(counts.items()):
        precision, recall = right / max(right + wrong, 1), right / max(right + missed, 1)
        total = sum(counts[sample, kind])
        print(f"{sample:6} {kind:8} {total:7} {right + missed:5} {precision:10.2f} {recall:7.2f}")
        if sample == "all":
            assert f"{precision:.2f} / {recall:.2f}" == promised[kind], "the page says something else"


def on_page() -> dict[str, str]:
    """Precision and recall of all four samples, as docs/protection-rules.md has them."""
    (line,) = (line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| all four, as shipped"))
    return dict(zip(KINDS, (cell.strip() for cell in line.split("|")[3:6]), strict=True))


@pytest.mark.data
def test_the_labels_are_from_every_domain(data_dir):
    recorded = {
        p.stem: json.loads(p.read_text())["domain"] for p in (data_dir / "trajectories" / "openai").glob("*.json")
    }
    if not recorded:
        pytest.skip("no recorded trajectories; set GEMJAX_DATA. Not tested: which domains the labels are from")
    labelled = {row[0] for sample in LABELS["samples"].values() for row in sample}
    assert {recorded[name] for name in labelled} == set(recorded.values())


def test_the_labels_are_many_and_each_block_has_one():
    rows = [tuple(row[:2]) for sample in LABELS["samples"].values() for row in sample]
    assert len(rows) == len(set(rows)) >= 120
    assert all(len(row) == 5 and set(row[2:]) <= {0, 1} for sample in LABELS["samples"].values() for row in sample)
