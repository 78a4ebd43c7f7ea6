"""Answers from an endpoint that speaks OpenAI's chat completions: a provider, or a server on the same machine."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from gemjax.coremem.generation import GREEDY, ChatMessage, FinishReason, Generation, Sampling
from gemjax.errors import ConfigError, GenerationError

# Tokens that a message's role and marks take beside its text, as chat templates write them.
_MESSAGE_TOKENS = 5
_PIECE = re.compile(r"[A-Za-z]{1,6}|[^A-Za-z\s]|\s{2,}|\n")


class OpenAIGenerator:
    """Answers through the `openai` package (extra `openai`); safe to use from several threads.

    Args:
        model: the model's name, as the endpoint knows it.
        base_url: where the endpoint is (`http://127.0.0.1:8000/v1`); None: `OPENAI_BASE_URL`, then OpenAI's own.
        api_key: None: `OPENAI_API_KEY`; a local server takes any.
        timeout: seconds for one attempt, at least until the next piece when streaming.
        retries: further attempts where the endpoint is busy, away or broken, with growing pauses.
        context_window: tokens of prompt and answer together; None: not known, the endpoint decides.
        extra_body: further fields of each request, as they are.
        client: an `openai.OpenAI` of one's own instead of all but `model` and `context_window`.

    Raises:
        ConfigError: the package is missing, there is no key, or an argument is out of its range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        context_window: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
        client: Any = None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigError(f"model = {model!r}; expected the name that the endpoint knows")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
            raise ConfigError(f"timeout = {timeout!r}; expected a positive number of seconds")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigError(f"retries = {retries!r}; expected an integer of at least 0")
        if context_window is not None and (isinstance(context_window, bool) or not isinstance(context_window, int)):
            raise ConfigError(f"context_window = {context_window!r}; expected an integer or None")
        try:
            import openai
        except ImportError as error:
            raise ConfigError("OpenAIGenerator needs the openai package: pip install 'gemjax[openai]'") from error
        self._model, self._window = model, context_window
        self._extra = dict(extra_body or {})
        if client is None:
            try:
                client = openai.OpenAI(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=retries)
            except openai.OpenAIError as error:
                raise ConfigError(f"api_key: {error}") from error
        self._client = client

    @property
    def model(self) -> str:
        return self._model

    @property
    def context_window(self) -> int | None:
        return self._window

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """An estimate that errs upward: pieces of words of six letters, digits, signs, bytes of other scripts."""
        return sum(_estimate(message["content"]) + _MESSAGE_TOKENS for message in messages)

    def generate(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Generation:
        """The whole answer.

        Raises:
            GenerationError: the endpoint is away, slow, refuses, is out of quota, or gives no chat completion.
        """
        start = time.perf_counter()
        try:
            answer = self._client.chat.completions.create(**self._request(messages, sampling))
        except Exception as error:
            self._failed(error)
        choice = _first(answer, self._where)
        text = getattr(getattr(choice, "message", None), "content", None)
        usage = getattr(answer, "usage", None)
        said = text if isinstance(text, str) else ""
        return Generation(
            text=said,
            finish_reason=_reason(getattr(choice, "finish_reason", None)),
            prompt_tokens=_tokens(usage, "prompt_tokens", lambda: self.count_tokens(messages)),
            completion_tokens=_tokens(usage, "completion_tokens", lambda: _estimate(said)),
            seconds=time.perf_counter() - start,
            model=str(getattr(answer, "model", None) or self._model),
        )

    def stream(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Iterator[str]:
        """The answer piece by piece.

        Raises:
            GenerationError: as `generate`; with the text so far in the message's count when the stream breaks off.
        """
        try:
            chunks = self._client.chat.completions.create(**self._request(messages, sampling), stream=True)
        except Exception as error:
            self._failed(error)
        return self._pieces(chunks)

    def _pieces(self, chunks: Any) -> Iterator[str]:
        given = 0
        finished = False
        try:
            for chunk in chunks:
                for choice in getattr(chunk, "choices", None) or ():
                    finished |= getattr(choice, "finish_reason", None) is not None
                    piece = getattr(getattr(choice, "delta", None), "content", None)
                    if isinstance(piece, str) and piece:
                        given += len(piece)
                        yield piece
        except Exception as error:
            self._failed(error, f" after {given} characters of the answer")
        if not finished:
            raise GenerationError(f"{self._where} ended the stream after {given} characters without a finish_reason")

    @property
    def _where(self) -> str:
        return f"{self._model} at {getattr(self._client, 'base_url', 'the endpoint')}"

    def _request(self, messages: Sequence[ChatMessage], sampling: Sampling) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        if sampling.temperature > 0 and sampling.top_p < 1:
            request["top_p"] = sampling.top_p
        if sampling.seed is not None:
            request["seed"] = sampling.seed
        if sampling.stop:
            request["stop"] = list(sampling.stop)
        if self._extra:
            request["extra_body"] = self._extra
        return request

    def _failed(self, error: Exception, when: str = "") -> NoReturn:
        """One sentence that says what happened and what to do; a key in a message would be in logs for ever."""
        import openai

        if isinstance(error, GenerationError):
            raise error
        status = getattr(error, "status_code", None)
        if isinstance(error, openai.APITimeoutError):
            what = "did not answer in time; raise `timeout` or take a faster model"
        elif isinstance(error, openai.APIConnectionError):
            what = "cannot be reached; is the server running, and is `base_url` right?"
        elif isinstance(error, openai.RateLimitError):
            what = "is out of quota or takes no more requests now (429); wait, or raise the limit"
        elif isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            what = f"refuses the key ({status}); set `api_key` or OPENAI_API_KEY"
        elif isinstance(error, openai.NotFoundError):
            what = "is not known there (404); is the model's name right, and does `base_url` end in /v1?"
        elif isinstance(error, openai.APIStatusError):
            what = f"answered {status}: {_said(error)}"
        else:
            what = f"gave what is no chat completion ({type(error).__name__}); does `base_url` end in /v1?"
        raise GenerationError(f"{self._where} {what}{when}") from error

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self._where})"


def _estimate(text: str) -> int:
    return len(_PIECE.findall(text)) + len(text.encode("utf-8", "replace")) - len(text)


def _first(answer: Any, where: str) -> Any:
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise GenerationError(f"{where} gave what is no chat completion; does `base_url` end in /v1?")
    return choices[0]


def _reason(given: Any) -> FinishReason:
    if given in ("length", "content_filter"):
        reason: FinishReason = given
        return reason
    return "stop"


def _tokens(usage: Any, name: str, estimate: Any) -> int:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) and count >= 0 else int(estimate())


def _said(error: Any) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or getattr(error, "message", error))[:300]
