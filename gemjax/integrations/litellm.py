"""LiteLLM: a callback for `acompletion`, a hook for its proxy, and a wrapper for `completion`, which has no hook."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gemjax.history import HistoryCompressor
from gemjax.integrations.shortener import Shortener, shortener_of

if TYPE_CHECKING:
    from litellm.integrations.custom_logger import CustomLogger

_CHAT = frozenset(("completion", "acompletion"))


def completion_with(
    compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None
) -> Callable[..., Any]:
    """A function to call in place of `litellm.completion`: `completion = completion_with()`.

    Args:
        compressor: None makes one with the default encoder.
        session: name of the conversation, if there is one only; else histories tell them apart.
    """
    shortener = shortener_of(compressor)

    def shortened_completion(*args: Any, **kwargs: Any) -> Any:
        import litellm

        names = ("model", "messages")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return litellm.completion(*args[len(names) :], **_shorter(shortener, given, session))

    return shortened_completion


def callback(compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None) -> "CustomLogger":
    """For `litellm.callbacks = [callback()]`: shortens every `acompletion`. Not for LiteLLM's proxy: `proxy_hook`."""
    from litellm.integrations.custom_logger import CustomLogger

    shortener = shortener_of(compressor)

    class GEMCallback(CustomLogger):
        async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any]:
            if getattr(call_type, "value", call_type) not in _CHAT:
                return kwargs
            return await asyncio.to_thread(_shorter, shortener, kwargs, session)

    return GEMCallback()


def proxy_hook(compressor: HistoryCompressor | Shortener | None = None) -> "CustomLogger":
    """For LiteLLM's proxy: `handler = proxy_hook()` in a module, `callbacks: module.handler` in its settings.

    Conversations are told apart by the caller's key and by their histories.
    """
    from litellm.integrations.custom_logger import CustomLogger

    shortener = shortener_of(compressor)

    class GEMProxyHook(CustomLogger):
        # It has to stand in this class itself: the proxy does not call an inherited one.
        async def async_pre_call_hook(
            self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
        ) -> dict[str, Any]:
            if getattr(call_type, "value", call_type) not in _CHAT:
                return data
            key = getattr(user_api_key_dict, "token", None)
            return await asyncio.to_thread(_shorter, shortener, data, f"key/{key}")

    return GEMProxyHook()


def _shorter(shortener: Shortener, given: dict[str, Any], session: str | None) -> dict[str, Any]:
    messages = given.get("messages")
    if not isinstance(messages, list):
        return given
    kept = shortener.kept(messages, lambda: [_wire(m) for m in messages], format="chat", scope=session)
    return given if kept is messages else {**given, "messages": kept}


def _wire(message: Any) -> Any:
    # The library's own answers, which agents append as they are.
    return message.model_dump(exclude_none=True) if hasattr(message, "model_dump") else message
