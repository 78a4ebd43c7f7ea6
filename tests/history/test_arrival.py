"""Long results that are short from their first request on: what stays of them, and that it stays for ever."""

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemjax
from gemjax import GEMConfig, HistoryCompressor
from gemjax.errors import ConfigError, StateError
from gemjax.history import CostAwarePolicy
from gemjax.history.arrival import ArrivalConfig, shortened
from gemjax.history.records import ToolCall
from tests.conftest import HashingEncoder
from tests.history.contract import compact, faults
from tests.history.requests import exchange, output

CALL = ToolCall("c", "bash", '{"command": "cat src/app.py"}')
MARK = re.compile(r"\[… [\d,]+ (?:lines?|characters) left out\](?:[\n ]|$)")
SMALL = ArrivalConfig(limit=400, keep=200, files=1)
WORD = re.compile(r"\w")

line = st.text(st.sampled_from("abc dé错ß,./:=#\t"), max_size=90) | st.sampled_from(
    ["", "def run(self):", "ERROR: no such file /tmp/x", "src/app.py:12: warning", "x" * 700, "word " * 200]
)
texts = st.lists(line, min_size=1, max_size=120).map("\n".join)


def parts(short: str) -> list[str]:
    """What stands between the marks."""
    return [part for part in MARK.split(short) if part]


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(200, 2000))
def test_what_stays_of_a_text_is_its_own_in_order_and_in_whole_words(text: str, keep: int) -> None:
    short = shortened(text, CALL, 400, keep)
    if short is text:
        return
    assert len(text) > 400 and len(short) < len(text)
    at = 0
    pieces = parts(short)
    assert sum(map(len, pieces)) <= keep + len(pieces)  # a line's end may be added where a mark begins a line
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            piece = piece.removesuffix("\n")
            found = text.find(piece, at)
        assert found >= 0, "not in the text, or not in its order"
        stop = found + len(piece)
        for edge in (found, stop):
            assert not (WORD.match(text[edge - 1 : edge]) and WORD.match(text[edge : edge + 1])), "a word was cut"
        at = stop
    assert shortened(text, CALL, 400, keep) == short


scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(max_size=60) | st.just("a b, " * 200),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=60,
)


def leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in leaves(v)]
    if isinstance(value, list):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


@settings(max_examples=200, deadline=None)
@given(values.filter(lambda v: isinstance(v, dict | list)), st.sampled_from([None, 2]), st.integers(200, 1000))
def test_what_stays_of_json_is_json_with_the_values_it_had(value: object, indent: int | None, keep: int) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    short = shortened(text, CALL, 400, keep)
    if short is text:
        return
    read = json.loads(short)
    assert type(read) is type(value)
    if isinstance(value, dict):
        assert list(read) == list(value)
    had = {json.dumps(leaf) for leaf in leaves(value)}
    for leaf in leaves(read):
        marked = isinstance(leaf, str) and "left out" in leaf
        assert marked or json.dumps(leaf) in had


def test_numbers_keep_their_letters() -> None:
    rows = ", ".join(f'{{"id": {i}, "price": 1.50, "big": 12345678901234567890, "e": 1E5}}' for i in range(100))
    short = shortened(f"[{rows}]", CALL, 400, 300)
    assert '"price": 1.50, "big": 12345678901234567890, "e": 1E5' in short and len(short) < 500


def test_the_rows_that_the_call_asks_for_stay() -> None:
    rows = [{"name": f"user{i}", "mail": f"user{i}@example.org"} for i in range(500)]
    call = ToolCall("c", "query", '{"where": "name = user321"}')
    assert "user321@example.org" in shortened(json.dumps(rows), call, 400, 300)
    log = "\n".join(f"2026-01-01 step {i} done" for i in range(500)) + "\n"
    log = log.replace("step 250 done", "step 250 failed: disk full")
    assert "step 250 failed: disk full" in shortened(log, CALL, 400, 600)


@pytest.mark.parametrize(
    "text",
    ["a" * 500_000, "\n" * 200_000, "[" * 50_000, '{"a":' * 5_000, "1:" * 100_000, "def " * 50_000, '"' * 99_999],
    ids=["one word", "lines", "deep", "deeper", "colons", "def", "quotes"],
)
def test_hostile_texts_look_at_a_bounded_part(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemjax.history.arrival import passages

    seen = []
    looked = passages.telling
    monkeypatch.setattr(passages, "telling", lambda part, *rest: seen.append(len(part)) or looked(part, *rest))
    short = shortened(text, CALL, 400, 300)
    assert len(short) < 700 and sum(seen) <= passages.MOST + 2_000


# ---- in a conversation -------------------------------------------------------------------------------------------


def compressor(arrival: ArrivalConfig | None = SMALL, encoder: object = None, **changes: object) -> HistoryCompressor:
    base: dict = {"min_blocks": 4, "capacity": 2, "rules": (), "encoder_timeout": None, "arrival": arrival}
    return HistoryCompressor(encoder or HashingEncoder(), GEMConfig(**{**base, **changes}))


def request_of(kind: str, messages: list[dict]) -> dict:
    return {"model": "m", "input" if kind == "responses" else "messages": messages}


def messages_of(request: dict) -> list[dict]:
    return request["input"] if "input" in request else request["messages"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["chat", "anthropic", "responses"]),
    st.lists(st.sampled_from([20, 300, 900, 5_000]), min_size=5, max_size=16),
    st.integers(0, 16),
    st.sampled_from([0.0, None]),
)
def test_what_goes_out_of_a_message_never_changes(
    kind: str, sizes: list[int], restart: int, delta: float | None
) -> None:
    """A provider's cache sees one text of each message, also after a restart; nothing of the caller's is touched."""
    gem = compressor(delta=delta, policy=CostAwarePolicy(beta=0.05))
    messages: list[dict] = [{"role": "user", "content": "Find the fault."}]
    texts: dict[str, str] = {}
    for number, size in enumerate(sizes):
        messages += exchange(kind, number, size)
        before = copy.deepcopy(messages)
        for again in range(2):  # a retry is the same request
            result = gem.compress(request_of(kind, list(messages)))
            assert messages == before and result.status in ("compressed", "unchanged"), result.reason
            sent = messages_of(result.request)
            assert not faults(result.request) and gemjax.validate(result.request) == []
            assert result.chars_after == len(compact(result.request))
            assert result.chars_before == len(compact(request_of(kind, messages)))
            mine = {id(m) for m in messages}
            copies = [m for m in sent if id(m) not in mine]
            assert len(copies) == len(result.shortened)
            for message in sent:
                name = message.get("call_id") or message.get("tool_call_id")
                if isinstance(message.get("content"), list):
                    name = message["content"][0].get("tool_use_id")
                if name and ("output" in message or message.get("role") in ("tool", "user")):
                    text = compact(message)
                    assert texts.setdefault(name, text) == text, f"{name} went out in another form ({again})"
        if number == restart:
            state = json.loads(json.dumps(gem.state_dict(), allow_nan=False))
            gem = compressor(delta=delta, policy=CostAwarePolicy(beta=0.05))
            gem.load_state_dict("default", state)
    long = [n for n, size in enumerate(sizes) if size > SMALL.limit + 100]
    assert all("left out" in texts[f"c{n}"] for n in long if f"c{n}" in texts)


@pytest.mark.parametrize("kind", ["chat", "anthropic", "responses"])
def test_only_the_newest_results_of_a_history_that_is_new_to_us(kind: str) -> None:
    """Those before have been read as they are: the provider's cache and signed thinking hold them."""
    messages = [{"role": "user", "content": "go"}, *(m for n in range(3) for m in exchange(kind, n, 3_000))]
    request = request_of(kind, messages)
    result = compressor().compress(request)
    assert result.status == "compressed" and result.shortened == (len(messages) - 1,)
    assert result.reason.startswith("long results of 1 message are short; ")
    assert all(a is b for a, b in zip(messages_of(result.request)[:-1], messages[:-1], strict=True))
    messages.append({"role": "assistant", "content": "I see."})
    messages.append({"role": "user", "content": "Go on."})
    assert compressor().compress(request_of(kind, messages)).shortened == ()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("anthropic", {"is_error": True}),
        ("responses", {"status": "failed"}),
        ("chat", {"content": output(0, 300)}),
        ("anthropic", {"content": [{"type": "image", "source": {"type": "base64", "data": "A" * 9_000}}]}),
        ("anthropic", {"content": [{"type": "tool_reference", "tool_name": "x"}, {"type": "text", "text": "y" * 999}]}),
        ("chat", {"content": "The user doesn't want to proceed with this tool use. " + "He said why. " * 200}),
    ],
    ids=["an error", "a failure", "a short one", "a picture", "a tool that is loaded", "the user's words"],
)
def test_what_stays_as_it_is(kind: str, more: dict) -> None:
    request = request_of(kind, [{"role": "user", "content": "go"}, *exchange(kind, 0, 3_000, **more)])
    result = compressor().compress(request)
    assert result.request is request and result.status == "unchanged" and result.shortened == ()


def test_each_text_of_a_result_with_a_picture_and_a_reminder_beside_it() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 2_000}}
    content = [{"type": "text", "text": output(1, 2_000), "cache_control": {"type": "ephemeral"}}, picture]
    messages = [{"role": "user", "content": "go"}, *exchange("anthropic", 0, 20, content=content)]
    messages[-1]["content"].append({"type": "text", "text": "<reminder>" + "keep this " * 90})
    result = compressor().compress(request_of("anthropic", messages))
    text, same = result.request["messages"][-1]["content"][0]["content"]
    assert len(text["text"]) < 400 and text["cache_control"] == {"type": "ephemeral"} and same is picture
    assert result.request["messages"][-1]["content"][1] is messages[-1]["content"][1]


def test_marks_for_the_cache_move_and_the_copy_stays() -> None:
    gem, messages = compressor(), [{"role": "user", "content": "go"}, *exchange("anthropic", 0, 3_000)]
    part = messages[-1]["content"][0]
    marked = [*messages[:-1], {"role": "user", "content": [{**part, "cache_control": {"type": "ephemeral"}}]}]
    first = gem.compress(request_of("anthropic", marked)).request["messages"][-1]["content"][0]
    later = gem.compress(request_of("anthropic", [*messages, *exchange("anthropic", 1, 20)])).request["messages"][2]
    assert first["cache_control"] and "cache_control" not in later["content"][0]
    assert first["content"] == later["content"][0]["content"] and len(first["content"]) < 400


@pytest.mark.parametrize("blocks", [2, 12])
def test_the_original_comes_back_by_recall(blocks: int) -> None:
    gem, messages = compressor(), [{"role": "user", "content": "go"}]
    for number in range(blocks):
        messages += exchange("chat", number, 3_000)
        gem.compress(request_of("chat", list(messages)))
    middle = "value_1_40"
    assert middle not in compact(gem.compress(request_of("chat", messages)).request)
    found = gem.recall(middle, k=1, budget=4_000)
    assert found.status == "found" and output(1, 3_000) in found.text


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("cat src/app.py", True),
        ("sed -n 1,200p /repo/src/app.py", True),
        ("python -m pytest -q", False),
        ("grep -rn value .", False),
        ("curl https://example.org/page", False),
    ],
)
def test_a_file_that_is_read_keeps_more(command: str, file: bool) -> None:
    """Edits have to match its lines."""
    messages = [{"role": "user", "content": "go"}, *exchange("chat", 0, 1_500)]
    messages[1]["tool_calls"][0]["function"]["arguments"] = json.dumps({"command": command})
    gem = compressor(ArrivalConfig(limit=400, keep=200, files=4))
    assert bool(gem.compress(request_of("chat", messages)).shortened) is not file
    messages[2]["content"] = output(0, 5_000)
    (place,) = gem.compress(request_of("chat", messages)).shortened
    assert place == 2


def test_an_answer_of_the_recall_tool_stays_whole() -> None:
    gem = compressor()
    gem.recall_tool("chat", name="look_back")
    messages = [{"role": "user", "content": "go"}, *exchange("chat", 0, 3_000)]
    messages[1]["tool_calls"][0]["function"]["name"] = "look_back"
    assert gem.compress(request_of("chat", messages)).shortened == ()


def test_a_failing_encoder_does_not_bring_the_original_back() -> None:
    broken = []

    def encoder(texts: list[str]) -> object:
        if broken:
            raise ConnectionError("no route")
        return HashingEncoder().encode(texts)

    gem, messages = compressor(encoder=encoder), [{"role": "user", "content": "go"}]
    for number in range(6):
        messages += exchange("chat", number, 3_000)
        before = gem.compress(request_of("chat", list(messages)))
    broken.append(True)
    messages += exchange("chat", 6, 3_000)
    after = gem.compress(request_of("chat", messages))
    assert after.status == "failed" and "no route" in after.reason
    assert after.shortened == (*before.shortened, len(messages) - 1) or set(before.shortened) < set(after.shortened)
    assert (
        after.chars_after
        == len(compact(after.request))
        < after.chars_before
        == len(compact(request_of("chat", messages)))
    )


def test_objects_of_an_sdk_go_out_as_plain_copies_only_where_they_are_shortened() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Message(pydantic.BaseModel):
        role: str
        content: str | None = None
        tool_calls: list[dict] | None = None
        tool_call_id: str | None = None

    messages = [Message(role="user", content="go"), *(Message(**m) for m in exchange("chat", 0, 3_000))]
    result = compressor().compress({"messages": messages})
    sent = result.request["messages"]
    assert sent[:2] == messages[:2] and sent[1] is messages[1]
    assert type(sent[2]) is dict and sent[2]["tool_call_id"] == "c0" and len(sent[2]["content"]) < 400


@pytest.mark.parametrize("saved", ["x", [1], ["short"], {"a": 1}, None])
def test_a_state_that_is_damaged_is_refused(saved: object) -> None:
    gem = compressor()
    state = gem.state_dict() | {"arrivals": saved}
    with pytest.raises(StateError, match="state field 'arrivals' must be an array of strings"):
        gem.load_state_dict("default", state)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit": 10}, r"limit must be a whole number of at least 200 characters, got 10"),
        ({"keep": 1.5}, r"keep must be a whole number of at least 200 characters, got 1.5"),
        ({"limit": True}, "limit must be a whole number"),
        ({"files": 0}, "files must be a whole number from 1 to 1000, got 0"),
        ({"limit": 500, "keep": 600}, r"keep must be at most limit \(500\), got 600"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ArrivalConfig(**wrong)
    with pytest.raises(ConfigError, match="arrival must be an ArrivalConfig or None, got True"):
        GEMConfig(arrival=True)  # type: ignore[arg-type]


def test_off_by_default() -> None:
    request = request_of("chat", [{"role": "user", "content": "go"}, *exchange("chat", 0, 30_000)])
    assert compressor(None).compress(request).request is request and GEMConfig().arrival is None
