"""Fixtures shared by the suite: where the recorded data lies, and an encoder that needs no weights."""

import gc
import os
import sys
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


MAPS = Path("/proc/self/maps")
MANY_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_let_go():
    """A command that ran in this process left JAX's cache on disk switched on, and every compiled program holds memory
    maps, of which a process may have 65,530: beyond them native code aborts."""
    yield
    jax = sys.modules.get("jax")
    if jax is None:
        return
    if jax.config.jax_compilation_cache_dir is not None:
        from jax.experimental.compilation_cache import compilation_cache

        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()


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


def unbroken(text: str) -> str:
    """A text without its white space: how long a temporary folder's name is decides where a terminal breaks lines."""
    return "".join(text.split())
