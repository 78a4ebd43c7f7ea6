"""The same tasks with a real model behind any endpoint that speaks OpenAI's chat completions."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gemjax.errors import RequestError
from gemjax.evaluation.agent.actor import Answer, Messages, Tally
from gemjax.evaluation.agent.dojo import World

MOST_CALLS = 40
"""Turns of the model for one task; a task that takes more is judged as it stands."""

_SYSTEM = "You do one task after another with the tools you are given. Answer each task in words when it is done."


class Model(Protocol):
    """From messages and tools to the assistant message that follows."""

    def __call__(self, messages: Messages, tools: list[dict[str, Any]]) -> dict[str, Any]: ...


class ModelEndpoint:
    """A model by HTTP.

    Args:
        url: up to and without `/chat/completions`, such as `http://localhost:8000/v1`.
        model: its name there.
        key: name of the environment variable that holds the key; none is sent if it is not set.
        timeout: seconds for one answer.
    """

    def __init__(self, url: str, model: str, key: str = "OPENAI_API_KEY", timeout: float = 600.0) -> None:
        self.url = url.rstrip("/") + "/chat/completions"
        self.model = model
        self._key = key
        self._timeout = timeout

    def __call__(self, messages: Messages, tools: list[dict[str, Any]]) -> dict[str, Any]:
        """Raises: `RequestError` for no answer, or one that holds no message."""
        body = {"model": self.model, "messages": messages, "tools": tools}
        headers = {"Content-Type": "application/json"}
        if os.environ.get(self._key):
            headers["Authorization"] = f"Bearer {os.environ[self._key]}"
        try:
            request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                message = json.load(response)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            said = error.read(300).decode(errors="replace")
            raise RequestError(f"{self.url} answered {error.code}: {said}") from None
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise RequestError(f"{self.url} gave no answer ({type(error).__name__}: {error})") from None
        if not isinstance(message, dict):
            raise RequestError(f"{self.url} gave no message, but {message!r:.100}")
        return message


def converse(
    worlds: Sequence[World],
    model: Model,
    tools: list[dict[str, Any]],
    forward: Callable[[Messages], Messages],
    answer: Answer | None,
) -> Tally:
    """One task after another in one conversation, each judged by its own check with what the model answered.

    Args:
        worlds: a fresh one for each task.
        model: writes the turns.
        tools: what it is offered.
        forward: what is sent of a history.
        answer: answers calls of the recall tool; None for an agent without one.
    """
    tally = Tally(tasks=len(worlds))
    messages: Messages = [{"role": "system", "content": _SYSTEM}]
    for world in worlds:
        messages.append({"role": "user", "content": world.prompt})
        said = ""
        for _ in range(MOST_CALLS):
            reply = {"role": "assistant", **model(forward(list(messages)), tools)}
            messages.append(reply)
            said = reply.get("content") or ""
            calls = reply.get("tool_calls") or []
            for call in calls:
                tally.calls += 1
                recalled = answer(call) if answer is not None else None
                tally.recalls += recalled is not None
                messages.append(recalled or _run(world, call))
            if not calls:
                break
        tally.passed += world.passed(said)
    return tally


def _run(world: World, call: dict[str, Any]) -> dict[str, Any]:
    """The result of a call as a message; what is wrong with the call is told to the model."""
    function = call.get("function") or {}
    try:
        arguments = json.loads(function.get("arguments") or "{}")
        if not isinstance(arguments, dict):
            raise ValueError("the arguments are no JSON object")
        text = world.run(str(function.get("name")), arguments).text
    except ValueError as error:
        text = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call.get("id"), "content": text}
