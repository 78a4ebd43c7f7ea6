"""Tokenizers from `tokenizer.json`, and the plain id arrays that an encoder packs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, normalizers, processors

from gemjax.errors import WeightsError
from gemjax.models.opening import no_panic, regular_file
from gemjax.models.weights import find_model

# Longer texts go to the tokenizer in pieces: an Encoding costs a few hundred bytes a token, an id costs four.
_PIECE_CHARS = 1 << 17
# Characters in one call: bounds the Encodings alive at a time, and is enough to keep the tokenizer's threads busy.
_CALL_CHARS = 1 << 20
_FILE_BYTES = 256 << 20
_SURROGATES = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"\s")


def load_tokenizer(name_or_path: str | Path, *, download: bool | None = None) -> Tokenizer:
    """The tokenizer of a model, with the truncation and padding that its file may carry switched off.

    Args:
        name_or_path: a `tokenizer.json`, a model folder, or a name, looked up as `find_model` does.
        download: whether the Hugging Face hub may be asked; see `find_model`.

    Raises:
        WeightsError: there is none, or the file is damaged.
    """
    path = Path(name_or_path)
    if not path.is_file():
        path = find_model(name_or_path, download=download).folder / "tokenizer.json"
    if not path.is_file():
        raise WeightsError(f"{path.parent} holds no tokenizer.json")
    regular_file(path, _FILE_BYTES)
    with no_panic(path):
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the Rust side raises plain Exception
            raise WeightsError(f"{path} is damaged: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Some damage shows only when a text is read.
        tokenizer.encode("a B, 1 \u00e9\u6771\U0001f642")
    return tokenizer


def add_ends(tokenizer: Tokenizer, first: str | None, last: str | None) -> None:
    """Make the tokenizer put these special tokens around a text, unless it does so already; None: nothing there.

    Raises:
        WeightsError: it does not know one of them.
    """
    ends = {token: tokenizer.token_to_id(token) for token in (first, last) if token is not None}
    if unknown := sorted(token for token, number in ends.items() if number is None):
        raise WeightsError(f"the tokenizer does not know the special tokens {unknown} that it should put around a text")
    with no_panic("the tokenizer"):
        ids = tokenizer.encode("a").ids
    first = None if first is None or ids[:1] == [ends[first]] else first
    last = None if last is None or ids[-1:] == [ends[last]] else last
    if first is None and last is None:
        return
    template = processors.TemplateProcessing(
        single=[*([first] if first else []), "$A", *([last] if last else [])], special_tokens=list(ends.items())
    )
    given = tokenizer.post_processor
    tokenizer.post_processor = processors.Sequence([given, template]) if given else template


class SentenceTokenizer:
    """Texts to token ids, special tokens apart, in memory proportional to the ids.

    Args:
        tokenizer: with truncation and padding off.
        lowercase: lower the case before anything else.
        vocab_size: rows of the embedding table; ids must stay below.

    Raises:
        WeightsError: the tokenizer can give ids that the embedding table does not have, or does not put its special
            tokens around the text.
    """

    def __init__(self, tokenizer: Tokenizer, *, lowercase: bool = False, vocab_size: int | None = None) -> None:
        if lowercase:
            given = tokenizer.normalizer
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([given] if given else [])])
        top = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if vocab_size is not None and top >= vocab_size:
            raise WeightsError(f"the tokenizer knows ids up to {top}, the embedding table has {vocab_size} rows")
        self._tokenizer = tokenizer
        self.prefix, self.suffix = self._specials()

    def _specials(self) -> tuple[np.ndarray, np.ndarray]:
        with no_panic("the tokenizer"):
            bare = self._tokenizer.encode("a", add_special_tokens=False).ids
            full = self._tokenizer.encode("a")
        for start in range(len(full.ids) - len(bare) + 1):
            if full.ids[start : start + len(bare)] == bare and not any(full.type_ids):
                return np.array(full.ids[:start], np.int32), np.array(full.ids[start + len(bare) :], np.int32)
        raise WeightsError("the tokenizer does not simply put special tokens around a text")

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The token ids of each text, int32, without special tokens. Lone surrogates are read as U+FFFD.

        A text above 131,072 characters is tokenised in pieces cut before white space (or inside a word, when a single
        word is that long), which can change the tokens at a cut.
        """
        parts: list[list[np.ndarray]] = [[] for _ in texts]
        for owners, pieces in _calls(texts):
            with no_panic("a text, with this tokenizer,"):
                encodings = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
            for owner, encoding in zip(owners, encodings, strict=True):
                parts[owner].append(np.array(encoding.ids, np.int32))
        return [part[0] if len(part) == 1 else np.concatenate(part) for part in parts]

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, special tokens not counted."""
        return [len(ids) for ids in self.ids(texts)]

    def unread(self, texts: Sequence[str]) -> list[bool]:
        """Which texts have no letter or digit in any token that the vocabulary knows: they all look alike."""
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        if unknown is None:
            return [False] * len(texts)
        blind = [True] * len(texts)
        for owners, pieces in _calls(texts):
            for owner, encoding in zip(
                owners, self._tokenizer.encode_batch(pieces, add_special_tokens=False), strict=True
            ):
                blind[owner] &= not any(token != unknown and any(map(str.isalnum, token)) for token in encoding.tokens)
        return blind


def readable(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 consumer accepts, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _calls(texts: Iterable[str]) -> Iterator[tuple[list[int], list[str]]]:
    """Pieces of the texts in calls of bounded size, each piece with its text's index."""
    owners: list[int] = []
    pieces: list[str] = []
    room = _CALL_CHARS
    for owner, text in enumerate(texts):
        for piece in _pieces(text):
            if pieces and len(piece) > room:
                yield owners, pieces
                owners, pieces, room = [], [], _CALL_CHARS
            owners.append(owner)
            pieces.append(readable(piece))
            room -= len(piece)
    if pieces:
        yield owners, pieces


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _PIECE_CHARS:
        stop = start + _PIECE_CHARS
        # The last white space in the second half of the piece, so that no cut makes a piece tiny.
        stop = max((match.start() for match in _SPACE.finditer(text, start + _PIECE_CHARS // 2, stop)), default=stop)
        yield text[start:stop]
        start = stop
    yield text[start:]
