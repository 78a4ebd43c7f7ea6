"""The Flax sentence encoder on small random models: windows, chunks, prompts, shapes, hostile texts."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.encoders import FlaxSentenceEncoder
from gemjax.errors import ConfigError, WeightsError
from gemjax.models.bert import embed_rows
from tests.models.tiny import WORDS, write_json, write_model

WINDOW = 16
# Entries of unit vectors from float32 over two layers; the same arithmetic in another order.
CLOSE = {"rtol": 0, "atol": 2e-6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "model", window=WINDOW)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> FlaxSentenceEncoder:
    return FlaxSentenceEncoder(folder)


def sentence(length: int, seed: int = 0) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS[4:14], length))


def test_it_says_what_it_is(encoder: FlaxSentenceEncoder) -> None:
    assert (encoder.dim, encoder.window, encoder.source) == (16, WINDOW, "path")
    assert encoder.name.startswith("model:mean:16:pool:")
    assert encoder.name in repr(encoder)


def test_two_sets_of_weights_have_two_names(tmp_path: Path, encoder: FlaxSentenceEncoder) -> None:
    other = FlaxSentenceEncoder(write_model(tmp_path / "model", window=WINDOW, seed=1))
    assert other.name != encoder.name
    assert np.abs(other.encode(["cat"]) - encoder.encode(["cat"])).max() > 0.01


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_text_keeps_its_vector_whatever_stands_beside_it(
    encoder: FlaxSentenceEncoder, lengths: list[int], random: object
) -> None:
    texts = [sentence(n, seed=n) for n in lengths]
    together = encoder.encode(texts)
    np.testing.assert_array_equal(together, encoder.encode(texts))
    order = list(range(len(texts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    np.testing.assert_allclose(encoder.encode([texts[i] for i in order]), together[order], **CLOSE)
    np.testing.assert_allclose(np.concatenate([encoder.encode([t]) for t in texts]), together, **CLOSE)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=0, atol=1e-6)


def test_a_long_text_is_the_mean_of_its_windows_by_length(encoder: FlaxSentenceEncoder, folder: Path) -> None:
    room = WINDOW - 2
    for length in (room, room + 1, 3 * room, 3 * room + 5):
        words = sentence(length, seed=length).split()
        chunks = [words[i : i + room] for i in range(0, length, room)]
        vectors = encoder.encode([" ".join(chunk) for chunk in chunks])
        want = (vectors.astype(np.float64) * [[len(chunk)] for chunk in chunks]).sum(0)
        np.testing.assert_allclose(encoder.encode([" ".join(words)])[0], want / np.linalg.norm(want), **CLOSE)
    first = FlaxSentenceEncoder(folder, long_texts="truncate")
    np.testing.assert_allclose(first.encode([" ".join(words)])[0], vectors[0], **CLOSE)
    assert first.name != encoder.name


def test_tokens_are_counted(folder: Path) -> None:
    made = FlaxSentenceEncoder(folder)
    assert made.count_tokens(["cat dog", "", "abc", sentence(100)]) == [2, 0, 3, 100]
    assert made.tokens == 0
    made.encode(["cat dog", "", sentence(WINDOW)])
    # 2 + 2 special, 2 special, and two windows: 14 + 2 and 2 + 2.
    assert made.tokens == 4 + 2 + 16 + 4
    assert made.encode([]).shape == (0, 16)


def test_an_empty_text_is_its_special_tokens(encoder: FlaxSentenceEncoder) -> None:
    empty, blank = encoder.encode(["", " \n\t "])
    np.testing.assert_allclose(empty, blank, **CLOSE)
    assert abs(np.linalg.norm(empty) - 1) < 1e-6


def test_the_prompt_comes_from_the_model_or_the_caller(tmp_path: Path, encoder: FlaxSentenceEncoder) -> None:
    folder = write_model(tmp_path / "model", window=WINDOW)
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {"query": "dog "}, "default_prompt_name": "query"},
    )
    want = encoder.encode(["dog cat", "cat cat", "cat"])
    by_model, by_caller = FlaxSentenceEncoder(folder), FlaxSentenceEncoder(folder, prompt="cat ")
    np.testing.assert_allclose(by_model.encode(["cat"])[0], want[0], **CLOSE)
    np.testing.assert_allclose(by_caller.encode(["cat"])[0], want[1], **CLOSE)
    none = FlaxSentenceEncoder(folder, prompt="")
    np.testing.assert_allclose(none.encode(["cat"])[0], want[2], **CLOSE)
    assert len({by_model.name, by_caller.name, none.name}) == 3 and none.name == encoder.name


def test_cls_pooling_and_a_bare_transformer(tmp_path: Path, encoder: FlaxSentenceEncoder) -> None:
    cls = FlaxSentenceEncoder(write_model(tmp_path / "cls", window=WINDOW, pooling="cls"))
    assert np.abs(cls.encode(["cat"]) - encoder.encode(["cat"])).max() > 0.01
    bare = write_model(tmp_path / "bare")
    for name in ("modules.json", "sentence_bert_config.json"):
        (bare / name).unlink()
    made = FlaxSentenceEncoder(bare)
    assert made.window == 40  # as many as there are positions
    np.testing.assert_allclose(made.encode(["cat"]), encoder.encode(["cat"]), **CLOSE)


def test_hostile_texts_give_unit_vectors(encoder: FlaxSentenceEncoder) -> None:
    texts = ["\ud800", "x\udfffy", "\x00", "\ufffe", "🏳️‍🌈" * 50, "a" * 5000, "​" * 300, "[CLS] [SEP]", "漢字" * 300]
    out = encoder.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, rtol=0, atol=1e-6)
    np.testing.assert_allclose(out[0], encoder.encode(["\ufffd"])[0], **CLOSE)


def test_what_is_no_list_of_strings_is_refused(encoder: FlaxSentenceEncoder) -> None:
    with pytest.raises(TypeError, match="single string"):
        encoder.encode("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"texts\[1\] is NoneType"):
        encoder.encode(["a", None])  # type: ignore[list-item]


def test_a_growing_load_compiles_a_handful_of_programs(tmp_path: Path) -> None:
    # Sizes of its own, so that no other test has compiled for them.
    made = FlaxSentenceEncoder(
        write_model(tmp_path / "m", window=512, max_position_embeddings=512, hidden_size=8, num_attention_heads=1)
    )
    before = embed_rows._cache_size()
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 8, 20):
        for top in (5, 60, 120, 250, 500, 1500):
            made.encode([sentence(int(n)) for n in rng.integers(0, top, count)])
    # Rows of 64, 128, 256 (1 and 4 at a time) and 512 (1 and 2).
    assert embed_rows._cache_size() - before <= 6
    settled = embed_rows._cache_size()
    made.encode([sentence(int(n)) for n in rng.integers(0, 900, 40)])
    assert embed_rows._cache_size() == settled


def test_threads_share_an_encoder(folder: Path) -> None:
    made = FlaxSentenceEncoder(folder)
    texts = [sentence(n, n) for n in range(1, 30)]
    want, before = made.encode(texts), made.tokens
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(made.encode(texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 4 and all(np.array_equal(r, want) for r in results)
    assert made.tokens == 5 * before


def test_bad_models_are_refused_at_construction(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="long_texts = 'cut'"):
        FlaxSentenceEncoder(write_model(tmp_path / "a"), long_texts="cut")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="window of 2 tokens"):
        FlaxSentenceEncoder(write_model(tmp_path / "b", window=2))
    with pytest.raises(WeightsError, match="hidden_act"):
        FlaxSentenceEncoder(write_model(tmp_path / "c", hidden_act="silu"))
    cut = write_model(tmp_path / "d")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-4])
    with pytest.raises(WeightsError, match="cut off"):
        FlaxSentenceEncoder(cut)
    (cut / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="holds no model"):
        FlaxSentenceEncoder(cut)
    no_config = write_model(tmp_path / "e")
    (no_config / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json cannot be read"):
        FlaxSentenceEncoder(no_config)


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from getrusage")
def test_a_text_of_four_megabytes_does_not_blow_up_memory(folder: Path) -> None:
    code = (
        "import resource, sys\n"
        "from gemjax.encoders import FlaxSentenceEncoder\n"
        "made = FlaxSentenceEncoder(sys.argv[1], long_texts='truncate')\n"
        "made.encode(['cat'])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "made.encode(['cat dog ' * 500_000])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout) / (1024 if sys.platform == "darwin" else 1)
    # The text, its million ids and one call's encodings: about 60 MB. Tokenised in one piece it would be above 450 MB.
    assert kilobytes < 150_000
