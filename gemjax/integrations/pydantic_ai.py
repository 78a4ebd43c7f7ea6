"""pydantic-ai: a capability whose requests are shorter than the history it keeps."""

import dataclasses
from typing import TYPE_CHECKING, Any

from gemjax.history import HistoryCompressor
from gemjax.history.archive.tool import query_of
from gemjax.integrations.recall import text_of
from gemjax.integrations.shortener import Shortener, shortener_of

if TYPE_CHECKING:
    from pydantic_ai import Tool
    from pydantic_ai.capabilities import AbstractCapability


def capability(compressor: HistoryCompressor | Shortener | None = None) -> "AbstractCapability[Any]":
    """For `Agent(..., capabilities=[capability()])`: the model gets fewer messages, the history keeps them all.

    Conversations are told apart by pydantic-ai's conversation id and by their histories.
    """
    from pydantic_ai.capabilities import AbstractCapability

    shortener = shortener_of(compressor)

    @dataclasses.dataclass
    class GEMCapability(AbstractCapability[Any]):
        async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
            given = request_context.messages
            kept = await shortener.akept(
                given, lambda: list(map(_wire, given)), format="anthropic", scope=ctx.conversation_id
            )
            return request_context if kept is given else dataclasses.replace(request_context, messages=kept)

    return GEMCapability()


def recall_tool(shortener: Shortener) -> "Tool[Any]":
    """A tool for `Agent(tools=[recall_tool(shortener), ...])` that finds what was left out of its conversation.

    Args:
        shortener: the one that `capability` was given.
    """
    from pydantic_ai import Tool

    text = text_of(shortener)

    # The framework does not check arguments against the schema, and what raises here would end the run.
    def recall(ctx: Any, **arguments: Any) -> str:
        return shortener.recall(query_of(arguments), lambda: list(map(_wire, ctx.messages))).text

    return Tool.from_schema(recall, text.name, text.description, text.schema, takes_ctx=True)


def _wire(message: Any) -> dict[str, Any]:
    """One of the framework's messages as one Messages message: a turn, or its results with what the user added."""
    if message.kind == "response":
        return {"role": "assistant", "content": [_said(part) for part in message.parts]}
    parts = [_asked(part) for part in message.parts]
    # The framework may put a prompt before results; the format wants results first.
    parts.sort(key=lambda part: part["type"] != "tool_result")
    return {"role": "user", "content": parts or [{"type": "text", "text": "(instructions)"}]}


def _said(part: Any) -> dict[str, Any]:
    kind = part.part_kind
    if kind == "tool-call":
        return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
    if kind == "thinking":
        # Anthropic's models sign it with its prefix, through whatever provider; these sign it by itself.
        by_itself = (part.provider_name or "").partition("-")[0] in ("openai", "azure", "google")
        signed = None if by_itself else part.signature
        return {"type": "thinking", "thinking": part.content, "signature": signed}
    return {"type": "text", "text": part.content} if kind == "text" and part.content else _opaque(kind)


def _asked(part: Any) -> dict[str, Any]:
    kind = part.part_kind
    if kind == "tool-return":
        return _result(part, part.model_response_str(), False)
    if kind == "retry-prompt":
        if part.tool_name is not None:
            return _result(part, part.model_response(), True)
        return {"type": "text", "text": part.model_response()}
    if kind in ("user-prompt", "system-prompt"):
        content = part.content
        texts = (
            [content]
            if isinstance(content, str)
            else [p if isinstance(p, str) else f"[{type(p).__name__}]" for p in content]
        )
        return {"type": "text", "text": "\n".join(texts) or "(empty)"}
    return _opaque(kind)


def _result(part: Any, text: str, failed: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text, "is_error": failed}


def _opaque(kind: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{kind}]"}
