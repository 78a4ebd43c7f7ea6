"""A `tokenizers.Tokenizer` from the vocabulary inside a GGUF file (byte-level BPE only)."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from gemjax.errors import WeightsError
from gemjax.models.opening import damage, no_panic
from gemjax.models.tokenizer import add_ends

_CONTROL, _USER_DEFINED = 3, 4
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_from_gguf(fields: Mapping[str, Any], name: str) -> Tokenizer:
    """Byte-level BPE with the pre-tokenizer that the file names.

    Args:
        fields: `GGUFFile.tokenizer_fields()`.
        name: the file, for messages.

    Raises:
        WeightsError: another kind of tokenizer, an unknown pre-tokenizer, or a damaged vocabulary.
    """
    with damage(f"{name}: the tokenizer"), no_panic(f"{name}: the tokenizer"):
        return _byte_level(fields, name)


def _byte_level(fields: Mapping[str, Any], name: str) -> Tokenizer:
    if fields.get("model") != "gpt2":
        raise WeightsError(
            f"{name}: tokenizer {fields.get('model')!r} is not supported; put its tokenizer.json beside the file"
        )
    tokens, merges, kinds = fields.get("tokens"), fields.get("merges"), fields.get("token_type")
    if not tokens or merges is None or (kinds is not None and len(kinds) != len(tokens)):
        raise WeightsError(f"{name}: the tokenizer's vocabulary is damaged")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    try:
        tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, pairs))
    except Exception as error:  # tokenizers raises bare Exception
        raise WeightsError(f"{name}: the tokenizer's vocabulary is damaged: {error}") from error
    tokenizer.pre_tokenizer = _pre_tokenizer(fields.get("pre"), name)
    tokenizer.decoder = decoders.ByteLevel()
    for i, kind in enumerate(kinds or ()):
        if kind in (_CONTROL, _USER_DEFINED):
            special = [AddedToken(tokens[i], special=kind == _CONTROL, normalized=False)]
            (tokenizer.add_special_tokens if kind == _CONTROL else tokenizer.add_tokens)(special)
    first, last = (
        _token(fields, tokens, f"{end}_token_id", name) if fields.get(f"add_{end}_token") else None
        for end in ("bos", "eos")
    )
    add_ends(tokenizer, first, last)
    return tokenizer


def _token(fields: Mapping[str, Any], tokens: Any, key: str, name: str) -> str:
    number = fields.get(key)
    if number is None or not 0 <= number < len(tokens):
        raise WeightsError(f"{name}: {key} = {number!r} is not in the vocabulary of {len(tokens)} tokens")
    return str(tokens[number])


def _pre_tokenizer(kind: Any, name: str) -> pre_tokenizers.PreTokenizer:
    if kind == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if kind in ("gpt-2", "default"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = {"llama-bpe": "{1,3}", "llama3": "{1,3}", "qwen2": ""}.get(kind)
    if digits is None:
        raise WeightsError(
            f"{name}: pre-tokenizer {kind!r} is not supported; put the model's tokenizer.json beside the file"
        )
    split = pre_tokenizers.Split(Regex(_WORDS.format(digits=digits)), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
