"""mini-swe-agent itself, with the model class that docs/integrations.md shows, running commands on this machine."""

import re

import pytest

pytest.importorskip("minisweagent", reason="mini-swe-agent is not installed")

from tests.integrations.page import PAGE
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback

CALLS = 50
SETTINGS = {"system_template": "Be exact.", "instance_template": "{{task}}", "cost_limit": 0, "step_limit": 100}


def command(turn):
    if turn == CALLS - 1:
        return "bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}
    return "bash", {
        "command": f"echo step {turn} in src/module_{turn}.py; seq {turn * 1000} {turn * 1000 + 220} | tr '\\n' ' '"
    }


def run(provider, key, model):
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment

    given = {"api_base": f"{provider.url}/v1", "api_key": key}
    made = model(model_name="openai/scripted", model_kwargs=given, cost_tracking="ignore_errors")
    agent = DefaultAgent(made, LocalEnvironment(), **SETTINGS)
    agent.run("Go through the steps.")
    return agent.messages


def test_the_documented_model(gem, monkeypatch):
    from minisweagent.models.litellm_model import LitellmModel

    (code,) = re.findall(r"^### mini-swe-agent\n+```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names = {"__name__": "example"}
    exec(compile(code, "integrations.md", "exec"), names)
    monkeypatch.setattr(names["ShorterModel"].shortener, "compressor", gem)
    provider = Provider(calls=CALLS, calling=command)
    with on_loopback(provider.app) as url:
        provider.url = url
        messages = run(provider, "ours", names["ShorterModel"])
        run(provider, "whole", LitellmModel)
    ours, whole = provider.account("ours"), provider.account("whole")
    assert not ours.refused and ours.turn == whole.turn == CALLS
    assert sum(m["role"] == "tool" for m in messages) >= CALLS - 1, "the agent's own history is whole"
    assert ours.cost <= whole.cost and sum(map(len, ours.bodies)) < 0.95 * sum(map(len, whole.bodies))
