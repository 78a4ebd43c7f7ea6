"""The loop with a model behind an endpoint, against a server on this machine."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from gemjax.errors import RequestError
from gemjax.evaluation.agent.model import ModelEndpoint, converse
from tests.evaluation.agent.diary import Diary


class Answering(Diary):
    """A diary whose check wants the secret in words too."""

    def passed(self, answer: str | None = None) -> bool:
        return self.told == ["swordfish-99"] and answer == "I told swordfish-99."


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]], list[Any]]]:
    """Its address, the requests it got, and what it answers, one after the other."""
    got: list[dict[str, Any]] = []
    answers: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = answers.pop(0)
            status, body = answer if isinstance(answer, tuple) else (200, {"choices": [{"message": answer}]})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/v1/", got, answers
    made.shutdown()
    thread.join()
    made.server_close()


def calling(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": f"c-{name}", "type": "function", "function": function}]}


def test_a_model_acts_recalls_and_is_judged(server: tuple[str, list[dict[str, Any]], list[Any]]):
    url, got, answers = server
    answers += [
        calling("read", '{"page": 7}'),
        calling("look_back", '{"query": "secret"}'),
        calling("tell", "not json"),
        calling("tell", '{"secret": "swordfish-99"}'),
        {"content": "I told swordfish-99."},
    ]

    def answer(call: dict[str, Any]) -> dict[str, Any] | None:
        ours = call["function"]["name"] == "look_back"
        return {"role": "tool", "tool_call_id": call["id"], "content": "it was swordfish-99"} if ours else None

    tools = [{"type": "function", "function": {"name": "read"}}]
    tally = converse([Answering()], ModelEndpoint(url, "m"), tools, lambda m: m, answer)
    assert (tally.passed, tally.calls, tally.recalls) == (1, 4, 1)
    assert [r["model"] for r in got] == ["m"] * 5 and got[0]["tools"] == tools
    assert got[2]["messages"][-1] == {"role": "tool", "tool_call_id": "c-look_back", "content": "it was swordfish-99"}
    assert got[3]["messages"][-1]["content"].startswith("Error: ")


def test_a_task_that_a_model_gets_wrong_is_not_passed(server: tuple[str, list[dict[str, Any]], list[Any]]):
    url, _, answers = server
    answers += [{"content": "I do not know."}]
    assert converse([Answering()], ModelEndpoint(url, "m"), [], lambda m: m, None).passed == 0


@pytest.mark.parametrize(
    "answer", [(500, {"error": "busy"}), (200, {}), (200, {"choices": [{"message": 3}]}), (200, [])]
)
def test_an_endpoint_without_an_answer_is_an_error_that_names_it(
    server: tuple[str, list[dict[str, Any]], list[Any]], answer: Any
):
    url, _, answers = server
    answers.append(answer)
    with pytest.raises(RequestError, match=r"127\.0\.0\.1"):
        ModelEndpoint(url, "m")([], [])


def test_an_endpoint_that_is_not_there():
    with pytest.raises(RequestError, match="gave no answer"):
        ModelEndpoint("http://127.0.0.1:9", "m")([], [])
