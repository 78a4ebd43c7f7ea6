"""What the proxy adds to a request that it does not change, beside a plain relay of the same stack, in pairs.

python -m pytest bench/bench_serve.py --benchmark-enable -s
python bench/bench_serve.py [requests]
"""

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).resolve().parent.parent
EVENTS = 20

UPSTREAM = """
import asyncio, json
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for i in range(20):
        await send({"type": "http.response.body", "body": b"data: {}\\n\\n", "more_body": True})
        await asyncio.sleep(0.001)
    await send({"type": "http.response.body", "body": b""})
"""
PLAIN = """
import httpx2
client = httpx2.AsyncClient(trust_env=False)
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    headers = [(k, v) for k, v in scope["headers"] if k not in (b"host", b"content-length")]
    request = httpx2.Request(scope["method"], UP + scope["path"], headers=headers, content=b"".join(chunks))
    response = await client.send(request, stream=True)
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.headers.raw})
    async for chunk in response.aiter_raw():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await response.aclose()
    await send({"type": "http.response.body", "body": b""})
"""
OURS = """
import zlib
from gemjax.history import HistoryCompressor
from gemjax.serve.app import create_app
from gemjax.serve.config import ServeConfig
app = create_app(ServeConfig(openai=UP), HistoryCompressor(lambda texts: [[1.0, 0.0]] * len(texts)))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(code, upstream=""):
    port = free_port()
    run = f"import uvicorn; uvicorn.run(app, port={port}, log_level='critical', http='h11')"
    process = subprocess.Popen([sys.executable, "-c", f"UP = {upstream!r}\n{code}\n{run}"], cwd=ROOT)
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}"
        time.sleep(0.05)
    raise RuntimeError("a server did not start")


def one(client, url, body):
    began = time.perf_counter()
    with client.stream("POST", f"{url}/v1/chat/completions", content=body) as response:
        first = None
        for _ in response.iter_raw():
            first = first or time.perf_counter() - began
    assert response.status_code == 200
    return first, time.perf_counter() - began


def history(chars, number, calls=12):
    """Fewer calls than shortening starts from, so that nothing is left out: a no-op. `number` makes it no retry."""
    messages = [{"role": "user", "content": "Do it."}]
    for i in range(calls):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "run", "arguments": f'{{"step": {i}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": "line of output " * (chars // calls // 15)}
        )
    messages.append({"role": "user", "content": f"Go on, {number:06}."})
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


@contextlib.contextmanager
def relays():
    """A client, the address of the plain relay, and ours, before one upstream."""
    processes = []
    try:
        process, upstream = serve(UPSTREAM)
        processes.append(process)
        urls = []
        for code in (PLAIN, OURS):
            process, url = serve(code, upstream)
            processes.append(process)
            urls.append(url)
        with httpx2.Client(trust_env=False, timeout=60) as client:
            yield client, *urls
    finally:
        for process in processes:
            process.terminate()


def added(client, plain, ours, chars, rounds):
    """Bytes of a body, milliseconds to the first byte and to the last that we add, and the plain relay's first."""
    body = history(chars, 0)
    for url in (plain, ours, plain, ours):
        one(client, url, body)
    pairs = [(one(client, plain, b), one(client, ours, b)) for b in (history(chars, 1 + i) for i in range(rounds))]
    first, whole = (statistics.median(b[i] - a[i] for a, b in pairs) * 1e3 for i in (0, 1))
    return len(body), first, whole, statistics.median(a[0] for a, _ in pairs) * 1e3


@pytest.mark.parametrize("chars", [10_000, 1_000_000])
def test_added_by_the_proxy(benchmark, chars):
    """Milliseconds over a plain relay of the same stack, request by request in turn; the aim is at most 5."""
    with relays() as (client, plain, ours):
        size, first, whole, base = benchmark.pedantic(added, (client, plain, ours, chars, 40), rounds=1)
    benchmark.extra_info.update(bytes=size, first_byte_ms=first, last_byte_ms=whole, plain_first_byte_ms=base)
    print(f"\n{size:,} bytes: first byte +{first:.2f} ms, last +{whole:.2f} ms")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with relays() as (client, plain, ours):
        for chars in (10_000, 100_000, 1_000_000):
            size, first, whole, base = added(client, plain, ours, chars, rounds)
            print(f"{size:>9,} bytes: first byte +{first:.2f} ms, whole +{whole:.2f} ms (plain: {base:.2f} ms)")


if __name__ == "__main__":
    main()
