"""The façade by example: what each call returns, and what bad input comes to."""

import asyncio
import copy
import json
import re
import threading
import time

import numpy as np
import pytest

import gemjax
from gemjax import GEMConfig, HistoryCompressor
from gemjax.history import CostAwarePolicy, Decision, PaperPolicy
from tests.conftest import HashingEncoder
from tests.history.contract import compact
from tests.history.requests import BUILDERS, anthropic, chat, chat_block, responses

EVERYTHING = GEMConfig(delta=1.0, encoder_timeout=None)


def compressor(**changes):
    return HistoryCompressor(HashingEncoder(), GEMConfig(**{"encoder_timeout": None, **changes}))


def messages_of(request):
    return request.get("messages") or request["input"]


@pytest.mark.parametrize("name", BUILDERS)
def test_compresses_every_format_and_stays_valid(name):
    request = BUILDERS[name](40)
    before = compact(request)
    result = compressor().compress(request)
    assert result.status == "compressed" and len(result.forwarded) < 40
    assert gemjax.validate(result.request) == []
    assert compact(request) == before and result.request is not request
    kept = messages_of(result.request)
    assert all(any(m is o for o in messages_of(request)) for m in kept)
    assert list(result.request) == list(request)
    assert result.chars_after == len(compact(result.request)) < result.chars_before == len(before)


def test_a_bare_list_comes_back_as_a_list():
    messages = chat(40)["messages"]
    result = compressor().compress(messages)
    assert isinstance(result.request, list) and result.request[0] is messages[0] and len(result.request) < len(messages)


def test_short_histories_are_left_alone():
    request = chat(15)
    result = compressor().compress(request)
    assert result.request is request and result.status == "unchanged"
    assert result.reason == "15 complete removable blocks, fewer than the 16 from which compression starts"
    assert [b.why for b in result.blocks] == ["kept"] * 15


def test_delta_zero_never_drops():
    request = chat(40)
    result = compressor(delta=0.0).compress(request)
    assert result.request is request and result.status == "unchanged" and len(result.forwarded) == 40


def test_delta_bounds_what_one_selection_removes():
    request = chat(40)
    for delta in (0.05, 0.3, 0.9):
        result = compressor(delta=delta).compress(request, session=str(delta))
        assert (1 - delta) * result.chars_before <= result.chars_after < result.chars_before


def test_system_prefix_first_and_latest_user_message_stay():
    request = chat(30)
    request["messages"].append({"role": "user", "content": "and now?"})
    kept = compressor().compress(request).request["messages"]
    assert kept[:2] == request["messages"][:2] and kept[-1] is request["messages"][-1]


def test_keep_pins_blocks():
    request = chat(40)
    result = compressor().compress(request, keep=lambda block: block.index in (7, 9))
    assert {7, 9} <= set(result.forwarded)
    assert result.blocks[7].protected["pinned"] == "the caller keeps it"


def test_a_history_that_grows_waits_until_rewriting_pays():
    gem = compressor()
    request = chat(0)
    reasons, events = [], 0
    for number in range(60):
        request["messages"] += chat_block(number, result="x" * 400)
        result = gem.compress(request)
        reasons.append(result.reason)
        events += result.event
    assert any("does not pay yet" in r for r in reasons) and 1 <= events <= 8
    # between events what was sent is a prefix of what is sent
    assert result.first_changed_message is None or result.event


def test_without_a_cache_price_it_rewrites_whenever_something_can_go():
    dear = compressor(policy=CostAwarePolicy(read=1.0, write=1.0))
    cheap = compressor()
    request, totals = chat(0), [0, 0]
    for number in range(60):
        request["messages"] += chat_block(number, result="x" * 400)
        for k, gem in enumerate((dear, cheap)):
            totals[k] += gem.compress(request).chars_after
    assert totals[0] < 0.9 * totals[1]


def test_first_changed_message_is_where_the_cache_breaks():
    gem = compressor(policy=PaperPolicy(every=4), delta=1.0)
    request, sent = chat(0), []
    for number in range(40):
        request["messages"] += chat_block(number)
        result = gem.compress(request, goal="g")
        now = result.request["messages"]
        same = next(
            (i for i, (a, b) in enumerate(zip(sent, now, strict=False)) if a is not b), min(len(sent), len(now))
        )
        assert result.first_changed_message == (None if same == len(sent) else same)
        sent = now


def test_the_papers_rules_bring_evidence_back():
    gem = HistoryCompressor(HashingEncoder(), GEMConfig.paper(delta=1.0, encoder_timeout=None))
    request = chat(0)
    call = chat_block(0, result="x" * 900)
    call[0]["tool_calls"][0]["function"] = {"name": "bash", "arguments": '{"command": "sed -i s/a/b/ src/lost.py"}'}
    request["messages"] += call
    for number in range(1, 30):
        request["messages"] += chat_block(number, result="other " * 50)
    for name in ("p", "q", "r"):
        edit = chat_block(50, ids=[name], result="x" * 100)
        edit[0]["tool_calls"][0]["function"] = {
            "name": "bash",
            "arguments": f'{{"command": "sed -i s/a/b/ {name}.py"}}',
        }
        request["messages"] += edit
    for number in range(60, 66):
        request["messages"] += chat_block(number)
    first = gem.compress(request, goal="p.py q.py r.py")
    assert 0 not in first.forwarded
    touch = chat_block(70)
    touch[0]["tool_calls"][0]["function"] = {"name": "bash", "arguments": '{"command": "cat src/lost.py"}'}
    request["messages"] += touch
    second = gem.compress(request, goal="p.py q.py r.py")
    assert not second.event and 0 in second.forwarded and set(first.forwarded) < set(second.forwarded)


def test_each_block_is_encoded_once_in_its_life():
    encoder = HashingEncoder()
    gem = HistoryCompressor(encoder, EVERYTHING)
    request = chat(30)
    gem.compress(request, goal="fix")
    before = encoder.texts
    gem.reset()
    gem.compress(request, goal="fix")
    assert encoder.texts == before
    request["messages"] += chat_block(31)
    result = gem.compress(request, goal="fix")
    assert encoder.texts - before <= 3  # the block, and the two queries that name its action
    assert result.encoder.texts == encoder.texts - before


def test_a_growing_history_compiles_a_handful_of_times(monkeypatch):
    from gemjax.history import selector
    from gemjax.kernels import selection

    traces = []
    kernel = selection.residual_completion

    def counted(*args, **kwargs):
        traces.append(args[0].shape)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(selection, "residual_completion", counted)
    selector._kernel.cache_clear()
    gem = compressor()
    request = chat(0)
    try:
        for number in range(1000):
            request["messages"] += chat_block(number)
            if number >= 15 and (
                number < 40 or number % 61 == 0 or number in (63, 64, 127, 128, 255, 256, 511, 512, 999)
            ):
                assert gem.compress(request).status != "failed"
    finally:
        selector._kernel.cache_clear()
    assert 1 <= len(traces) <= 8


def test_async_callers():
    request = chat(20)
    result = asyncio.run(compressor().acompress(request, session="a"))
    assert result.status == "compressed"


def test_sessions_of_many_threads_do_not_mix():
    gem = compressor()
    alone = {n: compressor().compress(chat(20 + n)).forwarded for n in range(8)}
    found, errors = {}, []

    def work(n):
        try:
            for _ in range(3):
                found[n] = gem.compress(chat(20 + n), session=f"s{n}").forwarded
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and found == alone


def test_sessions_are_bounded():
    gem = compressor(max_sessions=3)
    for n in range(10):
        gem.compress(chat(20), session=f"s{n}")
    assert list(gem._sessions) == ["s7", "s8", "s9"]


def test_state_survives_a_restart_and_foreign_states_are_refused():
    gem = compressor()
    request = chat(40)
    first = gem.compress(request)
    state = json.loads(json.dumps(gem.state_dict()))
    other = compressor()
    other.load_state_dict("default", state)
    again = other.compress(request)
    assert again.forwarded == first.forwarded and not again.event and again.first_changed_message is None
    good = other.state_dict()
    for bad, text in [
        (None, "a state must be an object, got NoneType"),
        ({}, "state version must be 1, got None"),
        ({**state, "version": 99}, "got 99"),
        ({**state, "blocks": -1}, "field 'blocks' must be a count"),
        ({**state, "dropped": [10_000]}, "field 'dropped' must be an array of block indices below 40"),
        ({**state, "dropped": "1"}, "field 'dropped'"),
        ({**state, "memory": []}, "field 'memory' must be an object"),
        ({**state, "prefix": 5}, "field 'prefix' must be a string"),
        ({**state, "policy": "paper"}, "written under policy 'paper', this compressor uses 'cost-aware'"),
    ]:
        with pytest.raises(gemjax.StateError, match=text):
            other.load_state_dict("default", bad)
        assert other.state_dict() == good


INVALID = [
    None,
    "text",
    5,
    b"bytes",
    {},
    [],
    {"messages": []},
    {"messages": None},
    {"messages": {"role": "user"}},
    [None],
    ["hello"],
    {"messages": [{"role": "wizard", "content": "x"}]},
    {"messages": [{"role": "user", "content": object()}]},
    {"messages": [{"role": "user", "content": {"a": 1}}]},
    chat(20)["messages"][3:],
]


@pytest.mark.parametrize("request_", INVALID, ids=range(len(INVALID)))
def test_bad_requests_go_through_with_the_reason(request_):
    result = compressor().compress(request_)
    assert result.request is request_ and result.status == "failed" and result.reason.startswith("invalid request: ")
    strict = HistoryCompressor(HashingEncoder(), strict=True)
    with pytest.raises(gemjax.RequestError, match="invalid request"):
        strict.compress(request_)


def raising(texts):
    raise ConnectionError("no route")


def short(texts):
    return np.ones((1, 4), np.float32)


def flat(texts):
    return np.ones(len(texts), np.float32)


def words(texts):
    return ["a vector"] * len(texts)


def not_a_number(texts):
    return np.full((len(texts), 4), np.nan)


def infinite(texts):
    return np.full((len(texts), 4), np.inf)


@pytest.mark.parametrize(
    ("encoder", "text"),
    [
        (raising, "ConnectionError: no route"),
        (short, "shape"),
        (flat, "shape"),
        (words, "encoder"),
        (not_a_number, "finite|NaN"),
        (infinite, "finite|NaN"),
    ],
)
def test_a_bad_encoder_lets_the_request_through(encoder, text):
    request = chat(20)
    result = HistoryCompressor(encoder).compress(request)
    assert result.request is request and result.status == "failed"
    assert re.search(text, result.reason), result.reason
    with pytest.raises(gemjax.EncoderError):
        HistoryCompressor(encoder, strict=True).compress(request)


def test_an_encoder_that_blocks_costs_the_timeout_once():
    release = threading.Event()
    calls = []

    def slow(texts):
        calls.append(len(texts))
        release.wait(20)
        return HashingEncoder().encode(texts)

    gem = HistoryCompressor(slow, GEMConfig(encoder_timeout=0.2))
    request = chat(20)
    first = gem.compress(request)
    assert first.status == "failed" and "did not answer within 0.2 s" in first.reason and first.request is request
    second = gem.compress(request)
    assert second.status == "failed" and "still hangs" in second.reason and calls == [22]
    release.set()
    deadline = time.monotonic() + 20
    while (third := gem.compress(request)).status == "failed" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert third.status == "compressed" and calls == [22], "the vectors of the late call were kept"


def test_zero_vectors_have_no_direction_and_do_no_harm():
    result = HistoryCompressor(lambda texts: np.zeros((len(texts), 8))).compress(chat(30))
    assert result.status == "compressed" and all(np.isfinite(b.residual) for b in result.blocks)


def test_an_encoder_that_changes_its_dimension_is_an_error():
    sizes = iter([8, 16])
    gem = HistoryCompressor(lambda texts: np.ones((len(texts), next(sizes))))
    request = chat(20)
    gem.compress(request)
    request["messages"] += chat_block(99)
    assert gem.compress(request).status == "failed"


def test_a_keep_predicate_or_rule_that_raises_lets_the_request_through():
    def keep(block):
        raise KeyError("boom")

    request = chat(20)
    result = compressor().compress(request, keep=keep)
    assert result.request is request and result.status == "failed" and "keep raised KeyError" in result.reason

    class Bad:
        name = "bad"

        def __call__(self, view):
            return {99: "out of range"}

    result = compressor(rules=(Bad(),)).compress(request)
    assert result.request is request and "rule 'bad' names blocks [99], there are 20" in result.reason


def test_odd_content_compresses_like_any_other():
    request = chat(0)
    outputs = ["\ud800", "", "x" * 10_000_000, "\x00\x1b[31m", "🏳️‍🌈" * 1000, "a\u0301" * 50]
    for number in range(24):
        request["messages"] += chat_block(number, result=outputs[number % len(outputs)])
    request["messages"][1]["content"] = [
        {"type": "text", "text": "see the picture"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}},
    ]
    request["messages"][2]["tool_calls"][0]["function"]["arguments"] = "{not json"
    result = compressor().compress(request)
    assert result.status == "compressed" and result.chars_after == len(compact(result.request))


def edited(request, index):
    changed = copy.deepcopy(request)
    changed["messages"][index]["content"] = "edited"
    return changed


def test_a_rewritten_history_is_selected_anew_where_its_cache_is_lost():
    gem = compressor()
    request = chat(40)
    gem.compress(request)
    assert gem.compress(edited(request, 3)).event
    other = compressor()
    other.compress(request)
    other.compress(chat(40)["messages"][:2] + chat(60)["messages"][90:])
    assert other.state_dict()["events"] == 2


def test_steering_the_last_turn_keeps_the_selection_and_what_is_cached():
    gem = compressor()
    request = chat(0)
    for number in range(20):
        request["messages"] += chat_block(number, result="x" * 400)
        first = gem.compress(request)
    steered = edited(request, -1)
    result = gem.compress(steered)
    assert "does not pay yet" in first.reason and "does not pay yet" in result.reason and not result.event
    assert result.first_changed_message == len(request["messages"]) - 1
    paper = HistoryCompressor(HashingEncoder(), GEMConfig.paper(encoder_timeout=None))
    paper.compress(request)
    assert "the history was rewritten" in paper.compress(steered).reason


def test_what_the_caller_passed_in_is_named_when_it_fails():
    request = chat(20)

    class Broken:
        name, delta, appends_evidence = "mine", 1.0, False

        def decide(self, situation, memory):
            return True

    class Unsaveable(Broken):
        def decide(self, situation, memory):
            return Decision(True, "x", {"key": object()})

    class ListRule:
        name = "mine"

        def __call__(self, view):
            return [1, 2]

    for gem, keep, text in [
        (compressor(), lambda b: 1 / 0, "keep raised ZeroDivisionError: division by zero"),
        (compressor(policy=Broken()), None, "policy 'mine' returned no usable Decision"),
        (compressor(policy=Unsaveable()), None, "policy 'mine' returned no usable Decision"),
        (compressor(rules=(ListRule(),)), None, "rule 'mine' must return block indices with reasons"),
    ]:
        result = gem.compress(request, keep=keep)
        assert result.request is request and result.status == "failed" and result.reason.startswith(text)
    assert "goal must be a string or None, got int" in compressor().compress(request, goal=3).reason


def test_a_failure_is_logged_once_a_kind(caplog):
    gem = HistoryCompressor(raising)
    for _ in range(3):
        gem.compress(chat(20))
    assert len([r for r in caplog.records if "passed through uncompressed" in r.message]) == 1


def test_vectors_on_disk_spare_a_restarted_process_its_encoding(tmp_path):
    request = chat(30)
    HistoryCompressor(HashingEncoder(), EVERYTHING, vectors=tmp_path).compress(request)
    encoder = HashingEncoder()
    HistoryCompressor(encoder, EVERYTHING, vectors=tmp_path).compress(request)
    assert encoder.texts == 0
    with pytest.raises(gemjax.ConfigError, match="an encoder with a name only"):
        HistoryCompressor(raising, vectors=tmp_path)


def test_reset_starts_anew():
    gem = compressor()
    request = chat(40)
    gem.compress(request)
    assert not gem.compress(request).event
    gem.reset()
    assert gem.compress(request).event
    gem.reset("never seen")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GEMConfig(delta=2), "delta must be a share .* got 2"),
        (lambda: GEMConfig(capacity=0), "capacity must be a positive integer, got 0"),
        (lambda: GEMConfig(min_blocks=1.5), "min_blocks must be a positive integer"),
        (lambda: GEMConfig(coverage=1.1), "coverage must be between 0 and 1"),
        (lambda: GEMConfig(policy="hourly"), "policy must be one of paper, cost-aware"),
        (lambda: GEMConfig(policy=object()), "policy must be a name or an object"),
        (lambda: GEMConfig(rules=5), "rules must be a sequence"),
        (lambda: GEMConfig(rules=(5,)), "a rule must be callable and have a name"),
        (lambda: GEMConfig(rules=GEMConfig().rules * 2), "rule names must be unique"),
        (lambda: GEMConfig(encoder_timeout=0), "encoder_timeout must be a positive number"),
        (lambda: GEMConfig(encoder_timeout=float("nan")), "encoder_timeout must be a positive number"),
        (lambda: HistoryCompressor(config={}), "config must be a GEMConfig, got dict"),
        (lambda: HistoryCompressor(encoder=5), "encoder must have encode, name and dim"),
        (lambda: compressor().compress(chat(1), session=7), "session must be a string, got int"),
        (lambda: compressor().compress(chat(1), format="xml"), "format must be one of"),
    ],
)
def test_bad_configuration_is_refused_at_once(make, text):
    with pytest.raises(gemjax.ConfigError, match=text):
        make()


def test_explain_prints_every_block(capsys):
    request = chat(20)
    request["messages"][2]["tool_calls"][0]["function"]["name"] = "na\ud800me\x1b"
    compressor().compress(request).explain(width=100)
    out = capsys.readouterr().out
    assert out.count("keep") + out.count("drop") >= 20 and "\x1b[31" not in out and "characters" in out


def test_anthropic_blocks_in_the_middle_of_thinking_stay_whole():
    request = anthropic(40)
    kept = compressor().compress(request).request["messages"]
    for message in kept:
        if message["role"] == "assistant":
            assert [p["type"] for p in message["content"]] == ["thinking", "text", "tool_use"]


@pytest.mark.parametrize("blocks", [20, 40])
@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_a_request_that_changes_meanwhile_goes_out_as_it_was(blocks, delta):
    request = chat(blocks)
    before = list(request["messages"])

    def encoder(texts):
        # Another thread would do this while the encoder works: a call without its result, in the middle.
        del request["messages"][5]
        return HashingEncoder().encode(texts)

    result = HistoryCompressor(encoder, GEMConfig(delta=delta, encoder_timeout=None)).compress(request)
    assert gemjax.validate(request) and gemjax.validate(result.request) == []
    assert all(any(m is o for o in before) for m in result.request["messages"])
    assert len(result.request["messages"]) == len(before) if delta == 0 else result.status == "compressed"


@pytest.mark.parametrize("build", [chat, responses])
def test_a_tuple_of_messages_is_a_list_of_them(build):
    request = build(30)
    key = "input" if "input" in request else "messages"
    whole = compressor(delta=1.0).compress(request[key]).request
    assert isinstance(whole, list) and len(whole) < len(request[key])
    sent = compressor(delta=1.0).compress(tuple(request[key])).request
    assert isinstance(sent, list) and [id(m) for m in sent] == [id(m) for m in whole]
    inside = compressor(delta=1.0).compress({**request, key: tuple(request[key])}).request[key]
    assert isinstance(inside, list) and [id(m) for m in inside] == [id(m) for m in whole]
    assert gemjax.validate(tuple(request[key])) == []
    short = tuple(request[key][:3])
    assert compressor().compress(short).request is short
    empty = compressor().compress(())
    assert empty.request == () and empty.status == "failed" and "the list of messages is empty" in empty.reason
