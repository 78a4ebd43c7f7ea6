"""gemjax: JAX kernels and façades that make long agent histories and long dialogue memories cheap.

Importing this package imports neither JAX nor torch and touches no device; each public name loads what it needs on
first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "ArrivalConfig": "gemjax.history",
    "CrossEncoder": "gemjax.encoders.cross",
    "DistillConfig": "gemjax.distill",
    "Distiller": "gemjax.distill",
    "CallbackError": "gemjax.errors",
    "CompressionResult": "gemjax.history",
    "ConfigError": "gemjax.errors",
    "CoreMem": "gemjax.coremem",
    "CoreMemConfig": "gemjax.coremem",
    "Encoder": "gemjax.encoders",
    "EncoderError": "gemjax.errors",
    "EvidenceSelector": "gemjax.distill",
    "FlaxSentenceEncoder": "gemjax.encoders",
    "GEMConfig": "gemjax.history",
    "GemjaxError": "gemjax.errors",
    "GenerationError": "gemjax.errors",
    "HistoryCompressor": "gemjax.history",
    "LocalGenerator": "gemjax.coremem.local",
    "MemoryBank": "gemjax.memory",
    "MemoryBankError": "gemjax.errors",
    "MemoryConfig": "gemjax.memory",
    "OpenAIGenerator": "gemjax.coremem.openai_generator",
    "Problem": "gemjax.history",
    "PromptTemplate": "gemjax.coremem",
    "RequestError": "gemjax.errors",
    "Sampling": "gemjax.coremem.generation",
    "SelectorConfig": "gemjax.distill",
    "SentenceTransformerEncoder": "gemjax.encoders",
    "StateError": "gemjax.errors",
    "UnansweredError": "gemjax.coremem",
    "WeightsError": "gemjax.errors",
    "validate": "gemjax.history",
}

__all__ = [
    "ArrivalConfig",
    "CallbackError",
    "CompressionResult",
    "ConfigError",
    "CoreMem",
    "CoreMemConfig",
    "CrossEncoder",
    "DistillConfig",
    "Distiller",
    "Encoder",
    "EncoderError",
    "EvidenceSelector",
    "FlaxSentenceEncoder",
    "GEMConfig",
    "GemjaxError",
    "GenerationError",
    "HistoryCompressor",
    "LocalGenerator",
    "MemoryBank",
    "MemoryBankError",
    "MemoryConfig",
    "OpenAIGenerator",
    "Problem",
    "PromptTemplate",
    "RequestError",
    "Sampling",
    "SelectorConfig",
    "SentenceTransformerEncoder",
    "StateError",
    "UnansweredError",
    "WeightsError",
    "__version__",
    "kernels",
    "validate",
]

if TYPE_CHECKING:
    from gemjax import kernels
    from gemjax.coremem import CoreMem, CoreMemConfig, PromptTemplate, Sampling, UnansweredError
    from gemjax.coremem.local import LocalGenerator
    from gemjax.coremem.openai_generator import OpenAIGenerator
    from gemjax.distill import DistillConfig, Distiller, EvidenceSelector, SelectorConfig
    from gemjax.encoders import Encoder, FlaxSentenceEncoder, SentenceTransformerEncoder
    from gemjax.encoders.cross import CrossEncoder
    from gemjax.errors import (
        CallbackError,
        ConfigError,
        EncoderError,
        GemjaxError,
        GenerationError,
        MemoryBankError,
        RequestError,
        StateError,
        WeightsError,
    )
    from gemjax.history import ArrivalConfig, CompressionResult, GEMConfig, HistoryCompressor, Problem, validate
    from gemjax.memory import MemoryBank, MemoryConfig


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return importlib.import_module("gemjax.kernels")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'gemjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, "kernels"])
