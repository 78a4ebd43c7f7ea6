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


def faults(request: dict) -> list[str]:
    """What a provider would refuse, in any of the three formats."""
    if "input" in request:
        return responses_faults(request["input"])
    messages = request["messages"]
    parts = [p for m in messages if isinstance(m.get("content"), list) for p in m["content"]]
    if any(m["role"] == "tool" for m in messages):
        return chat_faults(messages)
    return anthropic_faults(messages, parts)


def responses_faults(items: list[dict]) -> list[str]:
    """Every call has one output after it, every output a call before it; searches and programs likewise."""
    found, waiting = [], {}
    for i, item in enumerate(items):
        kind, name = item.get("type") or "message", item.get("call_id")
        pair = kind.removesuffix("_output").removesuffix("_call") if name and "wizard" not in kind else None
        if pair is None:
            continue
        if kind.endswith("_output"):
            if waiting.pop(name, None) != pair:
                found.append(f"{i}: {kind} answers nothing")
        elif name in waiting:
            found.append(f"{i}: shared id")
        else:
            waiting[name] = pair
    approvals = {i["id"] for i in items if i.get("type") == "mcp_approval_request"}
    answered = {i["approval_request_id"] for i in items if i.get("type") == "mcp_approval_response"}
    found += [f"approval {name} alone" for name in approvals ^ answered]
    return found + [f"{name} unanswered" for name in waiting]


def anthropic_faults(messages: list[dict], parts: list[dict]) -> list[str]:
    """Results of the user messages directly after an assistant message answer all of its calls, results first."""
    found, waiting, seen = [], set(), set()
    if messages[0]["role"] != "user":
        found.append("0: not the user")
    for i, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
            found.append(f"{i}: empty")
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if [b["type"] for b in blocks[: len(results)]] != ["tool_result"] * len(results):
            found.append(f"{i}: results are not first")
        if not set(results) <= waiting:
            found.append(f"{i}: {results} answer nothing")
        waiting -= set(results)
        if waiting and (message["role"] == "assistant" or len(results) < len(blocks)):
            found.append(f"{i}: {sorted(waiting)} unanswered")
        calls = {b["id"] for b in blocks if b["type"] == "tool_use"}
        if calls & seen:
            found.append(f"{i}: id used again")
        seen |= calls
        waiting |= calls
        server = {b["id"] for b in blocks if b["type"] in ("server_tool_use", "mcp_tool_use")}
        if server != {b["tool_use_id"] for b in blocks if b["type"].endswith("_tool_result")}:
            found.append(f"{i}: a server's call and result apart")
    if sum("cache_control" in p for p in parts) > 4:
        found.append("more than four marks")
    return found + ([f"{sorted(waiting)} unanswered"] if waiting else [])


def torn(of: list[int | None], full: list[dict], dropped: list[int]) -> list[str]:
    """Responses of which only a part was dropped although what is left needs it.

    A call needs the reasoning of its response, and reasoning what follows it in its response.
    """
    gone = set(dropped)
    found = []
    for number in {n for n in of if n is not None}:
        items = [i for i, n in enumerate(of) if n == number]
        thoughts = [i for i in items if full[i].get("type") == "reasoning"]
        calls = [i for i in items if str(full[i].get("type")).endswith("_call")]
        if any(i in gone for i in thoughts) and any(i not in gone for i in calls):
            found.append(f"response {number}: a call without its reasoning")
        after = [i for i in items if thoughts and i > thoughts[0] and "_output" not in str(full[i].get("type"))]
        if any(i not in gone for i in thoughts) and after and all(i in gone for i in after):
            found.append(f"response {number}: reasoning without what follows it")
    return found
