"""A scripted agent that speaks raw HTTP, so that a test knows every byte it sends."""

import json

from tests.provider.script import wire_tool, work

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
FIELDS = {"chat": "messages", "responses": "input", "anthropic": "messages"}


class RawAgent:
    """Sends its whole history each time, as every agent does."""

    def __init__(self, api, key="test", task="Go through the steps, größte zuerst.", headers=(), marks=True, **fields):
        self.api, self.key, self.marks, self.fields = api, key, marks, fields
        self.messages = [{"role": "user", "content": task}]
        self.headers = dict(headers)
        self.sent: list[bytes] = []

    def body(self):
        messages = list(self.messages)
        if self.api == "anthropic" and self.marks:
            # The mark stands on the last message and moves with it.
            last = messages[-1]
            parts = last["content"]
            parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
            mark = {"cache_control": {"type": "ephemeral"}}
            messages[-1] = {**last, "content": [*parts[:-1], {**parts[-1], **mark}]}
        tools = [wire_tool(self.api)]
        body = {"model": "scripted", **self.fields, FIELDS[self.api]: messages, "tools": tools}
        if self.api == "anthropic":
            body["max_tokens"] = 1000
        # Odd spacing and unescaped letters: what is not rewritten has to keep both.
        return json.dumps(body, ensure_ascii=False, separators=(", ", ":  ")).encode()

    def all_headers(self):
        key = {"x-api-key": self.key} if self.api == "anthropic" else {"authorization": f"Bearer {self.key}"}
        return {"content-type": "application/json", **key, **self.headers}

    def step(self, client):
        """One request; returns the response."""
        body = self.body()
        self.sent.append(body)
        return client.post(PATHS[self.api], content=body, headers=self.all_headers())

    def take(self, answer):
        """Take an answer into the history and run its tools; whether there is more to do."""
        if self.api == "chat":
            message = answer["choices"][0]["message"]
            self.messages.append(message)
            calls = message.get("tool_calls") or []
            for call in calls:
                output = work(**json.loads(call["function"]["arguments"]))
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            return bool(calls)
        if self.api == "anthropic":
            self.messages.append({"role": "assistant", "content": answer["content"]})
            calls = [p for p in answer["content"] if p["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": c["id"], "content": work(**c["input"])} for c in calls]
            if results:
                self.messages.append({"role": "user", "content": results})
            return bool(results)
        self.messages += answer["output"]
        calls = [i for i in answer["output"] if i["type"] == "function_call"]
        for call in calls:
            output = work(**json.loads(call["arguments"]))
            self.messages.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})
        return bool(calls)

    def run(self, client, most=100):
        for _ in range(most):
            response = self.step(client)
            assert response.status_code == 200, response.text
            if not self.take(response.json()):
                return
        raise AssertionError("the agent did not end")


def history(api, calls, key="test", **fields):
    """An agent whose history has so many tool calls already."""
    from tests.provider import script

    agent = RawAgent(api, key, **fields)
    for turn in range(calls):
        if api == "chat":
            answer = {"choices": [{"message": script.chat_message(turn, calls)[0]}]}
        elif api == "anthropic":
            answer = {"content": script.anthropic_parts(turn, calls, None)[0]}
        else:
            answer = {"output": script.responses_items(turn, calls)}
        agent.take(answer)
    return agent
