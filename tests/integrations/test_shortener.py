"""The shared core: conversations by history, retries, branches, fallback."""

import copy
import json
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history import ArrivalConfig, GEMConfig, HistoryCompressor
from gemjax.history.formats.marks import unmarked
from gemjax.integrations.document import Document
from gemjax.integrations.lineage import Conversation, Lineages, chain_of, common_prefix
from gemjax.integrations.shortener import Shortener
from gemjax.integrations.store import ConversationStore
from gemjax.integrations.wire import rebuilt
from tests.conftest import HashingEncoder
from tests.history.requests import exchange
from tests.serve.agents import FIELDS, RawAgent, history

MESSAGES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


@given(MESSAGES, MESSAGES)
def test_chains_share_what_their_messages_share(a, b):
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(chain_of(a), chain_of(b)) == shared


def test_cache_marks_are_no_difference():
    agent = history("anthropic", 4)
    marked = json.loads(agent.body())["messages"]
    assert marked != agent.messages and chain_of(marked) == chain_of(agent.messages)
    nested = copy.deepcopy(agent.messages)
    nested[2]["content"][0]["content"] = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
    plain = copy.deepcopy(nested)
    del plain[2]["content"][0]["content"][0]["cache_control"]
    assert chain_of(nested) == chain_of(plain) != chain_of(agent.messages)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30), st.integers(1, 3))
def test_agents_that_differ_are_never_one_conversation(steps, limit):
    """Agents that share a beginning and grow in any order: a name never serves two of them after they part."""
    lineages = Lineages(limit=8 * limit)
    grown = {i: ["task", f"first of {i}"] for i in range(4)}
    names: dict[int, str] = {}
    for agent, more in steps:
        grown[agent] += [f"{agent}-{len(grown[agent]) + k}" for k in range(more)]
        chain = chain_of(grown[agent])
        conversation = lineages.find("s", chain)
        conversation.chain = chain
        names[agent] = conversation.name
        others = [lineages._known[n].chain for a, n in names.items() if a != agent and n in lineages._known]
        assert all(common_prefix(chain, other) <= 1 for other in others)


def test_scopes_keep_apart_and_old_ones_are_forgotten():
    lineages = Lineages(limit=2)
    chain = chain_of(["a"])
    first = lineages.find("one", chain)
    first.chain = chain
    assert lineages.find("two", chain) is not first and lineages.find("one", chain) is first
    lineages.find("three", chain)
    lineages.find("four", chain)
    assert len(lineages) == 2 and lineages.peek("one", chain) is None


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_messages_that_stay_are_the_very_objects_and_the_request_is_untouched(api):
    shortener = Shortener(HistoryCompressor(HashingEncoder()))
    request = json.loads(history(api, 40).body())
    before = copy.deepcopy(request)
    outcome = shortener.shorten(request, format=api)
    key = {"responses": "input"}.get(api, "messages")
    assert request == before and len(outcome.request[key]) < len(request[key])
    assert all(m is request[key][i] for m, i in zip(outcome.request[key], outcome.sources, strict=True))
    again = shortener.shorten(copy.deepcopy(request), format=api)
    assert again.status == "repeated" and again.request == outcome.request


def test_a_branch_starts_from_what_its_parent_sent():
    shortener = Shortener(HistoryCompressor(HashingEncoder()))
    agent = history("chat", 40)
    parent = shortener.shorten({"messages": agent.messages}, format="chat")
    branch = [*agent.messages[:-8], {"role": "user", "content": "Try another way."}]
    child = shortener.shorten({"messages": branch}, format="chat")
    assert child.session != parent.session
    gone = set(range(len(branch))) - set(child.sources)
    # Blocks that newer ones stood for come back with them; nothing else is chosen anew.
    assert gone and gone < set(range(len(agent.messages))) - set(parent.sources)


def test_the_last_message_may_be_edited():
    shortener = Shortener(HistoryCompressor(HashingEncoder()))
    agent = history("chat", 40)
    first = shortener.shorten({"messages": [*agent.messages, {"role": "user", "content": "a"}]}, format="chat")
    second = shortener.shorten({"messages": [*agent.messages, {"role": "user", "content": "b"}]}, format="chat")
    assert first.session == second.session and first.sources == second.sources


def test_one_object_sent_twice(gem):
    agent = history("chat", 40)
    note = {"role": "user", "content": "Go on."}
    messages = [m for i, m in enumerate(agent.messages) for m in ([m, note] if i % 8 == 0 else [m])]
    outcome = Shortener(gem).shorten({"messages": messages}, format="chat")
    assert [messages[i] for i in outcome.sources] == outcome.request["messages"]
    assert sum(m is note for m in outcome.request["messages"]) == sum(m is note for m in messages)


def test_histories_that_cannot_be_read_go_out_whole(gem):
    shortener = Shortener(gem)
    agent = RawAgent("chat")
    for request in ({}, {"messages": []}, {"messages": "x"}, {"messages": [object()]}, {"messages": None}, None, 3, []):
        outcome = shortener.shorten(request, format="chat")
        assert outcome.request is request and outcome.status == "skipped"
    objects = [object()]
    assert shortener.kept(objects, lambda: 1 / 0, format="chat") is objects
    assert shortener.kept(objects, lambda: agent.messages * 2, format="chat") is objects
    assert not len(shortener.lineages)


def test_a_damaged_store_is_passed_over(tmp_path, gem):
    store = ConversationStore(tmp_path)
    first = Shortener(gem, store=store).shorten({"messages": history("chat", 40).messages}, format="chat")
    (path,) = tmp_path.iterdir()
    whole = json.loads(path.read_text())
    for name, damage in {
        "c" * 16: path.read_text()[:-5],
        "d" * 16: "[]",
        "e" * 16: json.dumps({**whole, "version": 9}),
        "f" * 16: json.dumps({**whole, "name": "f" * 16, "dropped": [10**6]}),
        "0" * 16: json.dumps({**whole, "name": "0" * 16, "state": {"version": 1}}),
    }.items():
        (tmp_path / f"{name}.json").write_text(damage)
    again = Shortener(HistoryCompressor(HashingEncoder()), store=ConversationStore(tmp_path))
    assert [c for c in again.lineages._known] == [first.session]


def test_the_store_is_bounded_while_it_runs_and_a_large_conversation_is_not_kept(tmp_path, gem):
    def size():
        return sum(p.stat().st_size for p in tmp_path.iterdir())

    shortener = Shortener(gem, store=ConversationStore(tmp_path, most_bytes=40_000))
    names = []
    for number in range(30):
        agent = history("chat", 40, task=f"Task {number}")
        names.append(shortener.shorten({"messages": agent.messages}, format="chat", scope=str(number)).session)
        assert size() <= 40_000
    kept = {p.stem for p in tmp_path.iterdir()}
    assert names[-1] in kept and names[0] not in kept and len(kept) > 3
    again = Shortener(HistoryCompressor(HashingEncoder()), store=ConversationStore(tmp_path, most_bytes=40_000))
    last = history("chat", 40, task="Task 29").messages
    repeated = again.shorten({"messages": last}, format="chat", scope="29")
    assert repeated.status == "repeated" and len(repeated.sources) < len(last)
    tiny = Shortener(HistoryCompressor(HashingEncoder()), store=ConversationStore(tmp_path / "tiny", most_bytes=500))
    assert len(tiny.shorten({"messages": last}, format="chat").sources) < len(last)
    assert not list((tmp_path / "tiny").iterdir())


def test_a_retry_leaves_out_the_same_thinking(tmp_path):
    shortener = Shortener(HistoryCompressor(HashingEncoder()), store=ConversationStore(tmp_path))
    agent = history("anthropic", 40, model="claude-opus-5-5", thinking={"type": "adaptive"})
    for message in agent.messages[1::2]:
        message["content"].insert(0, {"type": "thinking", "thinking": "so", "signature": "s"})
    request = json.loads(agent.body())
    first = shortener.shorten(copy.deepcopy(request), format="anthropic")
    assert first.changed and len(first.request["messages"]) < len(request["messages"])
    again = shortener.shorten(copy.deepcopy(request), format="anthropic")
    assert again.status == "repeated" and again.request == first.request and again.changed == first.changed
    counted = shortener.preview(copy.deepcopy(request), format="anthropic")
    assert counted.request == first.request
    restarted = Shortener(HistoryCompressor(HashingEncoder()), store=ConversationStore(tmp_path))
    assert restarted.shorten(copy.deepcopy(request), format="anthropic").request == first.request
    objects = [object() for _ in request["messages"]]
    fresh = Shortener(HistoryCompressor(HashingEncoder()))
    assert fresh.kept(objects, lambda: request["messages"], format="anthropic") is objects


def test_the_folder_holds_no_content_and_nothing_of_others_is_touched(tmp_path):
    foreign = {"package.json": "{}", "notes.txt": "x", "0123456789abcdef.json.bak": "{}", "0123.json": "{}"}
    for name, text in foreign.items():
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (0, 0))
    shortener = Shortener(HistoryCompressor(HashingEncoder(), GEMConfig()), store=ConversationStore(tmp_path))
    agent = history("chat", 60, task="the secret task")
    first = shortener.shorten({"messages": list(agent.messages)}, format="chat")
    assert len(first.sources) < len(agent.messages)
    # The client compacts: what was dropped is no longer in its history, and the archive alone has it.
    shorter = [*agent.messages[:2], *agent.messages[-40:]]
    shortener.shorten({"messages": shorter}, format="chat")
    kept = [path for path in tmp_path.iterdir() if path.name not in foreign]
    assert kept and all("archive" not in path.read_text() and "step" not in path.read_text() for path in kept)
    Shortener(HistoryCompressor(HashingEncoder()), store=ConversationStore(tmp_path))
    assert {name: (tmp_path / name).read_text() for name in foreign} == foreign


def test_what_is_never_loaded_again_is_removed(tmp_path):
    store = ConversationStore(tmp_path)
    for number in range(12):
        store.save(Conversation(f"{number:016x}", "s"), {})
        os.utime(tmp_path / f"{number:016x}.json", (time.time() - 1000 + number,) * 2)
    loaded = [conversation.name for conversation, _ in store.load(2)]
    assert loaded == [f"{number:016x}" for number in (10, 11)]
    assert sorted(path.stem for path in tmp_path.iterdir()) == [f"{number:016x}" for number in range(4, 12)]


@pytest.mark.parametrize("api", ["chat", "anthropic", "responses"])
def test_long_results_stay_short_through_retries_and_restarts(tmp_path, api):
    def made():
        config = GEMConfig(arrival=ArrivalConfig(limit=400, keep=200))
        return Shortener(HistoryCompressor(HashingEncoder(), config), store=ConversationStore(tmp_path))

    shortener, agent = made(), RawAgent(api)
    key = FIELDS[api]
    texts = {}
    for number in range(20):
        for message in exchange(api, number, 2_000):
            agent.messages.append(message)
        request = json.loads(agent.body())
        outcomes = [shortener.shorten(copy.deepcopy(request), format=api) for _ in range(2)]
        assert outcomes[1].status == "repeated" and outcomes[0].request == outcomes[1].request
        assert outcomes[0].changed == outcomes[1].changed and 2 * number + 2 in outcomes[0].changed
        sent = json.loads(rebuilt(Document(agent.body(), key), outcomes[0]))
        assert sent == outcomes[0].request
        for place, message in zip(outcomes[0].sources, sent[key], strict=True):
            text = json.dumps(unmarked(message))
            assert texts.setdefault(place, text) == text
        if number == 17:
            shortener = made()
    assert shortener.kept(sent[key], lambda: request[key], format=api) is not None


def test_a_hook_that_passes_objects_leaves_long_results_alone():
    config = GEMConfig(arrival=ArrivalConfig(limit=400, keep=200))
    shortener = Shortener(HistoryCompressor(HashingEncoder(), config))
    messages = [{"role": "user", "content": "go"}, *exchange("chat", 0, 2_000)]
    objects = [object() for _ in messages]
    assert shortener.kept(objects, lambda: messages, format="chat") is objects


def test_a_failing_encoder_brings_back_neither_dropped_blocks_nor_long_results():
    broken = []

    def encoder(texts):
        if broken:
            raise ConnectionError("no route")
        return HashingEncoder().encode(texts)

    config = GEMConfig(arrival=ArrivalConfig(limit=400, keep=200), encoder_timeout=None)
    shortener = Shortener(HistoryCompressor(encoder, config))
    messages = [{"role": "user", "content": "go"}]
    for number in range(60):
        messages += exchange("chat", number, 2_000)
        before = shortener.shorten({"messages": list(messages)}, format="chat")
    assert len(before.sources) < len(messages) and before.changed
    broken.append(True)
    messages += exchange("chat", 60, 2_000)
    after = shortener.shorten({"messages": messages}, format="chat")
    assert after.status == "failed" and "no route" in after.reason
    assert after.sources == (*before.sources, len(messages) - 2, len(messages) - 1)
    assert after.request["messages"][:-2] == before.request["messages"]
    assert after.changed == before.changed | {len(messages) - 1}
