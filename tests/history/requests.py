"""Builders of small requests in the three wire formats, for the tests of this folder."""

import json
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
