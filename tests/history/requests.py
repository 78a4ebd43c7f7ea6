"""Builders of small requests in the three wire formats, for the tests of this folder."""

import json
import random
from typing import Any


def chat_block(number: int, *, ids: list[str] | None = None, text: str = "", result: str | None = None) -> list[dict]:
    """An assistant turn with one call an id, and their results."""
    ids = ids or [f"call_{number}"]
    calls = [
        {
            "id": i,
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": f"echo {number} {k}"})},
        }
        for k, i in enumerate(ids)
    ]
    answers = [
        {"role": "tool", "tool_call_id": i, "content": f"output {number} {k}" if result is None else result}
        for k, i in enumerate(ids)
    ]
    return [{"role": "assistant", "content": text, "tool_calls": calls}, *answers]


def chat(blocks: int, **extra: Any) -> dict:
    messages: list[dict] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Fix the tests."},
    ]
    for number in range(blocks):
        messages += chat_block(number)
    return {"model": "m", "messages": messages, **extra}


def legacy(blocks: int) -> dict:
    messages: list[dict] = [{"role": "user", "content": "Fix the tests."}]
    for number in range(blocks):
        messages.append(
            {"role": "assistant", "content": None, "function_call": {"name": "run", "arguments": f'{{"n": {number}}}'}}
        )
        messages.append({"role": "function", "name": "run", "content": f"output {number}"})
    return {"messages": messages}


def responses(blocks: int) -> dict:
    items: list[dict] = [{"role": "user", "content": [{"type": "input_text", "text": "Fix the tests."}]}]
    for number in range(blocks):
        items += [
            {
                "type": "reasoning",
                "id": f"rs_{number}",
                "summary": [{"type": "summary_text", "text": f"think {number}"}],
            },
            {"type": "function_call", "call_id": f"c{number}", "name": "shell", "arguments": f'{{"n": {number}}}'},
            {"type": "function_call_output", "call_id": f"c{number}", "output": f"output {number}"},
        ]
    return {"model": "m", "input": items}


def anthropic_block(number: int) -> list[dict]:
    return [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": f"think {number}", "signature": "s"},
                {"type": "text", "text": f"step {number}"},
                {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"echo {number}"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"output {number}"}],
        },
    ]


def anthropic(blocks: int) -> dict:
    messages: list[dict] = [{"role": "user", "content": "Fix the tests."}]
    for number in range(blocks):
        messages += anthropic_block(number)
    # An older model: newer ones refuse signed thinking behind a rewrite, see test_bound_thinking.
    return {"model": "claude-sonnet-4-5", "system": "You are careful.", "messages": messages}


BUILDERS = {"chat": chat, "legacy": legacy, "responses": responses, "anthropic": anthropic}


def varied(rng: random.Random, name: str, turns: int) -> tuple[dict, list[int | None], set[int]]:
    """A valid request of the kinds that agents send, `turns` model responses long.

    Returns: the request; for each message the response that it came with or answers, None for conversation; and the
        indices of those messages that no compressor may drop, whatever it thinks of them.
    """
    make = {"responses": _varied_responses, "anthropic": _varied_anthropic, "chat": _varied_chat}[name]
    messages: list[dict] = []
    of: list[int | None] = []
    stays: set[int] = set()

    def add(message: dict, response: int | None, must_stay: bool = False) -> None:
        if must_stay or response is None:
            stays.add(len(messages))
        messages.append(message)
        of.append(response)

    add({"role": "user", "content": "Fix the tests."}, None)
    for number in range(turns):
        make(rng, number, add)
        if rng.random() < 0.15:
            add({"role": "assistant", "content": f"part {number} is done"}, None)
            add({"role": "user", "content": f"go on {number}"}, None)
    key = "input" if name == "responses" else "messages"
    return {"model": "m", key: messages}, of, stays


def _varied_responses(rng: random.Random, number: int, add: Any) -> None:
    user = {"role": "user", "content": f"and {number}"}
    developer = {"type": "message", "role": "developer", "content": f"note {number}"}
    unknown = {"type": rng.choice(["wizard", "wizard_call"]), "n": number}
    compaction = {"type": "compaction", "encrypted_content": f"e{number}"}
    late = {"type": "additional_tools", "role": "developer", "tools": []}
    kind = rng.choice(["plain"] * 9 + ["program", "search", "hosted search", "mcp", "approval", "reference"])
    if kind == "hosted search":
        add({"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}}, number, True)
        add({"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []}, number, True)
    if kind == "mcp":
        add({"type": "mcp_call", "id": f"m{number}", "name": "f", "arguments": "{}", "server_label": "s"}, number, True)
    if kind == "reference":
        add({"type": "item_reference", "id": f"r{number}"}, number, True)
    if rng.random() < 0.6:
        reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"x{number}"}
        add(reasoning, number)
        if rng.random() < 0.2:
            add(rng.choice([developer, unknown, late]), None)
    if kind == "approval":
        request = {"type": "mcp_approval_request", "id": f"a{number}", "name": "f", "arguments": "{}"}
        add(request, number, True)
        add({"type": "mcp_approval_response", "approval_request_id": f"a{number}", "approve": True}, None)
        return
    if rng.random() < 0.2:
        add({"type": "message", "role": "assistant", "content": f"step {number}"}, number)
    caller = {}
    if kind == "program":
        add({"type": "program", "id": f"p{number}", "call_id": f"g{number}", "code": "x"}, number, True)
        caller = {"caller": {"type": "program", "caller_id": f"g{number}"}}
    waiting = []
    for k in range(rng.choice([1, 1, 1, 2, 3])):
        call, output = _responses_pair(rng, number, k, kind)
        must = bool(caller) or "tool_search" in call["type"]
        add(call | caller, number, must)
        waiting.append((output | caller, must))
        if rng.random() < 0.15:
            add(rng.choice([developer, user, unknown, late]), None)
        if rng.random() < 0.3:
            rng.shuffle(waiting)
            add(waiting[0][0], number, waiting.pop(0)[1])
    rng.shuffle(waiting)
    for output, must in waiting:
        add(output, number, must)
        if rng.random() < 0.05:
            add(rng.choice([developer, compaction]), None)
    if kind == "program":
        add({"type": "program_output", "id": f"o{number}", "call_id": f"g{number}", "result": "1"}, number, True)


def _responses_pair(rng: random.Random, number: int, k: int, kind: str) -> tuple[dict, dict]:
    name = f"call_{k}" if number % 5 == 0 else f"call_{number}_{k}"
    one = {"call_id": name, "id": f"fc_{number}_{k}"}
    if kind == "search":
        search = {"type": "tool_search_call", "execution": "client", "call_id": name, "arguments": {}}
        return search, {"type": "tool_search_output", "execution": "client", "call_id": name, "tools": []}
    which = rng.choice(["function_call", "function_call", "custom_tool_call", "shell_call", "apply_patch_call"])
    fields: dict[str, dict] = {
        "function_call": {"name": "f", "arguments": "{}"},
        "custom_tool_call": {"name": "f", "input": "x"},
        "shell_call": {"action": {"commands": [f"echo {number}"]}},
        "apply_patch_call": {"operation": {"type": "delete_file", "path": f"{number}.py"}, "status": "completed"},
    }
    outputs: dict[str, dict] = {
        "function_call": {"output": rng.choice([f"out {number}", [{"type": "input_text", "text": f"o{number}"}]])},
        "custom_tool_call": {"output": f"out {number}"},
        "shell_call": {"output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        "apply_patch_call": {"status": "completed"},
    }
    return {"type": which, **one, **fields[which]}, {"type": f"{which}_output", "call_id": name, **outputs[which]}


def _varied_anthropic(rng: random.Random, number: int, add: Any) -> None:
    kinds = ["plain"] * 6 + ["reference", "server", "compaction", "program", "mcp", "words", "unknown"]
    kind = rng.choice(kinds)
    parts: list[dict] = []
    if rng.random() < 0.3:
        parts.append({"type": "thinking", "thinking": f"think {number}", "signature": "s"})
    if kind == "server":
        parts.append({"type": "server_tool_use", "id": f"srv{number}", "name": "web_search", "input": {}})
        parts.append({"type": "web_search_tool_result", "tool_use_id": f"srv{number}", "content": []})
    if kind == "mcp":
        parts.append({"type": "mcp_tool_use", "id": f"srv{number}", "name": "f", "input": {}, "server_name": "s"})
        parts.append({"type": "mcp_tool_result", "tool_use_id": f"srv{number}", "content": []})
    if kind == "compaction":
        parts.append({"type": "compaction", "content": f"so far {number}"})
    if kind == "unknown":
        parts.append({"type": "wizard", "n": number})
    if rng.random() < 0.4:
        parts.append({"type": "text", "text": f"step {number}"})
    caller = {"caller": {"type": "code_execution_20250825", "tool_id": "srv"}} if kind == "program" else {}
    ids = [f"toolu_{number}_{k}" for k in range(rng.choice([1, 1, 2, 3]))]
    parts += [
        {"type": "tool_use", "id": i, "name": "Bash", "input": {"command": f"echo {number}"}} | caller for i in ids
    ]
    stays = kind not in ("plain", "reference")
    add({"role": "assistant", "content": parts}, number, stays or kind == "reference")
    rng.shuffle(ids)
    results: list[dict] = [
        {"type": "tool_result", "tool_use_id": i, "content": rng.choice([f"out {i}", [{"type": "text", "text": "o"}]])}
        for i in ids
    ]
    if kind == "reference":
        results[0]["content"] = [{"type": "tool_reference", "tool_name": "post"}]
        stays = True
    if rng.random() < 0.2 and len(results) > 1:
        add({"role": "user", "content": results[:1]}, number, stays)
        results = results[1:]
        if kind == "words":
            results.append({"type": "text", "text": "and hurry"})
    elif kind == "words":
        results.append({"type": "text", "text": "and hurry"})
    add({"role": "user", "content": results}, number, stays)


def _varied_chat(rng: random.Random, number: int, add: Any) -> None:
    ids = [f"call_{k}" if number % 3 == 0 else f"call_{number}_{k}" for k in range(rng.choice([1, 1, 2, 3]))]
    turn, *results = chat_block(number, ids=ids)
    if rng.random() < 0.3:
        thinking: Any = [{"type": "thinking", "thinking": [{"type": "text", "text": f"think {number}"}]}]
        turn["content"] = thinking
    loads = rng.random() < 0.15
    if loads:
        results[0]["content"] = [{"type": "tool_reference", "tool_name": "post"}]
    rng.shuffle(results)
    add(turn, number, loads)
    for result in results:
        add(result, number, loads)


def output(number: int, size: int) -> str:
    return "\n".join(f"{number}: line {i} of what was printed, value_{number}_{i}" for i in range(size // 40))


def exchange(kind: str, number: int, size: int, **more: object) -> list[dict]:
    arguments = json.dumps({"command": f"cat f{number}.py"})
    if kind == "chat":
        call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": output(number, size), **more},
        ]
    if kind == "anthropic":
        use = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": json.loads(arguments)}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output(number, size), **more}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return [
        {"type": "function_call", "call_id": f"c{number}", "name": "bash", "arguments": arguments},
        {"type": "function_call_output", "call_id": f"c{number}", "output": output(number, size), **more},
    ]
