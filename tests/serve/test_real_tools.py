"""Codex and Claude Code themselves, if they are installed, through the proxy to the provider."""

import os
import shutil
import subprocess

import pytest

from tests.provider.app import Provider
from tests.serve.conftest import stand

CALLS = 24


def run(command, tmp_path, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1", **variables}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done: every step was taken." in done.stdout


def check(place, key):
    account = place.provider.account(key)
    assert account.turn >= CALLS + 1 and not account.refused
    total, _ = place.proxy.ledger.snapshot()
    assert total.requests == len(account.bodies) and not total.warnings


def test_codex(tmp_path):
    codex = shutil.which("codex") or pytest.skip("codex is not installed")
    with stand(Provider(calls=CALLS)) as place:
        line = [
            codex,
            "exec",
            "--skip-git-repo-check",
            "-c",
            f"openai_base_url={place.url}/v1",
            "Go through the steps.",
        ]
        run(line, tmp_path, OPENAI_API_KEY="codex", CODEX_API_KEY="codex")
        check(place, "codex")


@pytest.mark.parametrize("thinking", [None, "error"])
def test_claude_code(tmp_path, thinking):
    claude = shutil.which("claude") or pytest.skip("claude is not installed")
    with stand(Provider(calls=CALLS, thinking=thinking)) as place:
        variables = {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_API_KEY": "claude"}
        variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
        run([claude, "-p", "Go through the steps.", "--max-turns", "100"], tmp_path, **variables)
        check(place, "claude")
