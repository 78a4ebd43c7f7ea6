"""Signed thinking that a provider binds to everything before it: where it stands, and what a rewrite does to it.

Newer Claude models refuse a request in which something before a signed `thinking` or `redacted_thinking` block is not
what it was when the block was made. Thinking may be left out from the start of the chain, never from its middle.
"""

import copy
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

from gemjax.history.formats import plain
from gemjax.history.formats.base import Format, compact_json, problem
from gemjax.history.problems import Problem

BoundThinking = Literal["auto", "drop_block", "strip", "hold", "ignore"]
BOUND_THINKING: tuple[BoundThinking, ...] = ("auto", "drop_block", "strip", "hold", "ignore")

_THINKING = ("thinking", "redacted_thinking")
_PLACE = {"type": "text", "text": "[thinking left out]"}
"""What stands for a message that was nothing but thinking: no message may be empty."""
_BESIDE = ("thinking_blocks", "reasoning_details")
"""Where chat messages of gateways carry the thinking that the provider signed."""
_CLAUDE = re.compile(
    r"claude(?:-(?P<family>[a-z]+))?-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)(?:-(?P<after>[a-z]+))?"
)
_FIRST_BOUND = {"fable": (5, 1), "mythos": (5, 1)}
_OTHER_VENDORS = re.compile(
    r"(?:^|[/.-])(?:gpt|o\d|gemini|deepseek|qwen|mistral|magistral|llama|grok|glm|kimi|minimax)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Treatment:
    """What a rewrite has to do about signed thinking that stands after its first change.

    Attributes:
        mode: `ignore` (nobody checks it), `drop_block` (the provider leaves it out), `strip` (we do), `hold` (no
            rewrite).
        why: one line for the reason of a result.
        spare: index of a message that keeps its thinking under `strip`.
    """

    mode: Literal["ignore", "drop_block", "strip", "hold"]
    why: str = ""
    spare: int | None = None


def treatment(setting: BoundThinking, request: Any, format: Format, messages: Sequence[Any]) -> Treatment:
    """Decide by what the request says; where it does not say enough, so that no provider can refuse what goes out.

    Args:
        setting: `GEMConfig(bound_thinking=)`.
        request: what came in.
        format: its wire format.
        messages: its messages.
    """
    if setting == "ignore" or format.name == "responses":
        return Treatment("ignore")
    if setting == "hold":
        return Treatment("hold", "signed thinking is bound to what would go")
    if setting == "drop_block":
        return Treatment("drop_block")
    says, generation = _behaviour(request), _generation(request, format)
    if setting == "auto":
        if says == "drop_block":
            return Treatment("drop_block")
        if says is None and generation in ("older", "other"):
            return Treatment("ignore")
    last = _open_turn(messages)
    if last is None or generation == "bound" or says is not None or _without_thinking_field(request):
        return Treatment("strip")
    if generation == "unknown":
        # Older models want the thinking of an open turn, newer ones refuse it after a rewrite.
        return Treatment("hold", "the model is not known, and the open turn starts with signed thinking")
    return Treatment("strip", spare=last)


def is_signed(message: Any) -> bool:
    """Whether a message carries thinking that a provider has signed."""
    return any(_is_thinking(part) and _signature(part) for part in _parts(message)) or any(
        any(_signature(entry) for entry in _list(_field(message, name))) for name in _BESIDE
    )


def signatures(message: Any) -> tuple[str, ...]:
    """What identifies the signed thinking of a message, in order; empty without any."""
    signed = [part for part in _parts(message) if _is_thinking(part) and _signature(part)]
    signed += [entry for name in _BESIDE for entry in _list(_field(message, name)) if _signature(entry)]
    return tuple(str(_field(part, "signature") or _field(part, "data")) for part in signed)


def without_thinking(message: Any) -> Any:
    """A copy of a message without its thinking, never empty; the same object if it has none."""
    changes: dict[str, Any] = {}
    parts = _parts(message)
    if any(_is_thinking(part) for part in parts):
        kept = [part for part in parts if not _is_thinking(part)]
        changes["content"] = kept if any(_says_something(part) for part in kept) else [_PLACE]
    beside = [name for name in _BESIDE if any(_signature(entry) for entry in _list(_field(message, name)))]
    if not changes and not beside:
        return message
    if beside and not (_field(message, "content") or _field(message, "tool_calls")):
        changes["content"] = _PLACE["text"]
    if isinstance(message, dict):
        whole = {**message, **changes}
        return {name: value for name, value in whole.items() if name not in beside}
    bare = copy.copy(message)
    for name, value in (*changes.items(), *((name, None) for name in beside)):
        setattr(bare, name, value)
    return bare


def thinking_chars(message: Any, chars: int) -> int:
    """Characters by which a request shrinks without the thinking of a message of `chars` characters."""
    bare = without_thinking(message)
    return 0 if bare is message else chars - len(compact_json(plain(bare)))


def checks_binding(request: Any, format: Format, messages: Sequence[Any]) -> bool:
    """Whether the model that a request names refuses signed thinking whose prefix has changed."""
    return _generation(request, format) == "bound" and treatment("auto", request, format, messages).mode == "strip"


def binding_warnings(request: Any, format: Format, messages: Sequence[Any]) -> list[Problem]:
    """One warning for a request whose model checks what stands before signed thinking."""
    if not checks_binding(request, format, messages):
        return []
    first = next((i for i, message in enumerate(messages) if is_signed(message)), None)
    if first is None:
        return []
    text = "signed thinking is bound to everything before it; the model refuses it if any of that was changed"
    fix = 'leave what is before it as it was, or set prefix_mismatch_behavior to "drop_block"'
    return [dataclasses.replace(problem("bound-thinking", text, fix, "", first), severity="warning")]


def _generation(request: Any, format: Format) -> Literal["bound", "older", "other", "unknown"]:
    """Whether the model that the request names checks the binding; `other` for a model of another vendor."""
    model = _field(request, "model")
    if not isinstance(model, str):
        return "unknown"
    name = model.lower()
    found = _CLAUDE.search(name)
    if found is None:
        named = bool(_OTHER_VENDORS.search(name)) and "claude" not in name and format.name == "chat"
        return "other" if named else "unknown"
    version = (int(found["major"]), int(found["minor"] or 0))
    if version < (5, 0):
        return "older"
    first = _FIRST_BOUND.get(found["family"] or found["after"] or "", (5, 5))
    return "bound" if version >= first else "unknown"


def _behaviour(request: Any) -> str | None:
    binding = _field(_field(request, "thinking"), "block_binding")
    value = _field(binding, "prefix_mismatch_behavior")
    return value if isinstance(value, str) else None


def _without_thinking_field(request: Any) -> bool:
    """The request itself says that its model does not think."""
    if not isinstance(request, dict):
        return False
    names = ("thinking", "reasoning_effort", "reasoning", "extra_body")
    return all(request.get(name) is None or _field(request[name], "type") == "disabled" for name in names)


def _open_turn(messages: Sequence[Any]) -> int | None:
    """Index of the last assistant message if it carries signed thinking and calls whose results come after it."""
    for index in range(len(messages) - 1, -1, -1):
        if _field(messages[index], "role") == "assistant":
            called = any(_field(part, "type") in ("tool_use", "server_tool_use") for part in _parts(messages[index]))
            waits = called or bool(_field(messages[index], "tool_calls"))
            return index if waits and is_signed(messages[index]) else None
    return None


def _parts(message: Any) -> Sequence[Any]:
    return _list(_field(message, "content")) if _field(message, "role") == "assistant" else ()


def _is_thinking(part: Any) -> bool:
    return _field(part, "type") in _THINKING


def _signature(part: Any) -> bool:
    return _field(part, "type") in ("redacted_thinking", "reasoning.encrypted") or bool(_field(part, "signature"))


def _says_something(part: Any) -> bool:
    if _field(part, "type") != "text":
        return True
    text = _field(part, "text")
    return not isinstance(text, str) or bool(text.strip())


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _field(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    return None if isinstance(value, str | list | tuple) or value is None else getattr(value, name, None)
