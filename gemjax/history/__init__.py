"""GEM façade: shorten an agent's message history by whole tool-call blocks, and check that requests are valid."""

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Affinity": "gemjax.history.evidence",
    "ArrivalConfig": "gemjax.history.arrival.config",
    "Balance": "gemjax.history.evidence",
    "UserWords": "gemjax.history.evidence",
    "Block": "gemjax.history.records",
    "BlockContent": "gemjax.history.records",
    "BlockRecord": "gemjax.history.result",
    "BlockSignals": "gemjax.history.signals",
    "CompressionResult": "gemjax.history.result",
    "CostAwarePolicy": "gemjax.history.policy",
    "DEFAULT_RULES": "gemjax.history.evidence",
    "Decision": "gemjax.history.policy",
    "Errors": "gemjax.history.evidence",
    "EvidenceView": "gemjax.history.evidence",
    "GEMConfig": "gemjax.history.config",
    "Goal": "gemjax.history.evidence",
    "HistoryCompressor": "gemjax.history.compressor",
    "PAPER_RULES": "gemjax.history.evidence",
    "PaperPolicy": "gemjax.history.policy",
    "Plan": "gemjax.history.policy",
    "Policy": "gemjax.history.policy",
    "Problem": "gemjax.history.problems",
    "Recent": "gemjax.history.evidence",
    "Rule": "gemjax.history.evidence",
    "Situation": "gemjax.history.policy",
    "Sources": "gemjax.history.evidence",
    "State": "gemjax.history.evidence",
    "validate": "gemjax.history.blocks",
}

__all__ = [
    "DEFAULT_RULES",
    "PAPER_RULES",
    "Affinity",
    "ArrivalConfig",
    "Balance",
    "Block",
    "BlockContent",
    "BlockRecord",
    "BlockSignals",
    "CompressionResult",
    "CostAwarePolicy",
    "Decision",
    "Errors",
    "EvidenceView",
    "GEMConfig",
    "Goal",
    "HistoryCompressor",
    "PaperPolicy",
    "Plan",
    "Policy",
    "Problem",
    "Recent",
    "Rule",
    "Situation",
    "Sources",
    "State",
    "UserWords",
    "validate",
]

if TYPE_CHECKING:
    from gemjax.history.arrival.config import ArrivalConfig
    from gemjax.history.blocks import validate
    from gemjax.history.compressor import HistoryCompressor
    from gemjax.history.config import GEMConfig
    from gemjax.history.evidence import (
        DEFAULT_RULES,
        PAPER_RULES,
        Affinity,
        Balance,
        Errors,
        EvidenceView,
        Goal,
        Recent,
        Rule,
        Sources,
        State,
        UserWords,
    )
    from gemjax.history.policy import CostAwarePolicy, Decision, PaperPolicy, Plan, Policy, Situation
    from gemjax.history.problems import Problem
    from gemjax.history.records import Block, BlockContent
    from gemjax.history.result import BlockRecord, CompressionResult
    from gemjax.history.signals import BlockSignals


def __getattr__(name: str) -> Any:
    # Lazily, so that `gemjax.validate` needs neither NumPy nor the rest of the façade.
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'gemjax.history' has no attribute {name!r}")
