"""FDTD: shorten text to a token budget by the sensitivity of a small language model, and what it is compared with."""

from gemjax.distill.config import DistillConfig
from gemjax.distill.distiller import Compressor, Distiller
from gemjax.distill.filler import Filler
from gemjax.distill.render import KeptSpan
from gemjax.distill.result import Distillation
from gemjax.distill.sentences import sentences
from gemjax.distill.structure import Multipliers
from gemjax.distill.turns import Turn

__all__ = [
    "Compressor",
    "DistillConfig",
    "Distillation",
    "Distiller",
    "Filler",
    "KeptSpan",
    "Multipliers",
    "Turn",
    "sentences",
]
