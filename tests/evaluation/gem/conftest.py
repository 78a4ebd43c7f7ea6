"""Recorded runs made up for the tests of the tables, and the checkpoints of some of them."""

import json

import numpy as np
import pytest

from gemjax.evaluation.gem.checkpoints import collect
from gemjax.evaluation.replay import load
from gemjax.history.evidence import DEFAULT_RULES
from tests.conftest import HashingEncoder

WORDS = ["read", "write", "test", "build", "parse", "index", "search", "token"]
WORDS += ["block", "vector", "error", "fix", "config", "log", "retry", "cache"]


def conversation(seed: int, blocks: int, *, same: bool = False) -> list[dict]:
    """Chat messages of a run of `blocks` calls; `same`: every call and every result alike."""
    rng = np.random.default_rng(seed)
    messages = [{"role": "system", "content": "work"}, {"role": "user", "content": "fix the parser in src/app.py"}]
    for i in range(blocks):
        words = ["same"] if same else list(rng.choice(WORDS, 4))
        path = "src/app.py" if same else f"src/{rng.choice(WORDS)}.py"
        command = f"sed -i s/a/b/ {path}" if i % 3 == 0 else f"cat {path}"
        arguments = json.dumps({"command": f"{command} # {' '.join(words)}"})
        call = {"id": f"c{i}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = "ok" if same else " ".join(rng.choice(WORDS, 12))
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"Error: {result}" if i % 5 == 4 else result}
        )
    return messages


def record(path, messages) -> None:
    path.write_text(json.dumps({"source": "test", "domain": "code", "goal": "fix", "messages": messages}))


@pytest.fixture
def runs(tmp_path):
    """A folder of three usable runs."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for seed, blocks in enumerate((18, 23, 40)):
        record(folder / f"run-{seed}.json", conversation(seed, blocks))
    return folder


@pytest.fixture
def collected(runs):
    return collect(load(runs).trajectories, HashingEncoder(), DEFAULT_RULES).trajectories


class Failing(HashingEncoder):
    """Fails on its second call, by an error or by the user."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def encode(self, texts):
        if self.calls == 1:
            self.calls += 1
            raise self.error
        return super().encode(texts)
