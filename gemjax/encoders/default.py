"""The encoder that is used when none is given, encoders by name, and whatever else can act as one."""

import inspect
import os
import threading
from pathlib import Path
from typing import Any, Literal, cast

from gemjax.encoders.flax_encoder import FlaxSentenceEncoder
from gemjax.encoders.last_token import LastTokenEncoder
from gemjax.encoders.protocol import CallableEncoder, Encoder
from gemjax.encoders.torch_encoder import SentenceTransformerEncoder
from gemjax.errors import ConfigError, WeightsError

_lock = threading.Lock()
_default: FlaxSentenceEncoder | None = None


def default_encoder() -> FlaxSentenceEncoder:
    """all-MiniLM-L6-v2, loaded once a process and shared: 90 MB of weights, and safe to use from several threads.

    Raises:
        WeightsError: its weights are nowhere; the message says the ways to get them. The next call looks again.
    """
    global _default
    with _lock:
        if _default is None:
            _default = FlaxSentenceEncoder()
        return _default


def load_encoder(
    name_or_path: str | os.PathLike[str],
    *,
    backend: Literal["flax", "sentence-transformers"] = "flax",
    dim: int | None = None,
) -> Encoder:
    """An encoder by the name or folder of its model.

    `config.json` decides between the two networks that need no torch: a BERT-family model becomes a
    `FlaxSentenceEncoder`, a Llama, Qwen2 or Qwen3 model (Qwen3-Embedding, gte-Qwen2) and any `.gguf` file a
    `LastTokenEncoder`.

    Args:
        name_or_path: a folder in sentence-transformers' layout or a bare transformer's, a `.gguf` file, or a model
            name: looked up among installed weights packages, in the Hugging Face cache, then on the hub.
        backend: "flax", or "sentence-transformers" (any model it loads; an extra).
        dim: entries of a vector to keep, for a `LastTokenEncoder`; None: all.

    Raises:
        WeightsError: there are no weights, or "flax" does not implement the model.
        ConfigError: an unknown backend, an extra is not installed, or `dim` is out of range or for another encoder.
    """
    if backend not in ("flax", "sentence-transformers"):
        raise ConfigError(f"backend = {backend!r}; expected 'flax' or 'sentence-transformers'")
    model = name_or_path if isinstance(name_or_path, str) else Path(name_or_path)
    if backend == "flax" and _is_decoder(model):
        return LastTokenEncoder(model, dim=dim)
    if dim is not None:
        raise ConfigError(f"dim = {dim!r}; only the vectors of a Llama or Qwen embedding model can be cut")
    return FlaxSentenceEncoder(model) if backend == "flax" else SentenceTransformerEncoder(model)


def _is_decoder(model: str | Path) -> bool:
    """Whether the model is one for `LastTokenEncoder`. Raises `WeightsError` when neither network implements it."""
    from gemjax.models import bert, config
    from gemjax.models.language_files import find_language_model
    from gemjax.models.sentence import read_json, transformer_folder

    files, gguf = find_language_model(model)
    if gguf is not None:
        return True
    path = transformer_folder(files.folder) / "config.json"
    kind = read_json(path).get("model_type")
    if kind not in (*bert.FAMILY, *config.FAMILY):
        raise WeightsError(
            f"{path}: model_type {kind!r} is not supported, only {', '.join((*bert.FAMILY, *config.FAMILY))}; "
            "use SentenceTransformerEncoder for this model"
        )
    return kind in config.FAMILY


def as_encoder(encoder: Any = None) -> Encoder:
    """What a user may pass as an encoder, as an `Encoder`.

    Args:
        encoder: an `Encoder`; a `SentenceTransformer`; a function `list[str] -> array-like`; a name or folder for
            `load_encoder`; None for `default_encoder()`.

    Raises:
        ConfigError: it is none of these.
        WeightsError: its weights, or the default encoder's, cannot be had.
    """
    if encoder is None:
        return default_encoder()
    if isinstance(encoder, (str, os.PathLike)):
        return load_encoder(encoder)
    # Looked up statically: `dim` may be a property that costs a call to a service.
    named = all(inspect.getattr_static(encoder, part, None) is not None for part in ("name", "dim"))
    if named and callable(getattr(encoder, "encode", None)) and not isinstance(encoder, type):
        return cast(Encoder, encoder)
    if any(base.__name__ == "SentenceTransformer" for base in type(encoder).__mro__):
        return SentenceTransformerEncoder(encoder)
    if callable(encoder) and not isinstance(encoder, type):
        return CallableEncoder(encoder)
    raise ConfigError(
        f"{type(encoder).__name__} is no encoder: it needs name, dim and encode(list[str]), or to be a function "
        "list[str] -> array"
    )
