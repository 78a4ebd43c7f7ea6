"""GEM façade: shorten an agent's message history by whole tool-call blocks, and check that requests are valid."""

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "BlockRecord": "gemjax.history.result",
    "CompressionResult": "gemjax.history.result",
    "CostAwarePolicy": "gemjax.history.policy",
    "Decision": "gemjax.history.policy",
    "GEMConfig": "gemjax.history.config",
    "HistoryCompressor": "gemjax.history.compressor",
    "PaperPolicy": "gemjax.history.policy",
    "Plan": "gemjax.history.policy",
    "Policy": "gemjax.history.policy",
    "Problem": "gemjax.history.problems",
    "Situation": "gemjax.history.policy",
    "validate": "gemjax.history.blocks",
}

__all__ = [
    "BlockRecord",
    "CompressionResult",
    "CostAwarePolicy",
    "Decision",
    "GEMConfig",
    "HistoryCompressor",
    "PaperPolicy",
    "Plan",
    "Policy",
    "Problem",
    "Situation",
    "validate",
]

if TYPE_CHECKING:
    from gemjax.history.blocks import validate
    from gemjax.history.compressor import HistoryCompressor
    from gemjax.history.config import GEMConfig
    from gemjax.history.policy import CostAwarePolicy, Decision, PaperPolicy, Plan, Policy, Situation
    from gemjax.history.problems import Problem
    from gemjax.history.result import BlockRecord, CompressionResult


def __getattr__(name: str) -> Any:
    # Lazily, so that `gemjax.validate` needs neither NumPy nor the rest of the façade.
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'gemjax.history' has no attribute {name!r}")
