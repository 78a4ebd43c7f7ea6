"""Every Python block of docs/integrations.md runs against the provider, if its framework is installed."""

import importlib.util
import re

import pytest

from tests.conftest import ROOT
from tests.integrations.page import PAGE
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback

BLOCKS = re.findall(r"^### ([^\n]+)\n+```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in BLOCKS])
def test_the_block_runs(code, monkeypatch):
    for module in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    if "openai:" in code and importlib.util.find_spec("langchain_openai") is None:
        pytest.skip("langchain_openai is not installed")
    provider = Provider(calls=0)
    with on_loopback(provider.app) as url:
        for name, value in {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, "docs")
        names = {"__name__": "example"}
        exec(compile(code, "integrations.md", "exec"), names)
        if "hello" in code:
            assert provider.account("docs").turn == 1 and not provider.account("docs").refused
    if "litellm" in names:
        names["litellm"].callbacks = []


def test_the_two_commands_are_those_that_doctor_prints():
    from gemjax.serve.agents import AGENTS, DEFAULT_BASE

    shell = PAGE[: PAGE.index("## Frameworks")]
    claude = AGENTS["claude-code"].line.format(base=DEFAULT_BASE).removeprefix("export ")
    assert f"{claude} claude\n" in shell and "gemjax serve &" in shell
    assert f"`{AGENTS['codex'].line.format(base=DEFAULT_BASE)}`" in shell


def test_every_framework_of_the_package_has_a_block():
    import gemjax.integrations

    helpers = {"__init__", "document", "lineage", "recall", "shortener", "store", "wire"}
    folder = ROOT / "gemjax" / "integrations"
    modules = {p.stem for p in folder.glob("*.py")} - helpers
    shown = set(re.findall(r"gemjax\.integrations\.(\w+) import", PAGE)) - helpers
    assert gemjax.integrations.__doc__ and shown == modules


def test_no_framework_is_imported_before_it_is_used():
    import subprocess
    import sys

    modules = [p.stem for p in (ROOT / "gemjax" / "integrations").glob("*.py") if p.stem != "__init__"]
    code = "import sys\n" + "".join(f"import gemjax.integrations.{m}\n" for m in modules)
    code += (
        "bad = {'openai', 'anthropic', 'langchain', 'agents', 'litellm', 'pydantic_ai', 'strands', 'httpx2', 'jax'}\n"
    )
    code += "print(sorted(bad & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert out.stdout.strip() == "[]"
