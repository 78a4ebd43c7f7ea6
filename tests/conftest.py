"""Fixtures shared by the suite: where the recorded data lies, and an encoder that needs no weights."""

import os
import zlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# In continuous integration the same examples run every time, so that a landing does not hang on a draw; everywhere else
# each run looks at new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The recorded trajectories and LoCoMo; `GEMJAX_DATA`, else `../shared/data` beside the project."""
    path = Path(os.environ.get("GEMJAX_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"recorded data is not at {path}; set GEMJAX_DATA to its folder")
    return path


class HashingEncoder:
    """Hashed bag of words: deterministic, fast, no weights. Stands in where a test is not about the encoder."""

    name = "hashing-64"
    dim = 64

    def __init__(self) -> None:
        self.calls = 0
        self.texts = 0

    def encode(self, texts: list[str]) -> np.ndarray:
        self.calls += 1
        self.texts += len(texts)
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(out, texts, strict=True):
            for word in text.split():
                h = zlib.crc32(word.encode("utf-8", "surrogatepass"))
                row[h % self.dim] += 1.0 if h & 0x8000_0000 else -1.0
        norm = np.linalg.norm(out, axis=1, keepdims=True)
        return out / np.where(norm > 0, norm, 1.0)


@pytest.fixture
def hashing_encoder() -> HashingEncoder:
    return HashingEncoder()
