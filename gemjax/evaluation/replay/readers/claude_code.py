"""Claude Code transcripts (`~/.claude/projects/**/*.jsonl`) to Anthropic Messages.

A transcript is a forest: rows point to their parent, an assistant message is spread over one row a content block with
the results of its calls between them, or even before the row of their call, sub-agents stand in the same file as trees
of their own (`isSidechain`), and a compaction starts a new tree. Each tree becomes one trajectory.
"""

import dataclasses
from typing import Any

from gemjax.evaluation.replay.readers.conversation import seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.wording import counted

NAME = "Claude Code JSONL"

Row = dict[str, Any]


@dataclasses.dataclass
class _Entry:
    """One message to be sent, and for an assistant message the results that belong right behind it."""

    message: dict[str, Any]
    time: float | None = None
    answered: float | None = None
    results: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def matches(recording: Recording) -> bool:
    return recording.lines and any(_talk(row) and "parentUuid" in row for row in recording.data)


def read(recording: Recording) -> list[Trajectory]:
    trees = _trees(recording.data)
    found = []
    counts = {False: 0, True: 0}
    split = sum(not side for side, _ in trees) > 1
    for side, rows in trees:
        kept = _branch(rows)
        messages, times, orphans = _messages(kept)
        if not messages:
            continue
        counts[side] += 1
        notes = ["system prompt and tool schemas are not in the transcript"]
        if split and not side:
            notes.append("compacted or restarted by the agent: one trajectory for each part that it sent")
        if len(kept) < len(rows):
            notes.append(f"{counted(len(rows) - len(kept), 'row')} of abandoned branches left out")
        if orphans:
            notes.append(f"{counted(orphans, 'result')} whose call is not in the same part left out")
        found.append(
            Trajectory(
                _name(recording.name, side, counts[side]),
                "anthropic",
                _template(kept),
                messages,
                None,
                recording.source,
                tuple(notes),
                times=tuple(times),
            )
        )
    return found


def _name(name: str, side: bool, number: int) -> str:
    if side:
        return f"{name}#side{number}"
    return name if number == 1 else f"{name}#{number}"


def _talk(row: Row) -> bool:
    """A row that is part of the conversation with the model. Error notices are written by the client for the user."""
    if row.get("type") not in ("user", "assistant") or row.get("isApiErrorMessage") is True:
        return False
    message = row.get("message")
    return isinstance(message, dict) and bool(message.get("content"))


def _template(rows: list[Row]) -> dict[str, Any]:
    models = (row["message"].get("model") for row in rows if row["type"] == "assistant")
    model = next((m for m in models if isinstance(m, str)), None)
    return {} if model is None else {"model": model}


def _trees(rows: list[Row]) -> list[tuple[bool, list[Row]]]:
    """The conversation rows of each tree, in file order, trees by their first row."""
    root: dict[str, str] = {}
    trees: dict[str, tuple[bool, list[Row]]] = {}
    last = {False: "", True: ""}
    for row in rows:
        uuid = row.get("uuid")
        if not isinstance(uuid, str):
            continue
        side = row.get("isSidechain") is True
        parent = row.get("parentUuid")
        if isinstance(parent, str):
            # A parent that was cut from the file: the row before it is the best guess at where it belongs.
            root[uuid] = root.get(parent) or root.get(last[side]) or uuid
        else:
            root[uuid] = uuid
        last[side] = uuid
        if _talk(row):
            trees.setdefault(root[uuid], (side, []))[1].append(row)
    return list(trees.values())


def _branch(rows: list[Row]) -> list[Row]:
    """The rows of the branch that ends with the tree's last row; an edited or repeated prompt leaves others behind."""
    by_uuid = {row["uuid"]: row for row in rows}
    children: dict[str, int] = {}
    for row in rows:
        parent = row.get("parentUuid")
        if isinstance(parent, str):
            children[parent] = children.get(parent, 0) + 1
    if all(count < 2 for count in children.values()):
        return rows
    chain: set[str] = set()
    position = len(rows) - 1
    while position >= 0:
        row = rows[position]
        if row["uuid"] in chain:
            break  # a damaged transcript whose parents go round in a circle
        chain.add(row["uuid"])
        parent = row.get("parentUuid")
        if not isinstance(parent, str):
            break
        # Rows that are no conversation (progress, hooks) stand between; then the row before is the parent.
        position = rows.index(by_uuid[parent]) if parent in by_uuid else position - 1
    turns = {r["message"].get("id") for r in rows if r["uuid"] in chain and r["type"] == "assistant"} - {None}
    kept = chain | {r["uuid"] for r in rows if r["type"] == "assistant" and r["message"].get("id") in turns}
    calls = {c.get("id") for r in rows if r["uuid"] in kept for c in _parts(r, "tool_use")}
    kept |= {r["uuid"] for r in rows if any(p.get("tool_use_id") in calls for p in _parts(r, "tool_result"))}
    return [r for r in rows if r["uuid"] in kept]


def _parts(row: Row, kind: str) -> list[dict[str, Any]]:
    return [p for p in objects(row["message"].get("content")) if p.get("type") == kind]


def _messages(rows: list[Row]) -> tuple[list[dict[str, Any]], list[float | None], int]:
    """The messages as the API takes them: one assistant message a turn, its results together in the one behind it.

    A result may stand before the row of its call: the program writes the two at the same time. So results are given
    to their calls once all calls are known.
    """
    entries: list[_Entry] = []
    turns: dict[str, _Entry] = {}
    owners: dict[str, _Entry] = {}
    pending: list[tuple[dict[str, Any], float | None]] = []
    for row in rows:
        time = seconds(row.get("timestamp"))
        content = row["message"]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
        # The program records white space between streamed parts and does not send it: the API would refuse it.
        parts = [p for p in parts if p.get("type") != "text" or str(p.get("text")).strip()]
        if not parts:
            continue
        if row["type"] == "assistant":
            identity = row["message"].get("id")
            entry = turns.get(identity) if isinstance(identity, str) else None
            if entry is None:
                entry = _Entry({"role": "assistant", "content": []}, time)
                entries.append(entry)
                if isinstance(identity, str):
                    turns[identity] = entry
            entry.message["content"].extend(parts)
            owners |= {c["id"]: entry for c in parts if c.get("type") == "tool_use" and isinstance(c.get("id"), str)}
            continue
        results = [p for p in parts if p.get("type") == "tool_result"]
        if not results:
            entries.append(_Entry({"role": "user", "content": content if isinstance(content, str) else parts}, time))
            continue
        pending += [(part, time) for part in results]
        rest = [p for p in parts if p.get("type") != "tool_result"]
        if rest:
            entries.append(_Entry({"role": "user", "content": rest}, time))
    orphans = 0
    for part, time in pending:
        owner = owners.get(str(part.get("tool_use_id")))
        if owner is None:
            orphans += 1
        else:
            owner.results.append(part)
            owner.answered = time
    messages: list[dict[str, Any]] = []
    times: list[float | None] = []
    for entry in entries:
        messages.append(entry.message)
        times.append(entry.time)
        if entry.results:
            messages.append({"role": "user", "content": entry.results})
            times.append(entry.answered)
    return messages, times if any(t is not None for t in times) else [], orphans
