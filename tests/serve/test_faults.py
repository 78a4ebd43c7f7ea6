"""What goes wrong upstream reaches the client as it is; what goes wrong in here does not reach it at all."""

import asyncio
import contextlib
import gzip
import json
import socket
import threading
import time

import httpx2
import pytest

from tests.conftest import HashingEncoder
from tests.provider.app import FAULTS, Provider
from tests.serve.agents import PATHS, history
from tests.serve.conftest import stand


@pytest.mark.parametrize("fault", [*FAULTS, "gzip"])
def test_the_upstreams_answer_is_passed_on_byte_for_byte(shared, fault):
    def answer(base):
        agent = history("chat", 10, f"fault-{fault}-{base}")
        shared.provider.faults.append(fault)
        with httpx2.Client(base_url=base, trust_env=False) as client:
            request = client.build_request(
                "POST", PATHS["chat"], content=agent.body(), headers={**agent.all_headers(), "accept-encoding": "gzip"}
            )
            response = client.send(request, stream=True)
            raw = b"".join(response.iter_raw())
        hop = ("date", "server", "connection", "transfer-encoding")
        return response.status_code, raw, [(k, v) for k, v in response.headers.multi_items() if k not in hop]

    status, raw, headers = answer(shared.url)
    direct = answer(shared.direct)
    assert (status, headers) == (direct[0], direct[2])
    if fault == "gzip":
        # The time stands in a gzip header.
        assert gzip.decompress(raw) == gzip.decompress(direct[1])
    else:
        assert raw == direct[1]


def test_a_stream_is_passed_on_as_it_comes_and_cut_where_it_was_cut(shared):
    agent = history("anthropic", 5, "cut", stream=True)
    with shared.client() as client:
        with client.stream("POST", PATHS["anthropic"], content=agent.body(), headers=agent.all_headers()) as whole:
            events = b"".join(whole.iter_raw())
        assert whole.status_code == 200 and events.endswith(b'data: {"type": "message_stop"}\n\n')
        shared.provider.faults.append("cut")
        with client.stream("POST", PATHS["anthropic"], content=agent.body(), headers=agent.all_headers()) as cut:
            got = b""
            with pytest.raises(httpx2.RemoteProtocolError):
                for chunk in cut.iter_raw():
                    got += chunk
        assert cut.status_code == 200 and b"content_block_start" in got and b"message_stop" not in got
        assert agent.step(client).status_code == 200


def test_an_upstream_that_is_not_there_or_hangs():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        with stand(openai=nobody, read_timeout=0.2) as place, place.client() as client:
            response = history("chat", 2).step(client)
            assert response.status_code == 502 and "gemjax serve" in response.json()["error"]["message"]
            place.provider.faults.append("hang")
            assert history("anthropic", 2).step(client).status_code == 504


def test_a_client_that_leaves_ends_the_upstreams_stream(shared):
    agent = history("chat", 5, "leaves", stream=True)
    before = shared.provider.abandoned
    shared.provider.hold = asyncio.Event()
    try:
        with shared.client() as client:
            request = client.build_request("POST", PATHS["chat"], content=agent.body(), headers=agent.all_headers())
            response = client.send(request, stream=True)
            next(response.iter_raw())
            response.close()
        assert _soon(lambda: shared.provider.abandoned == before + 1)
        assert _soon(lambda: shared.proxy.metrics.in_flight == 0)
    finally:
        shared.provider.hold = None


class Hanging(HashingEncoder):
    """Answers when it is let go."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def encode(self, texts):
        self.go.wait(30)
        return super().encode(texts)


def test_an_encoder_that_hangs_costs_the_deadline_and_nothing_else():
    encoder = Hanging()
    with stand(encoder=encoder, deadline=0.3) as place, place.client() as client:
        agent = history("chat", 40)
        for _ in range(8):
            assert agent.step(client).status_code == 200
        assert place.provider.account().bodies == agent.sent
        assert client.get("/healthz").text == "ok\n"
        encoder.go.set()


def test_what_is_chosen_after_the_deadline_was_not_sent_and_is_forgotten():
    encoder = Hanging()
    with stand(encoder=encoder, deadline=0.5) as place, place.client() as client:
        # The compressor itself would wait for ever, so that only the proxy's own deadline ends it.
        place.proxy.relay.rewriter.shortener.compressor._encoder = Direct(encoder)
        agent = history("chat", 40)
        encoder.go.set()
        compressor = place.proxy.relay.rewriter.shortener.compressor
        compressor.compress({"messages": agent.messages}, session="compiles what the late one needs")
        encoder.go.clear()
        assert agent.step(client).status_code == 200
        assert place.provider.account().bodies == agent.sent
        assert len(place.proxy.relay.rewriter.shortener.lineages) == 1
        encoder.go.set()
        assert _soon(lambda: not len(place.proxy.relay.rewriter.shortener.lineages))


class Direct:
    """Calls an encoder without a limit of time."""

    def __init__(self, encoder):
        self.encoder = encoder

    def encode(self, texts):
        from gemjax.history.result import EncoderUsage

        return self.encoder.encode(texts), EncoderUsage()


def test_an_encoder_that_hangs_later_leaves_out_what_was_left_out():
    encoder = Hanging()
    encoder.go.set()
    with stand(encoder=encoder, deadline=0.3) as place, place.client() as client:
        agent = history("chat", 40)
        agent.take(agent.step(client).json())
        encoder.go.clear()
        agent.take(agent.step(client).json())
        encoder.go.set()
    first, second = (json.loads(b)["messages"] for b in place.provider.account().bodies)
    assert len(first) < 70
    assert second[: len(first)] == first and len(second) == len(first) + 2


def test_a_large_body_passes_and_a_larger_one_is_refused():
    with stand(Provider(), body_limit=53 * 1024 * 1024, deadline=30.0) as place, place.client() as client:
        agent = history("chat", 20)
        agent.messages[2]["content"] = "größe " * (50 * 1024 * 1024 // 8)
        body = agent.body()
        assert 50_000_000 < len(body) < 53 * 1024 * 1024
        assert client.post(PATHS["chat"], content=body, headers=agent.all_headers()).status_code == 200
        assert len(place.provider.account().bodies[-1]) <= len(body)
        came = len(place.provider.account().bodies)
        too_large = client.post(PATHS["chat"], content=b"x" * (54 * 1024 * 1024), headers=agent.all_headers())
        bomb = gzip.compress(b" " * (54 * 1024 * 1024))
        packed = {**agent.all_headers(), "content-encoding": "gzip"}
        assert too_large.status_code == 413
        assert client.post(PATHS["chat"], content=bomb, headers=packed).status_code == 413
        assert len(place.provider.account().bodies) == came


@pytest.mark.parametrize("name", ["gzip", "zstd", "br"])
def test_packed_requests(shared, name):
    import brotli
    import zstandard

    pack = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress, "br": brotli.compress}[name]
    agent = history("chat", 40, f"packed-{name}", task=f"A task packed with {name}")
    headers = {**agent.all_headers(), "content-encoding": name}
    with shared.client() as client:
        short = history("chat", 3, f"packed-{name}", task="another task")
        body = pack(short.body())
        # The provider does not unpack: what is not rewritten comes as it was sent.
        assert client.post(PATHS["chat"], content=body, headers=headers).status_code == 400
        assert client.post(PATHS["chat"], content=pack(agent.body()), headers=headers).status_code == 200
        assert client.post(PATHS["chat"], content=b"\x00damaged", headers=headers).status_code == 400
    bodies = shared.provider.account(f"packed-{name}").bodies
    assert bodies[0] == body and bodies[2] == b"\x00damaged"
    assert len(bodies[1]) < len(agent.body()) and b'"model":  "scripted"' in bodies[1]


def test_two_hundred_streams_at_once():
    with stand() as place:
        agents = [history("chat", 18, f"many{i}", task=f"Task {i}", stream=True) for i in range(200)]

        async def one(client, agent):
            response = await client.post(PATHS["chat"], content=agent.body(), headers=agent.all_headers())
            return response.status_code, response.content.endswith(b"data: [DONE]\n\n")

        async def all_of_them():
            limits = httpx2.Limits(max_connections=None)
            settings = {"base_url": place.url, "trust_env": False, "timeout": 60, "limits": limits}
            async with httpx2.AsyncClient(**settings) as client:
                return await asyncio.gather(*(one(client, agent) for agent in agents))

        assert set(asyncio.run(all_of_them())) == {(200, True)}
        assert all(place.provider.account(a.key).turn == 1 for a in agents)
        assert _soon(lambda: place.proxy.metrics.in_flight == 0)


def test_what_is_not_known_passes_through(shared):
    with shared.client() as client:
        for method, path in [("GET", "/v1/models?limit=3&key=a%20b"), ("POST", "/v1/files"), ("DELETE", "/v1/x%2Fy")]:
            response = client.request(method, path, content=b"x" * 70_000 if method == "POST" else None)
            assert response.json() == {"path": path.partition("?")[0], "bytes": 70_000 * (method == "POST")}
        for garbage in (b"", b"[]", b"{", b"\xff\xfe", b'{"messages": 3}', b"[" * 200_000):
            response = client.post(PATHS["chat"], content=garbage, headers={"authorization": "Bearer garbage"})
            assert response.status_code in (400, 500)
            assert shared.provider.account("garbage").bodies[-1] == garbage


def test_a_websocket_is_relayed(shared):
    sync_client = pytest.importorskip("websockets.sync.client")
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    url = shared.url.replace("http", "ws", 1) + "/v1/responses"
    with sync_client.connect(url, additional_headers={"authorization": "Bearer ws"}) as socket_:
        for text in ("hello", "größe"):
            socket_.send(text)
            assert socket_.recv() == f"echo {text}" and socket_.recv() == text.encode()
        socket_.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            socket_.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "asked to")
    with pytest.raises(InvalidStatus) as refused, contextlib.ExitStack() as stack:
        stack.enter_context(sync_client.connect(url, additional_headers={"authorization": "Bearer refused"}))
    assert refused.value.response.status_code == 401


def _soon(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
