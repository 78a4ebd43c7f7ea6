"""Agents of sixty calls through the proxy: no refusal, a bill at most that of the same agent without it."""

import json

import httpx2
import pytest

from tests.provider.app import Provider
from tests.serve.agents import FIELDS, RawAgent, history
from tests.serve.conftest import stand

APIS = ["chat", "responses", "anthropic"]


def spans(body, field):
    """The text of each message in a body, by a scanner of its own (quotes and brackets, nothing else)."""
    text = body.decode()
    at = text.index(f'"{field}"')
    at = text.index("[", at) + 1
    found, depth, start, quoted, i = [], 0, None, False, at
    while True:
        c = text[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in "{[":
            if depth == 0:
                start = i
            depth += 1
        elif c in "}]":
            if depth == 0:
                return found, text[:at], text[i:]
            depth -= 1
            if depth == 0:
                found.append(text[start : i + 1])
        i += 1


@pytest.mark.parametrize("api", APIS)
def test_sixty_calls(api):
    with stand() as place:
        agent = RawAgent(api, "with")
        with place.client() as client:
            agent.run(client)
        plain = RawAgent(api, "without")
        with httpx2.Client(base_url=place.direct, trust_env=False) as client:
            plain.run(client)
        ours, theirs = place.provider.account("with"), place.provider.account("without")
        assert ours.turn == theirs.turn == 61
        assert not ours.refused
        assert ours.cost <= theirs.cost
        before, after = sum(map(len, theirs.bodies)), sum(map(len, ours.bodies))
        assert after < 0.95 * before
        for sent, came in zip(agent.sent, ours.bodies, strict=True):
            if len(sent) == len(came):
                assert sent == came
                continue
            messages, head, tail = spans(sent, FIELDS[api])
            kept, head_after, tail_after = spans(came, FIELDS[api])
            assert (head, tail) == (head_after, tail_after)
            rest = iter(messages)
            assert all(any(m == k for m in rest) for k in kept), "a kept message was touched"
            assert kept[0] == messages[0] and kept[-1] == messages[-1]


def test_a_dry_run_forwards_every_byte_and_says_what_could_be_saved():
    with stand(dry_run=True) as place:
        agent = RawAgent("chat")
        with place.client() as client:
            agent.run(client)
            shown = client.get("/").text
        assert place.provider.account().bodies == agent.sent
        total, _ = place.proxy.ledger.snapshot()
        assert total.chars_after < 0.95 * total.chars_before
        assert "would have saved" in shown


def test_the_figures_are_those_of_the_provider():
    with stand() as place:
        agent = RawAgent("chat")
        with place.client() as client:
            agent.run(client)
        total, accounts = place.proxy.ledger.snapshot()
        assert total.requests == 61 and len(accounts) == 1
        assert total.chars_before == sum(len(b.decode()) for b in agent.sent)
        assert abs(total.chars_after - sum(len(b.decode()) for b in place.provider.account().bodies)) < 3 * 61 * 60
        # The provider counts frames in another serialisation, so only nearly the same cost.
        assert total.cost_after == pytest.approx(place.provider.account().cost, rel=0.1)


def test_a_retry_sends_the_same_and_is_no_request(tmp_path):
    with stand() as place, place.client() as client:
        agent = history("chat", 40)
        first = agent.step(client)
        state = place.proxy.relay.rewriter.shortener
        name = next(iter(state.lineages._known))
        requests = state.compressor.state_dict(name)["requests"]
        again = [agent.step(client) for _ in range(3)]
        assert first.status_code == 200 and {r.status_code for r in again} == {200}
        bodies = place.provider.account().bodies
        assert len(set(bodies)) == 1 and len(bodies[0]) < len(agent.sent[0])
        assert state.compressor.state_dict(name)["requests"] == requests


def test_agents_and_sub_agents_keep_apart_within_one_session():
    with stand(Provider(calls=45)) as place, place.client() as client:
        session = {"x-claude-code-session-id": "same-for-all"}
        agents = [RawAgent("anthropic", f"key{i}", f"Task {i}", headers=session) for i in range(3)]
        agents.append(RawAgent("anthropic", "key3", "Task 0", headers=session))  # the same task as a sibling
        for _ in range(46):
            for agent in agents:
                response = agent.step(client)
                assert response.status_code == 200, response.text
                agent.take(response.json())
        for i, agent in enumerate(agents):
            account = place.provider.account(f"key{i}")
            assert account.turn == 46 and not account.refused
            assert f"Task {0 if i == 3 else i}" in json.loads(account.bodies[-1])["messages"][0]["content"]
            assert len(account.bodies[-1]) < len(agent.sent[-1])


def test_a_restarted_proxy_forwards_the_same(tmp_path):
    provider = Provider()
    agent = history("responses", 40)
    with stand(provider, state=tmp_path) as place, place.client() as client:
        agent.take(agent.step(client).json())
    with stand(provider, state=tmp_path) as place, place.client() as client:
        agent.step(client)
    first, second = (json.loads(b)["input"] for b in provider.account().bodies)
    assert second[: len(first)] == first
    assert len(first) < len(json.loads(agent.sent[0])["input"])
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert "step" not in file.read_text() and "module" not in file.read_text()


def test_tokens_are_counted_on_what_is_sent():
    with stand() as place, place.client() as client:
        agent = history("anthropic", 40)
        count = {**json.loads(agent.body())}
        count.pop("max_tokens")
        whole = client.post("/v1/messages/count_tokens", json=count, headers=agent.all_headers()).json()["input_tokens"]
        assert agent.step(client).status_code == 200
        state = place.proxy.relay.rewriter.shortener.compressor
        before = [state.state_dict(n) for n in state._sessions]
        short = client.post("/v1/messages/count_tokens", json=count, headers=agent.all_headers()).json()["input_tokens"]
        assert short < 0.95 * whole
        assert [state.state_dict(n) for n in state._sessions] == before


def test_where_the_server_holds_the_history_nothing_is_done(shared):
    agent = history("responses", 40, "held", previous_response_id="resp_1")
    with shared.client() as client:
        assert agent.step(client).status_code == 200
    assert shared.provider.account("held").bodies == agent.sent
