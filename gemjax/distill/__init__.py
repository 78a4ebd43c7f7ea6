"""Shorten text to a token budget: by what answers a query, or by the sensitivity of a small language model (FDTD)."""

from gemjax.distill.config import DistillConfig, SelectorConfig
from gemjax.distill.distiller import Distiller
from gemjax.distill.filler import Filler
from gemjax.distill.render import KeptSpan
from gemjax.distill.result import Distillation
from gemjax.distill.selector import EvidenceSelector
from gemjax.distill.sentences import sentences
from gemjax.distill.shortener import Compressor
from gemjax.distill.structure import Multipliers
from gemjax.distill.turns import Turn

__all__ = [
    "Compressor",
    "DistillConfig",
    "Distillation",
    "Distiller",
    "EvidenceSelector",
    "Filler",
    "KeptSpan",
    "Multipliers",
    "SelectorConfig",
    "Turn",
    "sentences",
]
