"""The three APIs' event streams, made from whole answers."""

import json


def _event(data, name=None):
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def chat_stream(answer):
    choice = answer["choices"][0]
    base = {"id": answer["id"], "object": "chat.completion.chunk", "created": 1, "model": answer["model"]}

    def chunk(delta, finish=None):
        return _event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    message = choice["message"]
    yield chunk({"role": "assistant", "content": "" if message["content"] else None})
    for call in message.get("tool_calls") or []:
        text = call["function"]["arguments"]
        head = {**call, "index": 0, "function": {**call["function"], "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    if message["content"]:
        yield chunk({"content": message["content"]})
    yield chunk({}, choice["finish_reason"])
    yield _event({**base, "choices": [], "usage": answer["usage"]})
    yield b"data: [DONE]\n\n"


def anthropic_stream(answer):
    start = {**answer, "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": start}, "message_start")
    for index, part in enumerate(answer["content"]):
        if part["type"] == "text":
            empty, deltas = {**part, "text": ""}, [{"type": "text_delta", "text": part["text"]}]
        elif part["type"] == "tool_use":
            text = json.dumps(part["input"])
            empty, deltas = {**part, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
        else:
            empty = {**part, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": part["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": part["signature"]})
        block = {"type": "content_block_start", "index": index, "content_block": empty}
        yield _event(block, "content_block_start")
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield _event({"type": "content_block_stop", "index": index}, "content_block_stop")
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": answer["usage"]}, "message_delta")
    yield _event({"type": "message_stop"}, "message_stop")


def responses_stream(answer):
    number = 0

    def event(kind, **fields):
        nonlocal number
        number += 1
        return _event({"type": kind, "sequence_number": number - 1, **fields}, kind)

    yield event("response.created", response={**answer, "status": "in_progress", "output": []})
    for index, item in enumerate(answer["output"]):
        yield event("response.output_item.added", output_index=index, item=item)
        if item["type"] == "function_call":
            fields = {"item_id": item["id"], "output_index": index, "name": item["name"]}
            yield event("response.function_call_arguments.done", arguments=item["arguments"], **fields)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=answer)
