"""LiteLLM's proxy itself, in a process of its own, with our hook in its settings."""

import contextlib
import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import time

import httpx2
import pytest

from tests.conftest import ROOT
from tests.serve.agents import RawAgent

# What the proxy imports and LiteLLM alone does not bring.
for module in ("litellm", "fastapi", "redis", "fastapi_sso", "apscheduler"):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"LiteLLM's proxy cannot start: {module} is not installed", allow_module_level=True)

# It refuses to start without one, and with a weak one.
MASTER_KEY = f"sk-{secrets.token_hex(32)}"
HANDLER = """
from gemjax.history import HistoryCompressor
from gemjax.integrations.litellm import proxy_hook
from tests.conftest import HashingEncoder

handler = proxy_hook(HistoryCompressor(HashingEncoder()))
"""


@contextlib.contextmanager
def running(folder, provider, hook):
    """LiteLLM's proxy before the provider; yields its base URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "our_hook.py").write_text(HANDLER)
    where = {"model": "openai/scripted", "api_base": f"{provider.url}/v1", "api_key": f"litellm-{hook}"}
    settings = {"model_list": [{"model_name": "scripted", "litellm_params": where}]}
    if hook:
        settings["litellm_settings"] = {"callbacks": "our_hook.handler"}
    (folder / "config.yaml").write_text(json.dumps(settings))
    line = "import sys; from litellm import run_server; sys.exit(run_server())"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": MASTER_KEY,
        "NO_PROXY": "127.0.0.1",
    }
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", line, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            patience = time.monotonic() + 90
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                if process.poll() is not None or time.monotonic() > patience:
                    pytest.fail(f"LiteLLM's proxy did not start: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def run(base):
    agent = RawAgent("chat", MASTER_KEY)
    with httpx2.Client(base_url=base, trust_env=False, timeout=60) as client:
        agent.run(client)
    return agent


def test_an_agent_through_litellms_proxy(tmp_path, provider, compare):
    for hook in (True, False):
        folder = tmp_path / str(hook)
        folder.mkdir()
        with running(folder, provider, hook) as base:
            agent = run(base)
            assert len(agent.messages) == 2 + 2 * provider.calls
    for key in ("litellm-True", "litellm-False"):
        account = provider.account(key)
        account.bodies = [b for b in account.bodies if b]  # it also asks which models there are
    compare("litellm-True", "litellm-False")
