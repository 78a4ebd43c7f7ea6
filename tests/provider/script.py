"""What the provider's model says: so many tool calls, one a turn, then it is done."""

import json

THOUGHT = "Next I look at the following step, since the one before said nothing about it."


def wire_tool(api):
    schema = {"type": "object", "properties": {"step": {"type": "integer"}}, "required": ["step"]}
    if api == "anthropic":
        return {"name": "work", "description": "Do one step.", "input_schema": schema}
    function = {"name": "work", "description": "Do one step.", "parameters": schema}
    return {"type": "function", "function": function} if api == "chat" else {"type": "function", **function}


def work(step):
    """The tool of the scripted agent: about 1,200 characters that differ from step to step."""
    step = int(step)
    words = [f"{name}{(step * 7 + i) % 97}" for i in range(28) for name in ("file", "line", "value", "état")]
    return f"step {step}: opened src/module_{step}.py\n" + " ".join(words)


def working(turn):
    """What the model calls at a turn, and with which arguments, if a test says nothing else."""
    return "work", {"step": turn}


def chat_message(turn, calls, calling=working):
    if turn >= calls:
        return {"role": "assistant", "content": "Done: every step was taken."}, "stop"
    name, arguments = calling(turn)
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def anthropic_parts(turn, calls, signature, calling=working):
    parts = [] if signature is None else [{"type": "thinking", "thinking": THOUGHT, "signature": signature}]
    if turn >= calls:
        return [*parts, {"type": "text", "text": "Done: every step was taken."}], "end_turn"
    parts.append({"type": "text", "text": f"Step {turn}."})
    name, arguments = calling(turn)
    return [*parts, {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": arguments}], "tool_use"


def responses_items(turn, calls, calling=working):
    reasoning = {"type": "reasoning", "id": f"rs_{turn}", "summary": []}
    if turn >= calls:
        text = {"type": "output_text", "text": "Done: every step was taken.", "annotations": []}
        message = {
            "type": "message",
            "id": f"msg_{turn}",
            "status": "completed",
            "role": "assistant",
            "content": [text],
        }
        return [reasoning, message]
    name, arguments = calling(turn)
    call = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "name": name}
    return [reasoning, {**call, "arguments": json.dumps(arguments), "status": "completed"}]
