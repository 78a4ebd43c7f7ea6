"""OpenAIGenerator against a server on loopback that answers as endpoints do, well and badly."""

import json

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gemjax.coremem.generation import Generator, Sampling
from gemjax.coremem.openai_generator import OpenAIGenerator
from gemjax.errors import ConfigError, GenerationError
from tests.provider.loopback import on_loopback

pytest.importorskip("openai", reason="the extra `openai` is not installed")

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Größe? 東京"}]


def completion(text, reason="stop", usage=True):
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-name",
        "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}],
    }
    return {**body, "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}} if usage else body


def events(pieces, reason="stop", end=True):
    for i, piece in enumerate(pieces):
        last = i == len(pieces) - 1
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": reason if last and end else None}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"
    if end:
        yield "data: [DONE]\n\n"


ANSWERS = {
    "good": lambda body: JSONResponse(completion("1,60 m")),
    "cut": lambda body: JSONResponse(completion("1,6", "length")),
    "withheld": lambda body: JSONResponse(completion(None, "content_filter")),
    "empty": lambda body: JSONResponse(completion("", usage=False)),
    "page": lambda body: HTMLResponse("<html>nginx</html>"),
    "none": lambda body: JSONResponse({"choices": []}),
    "list": lambda body: JSONResponse([1]),
    "quota": lambda body: JSONResponse({"error": {"message": "insufficient_quota"}}, 429),
    "key": lambda body: JSONResponse({"error": {"message": "bad key sk-secret"}}, 401),
    "long": lambda body: JSONResponse({"error": {"message": "maximum context length is 8 tokens"}}, 400),
    "broken": lambda body: Response("oops", 500),
}


@pytest.fixture(scope="module")
def server():
    seen = []

    async def answer(request):
        body = await request.json()
        seen.append(body)
        if body["model"] == "slow":
            import asyncio

            await asyncio.sleep(3)
        if body.get("stream"):
            stream = events(["1,", "60", " m"], end=body["model"] != "torn")
            return StreamingResponse(stream, media_type="text/event-stream")
        if body["model"] not in ANSWERS:
            return JSONResponse({"error": {"message": "no such model"}}, 404)
        return ANSWERS[body["model"]](body)

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    with on_loopback(app, lifespan="off") as url:
        yield f"{url}/v1", seen


@pytest.fixture
def made(server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")

    def make(model, **settings):
        return OpenAIGenerator(model, base_url=server[0], api_key="sk-secret", **{"retries": 0, **settings})

    return make


def test_an_answer_and_its_bill(made, server):
    generator = made("good", extra_body={"top_k": 5}, context_window=100)
    assert isinstance(generator, Generator) and generator.context_window == 100
    sampling = Sampling(max_tokens=9, temperature=0.5, top_p=0.9, seed=4, stop=("\n",))
    answer = generator.generate(ASKED, sampling)
    assert (answer.text, answer.finish_reason, answer.model) == ("1,60 m", "stop", "served-name")
    assert (answer.prompt_tokens, answer.completion_tokens) == (12, 3)
    sent = server[1][-1]
    assert sent["messages"] == ASKED
    kept = {name: sent[name] for name in ("max_tokens", "temperature", "top_p", "seed", "stop", "top_k")}
    assert kept == {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 4, "stop": ["\n"], "top_k": 5}
    assert "sk-secret" not in repr(generator)


@pytest.mark.parametrize(
    ("model", "text", "reason"), [("cut", "1,6", "length"), ("withheld", "", "content_filter"), ("empty", "", "stop")]
)
def test_odd_answers_are_answers_with_their_reason(made, model, text, reason):
    answer = made(model).generate(ASKED)
    assert (answer.text, answer.finish_reason) == (text, reason)
    if model == "empty":  # the endpoint counts nothing: the estimate stands in
        assert answer.prompt_tokens == made(model).count_tokens(ASKED)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("page", "no chat completion.*/v1"),
        ("none", "no chat completion"),
        ("list", "no chat completion"),
        ("quota", "out of quota.*429"),
        ("key", "refuses the key.*401"),
        ("unheard-of", "is not known there.*404"),
        ("long", "answered 400.*maximum context length"),
        ("broken", "answered 500"),
        ("slow", "did not answer in time"),
    ],
)
def test_every_failure_is_one_sentence_with_a_cure(made, model, message):
    with pytest.raises(GenerationError, match=message) as caught:
        made(model, timeout=0.5 if model == "slow" else 10).generate(ASKED)
    assert "sk-secret" not in str(caught.value)


def test_an_endpoint_that_is_away():
    generator = OpenAIGenerator("m", base_url="http://127.0.0.1:9/v1", api_key="x", retries=0)
    for call in (generator.generate, lambda m: list(generator.stream(m))):
        with pytest.raises(GenerationError, match="cannot be reached"):
            call(ASKED)


def test_a_stream_and_one_that_breaks_off(made):
    assert list(made("good").stream(ASKED)) == ["1,", "60", " m"]
    pieces = []
    with pytest.raises(GenerationError, match="after 6 characters"):
        pieces.extend(made("torn").stream(ASKED))
    assert "".join(pieces) == "1,60 m"


def test_the_estimate_errs_upward(made):
    tokenizer = pytest.importorskip("gemjax.models.text_tokenizer").default_tokenizer()
    for text in ("The quick brown fox jumps over the lazy dog. " * 20, "def f(x):\n    return x ** 2  # §\n" * 20):
        messages = [{"role": "user", "content": text}]
        assert made("good").count_tokens(messages) >= tokenizer.count(text)


@pytest.mark.parametrize(
    "settings", [{"timeout": 0}, {"timeout": "x"}, {"retries": -1}, {"retries": True}, {"context_window": "8k"}]
)
def test_settings_out_of_range_are_refused(made, settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        made("good", **settings)
    with pytest.raises(ConfigError, match="model"):
        made("")


def test_without_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="api_key"):
        OpenAIGenerator("m")
