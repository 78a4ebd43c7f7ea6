"""The provider itself: an ASGI application, one account a key."""

import asyncio
import dataclasses
import gzip
import json
import time

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from tests.provider import rules, script, streams
from tests.provider.cache import PrefixCache

BINDING_BETA = "thinking-binding-controls-2026-08-01"


@dataclasses.dataclass
class Account:
    """One key's agent: how far its script is, what it sent and what it owes."""

    turn: int = 0
    bodies: list = dataclasses.field(default_factory=list)
    headers: list = dataclasses.field(default_factory=list)
    paths: list = dataclasses.field(default_factory=list)
    refused: list = dataclasses.field(default_factory=list)
    bills: list = dataclasses.field(default_factory=list)

    @property
    def cost(self):
        return sum(b["cost"] for b in self.bills)

    def requests(self):
        return [json.loads(b) for b in self.bodies]


class Provider:
    """A scripted model behind the three APIs.

    Args:
        calls: tool calls that the model makes before it is done.
        thinking: `None` (no thinking), `"error"` (a block that is not bound to its prefix is refused) or
            `"drop_block"` (such blocks are left out and listed).
        clock: seconds, for the cache's time to live.
        calling: the tool that the model calls and its arguments, by turn.
    """

    def __init__(self, calls=60, thinking=None, clock=time.monotonic, ttl=300.0, calling=script.working):
        self.calls, self.thinking, self.calling = calls, thinking, calling
        self.clock, self.ttl = clock, ttl
        self.accounts: dict[str, Account] = {}
        self.caches: dict[str, PrefixCache] = {}
        self.faults: list[str] = []
        self.open_streams = 0
        self.abandoned = 0
        self.hold = None
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/responses", self.responses, methods=["POST"]),
                WebSocketRoute("/v1/responses", self.socket),
                Route("/v1/messages", self.messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self.count, methods=["POST"]),
                Route("/{rest:path}", self.echo, methods=["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]),
            ]
        )

    def account(self, key="test"):
        return self.accounts.setdefault(key, Account())

    async def chat(self, request):
        def answer(body, account, usage):
            message, finish = script.chat_message(account.turn, self.calls, self.calling)
            return {
                "id": f"chatcmpl-{account.turn}",
                "object": "chat.completion",
                "created": 1,
                "model": body.get("model", "m"),
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {"prompt_tokens": usage, "completion_tokens": 9, "total_tokens": usage + 9},
            }

        return await self._serve(request, "messages", rules.check_chat, answer, streams.chat_stream)

    async def responses(self, request):
        def answer(body, account, usage):
            return {
                "id": f"resp_{account.turn}",
                "object": "response",
                "created_at": 1,
                "status": "completed",
                "model": body.get("model", "m"),
                "output": script.responses_items(account.turn, self.calls, self.calling),
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": {
                    "input_tokens": usage,
                    "output_tokens": 9,
                    "total_tokens": usage + 9,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0},
                },
            }

        return await self._serve(request, "input", rules.check_responses, answer, streams.responses_stream)

    async def messages(self, request):
        def answer(body, account, usage):
            signature = None if self.thinking is None else rules.sign(body)
            parts, stop = script.anthropic_parts(account.turn, self.calls, signature, self.calling)
            reply = {
                "id": f"msg_{account.turn}",
                "type": "message",
                "role": "assistant",
                "model": body.get("model", "m"),
                "content": parts,
                "stop_reason": stop,
                "stop_sequence": None,
                "usage": {"input_tokens": usage, "output_tokens": 9},
            }
            if dropped := rules.check_binding(body) if self.thinking else []:
                reply["input_transformations"] = [{"type": "drop_block", "message": m, "block": p} for m, p in dropped]
            return reply

        return await self._serve(request, "messages", self._check_messages(request), answer, streams.anthropic_stream)

    def _check_messages(self, request):
        def check(body):
            if problem := rules.check_anthropic(body):
                return problem
            if self.thinking is None:
                return None
            controls = (body.get("thinking") or {}).get("block_binding") or {}
            if controls and BINDING_BETA not in request.headers.get("anthropic-beta", ""):
                return "thinking.block_binding: Extra inputs are not permitted"
            lenient = controls.get("prefix_mismatch_behavior", self.thinking) == "drop_block"
            failing = rules.check_binding(body)
            if failing and not lenient:
                index, place = failing[0]
                return (
                    f"messages.{index}.content.{place}: Invalid `signature` in `thinking` block. The block is bound to "
                    "a different conversation prefix and cannot be used here."
                )
            return None

        return check

    async def count(self, request):
        body = await request.json()
        self.account(_key(request)).paths.append(request.url.path)
        if problem := rules.check_anthropic({"max_tokens": 1, **body}):
            return _refusal(True, 400, problem)
        return JSONResponse({"input_tokens": len(json.dumps(body["messages"])) // 4})

    async def echo(self, request):
        """Everything that is not one of the APIs: says what came."""
        body = await request.body()
        account = self.account(_key(request))
        account.paths.append(request.scope["raw_path"].decode())
        account.bodies.append(body)
        account.headers.append(request.headers.raw)
        return JSONResponse({"path": request.scope["raw_path"].decode(), "bytes": len(body)})

    async def socket(self, websocket):
        if websocket.headers.get("authorization") == "Bearer refused":
            await websocket.send_denial_response(JSONResponse({"error": "no"}, status_code=401))
            return
        await websocket.accept()
        async for text in websocket.iter_text():
            if text == "close":
                await websocket.close(4001, "asked to")
                return
            await websocket.send_text(f"echo {text}")
            await websocket.send_bytes(text.encode())

    async def _serve(self, request, field, check, answer, stream):
        raw = await request.body()
        account = self.account(_key(request))
        account.headers.append(request.headers.raw)
        account.paths.append(request.url.path)
        anthropic = request.url.path == "/v1/messages"
        fault = self.faults.pop(0) if self.faults else None
        if fault in FAULTS:
            return FAULTS[fault]()
        if fault == "hang":
            await asyncio.sleep(60)
        account.bodies.append(raw)
        try:
            body = json.loads(raw)
        except ValueError as error:
            return _refusal(anthropic, 400, f"We could not parse the JSON body of your request. ({error})")
        if problem := check(body):
            account.refused.append(problem)
            return _refusal(anthropic, 400, problem)
        frame = [body.get(k) for k in ("model", "system", "instructions", "tools")]
        items = body[field] if isinstance(body[field], list) else [{"text": body[field]}]
        if self.thinking and anthropic:
            left_out = set(rules.check_binding(body))
            items = [_without(m, {p for i, p in left_out if i == n}) for n, m in enumerate(items)]
        cache = self.caches.setdefault(_key(request), PrefixCache(self.clock, self.ttl))
        bill = cache.charge(frame, items, marks=anthropic)
        account.bills.append(bill)
        reply = answer(body, account, (bill["read"] + bill["write"] + bill["rest"]) // 4)
        account.turn += 1
        headers = {"request-id": f"req_{account.turn}", "x-ratelimit-remaining": "41"}
        if fault == "gzip":
            packed = gzip.compress(json.dumps(reply).encode())
            return Response(packed, headers={**headers, "content-encoding": "gzip", "content-type": "application/json"})
        if not body.get("stream"):
            return JSONResponse(reply, headers=headers)
        events = self._events(list(stream(reply)), fault)
        return StreamingResponse(events, headers=headers, media_type="text/event-stream")

    async def _events(self, events, fault):
        self.open_streams += 1
        finished = False
        try:
            for number, event in enumerate(events):
                if fault == "cut" and number == 2:
                    raise ConnectionAbortedError("cut on order")
                if self.hold is not None and number == 1:
                    await self.hold.wait()
                yield event
            finished = True
        finally:
            self.open_streams -= 1
            self.abandoned += not finished


def _overloaded():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return JSONResponse(error, 529, headers={"retry-after": "3", "x-should-retry": "true"})


FAULTS = {
    "429": lambda: JSONResponse({"error": {"message": "Rate limit reached"}}, 429, headers={"retry-after": "17"}),
    "500": lambda: JSONResponse({"error": {"message": "The server had an error"}}, 500),
    "529": _overloaded,
    "garbage": lambda: Response(b"\x00\xff{not json", media_type="application/json"),
    "page": lambda: Response("<html><b>502 Bad Gateway</b></html>", 502, media_type="text/html"),
}


def _without(message, places):
    if not places:
        return message
    return {**message, "content": [p for i, p in enumerate(message["content"]) if i not in places]}


def _key(request):
    return request.headers.get("x-api-key") or request.headers.get("authorization", "Bearer test").partition(" ")[2]


def _refusal(anthropic, status, message):
    error = {"type": "invalid_request_error", "message": message}
    return JSONResponse({"type": "error", "error": error} if anthropic else {"error": error}, status)
