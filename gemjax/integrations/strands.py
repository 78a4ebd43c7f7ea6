"""Strands Agents: an input handler for its model stage."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gemjax.history import HistoryCompressor
from gemjax.integrations.recall import text_of
from gemjax.integrations.shortener import Shortener, shortener_of

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.tools import AgentTool


def install(
    agent: "Agent", compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None
) -> None:
    """Shorten what `agent` sends from now on; `agent.messages` keeps everything.

    Args:
        agent: a `strands.Agent`.
        compressor: None makes one with the default encoder.
        session: name of the conversation; None tells conversations apart by the agent's id and their histories.
    """
    from strands.middleware.stages import InvokeModelStage

    agent.add_middleware(InvokeModelStage.Input, input_handler(compressor, session=session))


def input_handler(
    compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None
) -> Callable[[Any], Any]:
    """For `agent.add_middleware(InvokeModelStage.Input, input_handler())`."""
    shortener = shortener_of(compressor)

    def handler(context: Any) -> Any:
        scope = session if session is not None else f"agent/{getattr(context.agent, 'agent_id', '')}"
        given = context.messages
        kept = shortener.kept(given, lambda: [_wire(m) for m in given], format="anthropic", scope=scope)
        return context if kept is given else context.replace(messages=kept)

    return handler


def recall_tool(shortener: Shortener) -> "AgentTool":
    """A tool for `Agent(tools=[recall_tool(shortener), ...])` that finds what was left out of its conversation.

    Args:
        shortener: the one that `install` was given.
    """
    from strands import tool

    text = text_of(shortener)

    def recall(query: str, tool_context: Any) -> str:
        return shortener.recall(query, lambda: [_wire(m) for m in tool_context.agent.messages]).text

    made = tool(name=text.name, description=text.description, inputSchema={"json": text.schema}, context=True)
    decorated: AgentTool = made(recall)
    return decorated


def _wire(message: dict[str, Any]) -> dict[str, Any]:
    """A Converse message as a Messages message."""
    return {"role": message["role"], "content": [_part(block) for block in message["content"]]}


def _part(block: dict[str, Any]) -> dict[str, Any]:
    if "text" in block:
        return {"type": "text", "text": block["text"] or "(empty)"}
    if "toolUse" in block:
        use = block["toolUse"]
        return {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": use["input"]}
    if "toolResult" in block:
        result = block["toolResult"]
        content = [{"type": "text", "text": _text(c)} for c in result["content"]]
        failed = result.get("status") == "error"
        return {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": content, "is_error": failed}
    if "reasoningContent" in block:
        thought = block["reasoningContent"].get("reasoningText")
        if thought is None:
            return {"type": "redacted_thinking", "data": "(redacted)"}
        return {"type": "thinking", "thinking": thought.get("text", ""), "signature": thought.get("signature")}
    return {"type": "text", "text": f"[{next(iter(block), 'block')}]"}


def _text(content: dict[str, Any]) -> str:
    return content["text"] if isinstance(content.get("text"), str) and content["text"] else str(content)
