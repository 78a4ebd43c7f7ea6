"""The encoder that is used when none is given, and encoders by name."""

import os
import threading
from pathlib import Path
from typing import Literal

from gemjax.encoders.flax_encoder import FlaxSentenceEncoder
from gemjax.encoders.protocol import Encoder
from gemjax.encoders.torch_encoder import SentenceTransformerEncoder
from gemjax.errors import ConfigError

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
    name_or_path: str | os.PathLike[str], *, backend: Literal["flax", "sentence-transformers"] = "flax"
) -> Encoder:
    """An encoder by the name or folder of its model.

    Args:
        name_or_path: a folder in sentence-transformers' layout, or a model name: looked up among installed weights
            packages, in the Hugging Face cache, then on the hub.
        backend: "flax" (BERT family, no torch) or "sentence-transformers" (any model it loads; an extra).

    Raises:
        WeightsError: there are no weights, or "flax" does not implement the model.
        ConfigError: an unknown backend, or an extra is not installed.
    """
    if backend not in ("flax", "sentence-transformers"):
        raise ConfigError(f"backend = {backend!r}; expected 'flax' or 'sentence-transformers'")
    model = name_or_path if isinstance(name_or_path, str) else Path(name_or_path)
    return FlaxSentenceEncoder(model) if backend == "flax" else SentenceTransformerEncoder(model)
