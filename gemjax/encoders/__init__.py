"""Encoders: texts to unit vectors.

Importing this loads neither JAX nor torch, and touches no device; an encoder loads what it needs when it is made.
"""

from gemjax.encoders.cached import CachedEncoder, CacheUsage
from gemjax.encoders.default import as_encoder, default_encoder, load_encoder
from gemjax.encoders.flax_encoder import FlaxSentenceEncoder
from gemjax.encoders.last_token import LastTokenEncoder
from gemjax.encoders.protocol import CallableEncoder, Encoder
from gemjax.encoders.torch_encoder import SentenceTransformerEncoder

__all__ = [
    "CacheUsage",
    "CachedEncoder",
    "CallableEncoder",
    "Encoder",
    "FlaxSentenceEncoder",
    "LastTokenEncoder",
    "SentenceTransformerEncoder",
    "as_encoder",
    "default_encoder",
    "load_encoder",
]
