"""Loading tokenizers, and texts that break them: surrogates, huge strings, foreign files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gemjax.errors import WeightsError
from gemjax.models import tokenizer as module
from gemjax.models.tokenizer import SentenceTokenizer, load_tokenizer, readable
from tests.models.tiny import WORDS, tokenizer, write_model


@pytest.fixture
def loaded(tmp_path: Path) -> Tokenizer:
    return load_tokenizer(write_model(tmp_path / "m"))


def test_truncation_and_padding_of_the_file_are_off(loaded: Tokenizer, tmp_path: Path) -> None:
    assert loaded.truncation is None and loaded.padding is None
    assert len(loaded.encode("a b c d e f g h").ids) == 10
    by_file = load_tokenizer(tmp_path / "m" / "tokenizer.json")
    assert by_file.encode("cat").ids == loaded.encode("cat").ids


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"tokenizer\.json is damaged"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match=r"holds no tokenizer\.json"):
        load_tokenizer(folder)


def test_special_tokens_are_kept_apart(loaded: Tokenizer) -> None:
    made = SentenceTokenizer(loaded)
    assert made.prefix.tolist() == [2] and made.suffix.tolist() == [3]
    assert made.ids(["cat dog", "", "abc"])[0].tolist() == [WORDS.index("cat"), WORDS.index("dog")]
    assert made.count(["cat dog", "", "abc"]) == [2, 0, 3]
    assert [a.dtype for a in made.ids(["", "a"])] == [np.int32, np.int32]


def test_lowercase_comes_before_everything_else(loaded: Tokenizer) -> None:
    assert SentenceTokenizer(loaded).ids(["CAT"])[0].tolist() == [WORDS.index("[UNK]")]
    assert SentenceTokenizer(loaded, lowercase=True).ids(["CAT"])[0].tolist() == [WORDS.index("cat")]


def test_ids_beyond_the_embedding_table_are_refused(loaded: Tokenizer) -> None:
    SentenceTokenizer(loaded, vocab_size=len(WORDS))
    with pytest.raises(WeightsError, match="embedding table has 20 rows"):
        SentenceTokenizer(loaded, vocab_size=20)


def test_a_template_that_is_not_around_the_text_is_refused(loaded: Tokenizer) -> None:
    loaded.post_processor = processors.TemplateProcessing(
        single="[CLS]:1 $A:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(WeightsError, match="special tokens"):
        SentenceTokenizer(loaded)


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud800\udfff\x00 a")))
def test_any_string_is_readable_and_tokenised(text: str) -> None:
    out = readable(text)
    out.encode("utf-8")
    assert len(out) == len(text)
    assert all(a == b or ("\ud800" <= a <= "\udfff" and b == "\ufffd") for a, b in zip(text, out, strict=True))
    plain = tokenizer()
    plain.no_truncation()
    plain.no_padding()
    made = SentenceTokenizer(plain)
    assert made.ids([text])[0].tolist() == plain.encode(out, add_special_tokens=False).ids


def test_a_huge_text_in_pieces_has_the_tokens_of_the_whole(loaded: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    words = [*WORDS[4:14], "cat", "dog", "abcab", "runs,"]
    text = "".join(
        word + gap for word, gap in zip(rng.choice(words, 900), rng.choice([" ", "\n", "  "], 900), strict=True)
    )
    whole = loaded.encode(text, add_special_tokens=False).ids
    monkeypatch.setattr(module, "_PIECE_CHARS", 100)
    monkeypatch.setattr(module, "_CALL_CHARS", 350)
    made = SentenceTokenizer(loaded)
    texts = ["cat", text, "", text[:50]]
    assert [ids.tolist() for ids in made.ids(texts)] == [loaded.encode(t, add_special_tokens=False).ids for t in texts]
    assert len(whole) > 900
    # One word longer than a piece is cut inside; every character is still read.
    assert "".join(module._pieces("x" * 1234)) == "x" * 1234
    assert made.count(["x" * 1234]) == [13]


def test_a_byte_level_tokenizer_keeps_its_tokens_across_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "some words, and some more; " * 20
    whole = made.encode(text).ids
    monkeypatch.setattr(module, "_PIECE_CHARS", 64)
    assert SentenceTokenizer(made).ids([text])[0].tolist() == whole
