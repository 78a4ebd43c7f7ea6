"""`gemjax doctor --agent`: the line to set, and whether it would work."""

import argparse
import json
import socket

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from gemjax.commands.doctor import add_arguments, run
from gemjax.serve.agents import AGENTS, checks
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback
from tests.serve.conftest import stand


def main(arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(arguments[1:]))


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", *(a.variable for a in AGENTS.values())):
        if name:
            monkeypatch.delenv(name, raising=False)


def test_the_line_and_the_checks(monkeypatch, capsys):
    with stand() as place:
        assert main(["doctor", "--agent", "claude-code", "--url", place.url]) == 1
        out = capsys.readouterr().out
        assert f"export ANTHROPIC_BASE_URL={place.url}\n" in out
        assert "  ok  gemjax serve answers" in out and "  no  ANTHROPIC_BASE_URL is not set" in out
        monkeypatch.setenv("ANTHROPIC_BASE_URL", place.url + "/")
        assert main(["doctor", "--agent", "claude-code", "--url", place.url, "--json"]) == 0
        assert all(c["good"] for c in json.loads(capsys.readouterr().out)["checks"])
        assert main(["doctor", "--agent", "codex", "--url", place.url + "/v1/"]) == 0
        assert f"codex -c openai_base_url={place.url}/v1\n" in capsys.readouterr().out
        monkeypatch.setenv("HTTP_PROXY", "http://elsewhere:3128")
        assert main(["doctor", "--agent", "codex", "--url", place.url]) == 1
        assert "add 127.0.0.1 to NO_PROXY" in capsys.readouterr().out


def test_nothing_or_something_else_answers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (check,) = checks("codex", f"http://127.0.0.1:{free.getsockname()[1]}", {})
        assert not check.good and "gemjax serve --port" in check.text
    with on_loopback(Provider().app) as url:
        (check,) = checks("codex", url, {})
        assert not check.good and "something else" in check.text
    assert "http://host:port" in checks("codex", "https://x", {})[0].text


def test_a_variable_that_points_elsewhere_is_named():
    found = checks("aider", "http://127.0.0.1:9", {"OPENAI_API_BASE": "https://api.openai.com/v1"})
    assert any("is https://api.openai.com/v1, expected http://127.0.0.1:9/v1" in c.text for c in found)
