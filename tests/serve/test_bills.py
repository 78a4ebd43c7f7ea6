"""The bill of an agent of sixty calls through the proxy, beside the same agent without it, in every mode."""

import httpx2
import pytest

from tests.provider.app import Provider
from tests.serve.agents import RawAgent
from tests.serve.conftest import stand

THINKING = {"type": "adaptive"}
LENIENT = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
BETA = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
# A prompt as long as a coding agent's; marked, as such agents do, or left to the one mark at the end.
PROMPT = [{"type": "text", "text": "Be exact, and say what you do before you do it. " * 400}]
MARKED = [{**PROMPT[0], "cache_control": {"type": "ephemeral"}}]

MODES = {
    "chat": ("chat", None, {"model": "gpt-5.6"}),
    "responses": ("responses", None, {"model": "gpt-5.6"}),
    "messages": ("anthropic", None, {}),
    "messages, not cached": ("anthropic", None, {"marks": False}),
    "messages, a long prompt": ("anthropic", None, {"system": MARKED}),
    "messages, a long prompt that no mark covers": ("anthropic", None, {"system": PROMPT}),
    "thinking is bound": ("anthropic", "error", {"model": "claude-opus-5-5", "thinking": THINKING}),
    "bound thinking is dropped": (
        "anthropic",
        "drop_block",
        {"model": "claude-opus-5-5", "thinking": LENIENT, "headers": BETA},
    ),
    "thinking of an unknown model": ("anthropic", "error", {"model": "scripted", "thinking": THINKING}),
}


@pytest.mark.parametrize("name", MODES)
def test_the_bill_is_at_most_that_without_us(name):
    api, thinking, fields = MODES[name]
    with stand(Provider(thinking=thinking)) as place:
        for key, url in {"with": place.url, "without": place.direct}.items():
            with httpx2.Client(base_url=url, trust_env=False, timeout=20) as client:
                RawAgent(api, key, **fields).run(client)
        ours, theirs = place.provider.account("with"), place.provider.account("without")
    assert not ours.refused and ours.turn == theirs.turn == 61
    assert ours.cost <= theirs.cost


@pytest.mark.parametrize("name", ["chat", "messages"])
def test_after_a_pause_the_bill_is_lower(name):
    """Every seven calls the user goes away for so long that the provider forgets."""
    api, _, fields = MODES[name]
    now = [0.0]
    with stand(Provider(clock=lambda: now[0])) as place:
        for key, url in {"with": place.url, "without": place.direct}.items():
            with httpx2.Client(base_url=url, trust_env=False, timeout=20) as client:
                agent = RawAgent(api, key, **fields)
                for turn in range(61):
                    now[0] += 400.0 if turn % 7 == 6 else 1.0
                    agent.take(agent.step(client).json())
        ours, theirs = place.provider.account("with"), place.provider.account("without")
    assert not ours.refused and ours.cost < 0.9 * theirs.cost
