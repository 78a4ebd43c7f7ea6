"""The archive: what was dropped comes back when it is asked for, and every odd request for it has a clear outcome."""

import copy
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax import GEMConfig, HistoryCompressor
from gemjax.errors import ConfigError, StateError
from gemjax.history.archive.excerpt import estimated_tokens, excerpt, shares
from gemjax.history.archive.letters import LetterIndex, terms
from gemjax.history.archive.tool import TOOL_NAME

FORMATS = ("chat", "responses", "anthropic")


def encode(texts: list[str]) -> np.ndarray:
    """Directions by the letters of a text: deterministic, and texts without common letters are orthogonal."""
    rows = np.zeros((len(texts), 32))
    for row, text in zip(rows, texts, strict=True):
        for letter, count in Counter(text.lower()).items():
            row[ord(letter) % 31] += count
        row[31] = 1.0
    return rows


def blocks(n: int, recalls: dict[int, tuple[str, str]] | None = None) -> list[dict]:
    """A chat history; block `i` reads `src/file_i.py` and learns `token-i`. `recalls`: block -> (call name, answer)."""
    messages: list[dict] = [{"role": "user", "content": "Fix it."}]
    for i in range(n):
        name, result = (recalls or {}).get(i, ("read_file", f"secret = 'token-{i:03d}'\nline two of {i}"))
        function = {"name": name, "arguments": json.dumps({"path": f"src/file_{i}.py"})}
        calls = [{"id": f"c{i}", "type": "function", "function": function}]
        messages += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{i}", "content": result},
        ]
    return messages


def compressor(**settings: Any) -> HistoryCompressor:
    return HistoryCompressor(encode, GEMConfig.paper(delta=1.0, **settings))


def dropped_of(gem: HistoryCompressor, n: int = 40, **given: Any) -> list[int]:
    result = gem.compress({"messages": blocks(n)}, **given)
    assert result.status == "compressed"
    return sorted(set(range(n)) - set(result.forwarded))


def test_an_exact_value_of_a_dropped_block_comes_back_whole():
    gem = compressor()
    gone = dropped_of(gem)
    for i in (gone[0], gone[-1]):
        found = gem.recall(f"token-{i:03d}", k=1)
        assert found.status == "found"
        (exchange,) = found.exchanges
        assert exchange.position == i and exchange.whole and exchange.tools == ("read_file",)
        assert exchange.paths == (f"src/file_{i}.py",)
        assert f"secret = 'token-{i:03d}'\nline two of {i}" in found.text == str(found)


def test_what_is_forwarded_is_not_recalled():
    gem = compressor()
    gone = dropped_of(gem)
    kept = sorted(set(range(40)) - set(gone))
    for i in kept:
        assert i not in [e.position for e in gem.recall(f"token-{i:03d} src/file_{i}.py", k=5).exchanges]


def test_a_block_that_comes_back_is_visible_and_recalled_no_more():
    gem = compressor()
    (first, *_) = dropped_of(gem)
    assert gem.recall(f"token-{first:03d}", k=1).exchanges[0].position == first
    result = gem.compress({"messages": blocks(41)}, keep=lambda b: b.index == first)
    assert first in result.forwarded
    assert first not in [e.position for e in gem.recall(f"token-{first:03d}").exchanges]


def test_by_letters_needs_no_encoder_and_survives_its_failure():
    calls = []

    def once(texts: list[str]) -> np.ndarray:
        calls.append(texts)
        if len(calls) > 1:
            raise RuntimeError("no more")
        return encode(texts)

    gem = HistoryCompressor(once, GEMConfig.paper(delta=1.0))
    gone = dropped_of(gem)
    assert gem.recall(f"token-{gone[0]:03d}", k=1, by="letters").exchanges[0].position == gone[0]
    assert len(calls) == 1  # the blocks' vectors are those of the request; nothing was encoded again
    found = gem.recall(f"token-{gone[0]:03d}", k=1)
    assert found.exchanges[0].position == gone[0] and "letters only" in found.reason


def test_by_meaning_alone_follows_the_vectors():
    gem = compressor()
    gone = dropped_of(gem)
    content = f'ACTION\nread_file {{"path": "src/file_{gone[3]}.py"}}\n\nOBSERVATION\n'
    content += f"secret = 'token-{gone[3]:03d}'\nline two of {gone[3]}"
    vectors = encode([content])[0]
    texts = {i: encode([content.replace(f"{gone[3]:03d}", f"{i:03d}").replace(str(gone[3]), str(i))])[0] for i in gone}
    cosine = {i: v @ vectors / np.linalg.norm(v) for i, v in texts.items()}
    found = gem.recall(content, k=1, by="meaning").exchanges[0]
    assert cosine[found.position] == pytest.approx(max(cosine.values()))
    assert found.by == ("meaning",)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"query": ""}, "empty query"),
        ({"query": " \n"}, "empty query"),
        ({"query": "token-000", "session": "other"}, "no request of a session 'other'"),
        ({"query": "token-000", "budget": 0}, "budget of 0"),
        ({"query": "token-000", "budget": -5}, "budget of -5"),
        ({"query": "token-000", "budget": 3}, "budget of 3"),
        ({"query": "zzzz-unheard", "by": "letters"}, "nothing matches"),
    ],
)
def test_a_recall_that_finds_nothing_says_why(given: dict, reason: str):
    gem = compressor()
    assert 0 in dropped_of(gem)
    found = gem.recall(**given)
    assert found.status == "nothing" and reason in found.reason and found.text and not found.exchanges


@pytest.mark.parametrize(
    "given",
    [
        {"query": "x", "session": None},
        {"query": "x", "k": 0},
        {"query": "x", "k": True},
        {"query": "x", "budget": 1.5},
        {"query": 3},
        {"query": "x", "by": "luck"},
    ],
)
def test_wrong_types_are_told_at_once(given: dict):
    with pytest.raises(ConfigError):
        compressor().recall(**given)


def test_before_anything_was_dropped():
    gem = compressor()
    assert gem.recall("x").status == "nothing"
    gem.compress({"messages": blocks(3)})
    assert gem.recall("x").reason == "nothing dropped"


def test_an_archive_that_cannot_be_read_says_so_and_requests_go_on(monkeypatch: pytest.MonkeyPatch):
    from gemjax.history.archive import archive

    def damaged(*_: Any) -> Any:
        raise OSError("disk")

    gem = compressor()
    monkeypatch.setattr(archive, "without_recalls", damaged)
    dropped_of(gem)
    found = gem.recall("token-000")
    assert found.status == "failed" and "disk" in found.reason and "cannot be read" in found.text
    assert gem.compress({"messages": blocks(41)}).status == "compressed"


def test_a_budget_holds_for_every_number_of_exchanges():
    gem = compressor()
    dropped_of(gem)
    for budget in (20, 40, 80, 200, 1000):
        for k in (1, 3, 10):
            found = gem.recall("secret line two token src", k=k, budget=budget)
            assert len(found.exchanges) <= k
            assert found.status == "nothing" or found.tokens == estimated_tokens(found.text) <= budget


def test_a_long_exchange_is_cut_to_the_lines_that_answer():
    # All in one direction, so that the geometry keeps nothing of it.
    gem = HistoryCompressor(lambda texts: np.ones((len(texts), 2)), GEMConfig.paper(delta=1.0))
    messages = blocks(40)
    lines = [f"{i} plain filler words" for i in range(500)]
    lines[250] = "the password is hunter-2-green"
    messages[2 + 2 * 5]["content"] = "\n".join(lines)
    gem.compress({"messages": messages})
    found = gem.recall("hunter-2-green password", k=1, budget=100)
    assert "the password is hunter-2-green" in found.text and not found.exchanges[0].whole
    assert "[...]" in found.text and found.tokens <= 100
    shortened = gem.recall("hunter-2-green", k=1, budget=100, shorten=lambda text, query, n: f"{query} in {n}")
    assert "hunter-2-green in" in shortened.text


def test_the_archive_is_bounded_and_forgets_the_oldest():
    gem = compressor(archive_blocks=5)
    gone = dropped_of(gem)
    assert gem.recall(f"token-{gone[-1]:03d}", k=1, by="letters").status == "found"
    assert gem.recall(f"{gone[0]:03d}", k=1, by="letters").status == "nothing"
    dropped_of(gem, 60)
    positions = {e.position for e in gem.recall("secret line two read file", k=20, by="meaning").exchanges}
    assert len(positions) <= 5 and min(positions) > gone[0]
    none = compressor(archive_blocks=0)
    dropped_of(none)
    assert none.recall("token-000").reason == "archive_blocks is 0"


def test_nothing_is_forgotten_twice_or_found_after_it_was():
    gem = compressor(archive_blocks=10)
    for n in range(20, 120):
        gem.compress({"messages": blocks(n)})
        gem.recall(f"token-{n - 20:03d}", by="letters")
    found = [e.position for e in gem.recall("secret line two", k=50, by="meaning", budget=10**6).exchanges]
    assert 0 < len(found) <= 10 and len(set(found)) == len(found)


@pytest.mark.parametrize("format", FORMATS)
def test_the_tool_is_the_same_bytes_ever_after(format: str):
    gem, other = compressor(), compressor()
    first = json.dumps(gem.recall_tool(format))
    dropped_of(gem)
    assert json.dumps(gem.recall_tool(format)) == first == json.dumps(other.recall_tool(format))


def test_a_name_that_the_agent_uses_is_refused():
    gem = compressor()
    mine = {"type": "function", "function": {"name": TOOL_NAME, "parameters": {}}}
    with pytest.raises(ConfigError, match="already has a tool named"):
        gem.recall_tool("chat", tools=[mine])
    with pytest.raises(ConfigError, match="already"):
        gem.recall_tool("anthropic", tools=[{"name": TOOL_NAME, "input_schema": {}}])
    made = gem.recall_tool("chat", tools=[gem.recall_tool("chat")])  # its own definition is no clash
    assert made["function"]["name"] == TOOL_NAME
    assert gem.recall_tool("chat", name="look_back", tools=[mine])["function"]["name"] == "look_back"
    for name in ("", "two words", "x" * 65, None):
        with pytest.raises(ConfigError):
            gem.recall_tool("chat", name=name)  # type: ignore[arg-type]
    for wire in ("auto", "gemini"):
        with pytest.raises(ConfigError):
            gem.recall_tool(wire)


def call_of(format: str, query: Any, name: str = TOOL_NAME) -> dict:
    if format == "anthropic":
        return {"type": "tool_use", "id": "q1", "name": name, "input": {"query": query}}
    arguments = json.dumps({"query": query})
    if format == "responses":
        return {"type": "function_call", "call_id": "q1", "name": name, "arguments": arguments}
    return {"id": "q1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_has_the_format_of_its_call(format: str):
    gem = compressor()
    gone = dropped_of(gem)
    call = call_of(format, f"token-{gone[0]:03d}")
    before = copy.deepcopy(call)
    answer = gem.answer(call)
    assert answer is not None and call == before
    text = answer.pop({"chat": "content", "responses": "output", "anthropic": "content"}[format])
    assert f"token-{gone[0]:03d}" in text
    assert (
        answer
        == {
            "chat": {"role": "tool", "tool_call_id": "q1"},
            "responses": {"type": "function_call_output", "call_id": "q1"},
            "anthropic": {"type": "tool_result", "tool_use_id": "q1"},
        }[format]
    )
    assert gem.answer(call_of(format, "x", name="read_file")) is None


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '{"q": 1}', '{"query": 7}', None, 5])
def test_a_call_without_a_usable_query_is_answered_in_words(arguments: Any):
    gem = compressor()
    dropped_of(gem)
    answer = gem.answer({"id": "q", "type": "function", "function": {"name": TOOL_NAME, "arguments": arguments}})
    assert answer is not None and isinstance(answer["content"], str) and answer["content"]


@pytest.mark.parametrize("call", [None, 3, "x", [], {}, {"type": "tool_use"}, {"function": 3}])
def test_what_is_no_call_is_not_answered(call: Any):
    assert compressor().answer(call) is None


def test_the_tools_own_exchanges_are_not_archived():
    gem = compressor()
    answers = {i: (TOOL_NAME, f"[exchange 0]\ncopy of token-000 number {i}") for i in (3, 4, 5)}
    result = gem.compress({"messages": blocks(40, answers)})
    assert not {3, 4, 5} <= set(result.forwarded)
    found = gem.recall("copy of number", k=10, budget=10**5)
    assert not {3, 4, 5} & {e.position for e in found.exchanges}
    assert gem.recall("token-000", k=1).exchanges[0].position == 0


def test_a_mixed_exchange_is_archived_without_the_recall():
    gem = compressor()
    messages = blocks(40)
    call = {"id": "r1", "type": "function", "function": {"name": TOOL_NAME, "arguments": '{"query": "q"}'}}
    messages[1]["tool_calls"].append(call)
    messages.insert(3, {"role": "tool", "tool_call_id": "r1", "content": "a copy of what was"})
    gem.compress({"messages": messages})
    (found,) = gem.recall("token-000", k=1).exchanges
    assert found.position == 0 and "a copy of what was" not in found.text and found.tools == ("read_file",)


def test_nothing_changes_for_those_who_do_not_ask():
    asked, silent = compressor(), compressor(archive_blocks=0)
    for n in range(14, 50, 3):
        request = {"messages": blocks(n)}
        asked.recall("token-001")
        one, other = asked.compress(request), silent.compress(request)
        assert one.request == other.request and one.blocks == other.blocks and one.reason == other.reason
    assert asked.state_dict() == silent.state_dict()


def test_sessions_are_apart_and_reset_forgets():
    gem = compressor()
    gone = dropped_of(gem, session="a")
    assert gem.recall(f"token-{gone[0]:03d}", "b").status == "nothing"
    gem.reset("a")
    assert gem.recall(f"token-{gone[0]:03d}", "a").status == "nothing"


def test_the_next_request_after_a_restart_brings_the_archive_back():
    gem = compressor()
    gone = dropped_of(gem)
    state = json.loads(json.dumps(gem.state_dict()))
    assert "archive" not in state  # the caller's history holds it all
    later = compressor()
    later.load_state_dict("default", state)
    assert later.recall("token-000").reason == "no request has come since this session was loaded"
    dropped_of(later, 41)
    for i in gone:
        assert later.recall(f"token-{i:03d}", k=1).exchanges == gem.recall(f"token-{i:03d}", k=1).exchanges


def test_what_the_caller_no_longer_sends_is_saved_with_the_state():
    gem = compressor()
    gone = dropped_of(gem)
    compacted = [{"role": "user", "content": "Summary of what was."}, *blocks(40)[1 + 2 * 30 :]]
    gem.compress({"messages": compacted})
    found = gem.recall(f"token-{gone[0]:03d}", k=1)
    assert found.exchanges[0].position == gone[0]
    state = json.loads(json.dumps(gem.state_dict()))
    later = compressor()
    later.load_state_dict("default", state)
    for by in ("letters", "meaning", "both"):
        query = f"read_file src/file_{gone[0]}.py token-{gone[0]:03d}"
        # Vectors are saved in half precision, so that near ties may turn.
        assert later.recall(query, k=3, by=by).status == "found"
    assert later.recall(f"token-{gone[0]:03d}", k=1).text == found.text
    assert later.state_dict() == state


@pytest.mark.parametrize(
    "saved",
    [
        7,
        {},
        [3],
        [{}],
        [{"key": "a", "position": 0, "chars": 3, "reasoning": "", "text": "", "calls": [], "results": []}],
        [
            {
                "key": "a",
                "position": 0,
                "chars": 3,
                "reasoning": "",
                "text": "",
                "calls": [["i", "n", "a"]],
                "results": [["i", "t", False]],
                "vector": "%%%",
            }
        ],
    ],
)
def test_a_damaged_archive_is_refused_and_nothing_changes(saved: Any):
    gem = compressor()
    gone = dropped_of(gem)
    state = gem.state_dict()
    with pytest.raises(StateError, match="archive"):
        gem.load_state_dict("default", {**state, "archive": saved})
    assert gem.state_dict() == state
    assert gem.recall(f"token-{gone[0]:03d}", k=1).status == "found"


def test_terms_are_values_and_their_parts():
    assert {"src/appmain.py", "appmain", "app", "main", "py", "src"} <= set(terms("see src/appMain.py"))
    assert {"1.2.3-rc1", "rc", "rc1"} <= set(terms("version 1.2.3-rc1"))
    assert {"東京", "京都"} <= set(terms("東京都"))
    assert not terms("!?… --")


words = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "x_1", "a/b.c", "17"]), max_size=8).map(" ".join)


@given(st.lists(words, max_size=12), words, st.sets(st.integers(0, 11)))
def test_scores_are_bm25(texts: list[str], query: str, gone: set[int]):
    index = LetterIndex()
    numbers = [index.add(text) for text in texts]
    index.remove([numbers[i] for i in gone if i < len(numbers)])
    bags = [terms(text) for text in texts]
    alive = [i for i in range(len(texts)) if i not in gone]
    average = sum(sum(bags[i].values()) for i in alive) / max(len(alive), 1) or 1.0
    if sum(sum(bags[i].values()) for i in alive) < 1:
        average = 1.0 / max(len(alive), 1)
    expected = {}
    for i in alive:
        score, telling = 0.0, False
        for term in terms(query):
            n = sum(term in bag for bag in bags)
            if term not in bags[i]:
                continue
            weight = np.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            f = bags[i][term]
            score += weight * f * 2.2 / (f + 1.2 * (0.7 + 0.3 * np.log2(1 + sum(bags[i].values()) / average)))
            telling |= n <= max(1, len(texts) // 2)
        if telling:
            expected[i] = score
    found = dict(index.search(query, 50))
    assert set(found) == {numbers[i] for i in expected}
    for i, score in expected.items():
        assert found[numbers[i]] == pytest.approx(score, rel=1e-5)


def test_a_long_lived_index_gives_its_room_back():
    index = LetterIndex()
    kept: list[int] = []
    for i in range(1000):
        kept.append(index.add(f"word{i} common"))
        if len(kept) > 20:
            index.remove([kept.pop(0)])
    assert len(index._alive) < 200 and len(index._postings) < 600
    assert [n for n, _ in index.search("word995", 5)] == [995]
    assert index.search("word3", 5) == [] or index.search("word3", 5)[0][0] != 3


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(0, 120))
def test_shares_give_all_they_can(sizes: list[int], budget: int):
    given = shares(sizes, budget)
    assert all(0 <= g <= s for g, s in zip(given, sizes, strict=True)) and sum(given) <= budget
    assert sum(given) == min(sum(sizes), budget) or max(sizes) > max(given)
    for g, s in zip(given, sizes, strict=True):
        assert g == s or g >= max(given) - 1


@given(st.text(alphabet="ab \n", max_size=400), st.text(alphabet="ab ", max_size=5), st.integers(0, 60))
def test_an_excerpt_fits_and_is_made_of_the_text(text: str, query: str, budget: int):
    cut = excerpt(text, query, budget, estimated_tokens, lambda term: 1.0)
    assert estimated_tokens(cut) <= max(budget, 0)
    place = 0
    for piece in cut.split("[...]"):
        piece = piece.strip("\n")
        place = text.find(piece, place)
        assert place >= 0
