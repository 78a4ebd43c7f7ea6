"""The bill under prompt caching, against whole requests serialised and compared by brute force."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.errors import ConfigError, WeightsError
from gemjax.evaluation.replay.accounting import Bill, Prices, Sizer
from gemjax.evaluation.replay.tokens import (
    MEDIA_TOKENS,
    EstimatedTokens,
    TokenizerTokens,
    count_message,
    default_counter,
)


class CountWords:
    """One token a word: easy to check by hand."""

    name = "words"

    def __init__(self) -> None:
        self.texts = 0

    def count(self, texts: list[str]) -> list[int]:
        self.texts += len(texts)
        return [len(t.split()) for t in texts]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _ledger(prices: Prices | None = None, template: dict[str, Any] | None = None, key: str = "messages") -> Bill:
    return Bill(template or {}, key, Sizer(CountWords()), prices or Prices())


def test_hand_computed_bill() -> None:
    a, b, c, d = (_user("x" * n) for n in (10, 20, 30, 40))
    size = {id(m): len(_dumps(m)) for m in (a, b, c, d)}
    ledger = _ledger()
    frame = len('{"messages":[]}')

    first = ledger.send([a, b])
    total = frame + size[id(a)] + 1 + size[id(b)]
    assert (first.chars, first.hit_chars, first.first_changed) == (total, 0, None)
    assert first.cost == pytest.approx(1.25 * total)

    grown = ledger.send([a, b, c])
    new = 1 + size[id(c)]
    assert (grown.chars, grown.hit_chars, grown.first_changed) == (total + new, total, None)
    assert grown.cost == pytest.approx(0.1 * total + 1.25 * new)

    cut = ledger.send([a, c, d])
    hit = frame + size[id(a)]
    rest = 1 + size[id(c)] + 1 + size[id(d)]
    assert (cut.hit_chars, cut.first_changed) == (hit, 1)
    assert cut.cost == pytest.approx(0.1 * hit + 1.25 * rest)

    assert ledger.totals.events == 1
    assert ledger.totals.requests == 3
    assert ledger.totals.chars == first.chars + grown.chars + cut.chars
    assert ledger.totals.cost == pytest.approx(first.cost + grown.cost + cut.cost)


def test_equal_content_in_another_object_is_a_hit() -> None:
    ledger = _ledger()
    ledger.send([_user("a"), _user("b")])
    again = ledger.send([_user("a"), _user("b"), _user("c")])
    assert again.first_changed is None
    assert again.hit_chars == len(_dumps({"messages": [_user("a"), _user("b")]}))


def test_key_order_breaks_the_cache() -> None:
    ledger = _ledger()
    ledger.send([{"role": "user", "content": "a"}])
    assert ledger.send([{"content": "a", "role": "user"}]).first_changed == 0


def test_a_shorter_history_changes_the_prefix() -> None:
    ledger = _ledger()
    ledger.send([_user("a"), _user("b")])
    assert ledger.send([_user("a")]).first_changed == 1


def test_uncached_enters_only_below_the_shortest_cacheable_prompt() -> None:
    prices = Prices(read=0.1, write=1.25, uncached=1.0, min_cacheable=100)
    ledger = _ledger(prices)
    short = ledger.send([_user("a")])
    assert short.cost == short.chars < 100
    # What was not written is not read; this one is long enough to be written.
    long = ledger.send([_user("a"), _user("b" * 200)])
    assert (long.hit_chars, long.cost) == (0, pytest.approx(1.25 * long.chars))
    assert long.first_changed is None
    # The common prefix (the first message) is too short for a hit.
    other = ledger.send([_user("a"), _user("c" * 300)])
    assert (other.hit_chars, other.first_changed) == (0, 1)
    assert other.cost == pytest.approx(1.25 * other.chars)
    grown = ledger.send([_user("a"), _user("c" * 300), _user("d")])
    assert grown.hit_chars == other.chars


_MESSAGES = [_user(t) for t in ("one", "two words", "ünïcode \u2028", '"quotes" \\ and\nlines', "日本", "\ud800 lone")]
_MESSAGES += [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"arguments": "{}"}}]}]
_TEMPLATES: list[dict[str, Any]] = [{}, {"model": "m", "tools": [{"name": "f"}], "system": "be good"}]


@settings(deadline=None, max_examples=150)
@given(
    histories=st.lists(st.lists(st.sampled_from(range(len(_MESSAGES))), max_size=7), min_size=1, max_size=6),
    template=st.sampled_from(_TEMPLATES),
    key=st.sampled_from(["messages", "input"]),
    prices=st.tuples(*[st.sampled_from([0.0, 0.1, 1.0, 1.25])] * 3, st.sampled_from([0, 40, 90])),
)
def test_bill_equals_brute_force(
    histories: list[list[int]],
    template: dict[str, Any],
    key: str,
    prices: tuple[float, float, float, int],
) -> None:
    read, write, uncached, shortest = prices
    ledger = _ledger(Prices(*prices), template, key)
    total_cost, total_chars, events = 0.0, 0, 0
    before: list[str] | None = None
    stored = False
    for history in histories:
        messages = [_MESSAGES[i] for i in history]
        texts = [_dumps(m) for m in messages]
        size = len(_dumps({**template, key: messages}))
        common = 0
        hit = 0
        if before is not None:
            while common < min(len(before), len(texts)) and before[common] == texts[common]:
                common += 1
            events += common < len(before)
            prefix = len(_dumps({**template, key: messages[:common]}))
            hit = prefix if stored and prefix >= shortest and size >= shortest else 0
        cost = read * hit + (write if size >= shortest else uncached) * (size - hit)
        sent = ledger.send(messages)
        assert (sent.chars, sent.hit_chars) == (size, hit)
        assert sent.cost == pytest.approx(cost)
        total_cost, total_chars = total_cost + cost, total_chars + size
        before, stored = texts, size >= shortest
    assert ledger.totals.cost == pytest.approx(total_cost)
    assert (ledger.totals.chars, ledger.totals.events) == (total_chars, events)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.sampled_from(range(len(_MESSAGES))), max_size=7), min_size=1, max_size=6))
def test_prices_of_one_give_the_size(histories: list[list[int]]) -> None:
    ledger = _ledger(Prices(1, 1, 1))
    for history in histories:
        sent = ledger.send([_MESSAGES[i] for i in history])
        assert sent.cost == pytest.approx(sent.chars)
        assert sent.token_cost == pytest.approx(sent.tokens)


def test_each_message_is_measured_once() -> None:
    counter = CountWords()
    sizer = Sizer(counter)
    ledgers = [Bill({}, "messages", sizer, Prices()) for _ in range(3)]
    messages = [_user(f"message {n}") for n in range(50)]
    for count in range(1, 51):
        for ledger in ledgers:
            ledger.send(messages[:count])
    # "user" and the text of each message, whatever was sent how often.
    assert counter.texts == 2 * len(messages)


def test_tokens_of_hits() -> None:
    ledger = _ledger(template={"system": "four words in here"})
    ledger.send([_user("a b c")])
    sent = ledger.send([_user("a b c"), _user("d e")])
    assert (sent.tokens, sent.hit_tokens) == (4 + 4 + 3, 4 + 4)
    assert sent.token_cost == pytest.approx(0.1 * 8 + 1.25 * 3)


@pytest.mark.parametrize("text", ["", "1", "1,2", "1,2,3,4", "a,b,c", "-1,1,1", "nan,1,1", "inf,1,1"])
def test_bad_prices(text: str) -> None:
    with pytest.raises(ConfigError, match="price"):
        Prices.from_text(text)


def test_prices_from_text() -> None:
    assert Prices.from_text("0.5, 1,1") == Prices(0.5, 1.0, 1.0)
    with pytest.raises(ConfigError, match="min_cacheable"):
        Prices(min_cacheable=-1)


def test_estimate() -> None:
    assert EstimatedTokens().count(["", "a", "abcd", "abcde", "日本語", "\ud800"]) == [0, 1, 1, 2, 3, 1]


def test_media_and_sealed_content_are_not_text() -> None:
    data = "QUJD" * 10_000
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    message = {"role": "user", "content": [{"type": "text", "text": "see this"}, image]}
    assert count_message(CountWords(), message) == len(["user", "see", "this"]) + MEDIA_TOKENS
    thought = {"type": "thinking", "thinking": "two words", "signature": data}
    assert count_message(CountWords(), {"role": "assistant", "content": [thought]}) == 3
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": data}
    assert count_message(CountWords(), sealed) == 0


def test_arguments_count_as_json() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"path": "a", "n": 1}}
    assert count_message(EstimatedTokens(), call) == 1 + (len('{"path":"a","n":1}') + 3) // 4


def test_tokenizer_file_and_its_errors(tmp_path: Any) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"tokenizer\.json is damaged"):
        TokenizerTokens(tmp_path / "tokenizer.json")
    with pytest.raises(WeightsError, match="not a tokenizer"):
        TokenizerTokens(tmp_path / "absent.json")


def test_default_counter_names_itself_and_takes_any_text() -> None:
    counter = default_counter()
    assert counter.name
    counts = counter.count(["", "hello world", "word " * 5_000, "\ud800"])
    assert counts[0] == 0
    assert 0 < counts[1] < 10
    # No truncation to a model's window.
    assert counts[2] >= 5_000
