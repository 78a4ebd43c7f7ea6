"""What the providers refuse, and the words they refuse it in. Each check returns a message, or None."""

import hashlib
import hmac
import json

KEY = b"only this provider can sign"
CACHE_MARKS = 4


def check_chat(body):
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
    waiting: list[str] = []
    where = 0
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return (
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls'. (messages.[{index}].role)"
                )
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            break
        if role not in ("system", "developer", "user", "assistant"):
            return f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'tool', 'developer'."
        waiting = [call["id"] for call in message.get("tool_calls") or []]
        where = index
        if role == "assistant" and not waiting and message.get("content") is None:
            return f"Invalid value for 'content': expected a string, got null. (messages.[{index}].content)"
    if waiting:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)} "
            f"(messages.[{where + 1}].role)"
        )
    if not any(m.get("role") == "user" for m in messages):
        return "No user query found in messages."
    return None


def check_responses(body):
    items = body.get("input")
    if isinstance(items, str):
        return None if items else "Input must not be empty."
    if not isinstance(items, list) or not items:
        return "Missing required parameter: 'input'."
    calls = [i.get("call_id") for i in items if i.get("type") == "function_call"]
    outputs = [i.get("call_id") for i in items if i.get("type") == "function_call_output"]
    known = bool(body.get("previous_response_id") or body.get("conversation"))
    for name in calls:
        if name not in outputs:
            return f"No tool output found for function call {name}."
    for name in outputs:
        if name not in calls and not known:
            return f"No tool call found for function call output with call_id {name}."
    for item, following in zip(items, [*items[1:], None], strict=True):
        reasoned = following is not None and (
            following.get("type") in ("function_call", "reasoning") or following.get("role") == "assistant"
        )
        if item.get("type") == "reasoning" and not reasoned:
            return f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
    return None


def check_anthropic(body):
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    if "max_tokens" not in body:
        return "max_tokens: Field required"
    if messages[0].get("role") != "user":
        return 'messages: first message must use the "user" role'
    marks = count_marks(body)
    if marks > CACHE_MARKS:
        return f"A maximum of {CACHE_MARKS} blocks with cache_control may be provided. Found {marks}."
    before = None
    seen: set[str] = set()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            # Newer models take instructions in the middle of a history; they part no call from its result.
            continue
        if role not in ("user", "assistant"):
            return f"messages.{index}.role: Input should be 'user' or 'assistant'"
        if before is not None and before.get("role") == role:
            # The provider merges neighbours of a role; an agent whose roles do not alternate was damaged.
            return (
                'messages: roles must alternate between "user" and "assistant", but found multiple '
                f'"{role}" roles in a row'
            )
        parts = _parts(message)
        if not parts and index < len(messages) - 1:
            return (
                f"messages.{index}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
        asked = [p["id"] for p in (_parts(before) if before else []) if p.get("type") == "tool_use"]
        answered = [p.get("tool_use_id") for p in parts if p.get("type") == "tool_result"]
        for place, part in enumerate(parts):
            if part.get("type") == "tool_result" and part.get("tool_use_id") not in asked:
                return (
                    f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{part.get('tool_use_id')}. Each `tool_result` block must have a corresponding `tool_use` block "
                    "in the previous message."
                )
            if part.get("type") == "text" and not part.get("text"):
                return f"messages.{index}.content.{place}: text content blocks must be non-empty"
            if part.get("type") == "tool_use":
                if part["id"] in seen:
                    return f"messages.{index}.content.{place}: `tool_use` ids must be unique"
                seen.add(part["id"])
        missing = [name for name in asked if name not in answered]
        if missing:
            return _unanswered(index - 1, missing)
        before = message
    if before.get("role") == "assistant":
        missing = [p["id"] for p in _parts(before) if p.get("type") == "tool_use"]
        if missing:
            return _unanswered(len(messages) - 1, missing)
    return None


def check_binding(body):
    """The thinking blocks that are not bound to what stands before them, as (message, part) places."""
    failing = []
    chain = None
    broken = False
    prefix = hashlib.sha256(_canonical([body.get("system"), body.get("tools")]))
    for index, message in enumerate(body["messages"]):
        for place, part in enumerate(_parts(message)):
            if part.get("type") not in ("thinking", "redacted_thinking"):
                prefix.update(_canonical([message["role"], part]))
                continue
            seal, _, parent = part.get("signature", part.get("data", "")).partition(".")
            good = seal == seal_of(prefix.copy(), parent) and (chain is None or parent == chain[:16])
            broken = broken or not good
            if broken:
                failing.append((index, place))
            chain = seal
    return failing


def sign(body, prefix_parts=()):
    """The signature of thinking that comes after `body` (and after earlier parts of the same reply)."""
    prefix = hashlib.sha256(_canonical([body.get("system"), body.get("tools")]))
    parent = ""
    for message in body["messages"]:
        for part in _parts(message):
            if part.get("type") in ("thinking", "redacted_thinking"):
                parent = part.get("signature", part.get("data", "")).partition(".")[0][:16]
            else:
                prefix.update(_canonical([message["role"], part]))
    for part in prefix_parts:
        prefix.update(_canonical(["assistant", part]))
    return f"{seal_of(prefix, parent)}.{parent}"


def seal_of(prefix, parent):
    return hmac.new(KEY, prefix.digest() + parent.encode(), hashlib.sha256).hexdigest()


def count_marks(body):
    holders = [*(body.get("tools") or []), *(body["system"] if isinstance(body.get("system"), list) else [])]
    for message in body["messages"]:
        for part in _parts(message):
            holders.append(part)
            if isinstance(part.get("content"), list):
                holders.extend(part["content"])
    return sum("cache_control" in h for h in holders)


def unmarked(value):
    """`value` without cache marks, a string content as the one text part that it stands for."""
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def _parts(message):
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _canonical(value):
    return json.dumps(unmarked(value), sort_keys=True).encode()


def _unanswered(index, missing):
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )
