"""One turn of an agent that keeps LiteLLM's own message objects."""

import json

from tests.provider.script import work


def take(messages, message):
    messages.append(message)
    for call in message.tool_calls or []:
        output = work(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    return bool(message.tool_calls)
