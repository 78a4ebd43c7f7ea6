"""Real requests with pieces of every kind that agents send, and damaged: what comes back is checked apart from it.

python -m tests.history.damage 25000        # a long run, beside the short one of `test_mutations`
"""

import collections
import copy
import json
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

from gemjax import GEMConfig, HistoryCompressor
from gemjax.evaluation.replay import load
from gemjax.history import CostAwarePolicy, PaperPolicy
from tests.conftest import HashingEncoder
from tests.history.contract import anthropic_faults, chat_faults, responses_faults
from tests.history.requests import varied

MOST = 120
ASKING = ["AskUserQuestion", "ask_followup_question", "request_user_input", "mcp__ide__ask_user", "human_in_the_loop"]
WORD = {"role": "user", "content": "go on"}
THINKING = ("thinking", "redacted_thinking")


def drop(rng: random.Random, messages: list) -> None:
    del messages[rng.randrange(len(messages))]


def double(rng: random.Random, messages: list) -> None:
    i = rng.randrange(len(messages))
    messages.insert(rng.randrange(len(messages)), copy.deepcopy(messages[i]))


def swap(rng: random.Random, messages: list) -> None:
    i, j = rng.randrange(len(messages)), rng.randrange(len(messages))
    messages[i], messages[j] = messages[j], messages[i]


def truncate(rng: random.Random, messages: list) -> None:
    del messages[rng.randrange(1, len(messages) + 1) :]


def behead(rng: random.Random, messages: list) -> None:
    del messages[: rng.randrange(len(messages))]


def rename(rng: random.Random, messages: list) -> None:
    named = [(m, key) for m in messages if isinstance(m, dict) for key in ("tool_call_id", "call_id") if key in m]
    if named:
        message, key = rng.choice(named)
        message[key] = rng.choice(["other", "", None, 7])


def spoil(rng: random.Random, messages: list) -> None:
    odd = [None, "text", 5, [], {}, {"role": "wizard", "content": "x"}, {"role": "user", "content": float("nan")}]
    messages[rng.randrange(len(messages))] = rng.choice(odd)


DAMAGE = [drop, double, swap, truncate, behead, rename, spoil]


def real(data_dir: Path) -> list[tuple[str, list[dict], list[int]]]:
    """Recorded histories: wire format, messages, and the places where no exchange is open."""
    folders = [data_dir / "trajectories" / name for name in ("native", "openai")]
    out = []
    for trajectory in load([f for f in folders if f.exists()]).trajectories:
        messages = trajectory.messages[:MOST]
        gaps = [i for i in range(1, len(messages) + 1) if not refused(trajectory.format, [*messages[:i], WORD])]
        if len(messages) > 40 and len(gaps) > 10:
            out.append((trajectory.format, messages, gaps))
    return out


class Made:
    """One request: real messages, pieces put in, marks, thinking, and damage."""

    def __init__(self, rng: random.Random, name: str, messages: list[dict], gaps: list[int]) -> None:
        self.key = "input" if name == "responses" else "messages"
        self.name = name
        self.messages: list[Any] = copy.deepcopy(messages)
        self.stays: list[Any] = []
        if rng.random() < 0.6:
            self._splice(rng, rng.choice(gaps))
        if rng.random() < 0.3:
            self._ask(rng)
        if rng.random() < 0.3 and name == "anthropic":
            self._think(rng)
        if rng.random() < 0.4 and name != "responses":
            self._mark(rng, rng.choice([1, 2, 3, 4, 5]))
        self.damaged = rng.choice([0, 0, 1, 1, 2])
        for _ in range(self.damaged):
            if self.messages:
                rng.choice(DAMAGE)(rng, self.messages)
        self.request = {"model": rng.choice(["m", "claude-opus-5-5", "claude-sonnet-4-5", "gpt-5.5"])}
        self.request[self.key] = self.messages
        if rng.random() < 0.1:
            self.request = self.messages  # type: ignore[assignment]

    def _splice(self, rng: random.Random, at: int) -> None:
        piece, _, stays = varied(rng, self.name, rng.randrange(1, 8))
        inside = piece[self.key][1:]
        # Ids of their own: the recording may have these.
        inside = json.loads(re.sub(r'"(toolu|call)_(\d)', r'"new_\1_\2', json.dumps(inside)))
        self.messages[at:at] = inside
        self.stays += [inside[i - 1] for i in sorted(stays) if i >= 1]

    def _ask(self, rng: random.Random) -> None:
        """One call becomes a question to the user, and its result the answer."""
        calls = []
        for message in self.messages:
            content = message.get("content")
            calls += [(c["function"], c["id"]) for c in message.get("tool_calls") or () if "function" in c]
            calls += [(p, p["id"]) for p in content if p.get("type") == "tool_use"] if isinstance(content, list) else []
            calls += [(message, message["call_id"])] if "call_id" in message and "arguments" in message else []
        once = [(call, name) for call, name in calls if [other for _, other in calls].count(name) == 1]
        if not once:
            return
        call, name = rng.choice(once)
        call["name"] = rng.choice(ASKING)
        for part in _within(self.messages):
            if part.get("tool_use_id") == name or part.get("tool_call_id") == name:
                part["content"] = "the second one"
            if part.get("type") == "function_call_output" and part.get("call_id") == name:
                part["output"] = "the second one"
        self.stays += [m for m in self.messages if any(call is c for c in _within(m))]

    def _think(self, rng: random.Random) -> None:
        said = [m for m in self.messages if m["role"] == "assistant" and isinstance(m["content"], list)]
        for number, message in enumerate(rng.sample(said, min(len(said), 6))):
            part = {"type": "thinking", "thinking": f"hm {number}", "signature": f"sig{number}"}
            message["content"].insert(0, rng.choice([part, {"type": "redacted_thinking", "data": f"x{number}"}]))

    def _mark(self, rng: random.Random, count: int) -> None:
        parts = [p for m in self.messages for p in _within(m) if p.get("type") in ("text", "tool_result", "image")]
        for part in rng.sample(parts, min(count, len(parts))):
            part["cache_control"] = {"type": "ephemeral"}


def _within(value: Any) -> list[dict]:
    """Every object in a message, itself included."""
    if isinstance(value, dict):
        return [value, *[found for item in value.values() for found in _within(item)]]
    return [found for item in value for found in _within(item)] if isinstance(value, list) else []


def violations(made: Made, result: Any) -> list[str]:
    """What is wrong with a result."""
    if result.status == "reverted" or result.reason.startswith("internal error"):
        return [f"{result.status}: {result.reason}"]
    if result.request is made.request:
        fine = result.status in ("failed", "unchanged") and result.reason
        return [] if fine else [f"{result.status} and the same request"]
    found = [] if result.status == "compressed" else [f"{result.status} and another request"]
    sent = result.request if isinstance(result.request, list) else result.request[made.key]
    bare, at, kept = set(result.stripped), 0, set()
    for index, message in enumerate(made.messages):
        if at < len(sent) and (sent[at] is message or (index in bare and _bare(message) == _bare(sent[at]))):
            kept.add(id(message))
            at += 1
    if at != len(sent):
        found.append("no subsequence of the same objects")
    # A call that ends the history is in flight: it went in unanswered, and goes out as it is.
    before = collections.Counter(_kind(f) for f in refused(made.name, made.messages))
    after = collections.Counter(_kind(f) for f in refused(made.name, sent))
    found += [f"new fault: {fault}" for fault in after - before]
    if not made.damaged:
        found += [f"gone, and had to stay: {json.dumps(m)[:200]}" for m in made.stays if id(m) not in kept]
    return found


def _bare(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    parts = [p for p in content if p.get("type") not in THINKING]
    return {**message, "content": [p for p in parts if p.get("text") != "[thinking left out]"]}


def refused(name: str, messages: list) -> list[str]:
    """What a provider would refuse."""
    try:
        if name == "responses":
            return responses_faults(messages)
        if name == "chat":
            return chat_faults(messages)
        parts = [p for m in messages if isinstance(m.get("content"), list) for p in m["content"]]
        return anthropic_faults(messages, parts)
    except (KeyError, TypeError, AttributeError, IndexError):
        return ["cannot be read"]


def _kind(fault: str) -> str:
    return fault.split(": ", 1)[1] if fault.split(": ", 1)[0].isdigit() else fault


def run(data_dir: Path, count: int, seed: int = 0) -> tuple[collections.Counter, list[str]]:
    """Outcomes by format and status, and the violations."""
    pool = real(data_dir)
    rng = random.Random(seed)
    settings = [
        GEMConfig(delta=1.0, encoder_timeout=None),
        GEMConfig(policy=PaperPolicy(every=8), delta=1.0, capacity=3, min_blocks=4, encoder_timeout=None),
        GEMConfig(policy=CostAwarePolicy(read=1, write=1), delta=0.5, min_blocks=6, encoder_timeout=None),
    ]
    gems = [HistoryCompressor(HashingEncoder(), one) for one in settings]
    outcomes: collections.Counter = collections.Counter()
    found = []
    for number in range(count):
        name = rng.choice(["chat", "anthropic", "responses"])
        made = Made(rng, *rng.choice([one for one in pool if one[0] == name] or pool))
        snapshot = repr(made.request) if number % 50 == 0 else ""
        result = rng.choice(gems).compress(made.request, session=f"s{number % 8}", format=made.name)
        outcomes[made.name, "damaged" if made.damaged else "whole", result.status] += 1
        found += [f"{seed}/{number} {made.name}: {line}" for line in violations(made, result)]
        if snapshot and snapshot != repr(made.request):
            found.append(f"{seed}/{number}: the input was changed")
    return outcomes, found


if __name__ == "__main__":
    data = Path(os.environ.get("GEMJAX_DATA", "../shared/data"))
    told, wrong = run(data, int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(sum(told.values()), "requests", dict(sorted(told.items())))
    print(len(wrong), "violations", *wrong[:40], sep="\n")
