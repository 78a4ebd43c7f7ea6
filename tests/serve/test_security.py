"""What a stranger sends, and what must never be seen outside."""

import contextlib
import logging
import socket
import time
from urllib.parse import urlsplit

import pytest

from gemjax.errors import ConfigError
from gemjax.serve.app import is_local
from gemjax.serve.config import ServeConfig
from tests.serve.agents import PATHS, history
from tests.serve.conftest import stand


def raw(url, data, patience=5.0):
    """Send bytes as they are; returns all that comes back."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=patience) as connection:
        connection.sendall(data)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    return got


def status(answer):
    return int(answer.split(b" ", 2)[1])


def local(url):
    return urlsplit(url).netloc.encode()


@pytest.mark.parametrize("host", [b"evil.example", b"127.0.0.1.evil.example", b"", b"user@127.0.0.1", b"10.0.0.1:8787"])
def test_a_foreign_host_is_refused(shared, host):
    answer = raw(shared.url, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
    assert status(answer) in (400, 421)
    assert b"conversations" not in answer


def test_known_hosts_are_welcome(shared):
    for host in (local(shared.url), b"localhost:1", b"[::1]:8787", b"LOCALHOST"):
        answer = raw(shared.url, b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
        assert status(answer) == 200


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length : 4\r\n",
        b"X-A: b\rX-Evil: c\r\n",
        b"X-A: b\x00c\r\n",
        b"X-A\r\n",
        b"Host: other\r\n",
    ],
)
def test_ambiguous_requests_are_refused_and_do_not_reach_the_upstream(shared, head):
    before = len(shared.provider.account().paths)
    body = b"0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    start = b"POST /v1/messages HTTP/1.1\r\nHost: " + local(shared.url) + b"\r\n" + head + b"Connection: close\r\n\r\n"
    answer = raw(shared.url, start + body)
    assert answer == b"" or 400 <= status(answer) < 600
    assert len(shared.provider.account().paths) == before


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/../admin",
        b"/v1/%2e%2e/admin",
        b"/v1/.%2E/admin",
        b"/v1/..%2fadmin",
        b"/v1\\..\\admin",
        b"/v1/%252e%252e/a",
        b"/v1/%00",
        b"/v1/a%0d%0aX-Evil:1",
        b"/./v1/models",
        b"/v1/%5c..%5cadmin",
    ],
)
def test_path_tricks_are_refused(shared, target):
    before = len(shared.provider.account().paths)
    request = b"GET " + target + b" HTTP/1.1\r\nHost: " + local(shared.url) + b"\r\nConnection: close\r\n\r\n"
    assert status(raw(shared.url, request)) == 400
    assert len(shared.provider.account().paths) == before


@pytest.mark.parametrize("target", [b"http://evil.example/v1/models", b"//evil.example/v1/models", b"/@evil.example/x"])
def test_it_is_no_open_relay(shared, target):
    request = b"GET " + target + b" HTTP/1.1\r\nHost: " + local(shared.url) + b"\r\nConnection: close\r\n\r\n"
    answer = raw(shared.url, request)
    # Refused, or answered by the fixed upstream.
    assert status(answer) == 400 or b'"path"' in answer
    connect = b"CONNECT evil.example:443 HTTP/1.1\r\nHost: " + local(shared.url) + b"\r\nConnection: close\r\n\r\n"
    assert status(raw(shared.url, connect)) >= 400


def test_slow_bodies_are_ended():
    with stand(body_timeout=0.2) as place:
        head = b"POST /v1/messages HTTP/1.1\r\nHost: " + local(place.url) + b"\r\nContent-Length: 100\r\n\r\n{"
        began = time.monotonic()
        answer = raw(place.url, head)
        assert status(answer) == 408 and time.monotonic() - began < 4
        assert not place.provider.account().bodies


@pytest.mark.parametrize("start", [b"", b"POST /v1/mess", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_head_that_never_ends_is_ended(start):
    with stand(head_timeout=0.3) as place:
        parts = urlsplit(place.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
            connection.sendall(start)
            came = b""
            for _ in range(60):  # a byte now and then does not buy time
                with contextlib.suppress(OSError):
                    connection.sendall(b"a")
                connection.settimeout(0.05)
                try:
                    came += (more := connection.recv(1000))
                except TimeoutError:
                    continue
                except OSError:
                    break
                if not more:
                    break
            else:
                pytest.fail("the connection is still open")
        assert not came or came.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_is_kept_alive_has_the_same_patience_for_each_request():
    with stand(head_timeout=0.3) as place:
        ask = b"GET /healthz HTTP/1.1\r\nHost: " + local(place.url) + b"\r\n\r\n"
        parts = urlsplit(place.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
            for _ in range(2):
                connection.sendall(ask)
                assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
                time.sleep(0.5)  # between requests it may be silent for longer
            connection.sendall(ask[:20])
            assert connection.recv(10_000).startswith(b"HTTP/1.1 408")


def test_a_body_that_nobody_reads_does_not_hold_the_connection():
    with stand(head_timeout=0.3) as place:
        parts = urlsplit(place.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
            head = b"GET /healthz HTTP/1.1\r\nHost: " + local(place.url) + b"\r\nContent-Length: 9999\r\n\r\n"
            connection.sendall(head)
            assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
            for _ in range(60):
                try:
                    connection.sendall(b"a")
                except OSError:
                    break
                time.sleep(0.05)
            else:
                pytest.fail("the connection is still open")


def test_headers_of_one_hop_stay_here_and_all_others_go_on(shared):
    head = b"GET /v1/echo HTTP/1.1\r\nHost: " + local(shared.url) + b"\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
    head += b"Authorization: Bearer hop\r\nX-GemJax-Session: me\r\nTE: trailers\r\nX-B: 2\r\nX-A: 1\r\n"
    assert status(raw(shared.url, head + b"\r\n")) == 200
    came = shared.provider.account("hop").headers[-1]
    names = [k for k, _ in came]
    assert [n for n in names if n.startswith(b"x-")] == [b"x-b", b"x-a"]
    assert b"te" not in names and dict(came)[b"host"] == local(shared.direct)
    assert b"user-agent" not in names and b"accept-encoding" not in names, "nothing is added"


def test_no_content_and_no_key_in_metrics_and_logs(caplog):
    caplog.set_level(logging.DEBUG)
    with stand() as place, place.client() as client:
        agent = history("anthropic", 40, "sk-secret-key", task="the secret task")
        assert agent.step(client).status_code == 200
        broken = history("anthropic", 20, "sk-secret-key", task="the secret task")
        broken.messages[2]["role"] = "secretrole"
        assert broken.step(client).status_code == 400
        text = client.get("/metrics").text
    ours = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith(("gemjax.serve", "gemjax.integ")))
    for secret in ("secret", "sk-", "module_", "step "):
        assert secret not in text
        assert secret not in ours
    assert 'gemjax_shortenings_total{endpoint="messages",outcome="compressed"} 1' in text
    assert 'gemjax_responses_total{endpoint="messages",status="400"} 1' in text


def test_the_page_escapes_everything():
    with stand() as place, place.client() as client:
        agent = history("chat", 40, task="<script>alert(1)</script>")
        for message in agent.messages:
            for call in message.get("tool_calls") or []:
                call["function"]["name"] = "<img src=x onerror=alert(1)>"
        assert agent.step(client).status_code == 200
        broken = history("chat", 40, task="<b>other</b>")
        broken.messages[3]["role"] = "<i>role</i>"
        broken.step(client)
        response = client.get("/")
    assert "blocks left out" in response.text and "Warnings" in response.text
    for tag in ("<img", "<script", "<i>role"):
        assert tag not in response.text
    assert "&lt;img src=x" in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]


def test_only_this_machine_is_listened_on_unless_told():
    assert ServeConfig().host == "127.0.0.1" and is_local(ServeConfig().host)
    assert not is_local("0.0.0.0") and not is_local("::") and not is_local("example.org")


@pytest.mark.parametrize(
    "upstream",
    ["ftp://x", "https://", "https://u:p@x", "https://x?y", "https://x#y", "x", "https://x:99999", "https://é"],
)
def test_a_bad_upstream_is_refused_at_once(upstream):
    with pytest.raises(ConfigError, match="openai must be"):
        ServeConfig(openai=upstream)
    with pytest.raises(ConfigError, match="deadline"):
        ServeConfig(deadline=0)


def test_an_upstream_below_a_path():
    with stand() as place:
        relay = place.proxy.relay
        base = ServeConfig(openai="https://gateway.example/tenant/v1/").openai
        assert base == "https://gateway.example/tenant"
        assert relay is not None and PATHS["chat"].startswith("/v1")
