"""A second opinion on chat requests, apart from the package: is one valid, and what was dropped from another?"""

import json
from typing import Any


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def chat_faults(messages: list[dict]) -> list[str]:
    """Walks the messages once with the set of calls that wait for an answer."""
    faults, waiting = [], set()
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                faults.append(f"{i}: answers nothing")
            continue
        if waiting:
            faults.append(f"{i}: {sorted(waiting)} unanswered")
        waiting = {c["id"] for c in message.get("tool_calls") or ()}
        if len(waiting) != len(message.get("tool_calls") or ()):
            faults.append(f"{i}: shared id")
    return faults


def dropped_indices(full: list, kept: list) -> list[int]:
    """Indices of `full` that are missing in `kept`, compared by identity; fails unless `kept` is a subsequence."""
    dropped, k = [], 0
    for i, message in enumerate(full):
        if k < len(kept) and kept[k] is message:
            k += 1
        else:
            dropped.append(i)
    assert k == len(kept), "what is forwarded is no subsequence of the same objects"
    return dropped


def exchanges(messages: list[dict]) -> list[list[int]]:
    """Message indices of each complete exchange of a valid chat history."""
    found: list[list[int]] = []
    for i, message in enumerate(messages):
        if message.get("tool_calls"):
            members = [i]
            for j in range(i + 1, len(messages)):
                if messages[j]["role"] != "tool":
                    break
                members.append(j)
            if len(members) == 1 + len(message["tool_calls"]):
                found.append(members)
    return found
